"""Predict, then throttle: is `netprof whatif` right about a real job? Needs root. Prints predicted, measured, error.

Jobs of two and three ranks, DDP and fully sharded, run with one rank a host on links of 1 Gbit/s or 250 Mbit/s. netprof
attaches, records some iterations, and predicts from that trace alone what an iteration takes under the recorded
conditions, at slower and faster links, with one degraded link, and with other bucket sizes. Then the links of the
running job are set so (or a second job runs with those buckets while the first one sleeps), and what an iteration
really takes is read from the job's own log, not from netprof.

`as recorded` is no prediction: the job is measured again under the conditions it was recorded in. A control stands
beside every row: the job under the recorded conditions just before and just after it, against what it took while it was
recorded. Where that is off by more than 3 %, the machine was not the one that was recorded, and the row is measured
anew, up to `--tries` times; the control that is left is printed.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import _places  # noqa: F401
from _predictions import Recorded, Row, header, summarize
from _throttled_job import Job, links_at, running
from lab import Lab

SIZES = {"ddp": ["--gradient-mb", "25.2"], "fsdp": ["--gradient-mb", "12.6", "--width", "1024"]}
RATES = {"1gbit": ("500mbit", "250mbit", "100mbit"), "250mbit": ("1gbit", "100mbit")}
LEG = {"1gbit": "250mbit", "250mbit": "100mbit"}
BUCKETS_MB = ("4", "100")
ITERATIONS = {"1gbit": 24, "500mbit": 16, "250mbit": 12, "100mbit": 8}


def changes(lab: Lab, it: Recorded, kind: str, folder: Path) -> Iterator[Row]:
    """Predict and measure every change of one recorded job."""
    here, count = lab.rate, len(lab.hosts)
    plain = ["--compression", "1"]
    yield it.row("as recorded", [*plain, "--bandwidth", here], partial(measure, lab, it.job, [here] * count))
    for rate in RATES[here]:
        yield it.row(f"links {rate}", [*plain, "--bandwidth", rate], partial(measure, lab, it.job, [rate] * count))
    rates = [here] * (count - 1) + [LEG[here]]
    options = [*plain, "--bandwidth", here, "--leg", f"{count - 1}={LEG[here]}"]
    yield it.row(f"rank {count - 1}'s link {LEG[here]}", options, partial(measure, lab, it.job, rates))
    for size in BUCKETS_MB if kind == "ddp" and here == "1gbit" else ():
        options = [*plain, "--bandwidth", here, "--bucket-mb", size]
        yield it.row(f"buckets {size} MiB", options, partial(with_buckets, lab, it.job, folder, size))


def measure(lab: Lab, job: Job, rates: list[str]) -> float:
    """Measure the running job on other links."""
    slowest = min(rates, key=lambda rate: ITERATIONS[rate])
    unchanged = all(rate == lab.rate for rate in rates)
    with nullcontext() if unchanged else links_at(lab, rates):
        return job.measure_s(ITERATIONS[slowest])


def with_buckets(lab: Lab, job: Job, folder: Path, size: str) -> float:
    """Measure a job with buckets of another size while the recorded one sleeps."""
    with job.asleep(), running(lab, folder, "ddp", [*SIZES["ddp"], "--bucket-cap-mb", size]) as other:
        return other.measure_s(ITERATIONS[lab.rate])


def experiment(kind: str, ranks: int, rate: str, args: argparse.Namespace) -> list[Row]:
    """Record one job, and hold every prediction against it."""
    with tempfile.TemporaryDirectory() as name, Lab(ranks, rate=rate) as lab:
        folder = args.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        with running(lab, folder, kind, SIZES[kind]) as job:
            trace = folder / f"{kind}.{ranks}.{rate}.netprof"
            it = Recorded(f"{kind}, {ranks} ranks, {rate}", job, trace, args.iterations, args.tries)
            it.record()
            return list(changes(lab, it, kind, folder))


def main() -> None:
    """Run every experiment asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--iterations", type=int, default=40, help="recorded")
    parser.add_argument("--tries", type=int, default=3, help="of a row whose control is off")
    parser.add_argument("--jobs", default="ddp,fsdp")
    parser.add_argument("--ranks", default="2,3")
    parser.add_argument("--rates", default="1gbit,250mbit", help="at which jobs are recorded")
    parser.add_argument("--keep", type=Path, help="leave the traces and logs in this folder")
    args = parser.parse_args()
    header()
    rows = []
    for kind in args.jobs.split(","):
        for ranks in map(int, args.ranks.split(",")):
            for rate in args.rates.split(","):
                rows += experiment(kind, ranks, rate, args)
    summarize([row for row in rows if row.change != "as recorded"])
    print("control, as recorded", end=": ")
    summarize([row for row in rows if row.change == "as recorded"])


if __name__ == "__main__":
    main()
