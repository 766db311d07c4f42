"""Which processes are only seen to launch, and the bounds of what each waits for; exact where a profile tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from netprof.analysis.bounds.bounded import Bounds, bounds_of
from netprof.analysis.bounds.ends import SeenProcess
from netprof.analysis.bounds.launches import computes_on_gpu, launched_steps, launches_of
from netprof.analysis.events.waits import from_to, training_threads
from netprof.analysis.tables.columns import Int64, concatenate, empty
from netprof.analysis.tables.gpu_samples import GpuSamples
from netprof.analysis.tables.intervals import NOTHING, Intervals, overlap
from netprof.analysis.tables.marks import Marks
from netprof.analysis.tables.profiled import Profiles
from netprof.analysis.wire.lanes import Lanes
from netprof.model import Gpu, Target
from netprof.schema import ENQUEUED, RECEIVE, TRANSMIT, GpuMetric, MarkKind, Profiled

_NCCL = "nccl"
_TO_GPUS = (*ENQUEUED, MarkKind.DEVICE_WAIT)
_BUCKETS, _PERFORMED = (MarkKind.BUCKET_LAUNCH,), (MarkKind.COLLECTIVE_BEGIN,)
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
    """Return the processes that use a GPU, or hand something to one and perform no collective themselves.

    That NCCL is loaded tells little, since most builds of torch load it on any machine: only of DDP's buckets, where
    nothing is seen to carry them, it may be what does.
    """
    handing, launching, performing = (
        frozenset(np.unique(marks.pid[marks.are(*kinds)]).tolist()) for kinds in (_TO_GPUS, _BUCKETS, _PERFORMED)
    )
    with_nccl = {target.pid for target in targets if _NCCL in target.frameworks}
    return frozenset(pid for gpu in gpus for pid in gpu.pids) | ((handing | (launching & with_nccl)) - performing)


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
    rows: list[Bounds] = []
    reasons, on_gpu = {}, set()
    periods_ns: dict[int, int] = {}
    for lane, _, _ in lanes:
        periods_ns[lane.pid] = max(periods_ns.get(lane.pid, 0), lanes.periods.get(lane.link, 0))
    for pid in pids:
        of_process = marks.of_pid(pid)
        if computes_on_gpu(pid, of_process, with_gpu):
            on_gpu.add(pid)
        training = of_process.where(np.isin(of_process.tid, training_threads(of_process)))
        process = SeenProcess(
            pid=pid,
            steps=launched_steps(of_process, launches_of(of_process, world_size)),
            sent=lanes.of_process(pid, TRANSMIT),
            received=lanes.of_process(pid, RECEIVE),
            on_gpu=pid in on_gpu,
            is_ddp=bool(of_process.are(MarkKind.BUCKET_LAUNCH).any()),
            period_ns=periods_ns.get(pid, 0),
            goes_on_ns=of_process.of(*_GOES_ON).time_ns,
            blocked=from_to(training, MarkKind.DEVICE_WAIT, MarkKind.DEVICE_WAIT_OVER),
            sees_waits=sees_waits,
            computes=_computes([gpu for gpu in gpus if pid in gpu.pids], samples),
        )
        bounded = bounds_of(process)
        if isinstance(bounded, str):
            reasons[pid] = bounded
        else:
            rows.append(bounded)
    return FoundBounds(concatenate(Bounds, rows), reasons, frozenset(on_gpu))


def _computes(gpus: Sequence[Gpu], samples: GpuSamples) -> Intervals:
    """Return when a process's GPU is seen to compute; never where it has several, or shares one."""
    if len(gpus) != 1 or len(gpus[0].pids) != 1:
        return NOTHING
    active = samples.where((samples.gpu == gpus[0].index) & (samples.metric == GpuMetric.SM_ACTIVE_PERCENT))
    busy = active.where((active.value >= _COMPUTES_PERCENT) & (active.period_ns > 0))
    return Intervals(busy.time_ns - busy.period_ns, busy.time_ns)  # not merged: each holds some moment of computing


def with_profiles(bounds: Bounds, profiles: Profiles) -> Bounds:
    """Return the bounds with both sides alike where a profile tells how long was communicated and not computed.

    Where in the step that was is drawn as if it lay together, up to the end of its last collective.
    """
    least, most, exact = bounds.gradient_ns.copy(), bounds.received_ns.copy(), bounds.exact.copy()
    for pid in sorted(profiles.pids & set(np.unique(bounds.pid).tolist())):
        rows = bounds.rows_of(pid)
        steps = bounds.where(rows)
        talks = profiles.when(pid, Profiled.COMMUNICATES)
        waits = talks - profiles.when(pid, Profiled.COMPUTES)
        seen_ns = overlap(profiles.when(pid, Profiled.SEEN), steps.begin_ns, steps.end_ns)
        known = (seen_ns == steps.end_ns - steps.begin_ns) & (overlap(talks, steps.begin_ns, steps.end_ns) > 0)
        end = _last_end(talks, steps.end_ns)
        begin = end - np.minimum(overlap(waits, steps.begin_ns, steps.end_ns), end - steps.begin_ns)
        least[rows[known]], most[rows[known]], exact[rows[known]] = begin[known], end[known], 1
    is_exact = exact == 1
    return replace(
        bounds,
        launch_ns=np.where(is_exact, least, bounds.launch_ns),
        gradient_ns=least,
        received_ns=most,
        done_ns=np.where(is_exact, most, bounds.done_ns),
        exact=exact,
    )


def _last_end(times: Intervals, until_ns: Int64) -> Int64:
    """Return the last end of some times at or before each instant, or the instant while some go on."""
    if len(times) == 0:
        return until_ns
    row = np.searchsorted(times.begin_ns, until_ns, "left") - 1
    end = times.end_ns[np.maximum(row, 0)]
    return np.where(row >= 0, np.minimum(end, until_ns), until_ns)
