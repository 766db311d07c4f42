"""Root given up for good: who this process is after that, and what it can still write."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.unprivileged import let_through

from netprof.files import Directory, OutputPlace, drop, kernel
from netprof.files.keeper import Keeper

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
USER = 65534


def in_a_child(does: Callable[[], object]) -> bool:
    """Say whether something goes well in a process of its own."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            does()
            code = 0
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.fixture
def everybody_may_read_netprof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drop, "can_be", lambda person: True)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A folder of the user's, with a file in it."""
    trace = tmp_path / "trace"
    trace.mkdir()
    (trace / "meta.json").write_text("{}")
    for each in (trace, trace / "meta.json"):
        os.chown(each, USER, USER)
    let_through(tmp_path)
    return trace


@pytest.fixture
def roots(tmp_path: Path) -> Path:
    roots = tmp_path / "roots"
    roots.mkdir(mode=0o700)
    return roots


def status() -> dict[str, str]:
    lines = Path("/proc/self/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@pytest.mark.usefixtures("everybody_may_read_netprof")
def test_under_sudo_the_process_is_the_caller_s_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", str(USER))
    monkeypatch.setenv("SUDO_GID", str(USER))

    def does() -> None:
        drop.while_reading()
        about = status()
        assert about["Uid"].split() == about["Gid"].split() == [str(USER)] * 4
        assert int(about["CapEff"], 16) == int(about["CapPrm"], 16) == 0
        assert set(os.getgroups()) <= {USER}

    assert in_a_child(does)


@pytest.mark.usefixtures("everybody_may_read_netprof")
def test_root_becomes_the_owner_of_what_it_reads_and_writes_where_it_was_to(trace: Path, roots: Path) -> None:
    def does() -> None:
        place = OutputPlace(roots / "out" / "x")
        drop.while_reading()
        assert os.geteuid() == 0
        os.close(Directory(trace).open("meta.json"))
        assert os.geteuid() == USER
        folder = place.above()
        os.write(folder.create("partial"), b"content")
        folder.rename("partial", "x")
        folder.make("below").create("y")
        assert folder.kind("partial") is None
        with pytest.raises(FileExistsError):
            folder.create("x")
        with pytest.raises(PermissionError):
            (roots / "other").touch()
        with pytest.raises(PermissionError):
            OutputPlace(roots / "other")

    assert in_a_child(does)
    assert {(each.name, each.stat().st_uid) for each in (roots / "out").iterdir()} == {("x", 0), ("below", 0)}
    assert (roots / "out" / "x").read_bytes() == b"content"


def test_where_the_user_may_not_read_netprof_files_are_opened_as_the_user(
    trace: Path, roots: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drop, "can_be", lambda person: False)
    (trace / "secret").write_text("root's")
    (trace / "secret").chmod(0o600)

    def does() -> None:
        drop.while_reading()
        held = Directory(trace)
        os.close(held.open("meta.json"))
        assert os.geteuid() == 0
        with pytest.raises(PermissionError):
            held.open("secret")

    assert in_a_child(does)


def test_root_that_reads_its_own_stays_root(tmp_path: Path) -> None:
    def does() -> None:
        drop.while_reading()
        Directory(tmp_path)
        assert os.geteuid() == 0

    assert in_a_child(does)


@pytest.mark.parametrize("name", ["../x", "/etc/x", "..", ""])
def test_who_keeps_the_rights_does_nothing_elsewhere(name: str, roots: Path) -> None:
    def does() -> None:
        folder = OutputPlace(roots, follow=True).folder
        Keeper([folder])
        os.close(folder.create("inside"))
        with pytest.raises(ConnectionError):
            folder.create(name)

    assert in_a_child(does)
    assert [each.name for each in roots.iterdir()] == ["inside"]


def test_landlock_leaves_what_was_named(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()

    def does() -> None:
        if not kernel.write_only_below([os.open(tmp_path / "a", os.O_PATH)]):
            os._exit(77)
        (tmp_path / "a" / "file").write_text("x")
        assert (tmp_path / "b").is_dir()
        with pytest.raises(PermissionError):
            (tmp_path / "b" / "file").write_text("x")
        with pytest.raises(PermissionError):
            (tmp_path / "b").rmdir()

    if kernel.landlock_version() < 1:
        pytest.skip("this kernel has no Landlock")
    assert in_a_child(does)
