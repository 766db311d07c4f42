"""When a thread of a CUDA job is blocked: entry and return of the calls that wait, on a stub of the runtime."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from netprof.probes.job.tree import mapped_frameworks
from netprof.probes.marks.probe import MarkProbe
from netprof.schema import MarkKind as K

PROGRAMS = Path(__file__).parents[1] / "programs"
pytestmark = [
    pytest.mark.timing,
    pytest.mark.skipif(os.geteuid() != 0, reason="attaching uprobes needs root"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="the stub needs gcc to be compiled"),
]
CALLS = ("cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize", "cudaMemcpy")
WAIT_MS = 20
PROGRAM = """
import ctypes, sys, time
library = ctypes.CDLL(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    begin = time.monotonic_ns()
    getattr(library, line.strip())(None, None, 0, 0)
    print(begin, time.monotonic_ns(), flush=True)
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    library = tmp_path / "libcudart.so.12"
    flags = ["-O0", "-shared", "-fPIC"]
    if platform.machine() == "x86_64":
        flags.append("-fcf-protection=none")
    subprocess.run(["gcc", *flags, str(PROGRAMS / "cudart_stub.c"), "-o", str(library)], check=True)
    environment = os.environ | {"STUB_WAIT_MS": str(WAIT_MS)}
    command = [sys.executable, "-c", PROGRAM, str(library)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 0, "the program did not survive being probed"


def call(process: subprocess.Popen[str], name: str) -> tuple[int, int]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{name}\n")
    process.stdin.flush()
    begin, end = process.stdout.readline().split()
    return int(begin), int(end)


@pytest.mark.core
def test_every_wait_has_its_begin_and_its_end(program: subprocess.Popen[str]) -> None:
    with MarkProbe([program.pid]) as probe:
        spans = [call(program, name) for name in CALLS]
        call(program, "cudaLaunchKernel")
        table = probe.drain()["marks"]
        assert probe.lost() == 0
    kinds = np.asarray(table["kind"]).tolist()
    times = np.asarray(table["time_ns"]).astype(np.int64)
    assert kinds == [K.DEVICE_WAIT, K.DEVICE_WAIT_OVER] * len(CALLS), "and none of what does not wait"
    for (begin, end), first, last in zip(spans, times[::2].tolist(), times[1::2].tolist(), strict=True):
        assert begin <= first <= last <= end
        assert last - first >= WAIT_MS * 1_000_000


@pytest.mark.core
def test_the_runtime_alone_makes_no_rank_of_a_process(program: subprocess.Popen[str]) -> None:
    assert mapped_frameworks(program.pid) == ()
