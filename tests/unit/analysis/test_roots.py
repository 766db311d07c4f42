"""Collectives with a root and without, of any number of ranks, whose every member's times follow from a rule."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.profiles import examples
from support.synthetic import collectives

from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.members import find_members
from netprof.analysis.tables.columns import UNKNOWN, concatenate
from netprof.schema import Backend, CollectiveKind

K = CollectiveKind
KINDS = (
    K.ALL_REDUCE,
    K.ALL_GATHER,
    K.REDUCE_SCATTER,
    K.BROADCAST,
    K.REDUCE,
    K.ALL_TO_ALL,
    K.GATHER,
    K.SCATTER,
    K.BARRIER,
)
STEP = 1000


@dataclass(frozen=True)
class Played:
    """Steps of a kind of collective, and then an all-reduce or not; one rank computes for longer.

    `eager`: who only sends is done at once; else when those to whom it sends have come, as gloo does it.
    """

    kind: CollectiveKind
    ranks: int
    root: int
    late: int
    late_by: int
    eager: bool
    average: bool
    numbered: bool
    steps: int = 8

    def needs(self, kind: CollectiveKind, number: int) -> set[int]:
        """Return whom a member waits for, itself included."""
        every, root = set(range(self.ranks)), {self.root}
        if kind in (K.BROADCAST, K.SCATTER) and self.eager:
            return {number} | root
        if kind in (K.GATHER, K.REDUCE) and self.eager:
            return every if number == self.root else {number}
        if kind == K.BROADCAST:
            return self._in_tree(number)
        if kind in (K.GATHER, K.SCATTER):
            return every if number == self.root else {number} | root
        return every

    def _in_tree(self, number: int) -> set[int]:
        """Return from whom gloo's broadcast receives, in how many steps ever, and to whom it sends: from its source."""
        sends: dict[int, set[int]] = {rank: set() for rank in range(self.ranks)}
        dim = (self.ranks - 1).bit_length()
        for rank in range(self.ranks):
            place, mask = (self.ranks + rank - self.root) % self.ranks, (1 << dim) - 1
            for bit in range(dim):
                mask ^= 1 << bit
                peer = place ^ (1 << bit)
                if place & mask == 0 and peer < self.ranks and place & (1 << bit) == 0:
                    sends[rank].add((peer + self.root) % self.ranks)
        known, above = {number} | sends[number], {number}
        while above:
            above = {rank for rank in range(self.ranks) if sends[rank] & above}
            known |= above
        return known

    @property
    def collectives(self) -> Collectives:
        """What all ranks saw; what a rank waited for is who posted last of those that it needs."""
        return self._play()[0]

    @property
    def awaited(self) -> list[int]:
        """The process that each row waited for last."""
        return self._play()[1]

    def _play(self) -> tuple[Collectives, list[int]]:
        free = np.zeros(self.ranks, np.int64)
        kinds = [self.kind, K.ALL_REDUCE] if self.average else [self.kind]
        rows: list[list[tuple[int, int, CollectiveKind, int, int]]] = [[] for _ in range(self.ranks)]
        for step in range(self.steps * len(kinds)):
            kind, first = kinds[step % len(kinds)], step % len(kinds) == 0
            posted = free + [30 * rank + (STEP if first else 200) for rank in range(self.ranks)]
            posted[self.late] += self.late_by * first
            for rank in range(self.ranks):
                last = max(self.needs(kind, rank), key=lambda other: posted[other])
                free[rank] = max(posted[last], posted[rank]) + (2 if self.eager else 100)
                rows[rank].append((int(posted[rank]), int(free[rank]), kind, step, last))
        parts, awaited = [], []
        for rank, own in enumerate(rows):
            posted_ns, end_ns, kinds_ran, sequence, last = np.array(own, np.int64).T
            part = collectives(10 + rank, posted_ns, end_ns, 800, ranks=self.ranks, number=rank)
            backend = np.full(len(part), int(Backend.MPI if self.eager else Backend.GLOO))
            root = np.where(np.isin(kinds_ran, (K.BROADCAST, K.SCATTER, K.GATHER, K.REDUCE)), self.root, UNKNOWN)
            number = sequence + 7 if self.numbered else np.full(len(part), UNKNOWN)
            parts.append(replace(part, kind=kinds_ran, backend=backend, root=root, sequence=number))
            awaited += (last + 10).tolist()
        return concatenate(Collectives, parts), awaited


@st.composite
def jobs(draw: st.DrawFn) -> Played:
    ranks = draw(st.integers(2, 9))
    numbered = draw(st.booleans())
    return Played(
        kind=draw(st.sampled_from(KINDS)),
        ranks=ranks,
        root=draw(st.integers(0, ranks - 1)),
        late=draw(st.integers(0, ranks - 1)),
        late_by=draw(st.sampled_from((0, 307, 611, 5003))),
        eager=draw(st.booleans()),
        average=draw(st.booleans()) or not numbered,
        numbered=numbered,
    )


def judge(job: Played, lost: int = 0, loser: int = 0) -> None:
    """One communicator, an event for each step, and each member waits for the last one of those that it needs."""
    every, awaited = job.collectives, np.array(job.awaited)
    kept = np.ones(len(every), bool)
    kept[every.rows_of(10 + loser)[:lost]] = False
    members = find_members(every.where(kept), {}, None, {})
    assert len(set(members.group.tolist())) == 1
    count = len(every) // job.ranks
    step = np.tile(np.arange(count), job.ranks)[kept]
    everybody = step >= lost
    assert (members.seen[everybody] == job.ranks).all()
    events = set(zip(step[everybody].tolist(), members.event[everybody].tolist(), strict=True))
    assert len(events) == count - lost, "an event is one step's"
    posted = {
        (pid, row % count): at
        for row, (pid, at) in enumerate(zip(every.pid.tolist(), every.posted_ns.tolist(), strict=True))
    }
    found_wanted = zip(
        members.last_pid[everybody].tolist(), awaited[kept][everybody].tolist(), step[everybody].tolist(), strict=True
    )
    for found, wanted, at in found_wanted:
        assert posted[found, at] == posted[wanted, at], "who came last, or one that came at the same moment"


@pytest.mark.parametrize("late", [1, 3])
@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_whoever_is_done_before_others_begin_is_a_member(kind: CollectiveKind, eager: bool, late: int) -> None:
    judge(Played(kind, 5, 1, late, 5003, eager, average=late == 1, numbered=True))


@pytest.mark.parametrize("late", [0, 1, 2])
@pytest.mark.parametrize("kind", [K.BROADCAST, K.GATHER])
def test_times_tell_where_nothing_says_the_place_in_the_sequence(kind: CollectiveKind, late: int) -> None:
    """As DDP with BatchNorm does it, recorded by a version that did not read roots either."""
    job = Played(kind, 3, 0, late, 611, eager=False, average=True, numbered=False)
    every = replace(job.collectives, root=np.full(len(job.collectives), UNKNOWN))
    members = find_members(every, {}, None, {})
    assert (members.seen == 3).all()
    assert len(set(members.group.tolist())) == 1


@pytest.mark.slow
@examples(400)
@given(jobs(), st.integers(0, 3), st.integers(0, 8))
def test_any_job_is_one_communicator(job: Played, lost: int, loser: int) -> None:
    """One rank is recorded a little later than the others."""
    judge(job, lost, loser % job.ranks)
