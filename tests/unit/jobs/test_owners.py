"""Whose a process is, whatever ids its user was given."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from netprof.probes.job import procfs
from netprof.probes.job.owners import Owners, user_name


def test_all_subordinate_ids_are_one_user(tmp_path: Path) -> None:
    (tmp_path / "subuid").write_text("1000:100000:65536\nroot:200000:10\n# nothing\nno-such-user:7:9\n1001:x:3\n")
    owners = Owners(tmp_path / "subuid")
    assert {owners.of_uid(100_000 + number) for number in range(0, 65_536, 997)} == {1000}
    assert [owners.of_uid(uid) for uid in (99_999, 165_536, 200_009, 200_010, 1000, 7)] == [
        99_999, 165_536, 0, 200_010, 1000, 7,
    ]  # fmt: skip


def test_without_a_file_each_is_its_own(tmp_path: Path) -> None:
    assert Owners(tmp_path / "none").of_uid(1234) == 1234


def test_a_process_is_of_the_user_who_started_it() -> None:
    assert Owners().of_process(os.getpid(), os.getuid()) == os.getuid()
    assert procfs.real_user(os.getpid()) == os.getuid()
    assert procfs.real_user(1 << 23) == -1
    assert user_name(4_000_000_000 - 7) == str(4_000_000_000 - 7)


def forked(*steps: Callable[[], object]) -> tuple[int, str]:
    """A child that has become another user, after some steps; and what went wrong."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgid(65534)
            os.setuid(65534)
            for step in steps:
                step()
            os.write(writer, b"\n")
        except OSError as error:
            os.write(writer, f"{error}\n".encode())
        time.sleep(60)
        os._exit(0)
    said = os.read(reader, 1000).decode().strip()
    os.close(reader)
    os.close(writer)
    return pid, said


def ended(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def unshare_user() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: else its files of /proc are root's
    if libc.unshare(0x10000000):  # CLONE_NEWUSER
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def map_root() -> None:
    Path("/proc/self/uid_map").write_text("0 65534 1")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/gid_map").write_text("0 65534 1")


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_a_process_in_user_namespaces_is_of_who_made_them() -> None:
    pid, said = forked(unshare_user, map_root, unshare_user)
    try:
        assert not said
        assert Owners().of_process(pid, 12_345) == 65534
    finally:
        ended(pid)
