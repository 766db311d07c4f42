"""What ranks wait for at least and at most, where no mark tells when what they launch is done: NCCL on GPUs, most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.bounds.bounded import Bounds
from netprof.analysis.declared import Column, json_of, table
from netprof.analysis.definitions import BOUNDS as DEFINITION
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.bounds.bounds_evidence import at_least, at_most
from netprof.analysis.findings.names import rank_number
from netprof.analysis.findings.recorded import RECORDED
from netprof.analysis.findings.waiting.waiting import in_one, named, waiting_in
from netprof.analysis.findings.waiting.waiting_finding import (
    NOTHING_WAITED,
    CauseShare,
    RankWaiting,
    WaitingFinding,
    stack,
    who,
)
from netprof.analysis.form import Grid, Pairs, Part
from netprof.analysis.section import Analysis, Section
from netprof.analysis.spread import Spread, spread_of, sum_of
from netprof.analysis.tables.columns import Int64, concatenate
from netprof.units import count, duration, percent, share

_SHOWN = 0.001
_FEW_RANKS = 16


@dataclass(frozen=True, eq=False)
class CountedSteps:
    """How many steps there are of each process, how many of those a profile tells exactly, where any, and what: ns.

    `least_s` and `most_s` are the spreads of the bounds of all, in seconds.
    """

    of_pid: Counter[int]
    exact_of_pid: Counter[int]
    exact_ns: Int64
    least_s: Spread
    most_s: Spread

    def __len__(self) -> int:
        return sum(self.of_pid.values())


def counted(pid: Int64, least_ns: Int64, most_ns: Int64, exact: Int64) -> CountedSteps:
    """Count steps, given by process, bounds and whether they are exact."""
    return CountedSteps(
        of_pid=Counter(pid.tolist()),
        exact_of_pid=Counter(pid[exact == 1].tolist()),
        exact_ns=least_ns[exact == 1],
        least_s=spread_of(least_ns / 1e9),
        most_s=spread_of(most_ns / 1e9),
    )


def counted_together(parts: Sequence[CountedSteps]) -> CountedSteps:
    """Return what was counted of several parts of a recording, or several hosts', as one."""
    return CountedSteps(
        sum((part.of_pid for part in parts), Counter()),
        sum((part.exact_of_pid for part in parts), Counter()),
        np.concatenate([part.exact_ns for part in parts]) if parts else np.zeros(0, np.int64),
        sum_of([part.least_s for part in parts]),
        sum_of([part.most_s for part in parts]),
    )


