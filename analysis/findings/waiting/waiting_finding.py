"""What the account of waiting amounts to, and its tables: by cause, by rank, and the iterations that wait the most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from netprof.analysis.account.causes import WAIT_CAUSES, Cause
from netprof.analysis.declared import Column, added, share_of, table
from netprof.analysis.findings.blame import Blame
from netprof.analysis.findings.names import rank_number, ranks_named
from netprof.analysis.form import Bar, Grid, Pairs, Part, Stack, in_a_row
from netprof.analysis.tables.columns import Int64
from netprof.units import count, duration, percent, share

_TOLD = 0.05  # of the waiting, from which on a cause gets its sentence
_SHOWN = 0.001  # from which on it gets a row
NEARLY_ALL = 0.995
"""Share of a cause from which on it is all of it."""
_FEW_RANKS = 16


@dataclass(frozen=True)
class CauseShare:
    """One cause over the whole recording.

    `ns` is summed over ranks and `share` of all exposed time. `saves_s` is by how much the recording's iterations would
    be shorter together without it, all else alike. `rank` is who is late or busy, `ranks` those behind `link`. `doing`
    is what late ranks do; `by_hosts` says of a transport that its hosts are too busy to hand it more. Who is named is
    behind a `part` of it.
    """

    cause: Cause
    ns: int
    share: float
    saves_s: float
    sentence: str
    advice: str
    rank: int | None = None
    ranks: tuple[int, ...] = ()
    link: str | None = None
    flow: str | None = None
    doing: str | None = None
    by_hosts: bool = False
    part: float = 1.0


@dataclass(frozen=True)
class RankWaiting:
    """One process over its whole iterations; `causes_ns` in the order of WAIT_CAUSES, together `exposed_ns`."""

    pid: int
    rank: int | None
    window_ns: int
    exposed_ns: int
    causes_ns: tuple[int, ...]

    def __add__(self, other: RankWaiting) -> RankWaiting:
        """Return both together."""
        causes_ns = tuple(a + b for a, b in zip(self.causes_ns, other.causes_ns, strict=True))
        return replace(self, **added((self, other), "window_ns exposed_ns"), causes_ns=causes_ns)

    @property
    def exposed_share(self) -> float | None:
        """The share of its time that it waits; None without any."""
        return share_of(self.exposed_ns, self.window_ns)

    @property
    def by_cause(self) -> dict[str, float]:
        """For how many seconds it waits, by the names of the causes."""
        return by_cause(self.causes_ns)


@dataclass(frozen=True)
class WorstIteration:
    """An iteration that waits for much longer than the median one; over all ranks. `cause` is the largest."""

    number: int
    begin_ns: int
    duration_ns: int
    exposed_ns: int
    causes_ns: tuple[int, ...]
    cause: Cause
    rank: int | None
    sentence: str

    @property
    def by_cause(self) -> dict[str, float]:
        """For how many seconds ranks wait, by the names of the causes."""
        return by_cause(self.causes_ns)


def by_cause(causes_ns: Sequence[int]) -> dict[str, float]:
    """Return times in the order of WAIT_CAUSES by the causes' names, seconds."""
    return {cause.name: ns / 1e9 for cause, ns in zip(WAIT_CAUSES, causes_ns, strict=True)}


@dataclass(frozen=True, eq=False)
class WaitingParts:
    """What the account of a piece of a recording amounts to, such that those of several can be added up.

    `blames` is who is behind each cause, `saves_ns` what would be spared without each (in the order of WAIT_CAUSES),
    `by_iteration_ns` how long all ranks wait in each iteration, and `longest` the iterations that wait the most. Of
    what ranks wait, `unclosed_ns` is in no iteration: the recording ends in it. `of_all_time` says that there are no
    iterations, and the account is of all time.
    """

    by_rank: tuple[RankWaiting, ...]
    recorded_ns: int
    blames: Mapping[Cause, Blame]
    saves_ns: tuple[int, ...]
    by_iteration_ns: Int64
    longest: tuple[WorstIteration, ...]
    unclosed_ns: int = 0
    of_all_time: bool = False


@dataclass(frozen=True)
class WaitingFinding:
    """The account, over all whole iterations of all ranks (`definitions.WAITING`).

    The causes' `ns` add up to `exposed_ns`. `unknown_ns` was recorded, but lies in no whole iteration; in `unclosed_ns`
    of the waiting the recording ends. `made_of` is what all of it is made from.
    """

    exposed_ns: int
    window_ns: int
    exposed_share: float
    unknown_ns: int
    causes: tuple[CauseShare, ...]
    by_rank: tuple[RankWaiting, ...]
    worst: tuple[WorstIteration, ...]
    made_of: WaitingParts
    unclosed_ns: int = 0


