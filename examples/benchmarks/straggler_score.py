"""How well netprof names who holds a job up: 100 faults and 100 clean runs. Needs root and torch.

    python examples/benchmarks/straggler_score.py [--runs DIR] [--part tuned] [--part apart] [--faults 100]

A small number of jobs of four ranks are recorded for real, in network namespaces: each trains undisturbed for some
seconds, then one thing is done to it. From those, trials are made (see made_trace.py): another stretch of the
recording, other ranks, another pace. The faults are a rank that is late (for data, a data loader's worker, computing,
running Python between its passes, collecting garbage, or writing files), a slower leg (as its host sends, or as the
switch sends to it), loss, stolen CPU, a paused process. Clean trials are stretches before the fault, and of runs to
which nothing is done.

`culprit` is right where the first one named is the rank, its link, or a way that ends there; `cause` where the cause of
waiting that it is named for is so too, and `reason` where what a rank is said to do is (of a link, the cause). Shares
have 95 % intervals (Wilson). A false name is anything else that is named beside it. `detected` is from when it was done
until it is named, in a live view that looks twice a second; a fault that never is counts in the median too.
The recordings `apart` were not looked at while the test was built.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import _places  # noqa: F401 (where the examples are)
import numpy as np
from _pairs import share_interval
from _results import keep
from causes import play
from causes_cases import Setting
from causes_late import DOING
from made_trace import make
from straggler_live import detected_ns

from netprof.analysis.findings.stragglers.stragglers import STRAGGLERS, Straggler
from netprof.analysis.sections import analyze
from netprof.trace import TraceReader

S = 10**9
_JOB = Setting(ranks=4, rate="200mbit", gradient_mb=1.0, layers=4, batch=64, compute_ms=40.0, seconds=15.0)
_BEFORE_S, _LEAST_NS, _LEAST_AFTER_NS = 6.0, 5 * S, 4 * S


@dataclass(frozen=True)
class Fault:
    """A real run: what is done to which rank, and what therefore has to be said; `rank` -1: nothing is done."""

    name: str
    case: str
    setting: Setting
    rank: int = -1
    says: frozenset[str] = frozenset()
    """What `doing` of a rank, or `cause` of a link or way, may be."""
    apart: bool = False

    @property
    def causes(self) -> frozenset[str]:
        """The causes of waiting that it is."""
        links = self.says & {"link_full", "transport", "loss"}
        return links or frozenset({"host", "late_rank"} if "cpu_taken" in self.says else {"late_rank"})

    @property
    def is_clean(self) -> bool:
        """Whether nothing is done."""
        return self.rank < 0


def _late(
    name: str, rank: int, by: str, ms: float, *, apart: bool = False, job: Setting = _JOB, every: int = 1
) -> Fault:
    setting = replace(job, late_ranks=(rank,), late_by=by, late_ms=ms, late_every=every, after_s=_BEFORE_S)
    return Fault(name, "late-rank", setting, rank, frozenset({DOING.get(by, by)}), apart)


def _done(
    name: str, case: str, rank: int, says: Sequence[str], apart: bool = False, job: Setting = _JOB, **what: Any
) -> Fault:
    return Fault(name, case, replace(job, after_s=_BEFORE_S, **what), rank, frozenset(says), apart)


def _paused(name: str, rank: int, seconds: float, *, apart: bool = False, job: Setting = _JOB) -> Fault:
    setting = replace(job, stopped_rank=rank, stopped_s=seconds, stopped_after_s=_BEFORE_S)
    return Fault(name, "stopped-a-while", setting, rank, frozenset({"paused"}), apart)


_OTHER = replace(_JOB, rate="100mbit", gradient_mb=0.8, compute_ms=80.0, layers=6)
_ON_CPU = replace(_JOB, compute_ms=0.0, batch=3072)
_OTHER_ON_CPU = replace(_OTHER, compute_ms=0.0, batch=3072)
_FAST = replace(_JOB, rate="500mbit", gradient_mb=2.0, compute_ms=20.0)

RUNS = (
    Fault("clean-a", "undisturbed", _JOB),
    Fault("clean-b", "undisturbed", _FAST),
    _late("data", 2, "data", 60.0),
    _late("compute", 1, "compute", 50.0),
    _late("checkpoint", 3, "checkpoint", 400.0, every=5),
    _late("garbage", 0, "garbage", 60.0),
    _late("between", 2, "between", 60.0),
    _done("slow-leg", "slow-leg", 1, ["link_full"], slow_ranks=(1,), slow_rate="50mbit"),
    _done(
        "slow-receive",
        "slow-leg-receive",
        2,
        ["transport", "loss"],
        slow_ranks=(2,),
        slow_rate="50mbit",
        slow_direction="receive",
    ),
    _done("loss", "loss-one-way", 0, ["loss"], loss_ranks=(0,), loss_percent=8.0),
    _done("stolen", "host", 3, ["cpu_taken"], job=_ON_CPU, stolen_rank=3, stolen_nice=10),
    _paused("paused", 1, 2.0),
    Fault("clean-c", "undisturbed", _OTHER, apart=True),
    Fault("clean-d", "undisturbed", replace(_JOB, rate="300mbit", compute_ms=60.0, layers=8), apart=True),
    _late("data-little", 0, "data", 30.0, apart=True, job=_OTHER),
    _late("compute-fast", 3, "compute", 40.0, apart=True, job=_FAST),
    _late("checkpoint-rare", 1, "checkpoint", 900.0, apart=True, every=12),
    _late("garbage-rare", 3, "garbage", 500.0, apart=True, every=10),
    _late("loader", 1, "loader", 70.0, apart=True),
    _done("slow-leg-little", "slow-leg", 3, ["link_full"], True, _FAST, slow_ranks=(3,), slow_rate="200mbit"),
    _done(
        "slow-receive-other",
        "slow-leg-receive",
        0,
        ["transport", "loss"],
        True,
        _OTHER,
        slow_ranks=(0,),
        slow_rate="30mbit",
        slow_direction="receive",
    ),
    _done("loss-little", "loss-one-way", 2, ["loss"], True, _FAST, loss_ranks=(2,), loss_percent=5.0),
    _done("stolen-other", "host", 0, ["cpu_taken"], True, _OTHER_ON_CPU, stolen_rank=0, stolen_nice=8),
    _paused("paused-short", 2, 1.2, apart=True, job=_FAST),
)


def main() -> int:
    """Record what is missing and score; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=Path, metavar="DIR", help="where the real runs are, or will be")
    parser.add_argument("--part", choices=("tuned", "apart"), action="append", help="default: both")
    parser.add_argument("--only", help="a run's name")
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--clean", type=int, default=100)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for part in args.part or ("tuned", "apart"):
            runs = [run for run in RUNS if run.apart == (part == "apart") and args.only in (None, run.name)]
            record(runs, args.runs or Path(folder))
            if args.faults or args.clean:
                print(f"\nruns {part}:\n")
                score(runs, args.runs or Path(folder), args.faults, args.clean)
    return 0


