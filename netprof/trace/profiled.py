"""From a profile of torch.profiler to rows of table `profiled`: when a process computed, and when it communicated."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from netprof.errors import TraceError
from netprof.model import Clock
from netprof.schema import Profiled
from netprof.trace.kineto import kineto_json

_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_ON_HOST = ("cpu_op", "user_annotation")
_COLLECTIVES = ("nccl", "gloo:", "mpi:", "ucc:", "c10d::", "record_param_comms")
"""How the names of events begin that communicate; torch names the backend first, NCCL's kernels themselves."""
_AROUND = ("DistributedDataParallel.", "Optimizer.", "ProfilerStep", "enumerate(")
"""Annotations around computing, which is under them."""
_LATEST_US = 1 << 52

Int64 = npt.NDArray[np.int64]
Columns = dict[str, Int64]


def profiled_rows(path: Path, pid: int, clock: Clock) -> Columns:
    """Return the rows of table `profiled` that a profile gives of a process; `clock` is its host's.

    Raises TraceError for what is no profile.
    """
    events, base_ns = _events(path)
    on_gpu = [each for each in events if each.get("cat") in _ON_GPU]
    used = on_gpu or [each for each in events if each.get("cat") in _ON_HOST]
    if not used:
        raise TraceError(f"{path} tells of no kernel and of no operator", "profile with activities CPU or CUDA")
    talks = [str(each.get("name", "")).startswith(_COLLECTIVES) for each in used]
    around = [not on_gpu and str(each.get("name", "")).startswith(_AROUND) for each in used]
    first, last = _times(used, base_ns - clock.realtime_ns + clock.monotonic_ns)
    talking, other = np.array(talks), np.array(around)
    seen = _times(events, base_ns - clock.realtime_ns + clock.monotonic_ns)
    parts = {
        Profiled.SEEN: (seen[0].min(keepdims=True), seen[1].max(keepdims=True)),
        Profiled.COMPUTES: _merged(first[~talking & ~other], last[~talking & ~other]),
        Profiled.COMMUNICATES: _merged(first[talking], last[talking]),
    }
    return _columns(pid, parts)


def _columns(pid: int, parts: Mapping[Profiled, tuple[Int64, Int64]]) -> Columns:
    kinds = [np.full(len(first), int(kind)) for kind, (first, _) in parts.items()]
    first, last = (np.concatenate([pair[side] for pair in parts.values()]) for side in (0, 1))
    return {"pid": np.full(len(first), pid), "kind": np.concatenate(kinds), "first_ns": first, "last_ns": last}


def _events(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the events that take time, and what their clock counts from, ns of the realtime clock."""
    try:
        document = json.loads(kineto_json(path))
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path} is no profile of torch.profiler: it holds no JSON") from error
    every = document.get("traceEvents") if isinstance(document, dict) else None
    if not isinstance(every, list):
        raise TraceError(f"{path} is no profile of torch.profiler: it has no traceEvents")
    base_ns = document.get("baseTimeNanoseconds")
    slices = [each for each in every if isinstance(each, dict) and each.get("ph") == "X" and _is_timed(each)]
    if not slices:
        raise TraceError(f"{path} holds no event of a known time")
    return slices, base_ns if type(base_ns) is int and 0 <= base_ns < 1 << 62 else 0


def _is_timed(event: Mapping[str, Any]) -> bool:
    return all(
        type(event.get(name)) in (int, float) and 0 <= event[name] < _LATEST_US and event[name] == event[name]
        for name in ("ts", "dur")
    )


def _times(events: Sequence[Mapping[str, Any]], zero_ns: int) -> tuple[Int64, Int64]:
    """Return when events begin and end; their numbers are microseconds after `zero_ns`."""
    first = np.array([round(1000 * each["ts"]) for each in events], np.int64) + zero_ns
    return first, first + np.array([round(1000 * each["dur"]) for each in events], np.int64)


def _merged(first: Int64, last: Int64) -> tuple[Int64, Int64]:
    """Return the union of intervals, ascending and disjoint."""
    real = last > first
    order = np.argsort(first[real], kind="stable")
    first, last = first[real][order], np.maximum.accumulate(last[real][order])
    if len(first) == 0:
        return first, last
    opens = np.append(True, first[1:] > last[:-1])
    return first[opens], last[np.append(opens[1:], True)]


def together(parts: Iterable[Columns]) -> Columns:
    """Return the rows of several profiles."""
    kept = list(parts)
    return {name: np.concatenate([each[name] for each in kept]) for name in ("pid", "kind", "first_ns", "last_ns")}
