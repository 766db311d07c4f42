"""`netprof live A B` on a real job of two hosts with a recorder each: both in one view, and the late rank named."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import Lab
from support.training import TRAIN

pytest.importorskip("torch", reason="the job to watch is a PyTorch one")
pytestmark = [
    pytest.mark.timing,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces and BPF need root"),
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed: the live view cannot be driven"),
]
PATIENCE_S = 60.0
LATE_MS, USUAL_MS = 120, 20


@contextlib.contextmanager
def recorded_apart(folder: Path) -> Iterator[list[Path]]:
    """Run a job of two hosts of which rank 1 is late, and record each host alone; gives their traces."""
    with Lab(2, rate="1gbit") as lab:
        ranks = [_rank(lab, number) for number in range(2)]
        for rank in ranks:
            assert rank.stdout is not None
            assert any(line.startswith("training") for line in rank.stdout), "the job did not start"
        traces = [folder / f"host{number}.netprof" for number in range(2)]
        recorders = [_recorder(lab, number, ranks[number].pid, traces[number]) for number in range(2)]
        try:
            _wait_for(traces)
            yield traces
        finally:
            for recorder in recorders:
                recorder.send_signal(signal.SIGINT)
                recorder.wait(60)


def _rank(lab: Lab, number: int) -> subprocess.Popen[str]:
    place = ["--rank", str(number), "--world-size", "2", "--master", f"{lab[0].ipv4}:29500"]
    job = ["--gradient-mb", "2", "--data-ms", str(LATE_MS if number else USUAL_MS)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(TRAIN), *place, *job]
    return lab[number].popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def _recorder(lab: Lab, number: int, pid: int, trace: Path) -> subprocess.Popen[Any]:
    told = ["--rank", f"{pid}={number}", "--world-size", "2", "--no-live", "--out", str(trace)]
    command = [sys.executable, "-m", "netprof", "attach", str(pid), *told]
    return lab[number].popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _wait_for(traces: list[Path]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not all((trace / "marks.arrows").exists() for trace in traces):
        assert time.monotonic() < deadline_s, "nothing is recorded"
        time.sleep(0.1)


def tmux(folder: Path, *words: str) -> str:
    command = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def until(folder: Path, pattern: str) -> str:
    """Wait until the screen shows something; returns the screen."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        if re.search(pattern, screen := tmux(folder, "capture-pane", "-p"), re.MULTILINE):
            return screen
        time.sleep(0.2)
    raise AssertionError(f"the screen never showed {pattern}:\n{screen}")


@pytest.mark.core
def test_two_hosts_are_one_view_and_the_late_rank_is_named(tmp_path: Path) -> None:
    with recorded_apart(tmp_path) as traces:
        words = [sys.executable, "-m", "netprof", "live", *map(str, traces)]
        path = shlex.quote(os.environ.get("PYTHONPATH", ""))
        tmux(tmp_path, "new-session", "-d", "-x", "80", "-y", "24", "bash --norc --noprofile")
        try:
            tmux(tmp_path, "send-keys", "-l", f"clear; PYTHONPATH={path} {shlex.join(words)}; echo rc=$?")
            tmux(tmp_path, "send-keys", "Enter")
            screen = until(tmp_path, r"HELD UP BY RANK 1 on host1|LATE")
            assert re.search(r"^ ?host0 +0", screen, re.MULTILINE), screen
            assert re.search(r"host1 +1", screen), screen
            tmux(tmp_path, "send-keys", "q")
            until(tmp_path, r"^rc=0$")
        finally:
            tmux(tmp_path, "kill-server")


def test_without_a_terminal_both_are_in_the_lines_and_the_report(tmp_path: Path) -> None:
    with recorded_apart(tmp_path):
        command = [sys.executable, "-m", "netprof", "live", str(tmp_path), "--json"]
        follower = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert follower.stderr is not None
        assert any(re.match(r"\d+ s · iteration", line) for line in follower.stderr)
        follower.send_signal(signal.SIGINT)
        report, _ = follower.communicate(timeout=60)
    assert follower.returncode == 130
    assert '"host": "host1"' in report