def record(runs: Sequence[Fault], folder: Path) -> None:
    """Record the real runs that are not there yet."""
    for run in runs:
        if not list((folder / run.name).glob("*.netprof")):
            print(f"recording {run.name}", file=sys.stderr, flush=True)
            play(run.case, run.setting, folder / run.name)


def score(runs: Sequence[Fault], folder: Path, faults: int, clean: int) -> None:
    """Make the trials and print what becomes of them."""
    random = np.random.default_rng(1)
    broken = [run for run in runs if not run.is_clean]
    print("| run | trials | culprit | cause | reason | false names | detected, median and longest | said otherwise |")
    print("|---|---|---|---|---|---|---|---|")
    every: list[Trial] = []
    for number, run in enumerate(broken):
        count = faults // len(broken) + (number < faults % len(broken))
        found = [_trial(run, folder / run.name, random) for _ in range(count)]
        every += found
        for each in found:
            keep(run=run.name, **asdict(each))
        print(f"| {run.name} | {_row(found)} |", flush=True)
    if every:
        print(f"| all | {_row(every)} |", flush=True)
        for what in ("culprit", "cause", "reason"):
            right = sum(getattr(each, what) for each in every)
            low, high = share_interval(right, len(every))
            print(f"{what} right: {right / len(every):.0%} of {len(every)}, 95 % interval {low:.0%} to {high:.0%}")
    alarms = [alarm for number in range(clean) if (alarm := _alarm(runs[number % len(runs)], folder, random))]
    low, high = share_interval(len(alarms), clean)
    print(
        f"\nfalse alarms: {len(alarms)} of {clean} clean runs ({low:.0%} to {high:.0%})"
        f"{''.join(f'; {alarm}' for alarm in alarms)}"
    )


