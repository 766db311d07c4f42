"""What the account of waiting amounts to: by cause, by rank, and the iterations that wait the most."""

from __future__ import annotations

from dataclasses import dataclass

from netprof.analysis.account.causes import Cause


@dataclass(frozen=True)
class CauseShare:
    """One cause over the whole recording.

    `ns` is summed over ranks and `share` of all exposed time. `saves_s` is by how much the recording's iterations would
    be shorter together without it, all else alike. `rank` is who is late or busy, `ranks` those behind `link`.
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


@dataclass(frozen=True)
class RankWaiting:
    """One process over its whole iterations; `causes_ns` in the order of WAIT_CAUSES, together `exposed_ns`."""

    pid: int
    rank: int | None
    window_ns: int
    exposed_ns: int
    causes_ns: tuple[int, ...]


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


@dataclass(frozen=True)
class WaitingFinding:
    """The account, over all whole iterations of all ranks (`definitions.WAITING`).

    The causes' `ns` add up to `exposed_ns`. `unknown_ns` was recorded, but lies in no whole iteration.
    """

    exposed_ns: int
    window_ns: int
    exposed_share: float
    unknown_ns: int
    causes: tuple[CauseShare, ...]
    by_rank: tuple[RankWaiting, ...]
    worst: tuple[WorstIteration, ...]