NOTHING_WAITED = WaitingFinding(
    0, 0, 0.0, 0, (), (), (), WaitingParts((), 0, MappingProxyType({}), (), np.zeros(0, np.int64), ())
)
"""The account of no iteration at all."""


def waiting_parts(finding: WaitingFinding | None) -> Sequence[Part]:
    """Return the parts of the section; none where no iteration is known or no rank waits."""
    if finding is None or not finding.exposed_ns:
        return ()
    about = f"{share(finding.exposed_share)} of all time, {count(len(finding.by_rank), 'rank')} together"
    parts = [
        Part("Waiting for communication", about, [_causes(finding.causes), Pairs(list(_sentences(finding.causes)))]),
        Part("Waiting by rank", "share of a rank's time", [_ranks(finding)]),
    ]
    if finding.worst:
        parts.append(Part("Worst iterations", "that wait far longer than the median one", [_worst(finding)]))
    return parts


def _causes(causes: Sequence[CauseShare]) -> Grid:
    shown = [each for each in causes if each.share >= _SHOWN]
    bars = in_a_row((each.cause.name, each.share) for each in shown)
    return table(_OF_CAUSES, list(zip(shown, bars, strict=True)))


_OF_CAUSES = (
    Column("for", lambda row: row[0].cause.title),
    Column("share", lambda row: row[0].share, share),
    Column("saves", lambda row: row[0].saves_s, duration, goes=2),
    Column("who", lambda row: who(row[0]), left=True),
    Column("", lambda row: row[1], left=True, goes=1),
)


def who(each: CauseShare) -> str:
    """Return the rank, link or flow that a cause names, and its part of it; nothing where it names none."""
    name = each.flow or ""
    if each.link is not None:
        name = f"{each.link} of {ranks_named(each.ranks[:_FEW_RANKS], ())}" if each.ranks else each.link
    elif each.rank is not None:
        name = f"rank {each.rank}"
    return f"{name}: {percent(each.part)}" if name and each.part < NEARLY_ALL else name


def _sentences(causes: Sequence[CauseShare]) -> Iterator[tuple[str, str]]:
    """Yield what happened and what to do about it, of the causes that are not negligible."""
    for number, each in enumerate(causes):
        if number == 0 or each.share >= _TOLD:
            yield each.cause.short, f"{each.sentence} → {each.advice}"


def _ranks(finding: WaitingFinding) -> Grid:
    shown = [each.cause for each in finding.causes if each.share >= _SHOWN]
    causes = (_cause(cause, len(shown) - place) for place, cause in enumerate(shown))
    return table((*_OF_RANKS, *causes), finding.by_rank, brief=_FEW_RANKS)


def _cause(cause: Cause, goes: int) -> Column:
    number = WAIT_CAUSES.index(cause)
    return Column(cause.short, lambda each: share_of(each.causes_ns[number], each.window_ns), share, goes=goes)


def _worst(finding: WaitingFinding) -> Grid:
    longest_ns = max(each.exposed_ns for each in finding.worst)
    ranks = max(1, len(finding.by_rank))
    columns = (
        Column("iteration", lambda each: each.number + 1),
        Column("took", lambda each: duration(each.duration_ns / 1e9)),
        Column("mean wait", lambda each: duration(each.exposed_ns / ranks / 1e9)),
        Column("mostly for", lambda e: e.cause.title + (f": rank {e.rank}" if e.rank is not None else ""), left=True),
        Column("", lambda each: stack(each.causes_ns, longest_ns), left=True, goes=1),
    )
    return table(columns, finding.worst, places=[(each.begin_ns, each.duration_ns) for each in finding.worst])


def stack(causes_ns: Sequence[int], whole_ns: int) -> Stack:
    """Return the causes one after another, as shares of a whole."""
    bars, before_ns = [], 0
    for cause, ns in zip(WAIT_CAUSES, causes_ns, strict=True):
        if ns and whole_ns:
            bars.append(Bar(before_ns / whole_ns, ns / whole_ns, cause.name))
        before_ns += ns
    return Stack(tuple(bars))


_OF_RANKS = (
    Column("rank", lambda each: rank_number(each.rank, each.pid)),
    Column("waits", "exposed_share", share),
    Column("", lambda each: stack(each.causes_ns, each.window_ns), left=True),
)
