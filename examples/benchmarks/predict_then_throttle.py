"""Predict, then change: is `netprof whatif` right about a real job? Needs root. Prints predicted, measured, error.

Jobs of two to four ranks, DDP and fully sharded, run with one rank a host on links of two rates; the machine is theirs,
or one or two loops that do nothing keep its CPUs busy beside them. netprof attaches, records some iterations, and
predicts from that trace alone what an iteration takes under the recorded conditions, at slower and faster links, with
one degraded link, with other bucket sizes and with gradients in half precision. Then the links of the running job are
set so (or a second job runs so while the first one sleeps), and what an iteration really takes is read from the job's
own log, not from netprof.

`as recorded` is no prediction: the job is measured again under the conditions it was recorded in. Two controls stand
beside every row: the job under the recorded conditions just before and just after it, against what it took while it was
recorded. Where one is off by more than 3 %, the machine was not the one that was recorded: such a row is marked and
counted, and summed up with and without. Nothing is measured again. The last column is what bytes over rate say.
`--again RESULT --keep FOLDER` predicts anew from recordings that were kept, beside what was measured then.
"""

from __future__ import annotations

import argparse
import json
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

ITERATIONS = 16


class Grid(NamedTuple):
    """Gradients, recorded rates with the rates that are predicted from each and one leg's, and sizes of buckets."""

    gradient_mb: float
    rates: dict[str, tuple[str, str]]
    leg: dict[str, str]
    buckets_mb: tuple[str, str]


GRIDS = {
    "first": Grid(
        12.6,
        {"700mbit": ("350mbit", "100mbit"), "300mbit": ("900mbit", "10gbit")},
        {"700mbit": "250mbit", "300mbit": "100mbit"},
        ("4", "100"),
    ),
    # chosen before any of it was run, and run once what-if was made to fit the first: nothing is tuned to it
    "held-out": Grid(
        9.4,
        {"550mbit": ("240mbit", "120mbit"), "240mbit": ("650mbit", "5gbit")},
        {"550mbit": "180mbit", "240mbit": "90mbit"},
        ("2", "60"),
    ),
}
KINDS = ("slower links", "faster links", "ten times faster links or more", "one slow leg", "buckets", "fp16")


class Experiment(NamedTuple):
    """A job that is recorded once, and how many busy loops run beside it."""

    kind: str
    ranks: int
    rate: str
    loops: int
    grid: Grid

    @property
    def name(self) -> str:
        """What the table calls it."""
        return f"{self.kind}, {self.ranks} ranks, {self.rate}" + (f", {self.loops} busy" if self.loops else "")

    def more_s_per_bit(self, rate: str, share: float = 1.0) -> float:
        """Return by how much longer a share of what was sent is on links of a rate than all of it on the recorded."""
        return share / bps(rate) - 1 / bps(self.rate)

    def size(self) -> list[str]:
        """Return the job's options that say how many gradients it has."""
        return ["--gradient-mb", str(self.grid.gradient_mb), *(["--width", "1024"] if self.kind == "fsdp" else [])]

    def kind_of(self, change: str) -> str:
        """Return which of KINDS a change of this job is, or its name."""
        if change.startswith("links "):
            times = bps(change.removeprefix("links ")) / bps(self.rate)
            return KINDS[0 if times < 1 else 1 if times < 10 else 2]
        return KINDS[3] if change.startswith("rank ") else change.partition(" ")[0] if "bucket" in change else change


def experiments(grid: Grid, busy: bool) -> Iterator[Experiment]:
    """Yield the jobs of a grid: quiet, or beside busy loops."""
    for kind in ("ddp", "fsdp"):
        for ranks in (2, 3, 4) if not busy else (2, 3) if kind == "ddp" else (2,):
            for rate in grid.rates:
                for loops in (1, 2) if busy else (0,):
                    yield Experiment(kind, ranks, rate, loops, grid)


