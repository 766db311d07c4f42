"""What the DDP models of a process do: their passes, each from a forward pass to averaged gradients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.tables.columns import UNKNOWN, Bool, Columns, Int64, concatenate
from netprof.analysis.tables.marks import Marks
from netprof.schema import MarkKind

_NAMED_IN_ARG0 = (MarkKind.DDP_FORWARD, MarkKind.DDP_BACKWARD, MarkKind.DDP_WAIT, MarkKind.DDP_STATS)
_NAMED_IN_ARG1 = (MarkKind.GRADIENT_READY, MarkKind.BUCKET_LAUNCH, MarkKind.BUCKET_DONE)
DDP_MARKS = (*_NAMED_IN_ARG0, *_NAMED_IN_ARG1)
"""The marks of DDP's reducers."""

_NEVER, _ALWAYS = np.iinfo(np.int64).max, np.iinfo(np.int64).min
_LONG_TURN = 16
"""Passes in a row from which on models do not take turns in a step: a critic may have many, its generator has not."""


@dataclass(frozen=True, eq=False)
class Passes(Columns):
    """Passes of one process whose gradients are exchanged, a row for each `ddp_wait`; ns, UNKNOWN where lost.

    `model` numbers the models that train side by side or in turn; models that follow one another have one number.
    A pass begins at the last `ddp_forward` before its wait; its backward part at the `ddp_backward` between the two;
    it is done at the first `ddp_stats` after the wait and its last `bucket_done`, the end of torch's
    `finalize_backward` (a later one, just before the next forward pass, is DDP's logger).
    """

    model: Int64
    begin_ns: Int64
    backward_ns: Int64
    wait_ns: Int64
    done_ns: Int64

    @property
    def whole(self) -> Bool:
        """Whether all four times of a pass are known."""
        known = (self.begin_ns != UNKNOWN) & (self.backward_ns != UNKNOWN) & (self.done_ns != UNKNOWN)
        return np.asarray(known & (self.begin_ns <= self.backward_ns))

    @property
    def first_ns(self) -> Int64:
        """The first time of a pass that is known."""
        return np.where(self.begin_ns != UNKNOWN, self.begin_ns, self.wait_ns)

    @property
    def last_ns(self) -> Int64:
        """The last time of a pass that is known."""
        return np.where(self.done_ns != UNKNOWN, self.done_ns, self.wait_ns)


def models_of(marks: Marks) -> list[Marks]:
    """Return the DDP marks of a process by model: those of several that train in turn or at once are told apart.

    Models that come one after the other (a model that was wrapped again, perhaps where an earlier one was freed) are
    continued as one.
    """
    ddp = marks.of(*DDP_MARKS)
    reducer = np.where(ddp.are(*_NAMED_IN_ARG1), ddp.arg1, ddp.arg0)
    waiting = reducer[ddp.kind == MarkKind.DDP_WAIT]
    names, first = np.unique(waiting, return_index=True)
    changes = np.flatnonzero(waiting[1:] != waiting[:-1])
    if len(changes) < max(len(names), 1) or np.diff(changes).min() >= _LONG_TURN:
        return [ddp]
    return [ddp.where(reducer == name) for name in names[np.argsort(first)]]


def find_passes(models: list[Marks], backward_ns: Int64) -> Passes:
    """Return the passes of a process's models, by wait. `backward_ns` are the times at which autograd was entered."""
    passes = concatenate(Passes, [_of_model(number, rows, backward_ns) for number, rows in enumerate(models)])
    return passes.where(np.argsort(passes.wait_ns, kind="stable"))


def stray_times(models: list[Marks], passes: Passes) -> Int64:
    """Return when something happened of which marks are lost: a pass that is not whole, a bucket outside of any pass.

    Ascending. An iteration that holds such an instant is not what its other marks say.
    """
    stray = [passes.wait_ns[~passes.whole]]
    for number, rows in enumerate(models):
        mine = passes.where(passes.model == number)
        moves = rows.of(MarkKind.BUCKET_LAUNCH, MarkKind.BUCKET_DONE).time_ns
        if len(mine):
            before = np.searchsorted(mine.first_ns, moves, "right") - 1
            inside = (before >= 0) & (moves <= mine.last_ns[np.maximum(before, 0)])
            stray.append(moves[~inside])
    return np.sort(np.concatenate(stray))


def last_before(times: Int64, limit: Int64, after: Int64) -> Int64:
    """Return for each row the last of `times` in (after, limit), UNKNOWN if there is none."""
    if len(times) == 0:
        return np.full(len(limit), UNKNOWN)
    index = np.searchsorted(times, limit, "left") - 1
    latest = times[np.maximum(index, 0)]
    return np.where((index >= 0) & (latest > after), latest, UNKNOWN)


def first_after(times: Int64, instants: Int64) -> Int64:
    """Return for each instant the first of `times` after it, or the end of all time."""
    return np.append(times, _NEVER)[np.searchsorted(times, instants, "right")]


def _of_model(number: int, marks: Marks, engine_ns: Int64) -> Passes:
    forward, wait = marks.times(MarkKind.DDP_FORWARD), marks.times(MarkKind.DDP_WAIT)
    previous = np.concatenate(([_ALWAYS], wait[:-1])) if len(wait) else wait
    last = last_before(forward, wait, after=previous)
    backward = last_before(marks.times(MarkKind.DDP_BACKWARD), wait, after=np.where(last != UNKNOWN, last, previous))
    limit = np.minimum(first_after(forward, wait), np.append(wait[1:], _NEVER)[: len(wait)])
    arrived = last_before(marks.times(MarkKind.BUCKET_DONE), limit, after=wait)
    done = first_after(marks.times(MarkKind.DDP_STATS), np.where(arrived != UNKNOWN, arrived, wait))
    done = np.where(done < limit, done, UNKNOWN)
    begin = _first_forward(forward, last, previous, engine_ns)
    return Passes(np.full(len(wait), number), begin, backward, wait, done)


def _first_forward(forward: Int64, last: Int64, previous: Int64, engine_ns: Int64) -> Int64:
    """Return where passes begin whose model runs several times before one backward pass (on real and on made up data).

    So many times as is usual since the backward pass before; forward passes beyond that are evaluations. Where nothing
    tells of backward passes, only the last forward is known to belong to the pass.
    """
    known = last != UNKNOWN
    if len(engine_ns) == 0 or not known.any():
        return last
    since = np.append(_ALWAYS, engine_ns)[np.searchsorted(engine_ns, last, "left")]
    until = np.searchsorted(forward, last, "right")
    count = until - np.searchsorted(forward, np.maximum(since, previous), "right")
    usual = int(np.sort(count[known])[(int(known.sum()) - 1) // 2])
    first = np.maximum(until - np.clip(count, 1, max(usual, 1)), 0)
    return np.where(known, forward[first], UNKNOWN)
