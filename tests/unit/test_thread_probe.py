"""What a thread is blocked in, by its system call and the file that it is made on."""

import stat

import numpy as np
import pytest

from netprof.probes.threads.calls import kinds_of, type_by_name
from netprof.probes.threads.probe import RECORD
from netprof.schema import BlockedIn


@pytest.mark.parametrize(
    ("call", "mode", "runnable", "kind"),
    [
        (0, stat.S_IFSOCK, 0, BlockedIn.SOCKET),
        (0, stat.S_IFIFO, 0, BlockedIn.PIPE),
        (0, stat.S_IFREG, 0, BlockedIn.FILE),
        (1, stat.S_IFCHR, 0, BlockedIn.DEVICE),
        (45, stat.S_IFSOCK, 0, BlockedIn.SOCKET),
        (45, 0, 0, BlockedIn.SOCKET),
        (202, 0, 0, BlockedIn.LOCK),
        (202, stat.S_IFSOCK, 0, BlockedIn.LOCK),
        (230, 0, 0, BlockedIn.SLEEP),
        (7, 0, 0, BlockedIn.POLL),
        (7, stat.S_IFIFO, 0, BlockedIn.PIPE),
        (7, stat.S_IFSOCK, 0, BlockedIn.SOCKET),
        (74, stat.S_IFREG, 0, BlockedIn.FILE),
        (61, 0, 0, BlockedIn.CHILD),
        (16, 0, 0, BlockedIn.DEVICE),
        (-1, 0, 0, BlockedIn.MEMORY),
        (-1, 0, 1, BlockedIn.CPU),
        (0, stat.S_IFSOCK, 1, BlockedIn.CPU),
        (-1, 0, 2, BlockedIn.STOPPED),
        (9999, 0, 0, BlockedIn.OTHER),
    ],
)
def test_the_kind_of_a_wait(
    call: int, mode: int, runnable: int, kind: BlockedIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    columns = (np.array([call], np.int32), np.array([mode], np.uint16), np.array([runnable], np.uint16))
    assert kinds_of(*columns).tolist() == [kind]


def test_arm_has_numbers_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    zeros = np.zeros(2, np.uint16)
    assert kinds_of(np.array([98, 207], np.int32), zeros, zeros).tolist() == [BlockedIn.LOCK, BlockedIn.SOCKET]


def test_a_file_is_told_by_its_name_alone() -> None:
    names = ("socket:[7]", "pipe:[8]", "/dev/nvidia0", "/data/train.bin", "anon_inode:[eventpoll]")
    assert [type_by_name(name) for name in names] == [stat.S_IFSOCK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFREG, 0]


def test_a_record_is_as_the_program_writes_it() -> None:
    assert RECORD.itemsize == 32
