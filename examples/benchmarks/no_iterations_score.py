"""How often netprof infers iterations where a job has none: fifty recordings of something else. Needs root.

    python examples/benchmarks/no_iterations_score.py [--count 50] [--out DIR]

Two processes with torch loaded do what jobs do before, between and instead of training, each recording with another
rhythm and other sizes: they start up and fail to connect, wait at a store, send heartbeats, evaluate with a metric
that is all-reduced, download from a server in chunks, or upload a checkpoint. A row is false where iterations are
inferred, or the verdict says confidently what the job waits for (a late rank, a full link) or that it computes.
Downloads may fill a link: that is said of the link and is no iteration.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import _places  # noqa: F401 (where the examples are)
from program import NETPROF

_PROGRAM = Path(__file__).parent / "_no_iterations.py"
KINDS = ("startup", "idle", "heartbeats", "evaluation", "download", "upload")
_CONFIDENT = ("compute_bound", "late_rank", "transport", "host")
_PORT = 21_000


def main() -> int:
    """Record and score; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="keep the recordings here")
    args = parser.parse_args()
    draw, false = random.Random(args.seed), 0
    print("| recording | inferred | verdict |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for number in range(args.count):
            kind = KINDS[number % len(KINDS)]
            report = record(kind, draw.randrange(1 << 30), number, args.out or Path(folder), args.seconds)
            inferred = report["iterations"].get("source") == "inferred"
            wrong = inferred or report["verdict_case"] in _CONFIDENT
            false += wrong
            said = f"{report['verdict_case']}: {report['verdict'][:90]}"
            print(f"| {number} {kind}{' FALSE' if wrong else ''} | {inferred} | {said} |", flush=True)
    print(f"\nfalse: {false} of {args.count}")
    return 0


def record(kind: str, seed: int, number: int, folder: Path, seconds: float) -> dict[str, Any]:
    """Play and record one; return its report."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_PORT + number), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    processes = []
    for rank in range(2):
        environment = os.environ | place | {"RANK": str(rank), "TORCH_CPP_LOG_LEVEL": "FATAL"}
        command = [sys.executable, str(_PROGRAM), kind, str(seed)]
        processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        time.sleep(0.5)
        return _recorded(processes, folder / f"{number}-{kind}.netprof", seconds)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _recorded(processes: Sequence[subprocess.Popen[bytes]], trace: Path, seconds: float) -> dict[str, Any]:
    pids = [str(process.pid) for process in processes]
    options = ["--duration", f"{seconds}s", "--out", str(trace), "--no-live", "--json", "--force"]
    done = subprocess.run([NETPROF, "attach", *pids, *options], stdout=subprocess.PIPE, check=True)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


if __name__ == "__main__":
    sys.exit(main())