def bps(rate: str) -> float:
    """Return a rate of tc's in bits per second."""
    return float(rate.rstrip("gmbit")) * (1e9 if rate.endswith("gbit") else 1e6)


def changes(lab: Lab, it: Recorded | Before, of: Experiment, folder: Path) -> Iterator[Row]:
    """Predict and measure every change of one recorded job."""
    here, count = of.rate, of.ranks
    plain, at = ["--compression", "1"], ["--bandwidth", here]
    yield it.row("as recorded", [*plain, *at], partial(measure, lab, it.job, [here] * count), more_s_per_bit=0.0)
    for rate in of.grid.rates[here]:
        job, more_s = partial(measure, lab, it.job, [rate] * count), of.more_s_per_bit(rate)
        yield it.row(f"links {rate}", [*plain, "--bandwidth", rate], job, more_s_per_bit=more_s)
    leg = of.grid.leg[here]
    rates, more_s = [here] * (count - 1) + [leg], of.more_s_per_bit(leg)
    slow, change = ["--leg", f"{count - 1}={leg}"], f"rank {count - 1}'s link {leg}"
    yield it.row(change, [*plain, *at, *slow], partial(measure, lab, it.job, rates), more_s_per_bit=more_s)
    if of.kind != "ddp" or of.loops:
        return
    for size in of.grid.buckets_mb if count == 2 else ():
        job = partial(another, lab, it.job, folder, [*of.size(), "--bucket-cap-mb", size])
        yield it.row(f"buckets {size} MiB", [*plain, *at, "--bucket-mb", size], job, more_s_per_bit=0.0)
    it.predict_asleep = True
    job, more_s = partial(another, lab, it.job, folder, [*of.size(), "--hook", "fp16"]), of.more_s_per_bit(here, 0.5)
    yield it.row("fp16", [*at, "--compression", "fp16"], job, more_s_per_bit=more_s)


def measure(lab: Lab, job: Job, rates: list[str]) -> float:
    """Measure the running job on other links."""
    unchanged = all(rate == lab.rate for rate in rates)
    with nullcontext() if unchanged else links_at(lab, rates):
        slowest = min(bps(rate) for rate in rates)
        return job.measure_s(8 if slowest < 150e6 else 12 if slowest < 300e6 else ITERATIONS)


def another(lab: Lab, job: Job, folder: Path, options: list[str]) -> float:
    """Measure a job with other options while the recorded one sleeps."""
    with job.asleep(), running(lab, folder, "ddp", options) as other:
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
        with running(lab, folder, of.kind, of.size()) as job:
            it = Recorded(of.name, job, folder / f"{of.name.replace(', ', '.')}.netprof", args.iterations)
            it.record()
            return list(changes(lab, it, of, folder))


def main() -> None:
    """Run the grid, or the part of it that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--iterations", type=int, default=40, help="recorded")
    parser.add_argument("--only", default="", help="jobs whose name in the table has this in it")
    parser.add_argument("--grid", choices=tuple(GRIDS), default="first")
    parser.add_argument("--part", choices=("quiet", "busy"), help="of the grid; default: both")
    parser.add_argument("--keep", type=Path, help="leave the traces and logs in this folder")
    parser.add_argument("--again", type=Path, help="the result of a run whose recordings are in --keep")
    args = parser.parse_args()
    header()
    for part in [args.part] if args.part else ("quiet", "busy"):
        jobs = [of for of in experiments(GRIDS[args.grid], part == "busy") if args.only in of.name]
        rows = [(of.kind_of(row.change), row) for of in jobs for row in experiment(of, args)]
        print(f"{part}, predicted:")
        summarize([row for kind, row in rows if kind != "as recorded"])
        for name in (*KINDS, "as recorded"):
            if own := [row for kind, row in rows if kind == name]:
                print(f"{part}, {name}: {summary(own)}", flush=True)


if __name__ == "__main__":
    main()
