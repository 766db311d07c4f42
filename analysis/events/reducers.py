"""Processes that wrap more than one model in DDP: whose steps are the iterations."""

from __future__ import annotations

import numpy as np

from netprof.analysis.tables.columns import Int64
from netprof.analysis.tables.marks import Marks
from netprof.schema import MarkKind

_NAMED_IN_ARG0 = (MarkKind.DDP_FORWARD, MarkKind.DDP_BACKWARD, MarkKind.DDP_WAIT, MarkKind.DDP_STATS)
_NAMED_IN_ARG1 = (MarkKind.GRADIENT_READY, MarkKind.BUCKET_LAUNCH, MarkKind.BUCKET_DONE)


def main_steps(marks: Marks) -> tuple[Marks, dict[int, int]]:
    """Return the marks without the DDP marks of all but each process's main model, and how many models took turns.

    Where several models train in turn (the two of a GAN, say), the main one is that with the most steps, the first
    one among equals; what the others do falls into the phases of its iterations. Models that come one after the
    other (a model that was wrapped again) all stay. The dict holds the processes in which models took turns, by pid.
    """
    reducer = _reducer(marks)
    keep = np.ones(len(marks), bool)
    turns = {}
    waits = marks.kind == MarkKind.DDP_WAIT
    for pid in np.unique(marks.pid[waits]):
        own = waits & (marks.pid == pid)
        names, first, count = np.unique(reducer[own], return_index=True, return_counts=True)
        if len(names) > 1 and _take_turns(reducer[own], names):
            main = names[np.lexsort((first, -count))[0]]
            keep &= (marks.pid != pid) | (reducer == main) | ~_is_ddp(marks)
            turns[int(pid)] = len(names)
    return (marks.where(keep) if turns else marks), turns


def _reducer(marks: Marks) -> Int64:
    """Return the address of the reducer that each DDP mark names, 0 for other marks."""
    in_arg1 = np.isin(marks.kind, [int(kind) for kind in _NAMED_IN_ARG1])
    in_arg0 = np.isin(marks.kind, [int(kind) for kind in _NAMED_IN_ARG0])
    return np.where(in_arg0, marks.arg0, np.where(in_arg1, marks.arg1, 0))


def _is_ddp(marks: Marks) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.isin(marks.kind, [int(kind) for kind in (*_NAMED_IN_ARG0, *_NAMED_IN_ARG1)])


def _take_turns(reducers: Int64, names: Int64) -> bool:
    """Return whether the steps of models, in the order of time, alternate rather than follow in blocks."""
    blocks = 1 + int((reducers[1:] != reducers[:-1]).sum())
    return blocks > len(names)
