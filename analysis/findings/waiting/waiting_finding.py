"""What the account of waiting amounts to: by cause, by rank, and the iterations that wait the most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from netprof.analysis.account.causes import Cause
from netprof.analysis.findings.blame import Blame
from netprof.analysis.tables.columns import Int64


@dataclass(frozen=True)
class CauseShare:
    """One cause over the whole recording.

    `ns` is summed over ranks and `share` of all exposed time. `saves_s` is by how much the recording's iterations would
    be shorter together without it, all else alike. `rank` is who is late or busy, `ranks` those behind `link`. `doing`
    is what late ranks do; `by_hosts` says of a transport that its hosts are too busy to hand it more.
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
        window_ns, exposed_ns = self.window_ns + other.window_ns, self.exposed_ns + other.exposed_ns
        return RankWaiting(self.pid, self.rank, window_ns, exposed_ns, causes_ns)


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
