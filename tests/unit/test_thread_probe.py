"""What a thread is blocked in, by its system call and the file that it is made on."""

import platform
import stat
from types import SimpleNamespace

import numpy as np
import pytest

from netprof.model import Losses
from netprof.probes.threads.calls import as_called, kinds_of, type_by_name
from netprof.probes.threads.probe import RECORD, ThreadProbe
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
        (7, stat.S_IFREG, 0, BlockedIn.POLL),
        (23, stat.S_IFCHR, 0, BlockedIn.POLL),
        (270, stat.S_IFIFO, 0, BlockedIn.POLL),
        (232, stat.S_IFREG, 0, BlockedIn.POLL),
        (26, stat.S_IFSOCK, 0, BlockedIn.OTHER),
        (74, stat.S_IFREG, 0, BlockedIn.FILE),
        (61, 0, 0, BlockedIn.CHILD),
        (16, 0, 0, BlockedIn.DEVICE),
        (-1, 0, 0, BlockedIn.MEMORY),
        (-1, 0, 1, BlockedIn.CPU),
        (0, stat.S_IFSOCK, 1, BlockedIn.CPU),
        (-1, 0, 2, BlockedIn.STOPPED),
        (9999, 0, 0, BlockedIn.OTHER),
        (9999, stat.S_IFSOCK, 0, BlockedIn.OTHER),
    ],
)
def test_the_kind_of_a_wait(
    call: int, mode: int, runnable: int, kind: BlockedIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    columns = (np.array([call], np.int32), np.array([mode], np.uint16), np.array([runnable], np.uint16))
    assert kinds_of(*columns).tolist() == [kind]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of x86-64")
def test_a_select_of_nothing_is_a_sleep() -> None:
    """As Python up to 3.10 sleeps: the first argument is a count, and no descriptor."""
    assert [as_called(*call) for call in ((23, 0), (270, 0), (23, 1), (0, 0))] == [35, 35, 23, 0]


def test_arm_has_numbers_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    zeros = np.zeros(2, np.uint16)
    assert kinds_of(np.array([98, 207], np.int32), zeros, zeros).tolist() == [BlockedIn.LOCK, BlockedIn.SOCKET]


def test_a_file_is_told_by_its_name_alone() -> None:
    names = ("socket:[7]", "pipe:[8]", "/dev/nvidia0", "/data/train.bin", "anon_inode:[eventpoll]")
    assert [type_by_name(name) for name in names] == [stat.S_IFSOCK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFREG, 0]


@pytest.mark.parametrize("missed", [0, 3])
def test_waits_that_were_lost_are_told_and_are_no_marks(missed: int) -> None:
    probe = ThreadProbe.__new__(ThreadProbe)
    probe._watched = {7: {7, 8}}
    probe._object = SimpleNamespace(counters=lambda name: {name: missed})  # type: ignore[assignment]
    said = probe.describe()
    assert said.losses == Losses()
    assert [text.partition(" waits")[0] for text in said.warnings] == (["threads: 3"] if missed else [])


def test_a_record_is_as_the_program_writes_it() -> None:
    assert RECORD.itemsize == 40


def test_all_threads_are_watched_that_serve_remote_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parameter server steps optimizers in 16 of them, whichever is free: one that is not watched seems to wait."""
    monkeypatch.setattr("netprof.probes.threads.probe.map_update", lambda *_: None)
    probe = ThreadProbe.__new__(ThreadProbe)
    probe._watched = {}
    probe._object = SimpleNamespace(map_fd=lambda name: 0)  # type: ignore[assignment]
    for thread in range(1, 100):
        probe._watch(1, thread)
    assert len(probe._watched[1]) == 32
