"""Every step of opening a probe fails once, for want of files, of memory and of rights: nothing stays open."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from netprof.probes.measurements import PROBES, WITHOUT_PROGRAMS

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="loads BPF programs")]

TESTS = Path(__file__).parents[1]
PARTS = ["watch", "job", "native", *dict.fromkeys(kind.__name__ for kind in (*PROBES, *WITHOUT_PROGRAMS))]
HOLDS = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print(flush=True); sys.stdin.read()"


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A process that has a library of NCCL's name and functions, and a rank."""
    library = tmp_path_factory.mktemp("nccl") / "libnccl.so.2"
    source = TESTS / "programs" / "nccl_stub.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-pthread", "-o", str(library), str(source)], check=True)
    environment = os.environ | {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "7"}
    pipe = subprocess.PIPE
    words = [sys.executable, "-c", HOLDS, str(library)]
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, env=environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.communicate()


@pytest.mark.parametrize("part", PARTS)
def test_nothing_stays_open(part: str, training: int) -> None:
    words = [sys.executable, "-m", "support.failing_steps", part, str(training)]
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        words, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "failed" in done.stdout
