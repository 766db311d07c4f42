"""A rank that stands still: the others' step does not end, and what they wait for since when is known."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.training import training

from netprof.analysis import analyze
from netprof.errors import EXIT_INTERRUPTED
from netprof.trace import TraceReader

pytest.importorskip("torch", reason="the job to profile is a PyTorch one")
pytestmark = [pytest.mark.timing, pytest.mark.skipif(os.geteuid() != 0, reason="attaching uprobes needs root")]

SMALL = ["--gradient-mb", "2", "--width", "256", "--batch", "16", "--data-ms", "10"]


def until(ready: Path, size: int) -> None:
    """Wait until a table of the trace holds something: marks come in."""
    deadline = time.monotonic() + 30
    while not (ready.exists() and ready.stat().st_size > size):
        assert time.monotonic() < deadline, "the recording did not begin"
        time.sleep(0.05)


def test_the_others_wait_for_a_rank_that_was_stopped(tmp_path: Path) -> None:
    trace = tmp_path / "t.netprof"
    with training([subprocess.Popen] * 2, tmp_path, *SMALL) as job:
        waiting, stopped = job.pids
        command = [sys.executable, "-m", "netprof", "attach", *map(str, job.pids)]
        recorder = subprocess.Popen([*command, "--out", str(trace), "--no-live"], stdout=subprocess.DEVNULL)
        try:
            until(trace / "marks.arrows", 4096)
            stopped_ns = time.monotonic_ns()
            os.kill(stopped, signal.SIGSTOP)
            time.sleep(3)  # what is a stall is defined by its length
            recorder.send_signal(signal.SIGINT)
            assert recorder.wait(30) == EXIT_INTERRUPTED
        finally:
            recorder.kill()
            os.kill(stopped, signal.SIGCONT)
    evidence = analyze(TraceReader(trace)).evidence
    assert len(evidence.iterations) > 0
    assert set(evidence.unfinished) == {waiting, stopped}
    assert evidence.unfinished[waiting].in_wait
    for each in evidence.unfinished.values():
        assert abs(each.since_ns - stopped_ns) < 500_000_000
