"""Another user exchanges what is on netprof's way, for as long as netprof runs: nothing of root's is touched by that.

The attacks are played against the real program for NETPROF_RACE_SECONDS each (a minute), and have won against a netprof
that looked at a path twice. See docs/security.md.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from support.synthetic import Job

from netprof.errors import NetprofError
from netprof.probes.kineto.files import ProfileFolder

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to be misused"),
    pytest.mark.timeout(600),
]

SECONDS = float(os.environ.get("NETPROF_RACE_SECONDS", "60"))
ATTACKER = 65534
_RENAME_EXCHANGE, _AT_FDCWD = 2, -100
_OPEN_TREE, _MOVE_MOUNT = 428, 429
_libc = ctypes.CDLL(None)
_exchange = _libc.renameat2


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder of the attacker's, to which the folders of pytest above it let everybody through."""
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, ATTACKER, ATTACKER)
    for above in home.parents[:3]:
        above.chmod(0o711)
    return home


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder of root's that others may go through, with one in it, and a file that only root may read."""
    victim = tmp_path / "victim"
    (victim / "etc").mkdir(parents=True)
    (victim / "etc" / "passwd").write_text("root's")
    (victim / "shadow").write_text("a secret line\n" * 200)
    (victim / "shadow").chmod(0o600)
    victim.chmod(0o711)
    return victim


def state(victim: Path) -> list[tuple[str, int, int, bytes]]:
    """Return all that is there: names, owners, modes, contents."""
    found = []
    for path in sorted([victim, *victim.rglob("*")]):
        about = path.lstat()
        found.append((str(path), about.st_uid, about.st_mode, path.read_bytes() if path.is_file() else b""))
    return found


