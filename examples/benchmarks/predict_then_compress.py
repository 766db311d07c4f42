"""Predict, then compress: is `netprof whatif --compression` right? Needs root. Prints predicted, measured, error.

The demo job (DDP, two ranks, one a host) is recorded without compression at 1 Gbit/s and at 100 Mbit/s. From that trace
alone `netprof whatif` predicts an iteration with fp16, PowerSGD and top-k gradients; then jobs with torch's fp16 and
PowerSGD hooks and with examples/dgc_hook.py run on the same links, while the recorded one sleeps, and log what they
take. The hooks' warm-up is over when they are measured. Encoding is the CPUs' work, which what-if measures while the
recorded job sleeps too; their speed varies on a shared machine: each row is predicted and measured anew some times, and
the medians are compared.

PowerSGD runs with a single bucket, and is predicted from a job with a single bucket: its hook posts collectives from
callbacks, so that with several buckets gloo may see them in another order on another rank, and ends the job.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import _places  # noqa: F401
from _predictions import Recorded, Row, header, summarize
from _throttled_job import Job, running
from lab import Lab

HOOKS = {"fp16": "fp16", "topk:1%": "dgc:1", "topk:0.1%": "dgc:0.1", "powersgd:4": "powersgd:4"}
JOBS = {"ddp": ["--gradient-mb", "25.2"], "ddp, one bucket": ["--gradient-mb", "25.2", "--bucket-cap-mb", "100"]}
WARM_UP = 24
ITERATIONS = {"1gbit": 40, "100mbit": 16}


def with_hook(lab: Lab, job: Job, folder: Path, options: list[str]) -> float:
    """Measure a job with a communication hook while the recorded one sleeps."""
    with job.asleep(), running(lab, folder, "ddp", options, WARM_UP) as other:
        return other.measure_s(ITERATIONS[lab.rate])


def experiment(name: str, rate: str, args: argparse.Namespace) -> Iterator[Row]:
    """Record a job on one link, and hold the prediction of every method against the real thing."""
    methods = [each for each in args.methods.split(",") if each.startswith("powersgd") == name.endswith("one bucket")]
    with tempfile.TemporaryDirectory() as temporary, Lab(rate=rate) as lab:
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with running(lab, folder, "ddp", JOBS[name]) as job:
            trace = folder / f"compress.{name.replace(', ', '.').replace(' ', '_')}.{rate}.netprof"
            it = Recorded(f"{name}, {rate}", job, trace, args.iterations, predict_asleep=True)
            it.record()
            for method in methods:
                options = ["--bandwidth", rate, "--compression", method]
                hooked = [*JOBS[name], "--hook", HOOKS[method]]
                yield it.row(method, options, partial(with_hook, lab, job, folder, hooked), args.repeats)


def main() -> None:
    """Run both links."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--iterations", type=int, default=40, help="recorded")
    parser.add_argument("--repeats", type=int, default=5, help="of each row")
    parser.add_argument("--methods", default=",".join(HOOKS))
    parser.add_argument("--rates", default="1gbit,100mbit")
    parser.add_argument("--keep", type=Path, help="leave the traces and logs in this folder")
    args = parser.parse_args()
    header()
    summarize([row for rate in args.rates.split(",") for name in JOBS for row in experiment(name, rate, args)])


if __name__ == "__main__":
    main()