@dataclass(frozen=True, eq=False)
class BoundsFinding:
    """The account of waiting at least and at most (`definitions.BOUNDS`), over the same steps of the same ranks.

    `steps` are those of all ranks; a digest holds only what is `counted`. `reasons` has the processes without bounds,
    `on_gpu` those that compute on a GPU, `profiled` those with a profile.
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
    def shares_text(self) -> str:
        """Those as a person says them."""
        low, high = (percent(each) for each in self.shares)
        return high if low == high else f"{low} to {high}"

    @property
    def causes(self) -> tuple[tuple[CauseShare | None, CauseShare], ...]:
        """Each cause at least (None: perhaps not at all) and at most, by what it has at most."""
        least = {each.cause: each for each in self.least.causes}
        return tuple((least.get(each.cause), each) for each in self.most.causes)

    @property
    def by_rank(self) -> list[tuple[RankWaiting, RankWaiting]]:
        """What each rank waits at least and at most."""
        least = {each.pid: each for each in self.least.by_rank}
        return [(least[each.pid], each) for each in self.most.by_rank]

    @property
    def sure_cause(self) -> CauseShare | None:
        """The cause that has more at least than every other one has at most; None where several may be the largest."""
        for low, high in self.causes:
            others = max((each.ns for _, each in self.causes if each.cause is not high.cause), default=0)
            if low is not None and low.ns > others:
                return high
        return None


def _conclude(analysis: Analysis) -> BoundsFinding | None:
    evidence = analysis.evidence
    if not evidence.only_launch:
        return None
    steps = evidence.bounds.rows
    steps = steps.where(evidence.piece.owns(steps.begin_ns))
    least, most = _accounts(evidence) if len(steps) else (NOTHING_WAITED, NOTHING_WAITED)
    return BoundsFinding(
        least=least,
        most=most,
        steps=steps,
        counted=counted(steps.pid, steps.least_ns, steps.most_ns, steps.exact),
        reasons=evidence.bounds.reasons,
        on_gpu=evidence.bounds.on_gpu,
        profiled=evidence.bounds.profiled,
    )


def _accounts(evidence: Evidence) -> tuple[WaitingFinding, WaitingFinding]:
    most = at_most(evidence)
    return waiting_in(at_least(evidence, most), {}), waiting_in(most, {})


def _merge(findings: Sequence[BoundsFinding | None], whole: Analysis) -> BoundsFinding | None:
    parts = [finding for finding in findings if finding is not None]
    if not parts:
        return None
    known = {pid for part in parts for pid in part.counted.of_pid}
    reasons = {pid: reason for part in parts for pid, reason in part.reasons.items() if pid not in known}
    return BoundsFinding(
        least=_sum([part.least for part in parts], whole),
        most=_sum([part.most for part in parts], whole),
        steps=concatenate(Bounds, [part.steps for part in parts]),
        counted=counted_together([part.counted for part in parts]),
        reasons=reasons,
        on_gpu=frozenset().union(*(part.on_gpu for part in parts)),
        profiled=frozenset().union(*(part.profiled for part in parts)),
    )


def _sum(parts: Sequence[WaitingFinding], whole: Analysis) -> WaitingFinding:
    made_of = [part.made_of for part in parts if part.by_rank]
    return in_one(made_of, whole.of(RECORDED).total_ns, {}) if made_of else NOTHING_WAITED


def _parts(finding: BoundsFinding | None) -> Sequence[Part]:
    if finding is None or not finding.is_known:
        return ()
    ranks = count(len(finding.most.by_rank), "rank")
    about = f"bounds: {finding.shares_text} of all time, {ranks} together; only launches and the wire are seen"
    return [
        Part("Waiting for communication, at least and at most", about, [_iteration(finding), _causes(finding)]),
        Part(
            "Waiting by rank, at least and at most",
            "bounds, as shares of a rank's time",
            [table(_OF_RANKS, finding.by_rank, brief=_FEW_RANKS)],
        ),
    ]


def _iteration(finding: BoundsFinding) -> Pairs:
    least, most = finding.counted.least_s.quantile(0.5), finding.counted.most_s.quantile(0.5)
    rows = [("an iteration", f"{duration(least)} to {duration(most)} (medians of the bounds)")]
    if finding.exact:
        exact = f"{finding.exact} of {len(finding.counted)} steps are exact"
        rows.append(("profiles", f"{exact}, by the job's own profile"))
    return Pairs(rows)


def _causes(finding: BoundsFinding) -> Grid:
    columns = (
        Column("for", lambda pair: pair[1].cause.title),
        Column("at least", lambda pair: (pair[0].ns if pair[0] is not None else 0) / finding.most.window_ns, share),
        Column("at most", lambda pair: pair[1].ns / finding.most.window_ns, share),
        Column("who", lambda pair: who(pair[1]), left=True),
    )
    return table(columns, [pair for pair in finding.causes if pair[1].share >= _SHOWN])


_OF_RANKS = (
    Column("rank", lambda pair: rank_number(pair[1].rank, pair[1].pid)),
    Column("at least", lambda pair: pair[0].exposed_share, share),
    Column("at most", lambda pair: pair[1].exposed_share, share),
    Column("", lambda pair: stack(pair[1].causes_ns, pair[1].window_ns), left=True, goes=1),
)


def _notes(finding: BoundsFinding | None) -> Iterator[str]:
    if finding is None:
        return
    if finding.is_known:
        where = "GPUs run the collectives" if finding.on_gpu else "no mark tells when a collective is done"
        yield (
            f"{where}: what the ranks wait for is bounded by launches and by bytes on the wire; it is between the two "
            "numbers given, and no number between them is more likely"
        )
    if finding.profiled_elsewhere:
        whose = count(len(finding.profiled_elsewhere), "process", "processes")
        yield (
            f"profiles of {whose} make nothing exact: none covers a whole step of those recorded; profile more "
            "iterations, and while netprof records"
        )
    for reason in dict.fromkeys(finding.reasons.values()):
        pids = [pid for pid, each in finding.reasons.items() if each == reason]
        which = f"process {pids[0]} waits" if len(pids) == 1 else f"{len(pids)} processes wait"
        yield f"what {which} for is not known, not even by bounds: {reason}"


def _document(finding: BoundsFinding | None) -> dict[str, object] | None:
    if finding is None or not finding.is_known:
        return None
    low, high = finding.shares
    return {
        "iterations": max(finding.counted.of_pid.values(), default=0),
        "exposed_s": _pair(finding.least.exposed_ns / 1e9, finding.most.exposed_ns / 1e9),
        "exposed_share_of_all_time": _pair(low, high),
        "iteration_exposed_s": _pair(finding.counted.least_s.quantile(0.5), finding.counted.most_s.quantile(0.5)),
        "scaling_factor": _pair(1 - high, 1 - low),
        "on_gpu": bool(finding.on_gpu),
        "steps": len(finding.counted),
        "exact_steps": finding.exact,
        "exact_iteration_exposed_s": float(np.median(finding.counted.exact_ns) / 1e9) if finding.exact else None,
        "causes": [_cause(*each) for each in finding.causes],
        "by_rank": [_of_rank(*each) for each in finding.by_rank],
    }


def _pair(least: float | None, most: float | None) -> dict[str, float | None]:
    return {"at_least": least, "at_most": most}


def _cause(low: CauseShare | None, high: CauseShare) -> dict[str, object]:
    seconds = _pair(low.ns / 1e9 if low is not None else 0.0, high.ns / 1e9)
    saves_s = _pair(low.saves_s if low is not None else 0.0, high.saves_s)
    return json_of(high, "cause=cause.name advice", seconds=seconds, saves_s=saves_s) | named(high)


def _of_rank(least: RankWaiting, most: RankWaiting) -> dict[str, object]:
    return {
        **json_of(most, "rank pid window_s"),
        "exposed_s": _pair(least.exposed_ns / 1e9, most.exposed_ns / 1e9),
        "exposed_share": _pair(least.exposed_share or 0.0, most.exposed_share or 0.0),
        "causes_s": {name: _pair(least.by_cause[name], seconds) for name, seconds in most.by_cause.items()},
    }


BOUNDS = Section(
    "bounds",
    _conclude,
    ("marks", "wire", "flows", "nic", "tcp", "gpu"),
    lambda finding: {"waiting_bounds": _document(finding)},
    _parts,
    _notes,
    lambda finding: (DEFINITION,) if finding is not None and finding.is_known else (),
    merge=_merge,
)
