"""Who holds the job up: the ranks, links and ways that the others waited for, the one that costs most first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from netprof.analysis.account.causes import HOST, Cause
from netprof.analysis.account.episodes import MATTERS, Episode, episodes
from netprof.analysis.account.held_up import CAUSES, HeldUp, Kind
from netprof.analysis.findings.stragglers.doing import Doing, SummedTimes, what_it_did
from netprof.analysis.findings.stragglers.how_often import OftenLate, how_often
from netprof.analysis.findings.stragglers.stragglers_parts import StragglersParts, Who
from netprof.analysis.tables.columns import Int64
from netprof.units import count, percent

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
    who: Who
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
        does = f": {self.doing.said}" if self.doing is not None else f" ({self.cause.title})"
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


Did = Callable[[SummedTimes, int, Int64, float], Doing | None]
"""Says what a process did in some iterations, as `what_it_did`."""


def find_stragglers(parts: StragglersParts, did: Did = what_it_did) -> StragglersFinding:
    """Return who holds the job up, where that is sure; `did` says what a rank did meanwhile."""
    begin_ns, end_ns = parts.windows.begin_ns, parts.windows.end_ns
    found = []
    for held in parts.held:
        known = episodes(held.ns.sum(axis=1), begin_ns, end_ns)
        for one in dict.fromkeys(each.one for each in known):
            found.append(_straggler(held, [each for each in known if each.one == one], parts, did))
    ranked = sorted(found, key=lambda each: -each.held_ns)
    often = {cause: how_often(parts, cause) for cause in CAUSES[Kind.RANK]}
    known_often = {cause: each for cause, each in often.items() if each is not None}
    return StragglersFinding(tuple(ranked), len(parts.windows), parts, known_often)


def _straggler(held: HeldUp, known: Sequence[Episode], parts: StragglersParts, did: Did) -> Straggler:
    """Return one straggler of all its episodes, which come in the order of time."""
    windows, one = parts.windows, known[0].one
    length_ns = windows.end_ns - windows.begin_ns
    rows = np.concatenate([np.arange(each.first, each.last + 1) for each in known])
    own = held.ns[one].sum(axis=0)
    rows = rows[own[rows] >= MATTERS * length_ns[rows]]
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


def _doing(held: HeldUp, one: int, cause: Cause, rows: Int64, parts: StragglersParts, did: Did) -> Doing | None:
    pid = held.keys[one]
    if held.kind is not Kind.RANK or not isinstance(pid, int):
        return None
    host_ns = float(held.ns[one][:, rows].sum()) if cause is HOST else 0.0
    return did(parts.times, pid, rows, host_ns)
