"""What a late rank of examples/causes_train.py does, for so many seconds."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping

import torch

_HEAP: list[list[int]] = []
_OBJECTS = 300_000


def compute(seconds: float) -> None:
    """Compute for so long on a CPU, however long that takes."""
    until = time.thread_time() + seconds
    matrix = torch.ones(64, 64)
    while time.thread_time() < until:
        matrix = (matrix @ matrix).clamp(max=1.0)


def write_files(seconds: float) -> None:
    """Write a file, as for a checkpoint, for so long."""
    until = time.monotonic() + seconds
    with tempfile.TemporaryFile() as file:
        while time.monotonic() < until:
            file.write(bytes(1 << 20))
            os.fsync(file.fileno())
            if file.tell() > 1 << 26:
                file.seek(0)


def collect_garbage(seconds: float) -> None:
    """Have Python look through a large heap for so long."""
    if not _HEAP:
        _HEAP.extend([number] for number in range(_OBJECTS))
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        gc.collect()


def run_python(seconds: float) -> None:
    """Run Python code between two steps, for so long of a CPU's time."""
    until, numbers = time.thread_time() + seconds, 0
    while time.thread_time() < until:
        numbers = sum(number * number for number in range(1000)) + numbers % 7


def await_worker(seconds: float) -> None:
    """Wait for another process, as for a data loader's worker."""
    program = f"import time; time.sleep({seconds}); print('batch')"
    with subprocess.Popen([sys.executable, "-S", "-c", program], stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.read()


BEFORE_ITS_FORWARD_PASS: Mapping[str, Callable[[float], None]] = {
    "data": time.sleep,
    "checkpoint": write_files,
    "garbage": collect_garbage,
    "between": run_python,
    "loader": await_worker,
}
LATE_BY = (*BEFORE_ITS_FORWARD_PASS, "compute")
"""What it does before its forward pass, or in it."""
DOING = {"garbage": "garbage", "between": "compute_between", "loader": "data_loader"}
"""What netprof calls that, where it is not the same word."""
