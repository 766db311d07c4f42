"""The iterations of a trace as programs: all ranks side by side, iterations that do the same together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from netprof.analysis.events.typical import middle_half
from netprof.analysis.evidence import Evidence
from netprof.analysis.tables.columns import Bool, Float64, Int64, distinct, nearest
from netprof.analysis.tables.intervals import covered_until
from netprof.analysis.whatif.doings import Doings, ProcessStep
from netprof.analysis.whatif.program import Program, slowest_compute_s
from netprof.schema import Backend, CollectiveKind

_GRADIENTS = [int(CollectiveKind.ALL_REDUCE), int(CollectiveKind.REDUCE_SCATTER)]
_MOST, _MOST_ITERATIONS = 4096, 256
"""Iterations times ranks, and iterations, that are replayed: a mean over more of them is no more certain."""
_MOST_STRUCTURES = 12
_ENOUGH = 0.5  # share of the typical iterations that all ranks have to do alike


@dataclass(frozen=True, eq=False)
class RecordedSteps:
    """The typical iterations of `pids`, one row of the programs each; seconds.

    `iteration_s` is their mean over ranks, `exposed_s`, shape (R,), what each rank waited for communication in them.
    Programs begin when all ranks are level, `lead_s`, shape (R,), before the iterations themselves.
    `ranks` are their numbers, None where unknown, and `link_bps`, shape (R,), the line rates of their links, infinite
    where unknown. `by_gloo` says that gloo performs all collectives, `notes` what is assumed.
    """

    pids: tuple[int, ...]
    ranks: tuple[int | None, ...]
    programs: tuple[Program, ...]
    iteration_s: float
    exposed_s: Float64
    link_bps: Float64
    lead_s: Float64
    by_gloo: bool
    notes: tuple[str, ...] = ()

    @property
    def iterations(self) -> int:
        """How many iterations they are."""
        return sum(program.iterations for program in self.programs)

    @property
    def compute_s(self) -> float:
        """The compute time of the rank that computes longest."""
        return slowest_compute_s(self.programs)

    @property
    def main(self) -> Program:
        """The program that most iterations follow."""
        return max(self.programs, key=lambda program: program.iterations)

    def pace_setter(self) -> int:
        """Return the row of the rank that waits least: the others wait for it too."""
        return int(np.argmin(self.exposed_s))

    def slowest(self) -> int:
        """Return the row of the rank that computes longest."""
        compute = np.concatenate([program.compute_s for program in self.programs], axis=1)
        return int(np.argmax(compute.mean(axis=1)))

    def row_of(self, rank: int) -> int | None:
        """Return the row of a rank, None where it is not among them."""
        return self.ranks.index(rank) if rank in self.ranks else None

    def rank_name(self, row: int) -> str:
        """Return what to call the rank of a row."""
        return f"pid {self.pids[row]}" if self.ranks[row] is None else f"rank {self.ranks[row]}"


Steps = Sequence[Sequence[ProcessStep]]
"""What several ranks did in the same steps of the job, by rank and step."""


def find_recording(evidence: Evidence, pids: Iterable[int], world_size: int) -> RecordedSteps:
    """Return the typical iterations of processes, all of which have some.

    Where ranks do not all do the same, the one that waits least stands for all.
    """
    by_rank = sorted(pids, key=lambda pid: (evidence.ranks.get(pid, 1 << 31), pid))
    ranks = [Doings(evidence, pid, world_size) for pid in by_rank]
    every = _job_iterations(ranks)
    rows = _typical(ranks, every)
    steps, before = (_steps(ranks, chosen) for chosen in (rows, _before(rows, every)))
    alike = _alike(steps)
    if alike and len(alike) >= _ENOUGH * len(steps[0]):
        return _recording(evidence, by_rank, _chosen(steps, alike), _chosen(before, alike), world_size)
    return _one_for_all(evidence, ranks, world_size)


def _steps(ranks: Sequence[Doings], rows: Int64) -> Steps:
    """Return what ranks did in some steps, given as each one's rows, (R, I)."""
    return [[rank.of(row) for row in rank_rows] for rank, rank_rows in zip(ranks, rows.tolist(), strict=True)]


def _chosen(steps: Steps, numbers: Sequence[int]) -> Steps:
    return [[rank_steps[number] for number in numbers] for rank_steps in steps]


def _before(rows: Int64, every: Int64) -> Int64:
    """Return the rows of the steps that went before some, (R, I), or their own where not all ranks have that step."""
    before = rows - 1
    index = np.clip(np.searchsorted(every[0], before[0]), 0, max(every.shape[1] - 1, 0))
    known = (before >= 0).all(axis=0) & (every[:, index] == before).all(axis=0)
    return np.where(known, before, rows)


def _one_for_all(evidence: Evidence, ranks: Sequence[Doings], world_size: int) -> RecordedSteps:
    """Return the recording of the rank that waits least."""
    alone = [_steps([rank], _typical([rank], _job_iterations([rank]))) for rank in ranks]
    pace = int(np.argmin([_stack(steps, "exposed_s").mean() for steps in alone]))
    recording = _recording(evidence, [ranks[pace].pid], alone[pace], alone[pace], world_size)
    who = recording.rank_name(0)
    note = f"the ranks do not all do the same: {who}, which waits least, stands for all, and others are not waited for"
    return replace(recording, notes=(note, *recording.notes))


