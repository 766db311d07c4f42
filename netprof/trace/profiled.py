"""From a profile of torch.profiler to rows of table `profiled`: when a process computed, and when it communicated."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from netprof.errors import TraceError
from netprof.model import Clock
from netprof.schema import Profiled
from netprof.trace.kineto import Doing, Int64, Kineto

_LATEST_NS = 1 << 62

Columns = dict[str, Int64]


def profiled_rows(kineto: Kineto, pid: int, clock: Clock) -> Columns:
    """Return the rows of table `profiled` that a profile gives of a process; `clock` is its host's.

    What ran on a GPU counts, and without any of that what ran on the host. Raises TraceError for a profile that tells
    of neither.
    """
    first, last, doing = _on_clock(kineto, clock)
    parts = {Profiled.SEEN: (first.min(keepdims=True), last.max(keepdims=True))}
    for computes, communicates in (
        (Doing.GPU_COMPUTES, Doing.GPU_COMMUNICATES),
        (Doing.HOST_COMPUTES, Doing.HOST_COMMUNICATES),
    ):
        used = {Profiled.COMPUTES: doing == computes, Profiled.COMMUNICATES: doing == communicates}
        if any(rows.any() for rows in used.values()):
            return _columns(pid, parts | {kind: _merged(first[rows], last[rows]) for kind, rows in used.items()})
    hint = "profile with activities CPU or CUDA"
    raise TraceError(f"{kineto.path} tells of no kernel and of no operator", hint)


def _on_clock(kineto: Kineto, clock: Clock) -> tuple[Int64, Int64, npt.NDArray[np.uint8]]:
    """Return when events begin and end on a host's clock, and what they are."""
    zero_ns = kineto.base_ns - clock.realtime_ns + clock.monotonic_ns
    known = (kineto.begin_ns >= -zero_ns) & (kineto.end_ns < _LATEST_NS - zero_ns)
    if not known.any():
        raise TraceError(f"{kineto.path} holds no event at a time of its host's clock")
    return kineto.begin_ns[known] + zero_ns, kineto.end_ns[known] + zero_ns, kineto.doing[known]


def _columns(pid: int, parts: Mapping[Profiled, tuple[Int64, Int64]]) -> Columns:
    kinds = [np.full(len(first), int(kind)) for kind, (first, _) in parts.items()]
    first, last = (np.concatenate([pair[side] for pair in parts.values()]) for side in (0, 1))
    return {"pid": np.full(len(first), pid), "kind": np.concatenate(kinds), "first_ns": first, "last_ns": last}


def _merged(first: Int64, last: Int64) -> tuple[Int64, Int64]:
    """Return the union of intervals, ascending and disjoint."""
    real = last > first
    order = np.argsort(first[real], kind="stable")
    first, last = first[real][order], np.maximum.accumulate(last[real][order])
    if len(first) == 0:
        return first, last
    opens = np.append(True, first[1:] > last[:-1])
    return first[opens], last[np.append(opens[1:], True)]
