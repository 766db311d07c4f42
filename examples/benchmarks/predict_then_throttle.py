"""Predict, then change: is `netprof whatif` right about a real job? Needs root. Prints predicted, measured, error.

Jobs of two to four ranks, DDP and fully sharded, run with one rank a host on links of 700 or 300 Mbit/s; the machine is
theirs, or one or two loops that do nothing keep its CPUs busy beside them. netprof attaches, records some iterations,
and predicts from that trace alone what an iteration takes under the recorded conditions, at slower and faster links,
with one degraded link, with other bucket sizes and with gradients in half precision. Then the links of the running job
are set so (or a second job runs so while the first one sleeps), and what an iteration really takes is read from the
job's own log, not from netprof.

`as recorded` is no prediction: the job is measured again under the conditions it was recorded in. Two controls stand
beside every row: the job under the recorded conditions just before and just after it, against what it took while it was
recorded. Where one is off by more than 3 %, the machine was not the one that was recorded: such a row is marked and
counted, and summed up with and without. Nothing is measured again. The last column is what bytes over rate say.
`--again RESULT --keep FOLDER` predicts anew from recordings that were kept, beside what was measured then.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple

import _places  # noqa: F401
from _predictions import Before, Recorded, Row, header, summarize, summary
from _throttled_job import Job, links_at, running
from lab import Lab

GRADIENT_BYTES = 12_600_000
SIZES = {"ddp": ["--gradient-mb", "12.6"], "fsdp": ["--gradient-mb", "12.6", "--width", "1024"]}
PASSES = {"ddp": 2, "fsdp": 3}  # of the gradients' bytes through a ring: reduce and gather, and gather again
RATES = {"700mbit": ("350mbit", "100mbit"), "300mbit": ("900mbit", "10gbit")}
LEG = {"700mbit": "250mbit", "300mbit": "100mbit"}
BUCKETS_MB = ("4", "100")
CHANGES = {
    "slower links": "links [13][05]0mbit",
    "links of 900 Mbit/s": "links 900mbit",
    "links of 10 Gbit/s": "links 10gbit",
    "one slow leg": "rank .*",
    "buckets": "buckets .*",
    "half precision": "fp16",
    "as recorded": "as recorded",
}
ITERATIONS = 16
FEW = {"100mbit": 8, "250mbit": 12}


class Experiment(NamedTuple):
    """A job that is recorded once, and how many busy loops run beside it."""

    kind: str
    ranks: int
    rate: str
    loops: int

    @property
    def name(self) -> str:
        """What the table calls it."""
        return f"{self.kind}, {self.ranks} ranks, {self.rate}" + (f", {self.loops} busy" if self.loops else "")

    def wire_s(self, rate: str, share: float = 1.0) -> float:
        """Return how long a share of the bytes of an iteration is on links of a rate."""
        return share * PASSES[self.kind] * GRADIENT_BYTES * 8 * (self.ranks - 1) / self.ranks / bps(rate)


def experiments(busy: bool) -> Iterator[Experiment]:
    """Yield the jobs of the grid: quiet, or beside busy loops."""
    for kind in ("ddp", "fsdp"):
        for ranks in (2, 3, 4) if not busy else (2, 3) if kind == "ddp" else (2,):
            for rate in RATES:
                for loops in (1, 2) if busy else (0,):
                    yield Experiment(kind, ranks, rate, loops)


def bps(rate: str) -> float:
    """Return a rate of tc's in bits per second."""
    return float(rate.rstrip("gmbit")) * (1e9 if rate.endswith("gbit") else 1e6)


