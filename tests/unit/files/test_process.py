"""A process with the rights of who called sudo: who it is, and what comes back of what it does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.unprivileged import let_through

from netprof.errors import EXIT_USAGE, NetprofError, TraceError, UsageError
from netprof.files import by_the_caller, process

USER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")


def nothing() -> None:
    """Import nothing."""


def who() -> list[str]:
    lines = Path("/proc/self/status").read_text().splitlines()
    about = {name: " ".join(value.split()) for name, _, value in (line.partition(":") for line in lines)}
    names = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapAmb")
    return [about[name] for name in names] + [os.environ["HOME"], str("SUDO_UID" in os.environ)]


@pytest.fixture
def by_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", str(USER))
    monkeypatch.setenv("SUDO_GID", str(USER))


@as_root
@pytest.mark.usefixtures("by_sudo")
def test_it_is_who_called_sudo_and_at_home() -> None:
    uid, gid, groups, *sets, home, sudo = by_the_caller(nothing, who)
    assert uid == gid == " ".join([str(USER)] * 4)
    assert groups == str(USER)
    assert all(int(each, 16) == 0 for each in sets)
    assert home != os.environ["HOME"]
    assert sudo == "False"


@as_root
def test_root_itself_keeps_no_capability() -> None:
    uid, _, _, *sets, _, _ = by_the_caller(nothing, who)
    assert uid == "0 0 0 0"
    assert all(int(each, 16) == 0 for each in sets)


@as_root
@pytest.mark.usefixtures("by_sudo")
def test_what_is_prepared_is_done_before_root_is_given_up(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("root's")
    (tmp_path / "x").chmod(0o600)
    let_through(tmp_path)
    seen = []
    assert by_the_caller(lambda: seen.append((tmp_path / "x").read_text()), lambda: seen) == ["root's"]
    with pytest.raises(TraceError, match="not for you"):
        by_the_caller(nothing, lambda: refused(tmp_path / "x"))


def refused(path: Path) -> list[str]:
    try:
        return [path.read_text()]
    except PermissionError:
        raise TraceError("not for you") from None


class _Own(UsageError):
    """An error that the other side does not know."""


def test_errors_are_raised_here_with_their_codes() -> None:
    def failing() -> list[str]:
        raise _Own("no", "yes")

    with pytest.raises(UsageError) as caught:
        by_the_caller(nothing, failing)
    assert (caught.value.message, caught.value.hint, caught.value.exit_code) == ("no", "yes", EXIT_USAGE)


@as_root
def test_one_that_ends_early_is_an_error() -> None:
    with pytest.raises(NetprofError, match="ended before it was done"):
        by_the_caller(nothing, lambda: os._exit(0))


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'[""',
        b'["", 1]',
        b'["KeyError", "x"]',
        b'["UsageError"]',
        b'[1, "x"]',
        b"9" * (2 << 20),
    ],
)
def test_whatever_it_answers_is_looked_at(answer: bytes) -> None:
    with pytest.raises(NetprofError, match="ended before it was done"):
        process._understood(answer)
