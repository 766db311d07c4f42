"""What a what-if starts from: when gradients are ready and what they carry, and what a trace measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from netprof.analysis.events.iterations import Iterations
from netprof.analysis.tables.columns import Float64
from netprof.analysis.tables.marks import Marks
from netprof.analysis.whatif.program import GradBuckets, Program
from netprof.analysis.whatif.recorded_steps import RecordedSteps
from netprof.errors import NetprofError
from netprof.schema import MarkKind


class OtherDevices(NamedTuple):
    """Devices that idle, in place of those that are used: the slowest link is then one of `bps`; `line` makes it so."""

    name: str
    bps: float
    line: str


class CpuTime(NamedTuple):
    """What the ranks of a machine take of each of its CPUs in a step, seconds: all their threads, of that computing.

    `wait_s` is for how long a rank's threads with marks waited for a CPU in a step, `all_wait_s` all of its threads.
    """

    busy_s: float
    compute_s: float
    wait_s: float
    all_wait_s: float


@dataclass(frozen=True)
class Observation:
    """What a trace measured, for the `measured` transport and the point marked in the table.

    Times are means over `iterations` typical ones. `workers_per_host` share a network namespace (a host of the job),
    `workers_on_a_machine` were recorded by one recorder and share CPUs and memory. `pace` holds the buckets of the rank
    that waits least, whose gradients other fusion policies start from; `wait_s` is when it waits for them after the
    iteration's begin, and `tail_s` what follows the last arrival (unpacking). `wire_bytes_per_byte` is the wire bytes
    that one host sent or received (whichever is more) per byte of buffer, and `overhead` those per byte that the
    algorithm has to send; both None where no wire bytes were seen. `other_devices` are None where none is faster.
    `cpu_time` is None where it is not known. `mean_s` is the mean of all steps, rare long ones among them.
    """

    iteration_s: float
    iterations: int
    workers: int
    workers_per_host: int
    workers_on_a_machine: int
    pace: GradBuckets
    wait_s: float
    tail_s: float
    line_rate_bps: float | None = None
    line_rate_source: str = "unknown"
    wire_bytes_per_byte: float | None = None
    overhead: float | None = None
    has_ddp_buckets: bool = True
    other_devices: OtherDevices | None = None
    cpu_time: CpuTime | None = None
    mean_s: float | None = None


@dataclass(frozen=True)
class GradientSchedule:
    """What a what-if starts from: one iteration's gradients in the order they are ready, and what a trace recorded.

    `ready_s` and `bytes` have shape (G,), empty where a trace holds no gradient marks; `compute_s` is the iteration
    without exposed communication (the paper's batch time), of the rank that computes longest. `recorded` is what the
    trace's ranks did, iteration by iteration. `notes` says what about it is assumed, `gradient_notes` what about
    `ready_s` and `bytes`.
    """

    ready_s: Float64
    bytes: Float64
    compute_s: float
    observed: Observation | None = None
    recorded: RecordedSteps | None = None
    notes: tuple[str, ...] = ()
    gradient_notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.ready_s.shape != self.bytes.shape:
            raise ValueError("one size per gradient")
        if not (np.isfinite(self.compute_s) and self.compute_s > 0):
            raise NetprofError(f"a batch time of {self.compute_s} s is not a time", "give --batch-time in seconds")

    @property
    def last_ready_s(self) -> float:
        """When the last gradient is ready and waiting begins: overhead counts from here."""
        if self.observed is not None:
            return self.observed.wait_s
        return float(self.ready_s[-1]) if len(self.ready_s) else 0.0


_NS = 1e-9
_NOTE = (
    "gradient-ready times are from {count} sampled steps; the marks hold no sizes, so each bucket's bytes are "
    "spread evenly over the gradients that became ready since the bucket before it"
)


def pace_of(recording: RecordedSteps) -> tuple[GradBuckets, float, float]:
    """Return the `pace`, `wait_s` and `tail_s` of an `Observation`: means over the iterations that are most alike.

    Times count from the iteration's begin, on the rank's compute clock; its last wait is meant.
    """
    program, row = recording.main, recording.pace_setter()
    chosen = program.tensors > 0
    launch_s = program.post_s[row].mean(axis=0)[chosen] - recording.lead_s[row]
    order = np.argsort(launch_s, kind="stable")
    waits = program.wait_s[row].mean(axis=0) - recording.lead_s[row]
    buckets = GradBuckets(launch_s[order], program.bytes[chosen][order])
    if not len(waits):
        return buckets, 0.0, 0.0
    last = int(np.argmax(waits))
    return buckets, float(waits[last]), float(program.tail_s[row, :, last].mean())


def with_tensors(recording: RecordedSteps, ready_s: Float64) -> RecordedSteps:
    """Return the recording with as many gradients in each collective as became ready since the one before it."""
    if len(ready_s) == 0:
        return recording
    programs = [_count_tensors(program, ready_s, recording.lead_s) for program in recording.programs]
    return replace(recording, programs=tuple(programs))


def _count_tensors(program: Program, ready_s: Float64, lead_s: Float64) -> Program:
    chosen = np.flatnonzero(program.tensors > 0)
    if len(chosen) == 0:
        return program
    launch_s = program.post_s[:, :, chosen].mean(axis=(0, 1)) - lead_s.mean()
    order = chosen[np.argsort(launch_s, kind="stable")]
    owner = np.minimum(np.searchsorted(np.sort(launch_s), ready_s, "left"), len(order) - 1)
    tensors = np.zeros(len(program))
    tensors[order] = np.maximum(np.bincount(owner, minlength=len(order)), 1)
    return program.changed(lambda one: replace(one, tensors=tensors))


def gradients_of(
    marks: Marks, iterations: Iterations, pid: int, buckets: GradBuckets
) -> tuple[Float64, Float64, tuple[str, ...]]:
    """Return ready times after the iteration's begin and bytes, shape (G,), and what is assumed; G = 0 without marks.

    Averaged over the sampled iterations in which as many gradients as usual became ready; those of rank `pid`, or of
    the first rank that was sampled.
    """
    ready = marks.of(MarkKind.GRADIENT_READY)
    sampled = np.unique(ready.pid)
    if len(sampled) == 0 or len(buckets) == 0:
        return np.zeros(0), np.zeros(0), ()
    rank = pid if pid in sampled else int(sampled[0])
    rank_iterations, times = iterations.of_pid(rank), ready.of_pid(rank).time_ns
    if len(rank_iterations) == 0:
        return np.zeros(0), np.zeros(0), ()
    row = np.searchsorted(rank_iterations.begin_ns, times, "right") - 1
    inside = (row >= 0) & (times <= rank_iterations.wait_ns[np.maximum(row, 0)])
    row, times = row[inside], times[inside]
    if len(row) == 0:
        return np.zeros(0), np.zeros(0), ()
    counts = np.bincount(row, minlength=len(rank_iterations))
    usual = int(np.bincount(counts[counts > 0]).argmax())
    kept = np.flatnonzero(counts == usual)
    at_s = (times[np.isin(row, kept)].reshape(len(kept), usual) - rank_iterations.begin_ns[kept][:, None]) * _NS
    mean_s = at_s.mean(axis=0)
    return mean_s, _spread(mean_s, buckets), (_NOTE.format(count=len(kept)),)


def _spread(ready_s: Float64, buckets: GradBuckets) -> Float64:
    """Spread each bucket's bytes evenly over the gradients ready since the launch before it; none is lost."""
    owner = np.minimum(np.searchsorted(buckets.launch_s, ready_s, "left"), len(buckets) - 1)
    size = np.zeros(len(ready_s))
    carried = 0.0
    for k in range(len(buckets)):
        mine = np.flatnonzero(owner == k)
        carried += float(buckets.bytes[k])
        if len(mine):
            size[mine] = carried / len(mine)
            carried = 0.0
    size[-1] += carried  # buckets after the last gradient's
    return size