def _job_iterations(ranks: Sequence[Doings]) -> Int64:
    """Return the steps that all ranks have, as each one's rows, shape (R, I).

    Steps of two ranks are the same one if they hold the same collectives; where those are not known by number, if they
    end together: within half a step.
    """
    reference = max(ranks, key=len)
    near_ns = float(np.median(reference.duration_ns)) / 2
    rows = np.array([_same(rank, reference, near_ns) for rank in ranks])
    return rows[:, (rows >= 0).all(axis=0)]


def _same(rank: Doings, reference: Doings, near_ns: float) -> Int64:
    """Return the row of a rank's step that is the same as each one of another rank's, -1 where there is none."""
    events, wanted = rank.last_event, reference.last_event
    if (events >= 0).all() and (wanted >= 0).all() and np.isin(events, wanted).any():
        order = np.argsort(events, kind="stable")
        index = order[np.minimum(np.searchsorted(events[order], wanted), len(events) - 1)]
        return np.where(events[index] == wanted, index, -1)
    index = nearest(rank.end_ns, reference.end_ns)
    return np.where(np.abs(rank.end_ns[index] - reference.end_ns) < near_ns, index, -1)


def _typical(ranks: Sequence[Doings], rows: Int64) -> Int64:
    """Return the middle half of the job's steps by what they take in the mean of the ranks, no more than can be
    replayed soon."""
    mean_ns = np.mean([rank.duration_ns[rank_rows] for rank, rank_rows in zip(ranks, rows, strict=True)], axis=0)
    typical = np.sort(middle_half(mean_ns))
    most = max(min(_MOST // len(ranks), _MOST_ITERATIONS), 8)
    if len(typical) > most:
        typical = typical[np.linspace(0, len(typical) - 1, most).astype(np.int64)]
    return rows[:, typical]


def _alike(steps: Steps) -> list[int]:
    """Return in which steps all ranks do the same."""
    return [number for number, same in enumerate(zip(*steps, strict=True)) if _is_one_structure(same)]


def _is_one_structure(steps: Sequence[ProcessStep]) -> bool:
    return len({step.structure for step in steps}) == 1


def _recording(evidence: Evidence, pids: Sequence[int], steps: Steps, before: Steps, world_size: int) -> RecordedSteps:
    groups: dict[tuple[object, ...], list[int]] = {}
    for number, step in enumerate(steps[0]):
        groups.setdefault(step.structure, []).append(number)
    largest = sorted(groups.values(), key=len, reverse=True)[:_MOST_STRUCTURES]
    programs = [_program(_chosen(steps, numbers), _chosen(before, numbers), world_size) for numbers in largest]
    kept = [number for numbers in largest for number in numbers]
    notes: tuple[str, ...] = ()
    if len(kept) < len(steps[0]):
        notes += (f"{len(kept)} of {len(steps[0])} typical steps are replayed: they differ in what they send",)
    if any(program.rank_count > 1 and (program.teams < 0).any() for program in programs):
        notes += ("which ranks are in a smaller group together is not known: none waits for another in it",)
    replayed = _chosen(steps, kept)
    return RecordedSteps(
        pids=tuple(pids),
        ranks=tuple(evidence.ranks.get(pid) for pid in pids),
        programs=tuple(programs),
        iteration_s=float(_stack(replayed, "duration_s").mean()),
        exposed_s=_stack(replayed, "exposed_s").mean(axis=1),
        link_bps=np.full(len(pids), np.inf),
        lead_s=_stack(replayed, "lead_s").mean(axis=1),
        by_gloo=bool((evidence.collectives.backend == int(Backend.GLOO)).all()),
        notes=notes,
    )


def _program(steps: Steps, before: Steps, world_size: int) -> Program:
    """Return iterations of one structure as one program, with those that went before them.

    Where the ranks did something else before, an iteration is taken to have gone before itself.
    """
    first, ranks = steps[0][0], len(steps)
    events = np.array([rank_steps[0].events for rank_steps in steps])
    teams = _teams(events, first.collectives.ranks >= min(world_size, ranks))
    if ranks < 2:
        return _program_of(steps, teams)
    like = [_is_one_structure([first, *earlier]) for earlier in zip(*before, strict=True)]
    went = [
        [earlier if alike else step for alike, earlier, step in zip(like, *rank_steps, strict=True)]
        for rank_steps in zip(before, steps, strict=True)
    ]
    return replace(_program_of(steps, teams), before=_program_of(went, teams))


def _program_of(steps: Steps, teams: Int64) -> Program:
    first = steps[0][0]
    own_s, full_s = _own_s(steps, teams)
    kind = first.collectives.kind
    return Program(
        kind=kind,
        bytes=first.collectives.bytes.astype(np.float64),
        ranks=first.collectives.ranks,
        tensors=(np.isin(kind, _GRADIENTS) & (first.collectives.bytes > 0)).astype(np.float64),
        after=first.after,
        teams=teams,
        steps=first.steps,
        post_s=_stack(steps, "clock_s"),
        own_s=own_s,
        full_s=full_s,
        wait_s=_stack(steps, "wait_s"),
        tail_s=_stack(steps, "tail_s"),
        waited=first.waited,
        compute_s=_stack(steps, "duration_s") - _stack(steps, "exposed_s"),
    )


def _teams(events: Int64, everybody: Bool) -> Int64:
    """Return who is in each collective together, (R, K), from the numbers of the events that they are.

    Where a number is unknown, all are in a collective of everybody, and each alone in one of a smaller group.
    """
    known = (events >= 0).all(axis=0)
    alone = -1 - np.arange(len(events))[:, None]
    return np.asarray(np.where(known, events, np.where(everybody, 0, alone)))


def _stack(steps: Steps, name: str) -> Float64:
    return np.array([[getattr(step, name) for step in rank_steps] for rank_steps in steps], dtype=np.float64)


def _own_s(steps: Steps, teams: Int64) -> tuple[Float64, Float64 | None]:
    """Return each collective's own link time, (R, I, K), counted from when its last member had posted it.

    And how much of it full links of its group serve bytes.
    """
    posted, begin, end = (
        np.array([[getattr(step.collectives, name) for step in rank_steps] for rank_steps in steps], dtype=np.int64)
        for name in ("posted_ns", "begin_ns", "end_ns")
    )
    start = link_starts(last_posted(posted, teams), begin, end)
    serving = [times for rank_steps in steps if (times := rank_steps[0].serving) is not None]
    if len(serving) < len(steps):
        return link_seconds(start, end), None
    full_start, full_end = (
        np.array([covered_until(times, at) for times, at in zip(serving, each, strict=True)]) for each in (start, end)
    )
    return link_seconds(start, end), link_seconds(full_start, full_end)


def last_posted(posted_ns: Int64, teams: Int64) -> Int64:
    """Return when the last member of each collective had posted it, (R, I, K); `teams` are as of `_teams`, (R, K)."""
    every, row = np.unique(teams, axis=0, return_inverse=True)  # most ranks are in the same ones
    last_ns = np.array([np.where((teams == members)[:, None, :], posted_ns, 0).max(axis=0) for members in every])
    return np.asarray(last_ns[row.reshape(-1)])


_NS = 1e-9


def own_seconds(begin_ns: Int64, end_ns: Int64) -> Float64:
    """Return, shape (M,), the integral over each interval of 1 / (intervals outstanding at that moment), in seconds.

    Collectives that overlap share the link; counted so, their times add up to the time in which any is outstanding,
    which is what a serial link has to reproduce.
    """
    if len(begin_ns) == 0:
        return np.zeros(0)
    edges = distinct(begin_ns, end_ns)
    change = np.zeros(len(edges), dtype=np.int64)
    np.add.at(change, np.searchsorted(edges, begin_ns), 1)
    np.add.at(change, np.searchsorted(edges, end_ns), -1)
    outstanding = np.maximum(np.cumsum(change)[:-1], 1)
    shared = np.concatenate(([0.0], np.cumsum(np.diff(edges) / outstanding)))
    shares_ns = shared[np.searchsorted(edges, end_ns)] - shared[np.searchsorted(edges, begin_ns)]
    return np.asarray(shares_ns * _NS, dtype=np.float64)


def link_starts(ready_ns: Int64, begin_ns: Int64, end_ns: Int64) -> Int64:
    """Return from when on collectives occupy their link, (..., K): K of one rank and iteration.

    From when the last member had posted one (`ready_ns`), or from its begin where it queued behind an earlier one until
    then.
    """
    if begin_ns.shape[-1] == 0:
        return begin_ns
    order = np.argsort(begin_ns, axis=-1, kind="stable")
    ends = np.maximum.accumulate(np.take_along_axis(end_ns, order, axis=-1), axis=-1)
    before = np.empty_like(ends)  # when the last of those that began earlier had ended
    first = np.full_like(ends[..., :1], -1)
    np.put_along_axis(before, order, np.concatenate((first, ends[..., :-1]), axis=-1), axis=-1)
    queued = before > ready_ns
    return np.minimum(np.where(queued, np.maximum(ready_ns, begin_ns), ready_ns), end_ns)


def link_seconds(start_ns: Int64, end_ns: Int64) -> Float64:
    """Return the own time of collectives, (..., K): those of different rows have nothing to do with each other."""
    if start_ns.size == 0:
        return np.zeros(start_ns.shape)
    start, end = (times.reshape(-1, times.shape[-1]) for times in (start_ns, end_ns))
    origin = start.min(axis=1, keepdims=True)
    reach = int((end - origin).max()) + 1
    apart = np.arange(len(start))[:, None] * reach - origin  # one row after another, none touching the next
    return own_seconds((start + apart).ravel(), (end + apart).ravel()).reshape(start_ns.shape)
