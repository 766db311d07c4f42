"""Connections that send and are answered in every millisecond: the most that so many flows can ask of a recorder."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "tests" / "programs" / "busy_flows.c"


@contextmanager
def busy_flows(flows: int) -> Iterator[int]:
    """Run the C program (needs gcc); gives the pid of the profiled end, a leaf of the process tree."""
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory) / "busy_flows"
        subprocess.run(["gcc", "-O2", str(SOURCE), "-o", str(program)], check=True)
        process = subprocess.Popen([program, str(flows)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()
            process.wait()