def changes(lab: Lab, it: Recorded | Before, of: Experiment, folder: Path) -> Iterator[Row]:
    """Predict and measure every change of one recorded job."""
    here, count = of.rate, of.ranks
    plain, at = ["--compression", "1"], ["--bandwidth", here]
    was_s = of.wire_s(here)
    yield it.row("as recorded", [*plain, *at], partial(measure, lab, it.job, [here] * count), more_wire_s=0.0)
    for rate in RATES[here]:
        rates, more_s = [rate] * count, of.wire_s(rate) - was_s
        yield it.row(
            f"links {rate}", [*plain, "--bandwidth", rate], partial(measure, lab, it.job, rates), more_wire_s=more_s
        )
    rates, more_s = [here] * (count - 1) + [LEG[here]], of.wire_s(LEG[here]) - was_s
    leg = ["--leg", f"{count - 1}={LEG[here]}"]
    change = f"rank {count - 1}'s link {LEG[here]}"
    yield it.row(change, [*plain, *at, *leg], partial(measure, lab, it.job, rates), more_wire_s=more_s)
    if of.kind != "ddp" or of.loops:
        return
    for size in BUCKETS_MB if count == 2 else ():
        job = partial(another, lab, it.job, folder, ["--bucket-cap-mb", size])
        yield it.row(f"buckets {size} MiB", [*plain, *at, "--bucket-mb", size], job, more_wire_s=0.0)
    it.predict_asleep = True
    job, more_s = partial(another, lab, it.job, folder, ["--hook", "fp16"]), of.wire_s(here, 0.5) - was_s
    yield it.row("fp16", [*at, "--compression", "fp16"], job, more_wire_s=more_s)


def measure(lab: Lab, job: Job, rates: list[str]) -> float:
    """Measure the running job on other links."""
    unchanged = all(rate == lab.rate for rate in rates)
    with nullcontext() if unchanged else links_at(lab, rates):
        return job.measure_s(min(FEW.get(rate, ITERATIONS) for rate in rates))


def another(lab: Lab, job: Job, folder: Path, options: list[str]) -> float:
    """Measure a job with other options while the recorded one sleeps."""
    with job.asleep(), running(lab, folder, "ddp", [*SIZES["ddp"], *options]) as other:
        return other.measure_s(ITERATIONS)


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keep `count` CPUs busy meanwhile."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.callback(subprocess.Popen([sys.executable, "-c", "while True: pass"]).kill)
        yield


def experiment(of: Experiment, args: argparse.Namespace) -> list[Row]:
    """Record one job, and hold every prediction against it."""
    if args.again:
        kept = [row for run in json.loads(args.again.read_text())["runs"] for row in run["rows"]]
        measured = {row["change"]: row for row in kept if row["job"] == of.name}
        before = Before(of.name, args.keep / f"{of.name.replace(', ', '.')}.netprof", measured)
        return list(changes(Lab(of.ranks), before, of, args.keep))
    with tempfile.TemporaryDirectory() as name, Lab(of.ranks, rate=of.rate) as lab, busy_loops(of.loops):
        folder = args.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        with running(lab, folder, of.kind, SIZES[of.kind]) as job:
            it = Recorded(of.name, job, folder / f"{of.name.replace(', ', '.')}.netprof", args.iterations)
            it.record()
            return list(changes(lab, it, of, folder))


def main() -> None:
    """Run the grid, or the part of it that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--iterations", type=int, default=40, help="recorded")
    parser.add_argument("--only", default="", help="jobs whose name in the table has this in it")
    parser.add_argument("--part", choices=("quiet", "busy"), help="of the grid; default: both")
    parser.add_argument("--keep", type=Path, help="leave the traces and logs in this folder")
    parser.add_argument("--again", type=Path, help="the result of a run whose recordings are in --keep")
    args = parser.parse_args()
    header()
    for part in [args.part] if args.part else ("quiet", "busy"):
        rows = [row for of in experiments(part == "busy") if args.only in of.name for row in experiment(of, args)]
        print(f"{part}, predicted:")
        summarize([row for row in rows if row.change != "as recorded"])
        for name, kind in CHANGES.items():
            if own := [row for row in rows if re.fullmatch(kind, row.change)]:
                print(f"{part}, {name}: {summary(own)}", flush=True)


if __name__ == "__main__":
    main()
