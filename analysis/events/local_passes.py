"""Passes whose gradients are not exchanged: accumulated ones (`no_sync`), and those of a process without DDP."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.events.reducers import Passes
from netprof.analysis.tables.columns import UNKNOWN, Bool, Int64, distinct
from netprof.analysis.tables.marks import Marks
from netprof.schema import MarkKind


@dataclass(frozen=True, eq=False)
class LocalPasses:
    """What a process does outside of the passes that its reducers tell of; ns, ascending.

    `forward_ns` and `backward_ns` are where passes that lead to gradients begin, `other_ns` where forward passes begin
    that do not (evaluations), `step_ns` the optimizer's steps.
    """

    forward_ns: Int64
    backward_ns: Int64
    other_ns: Int64
    step_ns: Int64

    @property
    def accumulates_unseen(self) -> bool:
        """Whether there are backward passes, and nothing tells where their forward passes begin."""
        return len(self.backward_ns) > 0 and len(self.forward_ns) == 0


def find_local_passes(marks: Marks, passes: Passes) -> LocalPasses:
    """Find the local passes of one process; `passes` are those whose gradients are exchanged.

    A forward pass leads to the backward pass that follows it, and as many of them as usual to one backward pass.
    """
    edges = _Edges(passes)
    backward, step = (edges.outside(marks.times(kind)) for kind in (MarkKind.BACKWARD, MarkKind.OPTIMIZER_STEP))
    backward = backward[backward < _unfinished_from(marks, backward, edges)]
    forward = edges.outside(_not_exchanged(marks))
    leads = _leads_to_gradients(forward, backward, distinct(edges.time_ns, step))
    return LocalPasses(forward[leads], backward, forward[~leads], step)


def _unfinished_from(marks: Marks, backward: Int64, edges: _Edges) -> int:
    """Return from when on a backward pass is one that is exchanged, which the recording's end cuts off.

    DDP prepares for such a pass (`ddp_backward`), else a bucket is launched in it.
    """
    never = int(np.iinfo(np.int64).max)
    last = int(edges.time_ns[-1]) if len(edges.time_ns) else int(np.iinfo(np.int64).min)
    prepared, launched = (marks.times(kind) for kind in (MarkKind.DDP_BACKWARD, MarkKind.BUCKET_LAUNCH))
    if (prepared := prepared[prepared > last]).size:
        return int(prepared[0])
    launched = launched[launched > last]
    entered = backward[(backward > last) & (backward < (launched[0] if launched.size else last))]
    return int(entered[-1]) if entered.size else never


def _not_exchanged(marks: Marks) -> Int64:
    """Return the forward passes but for those that a reducer tells of right after."""
    forward, exchanged = marks.times(MarkKind.FORWARD), marks.times(MarkKind.DDP_FORWARD)
    before = np.searchsorted(forward, exchanged, "right") - 1
    return np.delete(forward, before[before >= 0])


class _Edges:
    """The known edges of passes by time, and which of them end one."""

    def __init__(self, passes: Passes) -> None:
        times = np.concatenate((passes.begin_ns, passes.backward_ns, passes.wait_ns, passes.done_ns))
        ends = np.repeat([False, False, False, True], len(passes))
        order = np.argsort(times, kind="stable")
        order = order[times[order] != UNKNOWN]
        self.time_ns: Int64 = times[order]
        self._ends = ends[order]
        self._begun_before = len(order) > 0 and self.time_ns[0] not in passes.begin_ns

    def outside(self, at_ns: Int64) -> Int64:
        """Return the instants at which no pass is under way: the last edge before them ends one.

        What lies inside a pass (an engine entered again for a checkpoint, an optimizer fused into the backward pass)
        is a part of it, also of a pass that has not ended when another one inside of it does, or whose begin was before
        the recording's.
        """
        index = np.searchsorted(self.time_ns, at_ns, "right") - 1
        before = (index < 0) & (not self._begun_before)
        return np.asarray(at_ns[before | ((index >= 0) & np.append(self._ends, True)[index])])


def _leads_to_gradients(forward: Int64, backward: Int64, others: Int64) -> Bool:
    """Tell which forward passes lead to a backward pass; `others` are instants that no pass extends over."""
    following = np.searchsorted(backward, forward, "left")
    barrier = np.append(others, np.iinfo(np.int64).max)[np.searchsorted(others, forward, "right")]
    leads = following < len(backward)
    leads[leads] &= backward[following[leads]] < barrier[leads]
    count = np.bincount(following[leads], minlength=len(backward) + 1)
    if not leads.any():
        return leads
    usual = int(np.sort(count[count > 0])[((count > 0).sum() - 1) // 2])
    last = np.searchsorted(forward, np.append(backward, np.iinfo(np.int64).max), "left")  # forwards before each
    return np.asarray(leads & (last[following] - np.arange(len(forward)) <= usual))