@contextmanager
def attacked(by: Callable[[], None], before: Callable[[], object] = lambda: None) -> Iterator[int]:
    """Have a process of the attacker's do something again and again; `before` it does what is done once."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(ATTACKER, ATTACKER, ATTACKER)
            os.setresuid(ATTACKER, ATTACKER, ATTACKER)
            _libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: its own /proc is its own again
            before()
            while True:
                by()
        finally:
            os._exit(1)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def as_attacker(does: Callable[[], None]) -> None:
    """Do something once with the attacker's rights: to clear up as root would be one more race."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(ATTACKER, ATTACKER, ATTACKER)
            os.setresuid(ATTACKER, ATTACKER, ATTACKER)
            does()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def played(victim: Path, words: list[str], *, clear: Callable[[], None], sudo: bool = False) -> None:
    """Run netprof again and again, and fail as soon as something of the victim's has changed."""
    environment = {**os.environ, **({"SUDO_UID": str(ATTACKER), "SUDO_GID": str(ATTACKER)} if sudo else {})}
    before, until_s, tries = state(victim), time.monotonic() + SECONDS, 0
    while time.monotonic() < until_s:
        tries += 1
        done = subprocess.run(
            [sys.executable, "-m", "netprof", *words], env=environment, capture_output=True, text=True, check=False
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert state(victim) == before, f"try {tries}: {words}"
        clear()


def parent_and_link(home: Path, victim: Path) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return an attack that exchanges folder `p` for a link to the victim's, and what clears up after a try."""
    (home / "p").mkdir()
    (home / "link").symlink_to(victim)
    for place in (home / "p", home / "link"):
        os.chown(place, ATTACKER, ATTACKER, follow_symlinks=False)

    tries = itertools.count()

    def put_away() -> None:
        for place in (home / "p", home / "link"):
            for name in ("etc", "t.netprof", "x.html", "d"):  # what is root's cannot be removed, but renamed
                with suppress(OSError):
                    (place / name).rename(place / f"old{next(tries)}{name}")

    one, other = bytes(home / "p"), bytes(home / "link")

    def attack() -> None:
        for number in range(100):
            _exchange(_AT_FDCWD, one, _AT_FDCWD, other, _RENAME_EXCHANGE)
            if number % 3 == 0:
                with suppress(OSError):
                    (home / "p" / "etc").rmdir()

    return attack, lambda: as_attacker(put_away)


@pytest.mark.parametrize(
    "words",
    [
        ["run", "-o", "{p}/etc/t.netprof", "--", "true"],
        ["run", "-o", "{p}/t.netprof", "--", "true"],
        ["report", "{trace}", "--csv", "{p}/etc", "-f"],
        ["report", "{trace}", "--html", "{p}/x.html", "-f"],
        ["digest", "{trace}", "-o", "{p}/d", "-f"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("sudo", [True, False], ids=["sudo", "root"])
def test_a_folder_above_is_exchanged_for_a_link(
    words: list[str], sudo: bool, home: Path, victim: Path, tmp_path: Path
) -> None:
    trace = Job().fill().write(tmp_path / "t.netprof")
    attack, clear = parent_and_link(home, victim)
    with attacked(attack):
        given = [each.format(p=home / "p", trace=trace) for each in words]
        played(victim, given, clear=clear, sudo=sudo)


@pytest.mark.parametrize("sudo", [True, False], ids=["sudo", "root"])
def test_a_socket_is_exchanged_for_a_link_to_a_file(sudo: bool, home: Path, victim: Path, tmp_path: Path) -> None:
    trace = Job().fill().write(tmp_path / "t.netprof")
    out, other = home / "r.md", home / "link"
    one, two = bytes(out), bytes(other)

    def put(path: Path, *, link: bool) -> None:
        with suppress(OSError):
            if link:
                path.symlink_to(victim / "shadow")
            else:
                with socket.socket(socket.AF_UNIX) as made:
                    made.bind(str(path))

    def attack() -> None:
        for _ in range(200):
            if _exchange(_AT_FDCWD, one, _AT_FDCWD, two, _RENAME_EXCHANGE):
                put(out, link=not other.is_symlink())
                put(other, link=not out.is_symlink())
            elif other.is_file() and not other.is_symlink():  # what netprof wrote
                with suppress(OSError):
                    other.unlink()

    with attacked(attack):
        played(victim, ["report", str(trace), "--markdown", str(out), "-f"], clear=lambda: None, sudo=sudo)


def test_a_folder_of_root_s_is_mounted_over_a_profile_s(home: Path, victim: Path) -> None:
    """A job with a mount namespace of its own puts root's folder on whatever netprof makes in its /tmp."""
    (home / "tmp").mkdir()
    os.chown(home / "tmp", ATTACKER, ATTACKER)
    trees: list[int] = []

    def enter() -> None:
        os.unshare(0x10000000 | 0x00020000) if hasattr(os, "unshare") else _libc.unshare(0x10000000 | 0x00020000)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {ATTACKER} 1")
        _libc.mount(b"none", b"/", None, (1 << 14) | (1 << 18), None)
        trees.extend(_libc.syscall(_OPEN_TREE, _AT_FDCWD, bytes(victim / "etc"), 1) for _ in range(500))
        (home / "ready").touch()  # which the next line hides
        _libc.mount(bytes(home / "tmp"), b"/tmp", None, 1 << 12, None)

    seen: set[str] = set()
    folder = -1

    def attack() -> None:
        nonlocal folder
        folder = os.open("/tmp", os.O_RDONLY) if folder < 0 else folder
        for name in os.listdir(folder):  # noqa: PTH208
            if name.startswith("netprof-") and name not in seen and trees:
                seen.add(name)
                _libc.syscall(_MOVE_MOUNT, trees.pop(), b"", folder, name.encode(), 4)
                time.sleep(0.0003)
                _libc.umount2(f"/tmp/{name}".encode(), 2)

    before, until_s = state(victim), time.monotonic() + SECONDS
    with attacked(attack, enter) as pid:
        while not (home / "ready").exists():
            assert time.monotonic() < until_s, "no namespace of one's own here"
            time.sleep(0.01)
        time.sleep(0.5)
        while time.monotonic() < until_s and state(victim) == before:
            with suppress(OSError, NetprofError):
                ProfileFolder(pid).close()
            time.sleep(0.002)
    assert state(victim) == before