@dataclass(frozen=True)
class Trial:
    """What became of one fault: `after_s` is when it was named live, None if it never was.

    `others` are named besides, which nothing was done to.
    """

    culprit: bool
    cause: bool
    reason: bool
    others: int
    after_s: float | None
    said: str


def _row(found: Sequence[Trial]) -> str:
    if not found:
        return "0 | | | | | | "
    times = [np.inf if each.after_s is None else each.after_s for each in found]
    detected = ", ".join("never" if np.isinf(each) else f"{each:.1f} s" for each in (np.median(times), max(times)))
    wrong = sorted({each.said for each in found if not each.reason})
    right = " | ".join(str(sum(getattr(each, what) for each in found)) for what in ("culprit", "cause", "reason"))
    return f"{len(found)} | {right} | {sum(each.others for each in found)} | {detected} | {'; '.join(wrong)}"


def _trial(run: Fault, folder: Path, random: np.random.Generator) -> Trial:
    """Make a trial of a fault: another stretch around its beginning, other ranks, another pace."""
    source = next(folder.glob("*.netprof"))
    begin_ns, end_ns, clean_ns, fault_ns = _times(source)
    first = int(random.integers(begin_ns, max(begin_ns + 1, clean_ns - 2 * S)))
    last = int(random.integers(min(fault_ns + _LEAST_AFTER_NS, end_ns - 1), end_ns))
    with tempfile.TemporaryDirectory() as where:
        made, ranks, pace = _made(source, Path(where), (first, last), random)
        finding = analyze(TraceReader(made)).of(STRAGGLERS)
        named = finding.stragglers if finding is not None else ()
        rank = ranks[run.rank]
        moved_ns = fault_ns * round(pace * 20) // 20
        seen_ns = detected_ns(made, moved_ns, lambda each: _is_it(each, rank), rank)
    culprit = bool(named) and _is_it(named[0], rank)
    said = _said(named[0]) if named else "nothing"
    after_s = None if seen_ns is None else (seen_ns - moved_ns) / 1e9
    reason = culprit and _name(named[0]) in run.says
    cause = reason or (culprit and named[0].cause.name in run.causes)
    others = sum(not _is_it(each, rank) for each in named)
    return Trial(culprit, cause, reason, others, after_s, f"{said} (truth: {rank})")


def _alarm(run: Fault, folder: Path, random: np.random.Generator) -> str | None:
    """Return what is said of a clean stretch; None where nothing is, as it should be."""
    source = next((folder / run.name).glob("*.netprof"))
    begin_ns, _, until_ns, _ = _times(source)
    first = int(random.integers(begin_ns, max(begin_ns + 1, until_ns - _LEAST_NS)))
    last = int(random.integers(min(first + _LEAST_NS, until_ns - 1), until_ns))
    with tempfile.TemporaryDirectory() as where:
        made, *_ = _made(source, Path(where), (first, last), random)
        finding = analyze(TraceReader(made)).of(STRAGGLERS)
    named = finding.stragglers if finding is not None else ()
    return f"{run.name}: {_said(named[0])}" if named else None


def _made(
    source: Path, folder: Path, within_ns: tuple[int, int], random: np.random.Generator
) -> tuple[Path, dict[int, int], float]:
    ranks = dict(enumerate(random.permutation(_JOB.ranks).tolist()))
    pace = float(random.choice([0.5, 0.75, 1.0, 1.25, 1.5, 2.0]))
    return make(source, folder / "made.netprof", within_ns, ranks, pace), ranks, pace


def _times(source: Path) -> tuple[int, int, int, int]:
    """Return from when to when was recorded, until when nothing was done, and from when on what was done was there."""
    truth = json.loads(source.with_suffix(".json").read_text())
    begin_ns, end_ns = truth["recorded_ns"]
    if not truth["events"]:
        return begin_ns, end_ns, end_ns, end_ns
    event = truth["events"][0]
    return begin_ns, end_ns, event["begin_ns"], event.get("effective_ns", event["begin_ns"])


def _is_it(each: Straggler, rank: int) -> bool:
    """Say whether it is the rank, its link, or a way from or to it."""
    return each.who.rank == rank or rank in each.who.ranks


def _name(each: Straggler) -> str:
    return each.doing.name if each.doing is not None else each.cause.name


def _said(each: Straggler) -> str:
    return f"{each.who.label} {_name(each)}"


if __name__ == "__main__":
    sys.exit(main())
