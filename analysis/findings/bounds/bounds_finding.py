"""What ranks wait for at least and at most, where they are only seen to launch: two accounts, and their words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.account.causes import WAIT_CAUSES
from netprof.analysis.bounds.bounded import Bounds
from netprof.analysis.findings.waiting.waiting_finding import CauseShare, RankWaiting, WaitingFinding
from netprof.analysis.findings.waiting.waiting_form import stack, who
from netprof.analysis.form import Cell, Grid, Pairs, Part
from netprof.analysis.spread import Spread, spread_of, sum_of
from netprof.analysis.tables.columns import Int64
from netprof.units import count, duration, percent, share

_SHOWN = 0.001
_FEW_RANKS = 16


@dataclass(frozen=True, eq=False)
class CountedSteps:
    """How many steps there are of each process, how many of those a profile tells exactly, where any, and what: ns.

    `least_s` and `most_s` are the spreads of the bounds of all, in seconds.
    """

    of_pid: Mapping[int, int]
    exact_of_pid: Mapping[int, int]
    exact_ns: Int64
    least_s: Spread
    most_s: Spread

    def __len__(self) -> int:
        return sum(self.of_pid.values())


def counted(pid: Int64, least_ns: Int64, most_ns: Int64, exact: Int64) -> CountedSteps:
    """Count steps, given by process, bounds and whether they are exact."""
    by_pid, by_exact = (np.unique(each, return_counts=True) for each in (pid, pid[exact == 1]))
    return CountedSteps(
        of_pid=dict(zip(*(each.tolist() for each in by_pid), strict=True)),
        exact_of_pid=dict(zip(*(each.tolist() for each in by_exact), strict=True)),
        exact_ns=least_ns[exact == 1],
        least_s=spread_of(least_ns / 1e9),
        most_s=spread_of(most_ns / 1e9),
    )


def counted_together(parts: Sequence[CountedSteps]) -> CountedSteps:
    """Return what was counted of several parts of a recording, or several hosts', as one."""
    of_pid, exact_of_pid = Counter[int](), Counter[int]()
    for part in parts:
        of_pid.update(part.of_pid)
        exact_of_pid.update(part.exact_of_pid)
    return CountedSteps(
        dict(of_pid),
        dict(exact_of_pid),
        np.concatenate([part.exact_ns for part in parts]) if parts else np.zeros(0, np.int64),
        sum_of([part.least_s for part in parts]),
        sum_of([part.most_s for part in parts]),
    )


@dataclass(frozen=True, eq=False)
class BoundsFinding:
    """The account of waiting at least and at most (`definitions.BOUNDS`), over the same steps of the same ranks.

    `steps` are those of all ranks, of which a digest holds only what is `counted`. `reasons` say of which processes
    there are no bounds, `on_gpu` which of all compute on a GPU, `profiled` of which there is a profile.
    """

    least: WaitingFinding
    most: WaitingFinding
    steps: Bounds
    counted: CountedSteps
    reasons: Mapping[int, str]
    on_gpu: frozenset[int]
    profiled: frozenset[int] = frozenset()

    @property
    def is_known(self) -> bool:
        """Whether any rank has bounds."""
        return self.most.window_ns > 0

    @property
    def exact(self) -> int:
        """How many steps a profile of the job tells exactly."""
        return sum(self.counted.exact_of_pid.values())

    @property
    def profiled_elsewhere(self) -> frozenset[int]:
        """The processes whose profile covers none of their steps as a whole."""
        known = frozenset(self.counted.of_pid) & self.profiled
        return known - frozenset(self.counted.exact_of_pid)

    @property
    def shares(self) -> tuple[float, float]:
        """The shares of all time that is waited, at least and at most."""
        return self.least.exposed_share, self.most.exposed_share

    @property
    def said(self) -> str:
        """Those as a person says them."""
        low, high = (percent(each) for each in self.shares)
        return high if low == high else f"{low} to {high}"

    @property
    def causes(self) -> tuple[tuple[CauseShare | None, CauseShare], ...]:
        """Each cause at least (None: perhaps not at all) and at most, by what it has at most."""
        least = {each.cause: each for each in self.least.causes}
        return tuple((least.get(each.cause), each) for each in self.most.causes)

    @property
    def sure_cause(self) -> CauseShare | None:
        """The cause that has more at least than every other one has at most; None where several may be the largest."""
        for low, high in self.causes:
            others = max((each.ns for _, each in self.causes if each.cause is not high.cause), default=0)
            if low is not None and low.ns > others:
                return high
        return None


def bounds_parts(found: BoundsFinding | None) -> Sequence[Part]:
    """Return the parts of the section; none where all that is launched is seen to be done."""
    if found is None or not found.is_known:
        return ()
    ranks = count(len(found.most.by_rank), "rank")
    about = f"bounds: {found.said} of all time, {ranks} together; only launches and the wire are seen"
    return [
        Part("Waiting for communication, at least and at most", about, [_iteration(found), _causes(found)]),
        Part("Waiting by rank, at least and at most", "bounds, as shares of a rank's time", [_ranks(found)]),
    ]


