"""Stragglers and slow links: who or what holds the job up, since when, how surely, and what it does meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from netprof.analysis.account.causes import HOST, LATE_RANK, Cause
from netprof.analysis.account.episodes import MATTERS, Episode, episodes
from netprof.analysis.account.held_up import CAUSES, HeldUp, Kind
from netprof.analysis.declared import Column, by_key, json_of, table
from netprof.analysis.definitions import STRAGGLERS as DEFINITION
from netprof.analysis.events.arrivals import find_arrivals
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.stragglers.doing import EVERY, Doing, SummedTimes, what_it_did, what_threads_do
from netprof.analysis.findings.stragglers.how_often import OftenLate, how_often
from netprof.analysis.findings.stragglers.stragglers_parts import Culprit, StragglersParts, gather, one_after_another
from netprof.analysis.form import Bar, Pairs, Part
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.columns import Int64
from netprof.analysis.tables.intervals import merge
from netprof.schema import UNKNOWN_RANK
from netprof.units import count, percent, share

_BRIEF = 8
_ALIKE = 0.8
"""Share of the time for which late ranks are waited for in which they do the same."""
BY_NAME = {each.name: each for each in EVERY}
_ADVICE = {
    Kind.LINK: "bring it up to the speed of the others, or take its other traffic away: cable, port, driver, shaping",
    Kind.PATH: "look at the path between them: errors and drops of ports (ethtool -S), a narrower or longer way",
}


@dataclass(frozen=True)
class Straggler:
    """A rank, link or way that holds the others up.

    `held_ns` is how long they wait for it in all, `share` of the recorded iterations' time. It did so in `iterations`
    of them, from `since_ns` to `until_ns`, in `episodes`; `first` is the first one's number, and `known_ns` when that
    was sure enough to be said. `doing` is what a rank did meanwhile; None where nothing tells, or it is no rank.
    """

    kind: Kind
    who: Culprit
    cause: Cause
    doing: Doing | None
    held_ns: int
    share: float
    iterations: int
    first: int
    since_ns: int
    until_ns: int
    known_ns: int
    episodes: int
    confidence: float
    still: bool

    @property
    def sentence(self) -> str:
        """What it does, for a person."""
        does = f": {self.doing.text}" if self.doing is not None else f" ({self.cause.title})"
        steps = f", in {count(self.iterations, 'iteration')}" if self.kind is Kind.RANK else ""
        return f"{self.who.label} holds the others up for {percent(self.share)} of the time{steps}{does}"

    @property
    def advice(self) -> str:
        """What to do about it."""
        if self.kind is Kind.RANK:
            return self.doing.advice if self.doing is not None else "look at what its host does meanwhile"
        return _ADVICE[self.kind]


@dataclass(frozen=True, eq=False)
class StragglersFinding:
    """The stragglers, by what they cost; `iterations` were looked at, and `made_of` is what it is made from.

    `often` is in how many iterations ranks held the others up, by cause, be they sure to be stragglers or not.
    """

    stragglers: tuple[Straggler, ...]
    iterations: int
    made_of: StragglersParts
    often: Mapping[Cause, OftenLate] = field(default_factory=dict)


WhatItDid = Callable[[SummedTimes, int, Int64, float], Doing | None]
"""Says what a process did in some iterations, as `what_it_did`."""


def find_stragglers(parts: StragglersParts, did: WhatItDid = what_it_did) -> StragglersFinding:
    """Return who holds the job up, where that is sure; `did` says what a rank did meanwhile."""
    begin_ns, end_ns = parts.windows.begin_ns, parts.windows.end_ns
    stragglers = [
        _straggler(held, alike, parts, did)
        for held in parts.held
        for alike in by_key([episodes(held.ns.sum(axis=1), begin_ns, end_ns)], lambda each: each.one).values()
    ]
    ranked = sorted(stragglers, key=lambda each: -each.held_ns)
    often = {cause: late for cause in CAUSES[Kind.RANK] if (late := how_often(parts, cause)) is not None}
    return StragglersFinding(tuple(ranked), len(parts.windows), parts, often)


def _straggler(held: HeldUp, known: Sequence[Episode], parts: StragglersParts, did: WhatItDid) -> Straggler:
    """Return one straggler of all its episodes, which come in the order of time."""
    windows, one = parts.windows, known[0].one
    length_ns = windows.duration_ns
    rows = np.concatenate([np.arange(each.first, each.last + 1) for each in known])
    waited_ns = held.ns[one].sum(axis=0)
    matter = rows[waited_ns[rows] >= MATTERS * length_ns[rows]]
    rows = matter if len(matter) else rows  # one far longer step may be all that there is, and hide it
    by_cause = held.ns[one][:, rows].sum(axis=1)
    cause = CAUSES[held.kind][int(np.argmax(by_cause))]
    held_ns = sum(each.ns for each in known)
    return Straggler(
        kind=held.kind,
        who=parts.names[held.kind, held.keys[one]],
        cause=cause,
        doing=_doing(held, one, cause, rows, parts, did),
        held_ns=held_ns,
        share=held_ns / max(int(length_ns.sum()), 1),
        iterations=len(rows),
        first=int(rows[0]),
        since_ns=int(windows.begin_ns[known[0].first]),
        until_ns=int(windows.end_ns[known[-1].last]),
        known_ns=int(windows.end_ns[known[0].known]),
        episodes=len(known),
        confidence=max(each.confidence for each in known),
        still=known[-1].still,
    )


def _doing(held: HeldUp, one: int, cause: Cause, rows: Int64, parts: StragglersParts, did: WhatItDid) -> Doing | None:
    pid = held.keys[one]
    if held.kind is not Kind.RANK or not isinstance(pid, int):
        return None
    host_ns = float(held.ns[one][:, rows].sum()) if cause is HOST else 0.0
    return did(parts.times, pid, rows, host_ns)


def what_late_ranks_do(evidence: Evidence, parts: StragglersParts) -> Doing | None:
    """Return what ranks do while the others wait for them, if nearly all of them do the same."""
    late = evidence.account.waiting.of(LATE_RANK)
    windows, amounts = parts.windows, dict[str, int]()
    for pid in np.intersect1d(late.culprit, parts.times.pids).tolist():
        stretches = late.where(late.culprit == pid)
        within = windows.of(merge(stretches.begin_ns, stretches.end_ns))
        rows = np.flatnonzero(within >= MATTERS * windows.duration_ns)
        doing = what_it_did(parts.times, pid, rows) if len(rows) else None
        name = "" if doing is None else doing.name
        amounts[name] = amounts.get(name, 0) + int(within[rows].sum())
    return what_all_do(amounts)


def what_late_processes_do(evidence: Evidence) -> Doing | None:
    """Return the same of processes without steps: what their threads did meanwhile."""
    late, amounts = evidence.account.waiting.of(LATE_RANK), dict[str, int]()
    for pid in np.intersect1d(late.culprit, list(evidence.blocked)).tolist():
        stretches = late.where(late.culprit == pid)
        times = merge(stretches.begin_ns, stretches.end_ns)
        doing = what_threads_do(evidence.blocked[pid], times)
        name = "" if doing is None else doing.name
        amounts[name] = amounts.get(name, 0) + times.total_ns
    return what_all_do(amounts)


def what_all_do(amounts: Mapping[str, int]) -> Doing | None:
    """Return what ranks do for nearly all of the time that others wait for them; given by what they do, "" unknown."""
    most = max(amounts, key=lambda name: amounts[name], default="")
    return BY_NAME[most] if most and amounts[most] >= _ALIKE * sum(amounts.values()) else None


def _conclude(analysis: Analysis) -> StragglersFinding | None:
    parts = gather(analysis.evidence)
    return None if parts is None else find_stragglers(parts)


def _merge(findings: Sequence[StragglersFinding | None], whole: Analysis) -> StragglersFinding | None:
    parts = [each.made_of for each in findings if each is not None]
    return find_stragglers(one_after_another(parts)) if parts else None


_KEYS = (
    "kind name=who.label rank=who.rank ranks=who.ranks link=who.link host=who.host cause=cause.name doing=doing.name "
    "held_up_s=held_ns share iterations first_iteration=first episodes since_ns until_ns known_ns confidence sentence "
    "advice"
)


def _parts(finding: StragglersFinding | None) -> Sequence[Part]:
    if finding is None or not finding.stragglers:
        return ()
    stragglers = finding.stragglers
    sentences = Pairs([(each.who.label, f"{each.sentence} → {each.advice}") for each in stragglers[:_BRIEF]])
    places = [(each.since_ns, each.until_ns - each.since_ns) for each in stragglers]
    grid = table(_COLUMNS, stragglers, brief=_BRIEF, places=places)
    return [Part("Stragglers", f"of {count(finding.iterations, 'iteration')}", [grid, sentences])]


_COLUMNS = (
    Column("who", "who.label"),
    Column("of all time", "share", share),
    Column("", lambda each: Bar(0.0, min(each.share, 1.0), each.cause.name), left=True, goes=1),
    Column("in iterations", "iterations"),
    Column("from step", lambda each: each.first + 1, goes=3),
    Column("confidence", "confidence", percent, goes=2),
    Column("by", "cause.short", left=True),
    Column("it", "doing.name", lambda name: name.replace("_", " "), "", left=True),
)


STRAGGLERS = Section(
    "stragglers",
    _conclude,
    ("marks", "wire", "flows", "nic", "tcp", "counters"),
    lambda finding: {"stragglers": finding and [json_of(each, _KEYS) for each in finding.stragglers]},
    _parts,
    merge=_merge,
    definitions=lambda finding: (DEFINITION,) if finding and finding.stragglers else (),
)


def arrivals_table(analysis: Analysis) -> Mapping[str, Any]:
    """Return the last rank of each communicator in each iteration, by how much, and what it did meanwhile, as a table.

    Its columns are `iteration` as in the report, its `begin_ns`, `group`, `pid`, `rank`, `late_ns` and `doing`: given
    where the lateness matters, empty where nothing tells.
    """
    finding, evidence = analysis.of(STRAGGLERS), analysis.evidence
    if finding is None:
        none = np.zeros(0, np.int64)
        return dict.fromkeys(("iteration", "begin_ns", "group", "pid", "rank", "late_ns"), none) | {"doing": []}
    windows = finding.made_of.windows
    arrivals = find_arrivals(evidence.collectives, evidence.members, windows.begin_ns, windows.end_ns)
    matters = arrivals.late_ns >= MATTERS * windows.duration_ns[arrivals.iteration]
    doing = [""] * len(arrivals.pid)
    for row in np.flatnonzero(matters).tolist():
        did = what_it_did(finding.made_of.times, int(arrivals.pid[row]), arrivals.iteration[row : row + 1])
        doing[row] = "" if did is None else did.name
    return {
        "iteration": arrivals.iteration,
        "begin_ns": windows.begin_ns[arrivals.iteration],
        "group": arrivals.group,
        "pid": arrivals.pid,
        "rank": np.array([evidence.ranks.get(pid, UNKNOWN_RANK) for pid in arrivals.pid.tolist()], np.int64),
        "late_ns": arrivals.late_ns,
        "doing": doing,
    }
