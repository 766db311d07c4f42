"""A job that netprof starts: held until it is released, and ended as it would end without netprof."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from netprof.errors import NotPermittedError, UsageError
from netprof.files import User
from netprof.session.child import Child

REFUSED = NotPermittedError("no programs here", "get the rights")


def children() -> set[str]:
    return {pid for thread in Path("/proc/self/task").iterdir() for pid in (thread / "children").read_text().split()}


def code_of(argv: Sequence[str]) -> int:
    child = Child(argv)
    assert child.exit_code() is None
    child.release()
    return ended(child)


def ended(child: Child) -> int:
    until_s = time.monotonic() + 20
    while (code := child.exit_code()) is None:
        assert time.monotonic() < until_s
        time.sleep(0.01)
    return code


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -15 $$", 143)])
def test_exit_codes_are_a_shell_s(script: str, code: int) -> None:
    assert code_of(["sh", "-c", script]) == code


def test_what_cannot_be_executed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text").write_text("no program")
    assert code_of([str(tmp_path / "absent")]) == 127
    assert code_of([str(tmp_path / "text")]) == 126
    assert code_of(["", "more"]) == 127
    assert capfd.readouterr().err.splitlines() == [
        f"netprof: cannot run {tmp_path}/absent: No such file or directory",
        f"netprof: cannot run {tmp_path}/text: Permission denied",
        "netprof: cannot run : it has no name",
    ]


def test_nothing_begins_before_it_is_released(tmp_path: Path) -> None:
    child = Child(["touch", str(tmp_path / "began")])
    time.sleep(0.2)
    assert Path(f"/proc/{child.pid}").exists()
    assert not (tmp_path / "began").exists()
    assert child.abandon() is None
    assert not Path(f"/proc/{child.pid}").exists()
    assert not (tmp_path / "began").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_who_is_killed_before_it_is_released_was_killed(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    child = Child(["true"])
    time.sleep(0.2)  # else the signal may come before it waits
    os.kill(child.pid, number)
    assert child.abandon() == 128 + number
    assert capfd.readouterr().err == ""


def test_what_python_ignores_a_job_does_not(tmp_path: Path) -> None:
    out = tmp_path / "ignored"
    assert code_of(["sh", "-c", f"grep SigIgn /proc/self/status > {out}"]) == 0
    ignored = int(out.read_text().split()[1], 16)
    assert not ignored >> (signal.SIGPIPE - 1) & 1
    assert not ignored >> (signal.SIGXFSZ - 1) & 1


def test_signals_are_passed_on_to_what_runs(tmp_path: Path) -> None:
    child = Child(["sh", "-c", f"trap 'exit 5' TERM; touch {tmp_path}/began; while :; do sleep 0.05; done"])
    child.release()
    while not (tmp_path / "began").exists():
        time.sleep(0.01)
    child.send(signal.SIGTERM)
    assert ended(child) == 5
    child.send(signal.SIGTERM)  # to nobody
    assert child.exit_code() == 5


def test_no_command() -> None:
    with pytest.raises(UsageError, match="there is no command to run"):
        Child([])


@pytest.mark.slow
def test_a_child_that_was_released_leaves_no_file_open() -> None:
    gc.collect()  # what other tests left open is closed before it is counted
    before = set(Path("/proc/self/fd").iterdir())
    assert code_of(["true"]) == 0
    assert set(Path("/proc/self/fd").iterdir()) == before


ABOUT = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapAmb")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a job as another user")
@pytest.mark.parametrize(("uid", "gid"), [(65534, 65534), (1, 1), (54321, 54320)])
def test_a_job_of_another_user_has_nothing_of_root_s(uid: int, gid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where root has passed on descriptors, and is in groups; a user without an entry has a home too."""
    monkeypatch.setenv("SUDO_UID", str(uid))
    monkeypatch.setenv("SUDO_GID", str(gid))
    monkeypatch.setenv("KEPT", "kept")
    passed_on = os.open("/", os.O_RDONLY)
    os.set_inheritable(passed_on, True)
    groups = os.getgroups()
    reader, writer = os.pipe()
    stdout = os.dup(1)
    try:
        os.setgroups([0, 4])
        os.dup2(writer, 1)
        names = "|".join(ABOUT)
        script = f'grep -E "^({names}):" /proc/$$/status; ls /proc/$$/fd; echo ; env'
        assert code_of_user(["sh", "-c", script], User.of(uid, gid)) == 0
    finally:
        os.dup2(stdout, 1)
        os.setgroups(groups)
        os.close(writer)
        os.close(passed_on)
        os.close(stdout)
    with open(reader) as file:
        about, environment = file.read().split("\n\n")
    status = dict(line.split(":", 1) for line in about.splitlines() if ":" in line)
    assert status["Uid"].split() == [str(uid)] * 4
    assert status["Gid"].split() == [str(gid)] * 4
    assert status["Groups"].split() == [str(gid)]
    assert all(int(status[name], 16) == 0 for name in ABOUT[3:])
    assert [line for line in about.splitlines() if ":" not in line] == ["0", "1", "2"]
    given = dict(line.split("=", 1) for line in environment.splitlines() if "=" in line)
    assert given["KEPT"] == "kept"
    assert given["HOME"] == {65534: "/nonexistent", 1: "/usr/sbin"}.get(uid, "/")
    assert given["USER"] == given["LOGNAME"] == {65534: "nobody", 1: "daemon"}.get(uid, str(uid))
    assert not [name for name in given if name.startswith("SUDO_")]


def code_of_user(argv: Sequence[str], user: User) -> int:
    child = Child(argv, user)
    child.release()
    return ended(child)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a job as another user")
def test_a_program_that_only_root_may_run_is_not_found(tmp_path: Path) -> None:
    program = tmp_path / "roots" / "program"
    program.parent.mkdir(mode=0o700)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert code_of([str(program)]) == 0
    assert code_of_user([str(program)], User.of(65534)) == 126
    assert code_of_user([str(program.with_name("absent"))], User.of(65534)) == 126


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up root")
def test_where_root_cannot_be_given_up_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "setresuid", refused)
    child = Child(["touch", str(tmp_path / "began")], User.of(65534))
    assert ended(child) == 126
    child.abandon()
    assert "root cannot be given up for nobody (uid 65534)" in capfd.readouterr().err
    assert not (tmp_path / "began").exists()