def _iteration(found: BoundsFinding) -> Pairs:
    least, most = found.counted.least_s.quantile(0.5), found.counted.most_s.quantile(0.5)
    rows = [("an iteration", f"{duration(least)} to {duration(most)} (medians of the bounds)")]
    if found.exact:
        rows.append(("profiles", f"{found.exact} of {len(found.counted)} steps are exact, by the job's own profile"))
    return Pairs(rows)


def _causes(found: BoundsFinding) -> Grid:
    window_ns = found.most.window_ns
    rows: list[Sequence[Cell]] = []
    for low, high in found.causes:
        if high.share >= _SHOWN:
            least_ns = low.ns if low is not None else 0
            rows.append((high.cause.title, share(least_ns / window_ns), share(high.ns / window_ns), who(high)))
    return Grid(("for", "at least", "at most", "who"), rows, left=frozenset({"who"}))


def _ranks(found: BoundsFinding) -> Grid:
    least = {each.pid: each for each in found.least.by_rank}
    rows = [_rank(least[each.pid], each) for each in found.most.by_rank]
    return Grid(("rank", "at least", "at most", ""), rows, left=frozenset({""}), optional=("",), brief=_FEW_RANKS)


def _rank(least: RankWaiting, most: RankWaiting) -> Sequence[Cell]:
    name = f"pid {most.pid}" if most.rank is None else str(most.rank)
    low, high = (each.exposed_ns / each.window_ns if each.window_ns else None for each in (least, most))
    return (name, share(low), share(high), stack(most.causes_ns, most.window_ns))


def bounds_notes(found: BoundsFinding | None) -> Iterator[str]:
    """Yield what one must know to trust the bounds, and of which processes there are none."""
    if found is None:
        return
    if found.is_known:
        where = "GPUs run the collectives" if found.on_gpu else "no mark tells when a collective is done"
        yield (
            f"{where}: what the ranks wait for is bounded by launches and by bytes on the wire; it is between the two "
            "numbers given, and no number between them is more likely"
        )
    if found.profiled_elsewhere:
        whose = count(len(found.profiled_elsewhere), "process", "processes")
        yield (
            f"profiles of {whose} make nothing exact: none covers a whole step of those recorded; profile more "
            "iterations, and while netprof records"
        )
    for reason in dict.fromkeys(found.reasons.values()):
        pids = [pid for pid, each in found.reasons.items() if each == reason]
        which = f"process {pids[0]} waits" if len(pids) == 1 else f"{len(pids)} processes wait"
        yield f"what {which} for is not known, not even by bounds: {reason}"


def document_of(found: BoundsFinding | None) -> dict[str, object] | None:
    """Return the JSON of the bounds; None where there are none."""
    if found is None or not found.is_known:
        return None
    low, high = found.shares
    return {
        "iterations": max(found.counted.of_pid.values(), default=0),
        "exposed_s": _pair(found.least.exposed_ns / 1e9, found.most.exposed_ns / 1e9),
        "exposed_share_of_all_time": _pair(low, high),
        "iteration_exposed_s": _pair(found.counted.least_s.quantile(0.5), found.counted.most_s.quantile(0.5)),
        "scaling_factor": _pair(1 - high, 1 - low),
        "on_gpu": bool(found.on_gpu),
        "steps": len(found.counted),
        "exact_steps": found.exact,
        "exact_iteration_exposed_s": float(np.median(found.counted.exact_ns) / 1e9) if found.exact else None,
        "causes": [_cause(*each) for each in found.causes],
        "by_rank": _by_rank(found),
    }


def _pair(least: float | None, most: float | None) -> dict[str, float | None]:
    return {"at_least": least, "at_most": most}


def _cause(low: CauseShare | None, high: CauseShare) -> dict[str, object]:
    named = {"rank": high.rank, "ranks": list(high.ranks) or None, "link": high.link, "flow": high.flow}
    found: dict[str, object] = {
        "cause": high.cause.name,
        "seconds": _pair(low.ns / 1e9 if low is not None else 0.0, high.ns / 1e9),
        "saves_s": _pair(low.saves_s if low is not None else 0.0, high.saves_s),
        "advice": high.advice,
    }
    return found | {name: value for name, value in named.items() if value is not None}


def _by_rank(found: BoundsFinding) -> list[dict[str, object]]:
    least = {each.pid: each for each in found.least.by_rank}
    return [_of_rank(least[each.pid], each) for each in found.most.by_rank]


def _of_rank(least: RankWaiting, most: RankWaiting) -> dict[str, object]:
    window_ns = max(most.window_ns, 1)
    return {
        "rank": most.rank,
        "pid": most.pid,
        "window_s": most.window_ns / 1e9,
        "exposed_s": _pair(least.exposed_ns / 1e9, most.exposed_ns / 1e9),
        "exposed_share": _pair(least.exposed_ns / window_ns, most.exposed_ns / window_ns),
        "causes_s": {
            cause.name: _pair(low / 1e9, high / 1e9)
            for cause, low, high in zip(WAIT_CAUSES, least.causes_ns, most.causes_ns, strict=True)
        },
    }
