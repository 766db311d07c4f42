"""Which processes are only seen to launch, and what is seen of each that bounds what it waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from netprof.analysis.bounds.bounded import Bounds, Unbounded, bounds_of, in_one
from netprof.analysis.bounds.launches import computes_on_gpu, launched_steps, launches_of
from netprof.analysis.bounds.moved import moved
from netprof.analysis.bounds.process import Process
from netprof.analysis.events.blocking import from_to
from netprof.analysis.events.waits import training_threads
from netprof.analysis.tables.columns import Int64, empty
from netprof.analysis.tables.gpu_samples import GpuSamples
from netprof.analysis.tables.intervals import NOTHING, Intervals, merge
from netprof.analysis.tables.marks import Marks
from netprof.analysis.wire.lanes import Lanes
from netprof.model import Gpu, Target
from netprof.schema import RECEIVE, TRANSMIT, GpuMetric, MarkKind

_NCCL = "nccl"
_COMPUTES_PERCENT = 50.0
"""Share of a GPU's multiprocessors that is busy on average, from which on more than a collective runs on it."""
_GOES_ON = (
    MarkKind.OPTIMIZER_STEP,
    MarkKind.DDP_FORWARD,
    MarkKind.FORWARD,
    MarkKind.DDP_BACKWARD,
    MarkKind.BACKWARD,
)


@dataclass(frozen=True, eq=False)
class FoundBounds:
    """The bounds of every process that is only seen to launch; `reasons` say of which there are none, and why.

    `on_gpu` are those that compute on a GPU, where the host's marks tell of launching alone; `profiled` are those of
    which there is a profile, whether or not it covers any of their steps.
    """

    rows: Bounds
    reasons: Mapping[int, str] = field(default_factory=dict)
    on_gpu: frozenset[int] = frozenset()
    profiled: frozenset[int] = frozenset()


NO_BOUNDS = FoundBounds(empty(Bounds))
"""Every process is seen to be done with what it launches, or none launches anything."""


def gpu_processes(marks: Marks, gpus: Sequence[Gpu], targets: Sequence[Target]) -> frozenset[int]:
    """Return the processes that use a GPU, or that have NCCL loaded and perform no collective themselves."""
    performing = frozenset(np.unique(marks.pid[marks.kind == MarkKind.COLLECTIVE_BEGIN]).tolist())
    with_nccl = {target.pid for target in targets if _NCCL in target.frameworks}
    return frozenset(pid for gpu in gpus for pid in gpu.pids) | (with_nccl - performing)


def find_bounds(
    pids: Sequence[int],
    with_gpu: frozenset[int],
    marks: Marks,
    lanes: Lanes,
    gpus: Sequence[Gpu],
    samples: GpuSamples,
    world_size: int | None,
    *,
    sees_waits: bool = False,
) -> FoundBounds:
    """Return the bounds of some processes, of which those `with_gpu` are known to use one.

    `samples` are of the GPUs; `sees_waits` says whether it is recorded when a host waits for one.
    """
    found: list[Bounds | Unbounded] = []
    on_gpu = set()
    for pid in pids:
        own = marks.of_pid(pid)
        mine = [gpu for gpu in gpus if pid in gpu.pids]
        if computes_on_gpu(pid, own, with_gpu):
            on_gpu.add(pid)
        process = _process(pid, own, lanes, world_size, on_gpu=pid in on_gpu, computes=_computes(mine, samples))
        process = replace(process, sees_waits=sees_waits)
        found.append(bounds_of(process, moved(process.sent), moved(process.received)))
    rows, reasons = in_one(found)
    return FoundBounds(rows, reasons, frozenset(on_gpu))


def _process(
    pid: int, own: Marks, lanes: Lanes, world_size: int | None, *, on_gpu: bool, computes: Intervals
) -> Process:
    threads = own.where(np.isin(own.tid, training_threads(own)))
    ports = [lanes.periods[lane.link] for lane, _, _ in lanes if lane.pid == pid and lane.link in lanes.periods]
    return Process(
        pid=pid,
        steps=launched_steps(own, launches_of(own, world_size)),
        sent=lanes.of_process(pid, TRANSMIT),
        received=lanes.of_process(pid, RECEIVE),
        on_gpu=on_gpu,
        is_ddp=bool((own.kind == MarkKind.BUCKET_LAUNCH).any()),
        period_ns=max(ports, default=0),
        goes_on_ns=_times(own),
        blocked=from_to(threads, MarkKind.DEVICE_WAIT, MarkKind.DEVICE_WAIT_OVER),
        sees_waits=False,
        computes=computes,
    )


def _times(own: Marks) -> Int64:
    return own.of(*_GOES_ON).time_ns


def _computes(gpus: Sequence[Gpu], samples: GpuSamples) -> Intervals:
    """Return when a process's GPU is seen to compute; never where it has several, or shares one."""
    if len(gpus) != 1 or len(gpus[0].pids) != 1:
        return NOTHING
    own = samples.where((samples.gpu == gpus[0].index) & (samples.metric == GpuMetric.SM_ACTIVE_PERCENT))
    busy = own.where((own.value >= _COMPUTES_PERCENT) & (own.period_ns > 0))
    return _separate(busy.time_ns - busy.period_ns, busy.time_ns)


def _separate(begin_ns: Int64, end_ns: Int64) -> Intervals:
    """Return intervals one by one, where they touch too: each tells of some moment in it, not of all."""
    return Intervals(begin_ns, end_ns) if len(begin_ns) else merge(begin_ns, end_ns)
