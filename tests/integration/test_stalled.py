"""A rank that stands still: the others' step does not end, and what they wait for since when is known."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.training import netprof, training

from netprof.analysis import analyze
from netprof.analysis.findings.stalls.hang import HANG
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


def test_attach_to_a_job_that_hangs_tells_since_when(tmp_path: Path) -> None:
    trace = tmp_path / "t.netprof"
    with training([subprocess.Popen] * 2, tmp_path, *SMALL) as job:
        time.sleep(2)
        os.kill(job.pids[1], signal.SIGSTOP)
        stopped_ns = time.monotonic_ns()
        try:
            time.sleep(4)  # longer ago than what has to be seen
            done = netprof("attach", *map(str, job.pids), "--out", str(trace), "--duration", "3s", "--no-live")
        finally:
            os.kill(job.pids[1], signal.SIGCONT)
    assert done.returncode == 0, done.stderr
    found = analyze(TraceReader(trace))
    hang = found.of(HANG)
    assert hang is not None
    assert hang.is_known
    assert hang.from_begin
    assert abs(hang.since_ns - stopped_ns) < 300_000_000, "TCP's clocks count milliseconds, and a transfer may go on"
    assert "at least" not in hang.sentence
    assert "rank 1 is stopped (state T); rank 0 waits" in hang.sentence
    assert hang.advice.endswith(f"kill -CONT {job.pids[1]}")
    assert all(each.moved_ns for each in hang.ranks)
    assert found.document()["hang"]["since_ns"] == hang.since_ns
