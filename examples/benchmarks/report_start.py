"""What dropping rights adds to the start of `netprof report`. Needs root.

    python examples/benchmarks/report_start.py TRACE [--pairs 60]

The same report is made of two copies of one trace, in ABBA order: one belongs to root (no rights to drop), the other
to another user, as whom it is then read. The control does the same with two copies that both belong to root. Medians of
the paired differences in milliseconds, with 95 % bootstrap intervals; every pair is kept.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from _pairs import Ratio, abba, summarize
from _places import NETPROF
from _speed import say_speed

USER = 65534


def report_s(trace: Path) -> float:
    """Return the seconds that the report of a trace takes, from starting the program to its end."""
    begin_ns = time.monotonic_ns()
    subprocess.run([NETPROF, "report", str(trace)], capture_output=True, check=True)
    return (time.monotonic_ns() - begin_ns) / 1e9


def differences_ms(with_it: Path, without: Path, pairs: int) -> Ratio:
    """Return by how many milliseconds the report of one trace takes longer than that of another."""
    found = []
    for order in abba(pairs):
        seconds = {present: report_s(with_it if present else without) for present in order}
        found.append((seconds[True] - seconds[False]) * 1e3)
    return summarize(np.array(found))


def copied(trace: Path, folder: Path, name: str, uid: int) -> Path:
    """Return a copy of a trace that belongs to a user."""
    copy = folder / name
    shutil.copytree(trace, copy)
    for path in (copy, *copy.rglob("*")):
        os.chown(path, uid, uid)
    return copy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--pairs", type=int, default=60)
    given = parser.parse_args()
    say_speed()
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        folder.chmod(0o755)
        roots, again, users = (copied(given.trace, folder, *which) for which in (("a", 0), ("b", 0), ("c", USER)))
        report_s(roots), report_s(again), report_s(users)
        print(f"report of root's own trace: {report_s(roots) * 1e3:.0f} ms")
        print(f"control, two of root's: {differences_ms(again, roots, given.pairs)} ms")
        print(f"another user's beside root's: {differences_ms(users, roots, given.pairs)} ms")


if __name__ == "__main__":
    main()
