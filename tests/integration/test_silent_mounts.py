"""A job whose mounts stop answering: the recording ends in time all the same, and its trace is complete."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy
import pytest

from netprof.trace import TraceReader

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting in a namespace of one's own needs root"),
    pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="this kernel has no FUSE"),
]
PROGRAM = Path(__file__).parents[1] / "programs" / "silent_mount.py"
LIBRARY = next(iter(sorted((Path(numpy.__file__).parents[1] / "numpy.libs").glob("*.so*"))), None)
IN_TIME_S = 3.0
STARTS_S = 8.0
"""How long Python, the attaching and the report may take besides, on a slow machine."""


@contextmanager
def job(*what: str) -> Iterator[int]:
    """Start a job, yield its pid once its mounts are silent, and kill it."""
    assert LIBRARY is not None
    command = [sys.executable, str(PROGRAM), str(LIBRARY), *what]
    environment = {**os.environ, "KINETO_USE_DAEMON": "1", "PADDING": "x" * 20_000}  # pages of nothing else
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().split() == ["ready", str(process.pid)]
        if "environment" in what:
            assert process.stdout.readline() == "mapped\n"
        try:
            yield process.pid
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # with the server: what waits for it could not even be killed


@pytest.mark.skipif(LIBRARY is None, reason="numpy has no library of its own here")
@pytest.mark.parametrize("what", [(), ("tmp", "environment")], ids=" and ".join)
@pytest.mark.parametrize("ends", ["duration", signal.SIGINT, signal.SIGTERM])
def test_a_recording_ends_in_time(what: tuple[str, ...], ends: str | signal.Signals, tmp_path: Path) -> None:
    trace = tmp_path / "t.netprof"
    words = ["attach", "--no-live", "--kineto", "2", "-o", str(trace)]
    words += ["--duration", "2s"] if ends == "duration" else []
    with job(*what) as pid:
        process = subprocess.Popen([sys.executable, "-m", "netprof", *words, str(pid)], stdout=subprocess.DEVNULL)
        begin_s = time.monotonic()
        try:
            if isinstance(ends, signal.Signals):
                time.sleep(STARTS_S)
                process.send_signal(ends)
                begin_s = time.monotonic() - 2 - STARTS_S / 2
            process.wait(timeout=30)
        finally:
            process.kill()
        took_s = time.monotonic() - begin_s - 2
        assert took_s < STARTS_S + IN_TIME_S
    meta = TraceReader(trace).meta
    assert meta.stopped_ns is not None
    assert meta.stop_reason == ("the duration was reached" if ends == "duration" else "interrupted")
    assert (meta.stopped_ns - meta.started_ns) / 1e9 < 2 + IN_TIME_S + (0 if ends == "duration" else STARTS_S)
    assert any("FUSE" in each.reason for each in meta.probes_skipped)
