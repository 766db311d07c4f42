"""What the scheduler says of a real thread: a sleep, a nap between spells of work, a freeze."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from netprof.model import Target
from netprof.probes.job.procfs import read_stat
from netprof.probes.threads.probe import ThreadProbe
from netprof.schema import BlockedIn

_SELECTS = "import select\nwhile True: select.select([], [], [], 0.02)"
_NAPS = """
import ctypes, time
ctypes.CDLL(None).prctl(29, 1, 0, 0, 0)  # wake up on time: PR_SET_TIMERSLACK
while True:
    time.sleep(10e-6)
    until_s = time.perf_counter() + 90e-6
    while time.perf_counter() < until_s: pass
"""
_FREEZER = Path("/sys/fs/cgroup/freezer")


@contextmanager
def watched(program: str) -> Iterator[tuple[ThreadProbe, int]]:
    """Run a program whose standard input is a pipe, and watch its main thread."""
    code = f"print('ready', flush=True)\n{program}"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe) as process, ThreadProbe() as probe:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            stat = read_stat(process.pid)
            assert stat is not None
            probe.follow([Target(process.pid, stat.start_ticks, frameworks=("torch",))])
            yield probe, process.pid
        finally:
            process.kill()


def blocked_ns(probe: ThreadProbe, seconds: float) -> dict[BlockedIn, int]:
    """Return for how long the thread is off its CPU from now on, by what it waits for."""
    probe.drain(final=True)
    time.sleep(seconds)
    rows = probe.drain(final=True)["blocked"]
    kinds, times = np.asarray(rows["kind"]), np.asarray(rows["period_ns"])
    return {BlockedIn(kind): int(times[kinds == kind].sum()) for kind in np.unique(kinds).tolist()}


def test_a_select_of_nothing_is_a_sleep_whatever_standard_input_is() -> None:
    with watched(_SELECTS) as (probe, _):
        found = blocked_ns(probe, 0.5)
    assert found[BlockedIn.SLEEP] > 0.3e9
    assert not {BlockedIn.PIPE, BlockedIn.POLL} & found.keys()


def ran_ns(pid: int) -> int:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def test_naps_between_longer_spells_of_work_are_not_one_sleep() -> None:
    with watched(_NAPS) as (probe, pid):
        before_ns, begin_ns = ran_ns(pid), time.monotonic_ns()
        found = blocked_ns(probe, 1.0)
        worked_ns, whole_ns = ran_ns(pid) - before_ns, time.monotonic_ns() - begin_ns
    assert sum(found.values()) < whole_ns - worked_ns / 2


@pytest.mark.skipif(not _FREEZER.is_dir(), reason="needs the freezer of cgroups version 1")
def test_a_frozen_thread_is_stopped() -> None:
    folder = _FREEZER / "netprof-test-frozen"
    folder.mkdir()
    try:
        with watched("while True: pass") as (probe, pid):
            (folder / "cgroup.procs").write_text(str(pid))
            (folder / "freezer.state").write_text("FROZEN")
            try:
                found = blocked_ns(probe, 0.5)
            finally:
                (folder / "freezer.state").write_text("THAWED")
    finally:
        while folder.exists():
            try:
                folder.rmdir()
            except OSError:  # the process is still ending
                time.sleep(0.01)
    assert found[BlockedIn.STOPPED] > 0.3e9
    assert not found.get(BlockedIn.CPU, 0) > 0.2e9
