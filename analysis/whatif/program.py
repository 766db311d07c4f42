"""What ranks do in an iteration, as far as the network matters: they compute, post collectives, and wait for them.

Times count on a rank's *compute clock*, which stands still while the rank waits for communication: what it does between
two waits takes as long on any network. A faster or slower network only changes how long each wait is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from netprof.analysis.tables.columns import Bool, Columns, Float64, Int64
from netprof.schema import CollectiveKind


@dataclass(frozen=True, eq=False)
class GradBuckets(Columns):
    """Buckets in the order they are launched: `launch_s` (seconds, any origin) and `bytes`, both of shape (K,)."""

    launch_s: Float64
    bytes: Float64


NOT_CHAINED = -1


class Action(NamedTuple):
    """One thing that a rank does: the collective of this number is posted, or (`is_wait`) the wait of it begins."""

    is_wait: bool
    number: int


@dataclass(frozen=True, eq=False)
class Program:
    """I iterations of R ranks, all of them with the same K collectives and J waits, done in the order of `steps`.

    Of each collective, shape (K,): `kind` (a CollectiveKind), `bytes` of the whole buffer, `ranks` of its group,
    `tensors` (how many gradients it carries, as far as known; 0 for none), and `after`, the collective whose end posts
    it (NOT_CHAINED where the rank's own thread does).
    `teams`, shape (R, K): ranks with the same number in a column take part in it together.

    Seconds: `post_s` (R, I, K) on the compute clock, after the end of the collective that posts it where it is
    chained; `own_s` (R, I, K) the link time that was its own when recorded, None where nothing was, and `full_s` in how
    much of it full links of its group served bytes, None where that is not known; `wait_s` and
    `tail_s` (R, I, J) when each wait begins and what follows the arrival (unpacking); `compute_s` (R, I) the iteration
    without its waits. `waited`, shape (J, K), says which collectives each wait is for.

    `before` are the iterations that went before these, one for each: what the ranks did then is by how much they run
    apart when these begin. None where that is not known: then each is taken to have gone before itself.
    """

    kind: Int64
    bytes: Float64
    ranks: Int64
    tensors: Float64
    after: Int64
    teams: Int64
    steps: tuple[Action, ...]
    post_s: Float64
    own_s: Float64 | None
    full_s: Float64 | None
    wait_s: Float64
    tail_s: Float64
    waited: Bool
    compute_s: Float64
    before: Program | None = None

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def rank_count(self) -> int:
        """R."""
        return int(self.compute_s.shape[0])

    @property
    def iterations(self) -> int:
        """I."""
        return int(self.compute_s.shape[1])

    def partners(self, collective: int) -> Iterator[npt.NDArray[np.intp]]:
        """Return the rows of the ranks that take part in a collective together, team by team."""
        teams = self.teams[:, collective]
        for team in np.unique(teams):
            yield np.flatnonzero(teams == team)

    def level(self) -> Program:
        """Return the program with every rank computing as long as the others than the slowest one do, on average.

        The same where there are fewer than two ranks.
        """
        if self.rank_count < 2:
            return self
        others = np.arange(self.rank_count) != int(np.argmax(self.compute_s.mean(axis=1)))

        def mean(values: Float64) -> Float64:
            return np.broadcast_to(values[others].mean(axis=0), values.shape)

        def level(one: Program) -> Program:
            return replace(one, post_s=mean(one.post_s), wait_s=mean(one.wait_s), compute_s=mean(one.compute_s))

        return self.changed(level)

    def changed(self, change: Callable[[Program], Program]) -> Program:
        """Return the program with a change made to it, and to what went before."""
        return replace(change(self), before=None if self.before is None else change(self.before))


def of_buckets(buckets: GradBuckets, ranks: int, last_ready_s: float, compute_s: float, tail_s: float = 0.0) -> Program:
    """Return one iteration of one rank: its buckets, all-reduced among `ranks`, and one wait for them at its end."""
    count = len(buckets)
    return Program(
        kind=np.full(count, int(CollectiveKind.ALL_REDUCE)),
        bytes=buckets.bytes,
        ranks=np.full(count, ranks),
        tensors=np.ones(count),
        after=np.full(count, NOT_CHAINED),
        teams=np.zeros((1, count), np.int64),
        steps=(*(Action(False, k) for k in range(count)), Action(True, 0)),
        post_s=buckets.launch_s[None, None, :],
        own_s=None,
        full_s=None,
        wait_s=np.full((1, 1, 1), last_ready_s),
        tail_s=np.full((1, 1, 1), tail_s),
        waited=np.ones((1, count), bool),
        compute_s=np.full((1, 1), compute_s),
    )


def slowest_compute_s(programs: Sequence[Program]) -> float:
    """Return the mean compute time of the rank that computes longest, over the iterations of all programs."""
    return float(max(np.concatenate([program.compute_s for program in programs], axis=1).mean(axis=1)))
