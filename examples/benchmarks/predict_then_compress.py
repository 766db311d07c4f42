"""Predict, then compress: is `netprof whatif --compression` right? Needs root. Prints predicted, measured, error.

The demo job (DDP, two ranks, one a host) is recorded without compression at 1 Gbit/s and at 100 Mbit/s. From that trace
alone `netprof whatif` predicts an iteration with fp16, PowerSGD and top-k gradients; then jobs with torch's fp16 and
PowerSGD hooks and with examples/dgc_hook.py run on the same links, while the recorded one sleeps, and log what they
take. The hooks' warm-up is over when they are measured.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path

import _places  # noqa: F401
from _predictions import Recorded, Row, header, summarize
from _throttled_job import Job, running
from lab import Lab

METHODS = {"fp16": "fp16", "powersgd:4": "powersgd:4", "topk:1%": "dgc:1", "topk:0.1%": "dgc:0.1"}
SIZE = ["--gradient-mb", "25.2"]
WARM_UP = 24
ITERATIONS = {"1gbit": 40, "100mbit": 16}


def with_hook(lab: Lab, job: Job, folder: Path, hook: str) -> float:
    """Measure a job with a communication hook while the recorded one sleeps."""
    with job.asleep(), running(lab, folder, "ddp", [*SIZE, "--hook", hook], WARM_UP) as other:
        return other.measure_s(ITERATIONS[lab.rate])


def experiment(rate: str, args: argparse.Namespace) -> list[Row]:
    """Record the job on one link, and hold the prediction of every method against the real thing."""
    with tempfile.TemporaryDirectory() as name, Lab(rate=rate) as lab:
        folder = args.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        with running(lab, folder, "ddp", SIZE) as job:
            it = Recorded(
                f"ddp, 2 ranks, {rate}", job, folder / f"compress.{rate}.netprof", args.iterations, args.tries
            )
            it.record()
            rows = []
            for method in args.methods.split(","):
                options = ["--bandwidth", rate, "--compression", method]
                rows.append(it.row(method, options, partial(with_hook, lab, job, folder, METHODS[method])))
            return rows


def main() -> None:
    """Run both links."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--iterations", type=int, default=40, help="recorded")
    parser.add_argument("--tries", type=int, default=3, help="of a row whose control is off")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--rates", default="1gbit,100mbit")
    parser.add_argument("--keep", type=Path, help="leave the traces and logs in this folder")
    args = parser.parse_args()
    header()
    summarize([row for rate in args.rates.split(",") for row in experiment(rate, args)])


if __name__ == "__main__":
    main()
