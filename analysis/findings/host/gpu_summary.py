"""What the job's GPUs did: over whole iterations, and by phase where a sample is short enough to be of one phase."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from netprof.analysis.declared import added, by_key, put_together
from netprof.analysis.events.iterations import Iterations
from netprof.analysis.events.phase_times import PhaseTimes
from netprof.analysis.events.phases import PHASES
from netprof.analysis.tables.gpu_samples import GpuSamples, GpuSeries
from netprof.analysis.tables.intervals import Intervals, merge
from netprof.model import Gpu
from netprof.schema import GpuMetric

THROTTLE_REASONS = {
    0x1: "idle",
    0x2: "clocks set by a user",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clocks",
}
"""nvmlClocksEventReasons, bit by bit."""

_SLOWED_DOWN = ("power cap", "hardware slowdown", *(THROTTLE_REASONS[bit] for bit in (0x20, 0x40, 0x80)))
_WORTH_A_NOTE = 0.05
_FEWEST = 3
"""Samples that a phase needs for a mean of its own."""


@dataclass(frozen=True)
class PhaseMean:
    """The mean of the `samples` that lie wholly in one phase; None where there are too few."""

    mean: float | None
    samples: int


@dataclass(frozen=True)
class MetricSummary:
    """One metric over the window, weighted by time; its unit is in the metric's name.

    A sample comes every `interval_ns` and is the mean over `mean_over_ns` (0: an instant); power that is read more
    often than it is measured is repeated for `held_ns`. Nothing shorter than the longest of the three,
    `resolution_ns`, can be told apart. `bytes` are what a rate moved in the window, in the time for
    which there are samples. `phases` are by name of the phase, empty where the job's iterations are unknown.
    `weight_ns` is the time that the mean is over.
    """

    metric: GpuMetric
    samples: int
    interval_ns: int | None
    mean_over_ns: int
    held_ns: int
    mean: float
    minimum: float
    maximum: float
    bytes: float | None
    phases: Mapping[str, PhaseMean]
    weight_ns: int = 0

    def __add__(self, other: MetricSummary) -> MetricSummary:
        """Return both together; what is a median of samples is the mean of both, by samples."""
        weights = [self.samples, other.samples]
        intervals = [each for each in (self.interval_ns, other.interval_ns) if each is not None]
        names = dict.fromkeys([*self.phases, *other.phases])
        return MetricSummary(
            metric=self.metric,
            samples=sum(weights),
            interval_ns=min(intervals, default=None),
            mean_over_ns=round(np.average([self.mean_over_ns, other.mean_over_ns], weights=weights)),
            held_ns=round(np.average([self.held_ns, other.held_ns], weights=weights)),
            mean=float(np.average([self.mean, other.mean], weights=[self.weight_ns, other.weight_ns])),
            minimum=min(self.minimum, other.minimum),
            maximum=max(self.maximum, other.maximum),
            **added((self, other), "bytes weight_ns"),
            phases={
                name: _mean_of([each.phases[name] for each in (self, other) if name in each.phases]) for name in names
            },
        )

    @property
    def resolution_ns(self) -> int:
        """The shortest time that the metric can tell apart."""
        return max(self.interval_ns or 0, self.mean_over_ns, self.held_ns)


@dataclass(frozen=True)
class GpuSummary:
    """A GPU that the job uses. `window` is what is averaged over: the "iterations" of the GPU's process, or the whole
    "recording" where it has none; `window_ns` its length.

    `on_host` is its number there and the host, of several hosts. `metrics` are the whole GPU's, `processes` each
    process's own. `throttled` is the share of samples that give each reason for lower clocks; empty where that was not
    sampled.
    """

    gpu: Gpu
    ranks: tuple[int, ...]
    window: str
    window_ns: int
    metrics: Mapping[GpuMetric, MetricSummary]
    processes: Mapping[int, Mapping[GpuMetric, MetricSummary]]
    throttled: Mapping[str, float]
    on_host: str = ""

    @property
    def called(self) -> str:
        """Its number for a person."""
        return self.on_host or str(self.gpu.index)


def _mean_of(parts: Sequence[PhaseMean]) -> PhaseMean:
    known = [part for part in parts if part.mean is not None]
    samples = sum(part.samples for part in parts)
    means = [part.mean or 0.0 for part in known]
    return PhaseMean(float(np.average(means, weights=[part.samples for part in known])) if known else None, samples)


def merge_gpus(parts: Sequence[Sequence[GpuSummary]]) -> tuple[GpuSummary, ...]:
    """Return the summaries over consecutive pieces of a recording as one; where iterations are known, only of those."""
    by_index = by_key(parts, lambda each: each.gpu.index)
    return tuple(_in_one(by_index[index]) for index in sorted(by_index))


def _in_one(parts: Sequence[GpuSummary]) -> GpuSummary:
    parts = [part for part in parts if part.window == "iterations"] or parts
    window_ns = [part.window_ns for part in parts]
    reasons = dict.fromkeys(reason for part in parts for reason in part.throttled)
    pids = dict.fromkeys(pid for part in parts for pid in part.processes)
    return replace(
        parts[-1],
        window_ns=sum(window_ns),
        metrics=_sum([part.metrics for part in parts]),
        processes={pid: _sum([part.processes[pid] for part in parts if pid in part.processes]) for pid in pids},
        throttled={
            reason: float(np.average([part.throttled.get(reason, 0.0) for part in parts], weights=window_ns))
            for reason in reasons
        },
    )


def _sum(parts: Sequence[Mapping[GpuMetric, MetricSummary]]) -> dict[GpuMetric, MetricSummary]:
    sums = {each.metric: each for each in put_together((part.values() for part in parts), lambda each: each.metric)}
    return {metric: sums[metric] for metric in GpuMetric if metric in sums}


def summarize_gpus(
    samples: GpuSamples,
    gpus: Sequence[Gpu],
    iterations: Iterations,
    ranks: Mapping[int, int],
    recording: Intervals,
    phases: Mapping[int, PhaseTimes] | None = None,
) -> tuple[GpuSummary, ...]:
    """Summarise every GPU that has samples; `ranks` are by pid, `recording` is when was recorded.

    `phases` are the processes' own, by pid; without them the phases lie between the iterations' edges.
    """
    described = {gpu.index: gpu for gpu in gpus}
    sampled = [described.get(index) or Gpu(index) for index in np.unique(samples.gpu).tolist()]
    return tuple(_summarize(samples, gpu, iterations, ranks, recording, phases or {}) for gpu in sampled)


def gpu_notes(gpus: Sequence[GpuSummary]) -> Iterator[str]:
    """Say where a GPU was slowed down, and where its use was not told by NVML's own list of processes."""
    for summary in gpus:
        for reason in _SLOWED_DOWN:
            share = summary.throttled.get(reason, 0.0)
            if share > _WORTH_A_NOTE:
                yield f"GPU {summary.called} was slowed down in {share:.0%} of the samples: {reason}"
        if summary.gpu.found_by.startswith("inferred"):
            yield f"that the job uses GPU {summary.called} is {summary.gpu.found_by}"


def _summarize(
    samples: GpuSamples,
    gpu: Gpu,
    iterations: Iterations,
    ranks: Mapping[int, int],
    recording: Intervals,
    phases_of: Mapping[int, PhaseTimes],
) -> GpuSummary:
    samples, iterations = samples.where(samples.gpu == gpu.index), _iterations_of(gpu, iterations)
    phases = _phases(iterations, phases_of) if len(iterations) else {}
    window = merge(iterations.begin_ns, iterations.end_ns) if len(iterations) else recording
    whole, processes = samples.where(samples.pid == 0), samples.where(samples.pid != 0)
    metrics = _metrics(whole, window, phases)
    return GpuSummary(
        gpu=gpu,
        ranks=tuple(sorted({ranks[pid] for pid in gpu.pids if pid in ranks})),
        window="iterations" if len(iterations) else "recording",
        window_ns=window.total_ns,
        metrics={metric: summary for metric, summary in metrics.items() if metric != GpuMetric.THROTTLE_REASONS},
        processes={pid: _metrics(processes.of_pid(pid), window, phases) for pid in np.unique(processes.pid).tolist()},
        throttled=_throttled(whole, window),
    )


def _iterations_of(gpu: Gpu, iterations: Iterations) -> Iterations:
    """Return the iterations of that process on the GPU that has the most."""
    counts = {pid: int((iterations.pid == pid).sum()) for pid in gpu.pids}
    most = max(counts, key=lambda pid: counts[pid], default=None)
    return iterations.where(iterations.pid == (-1 if most is None else most))


def _phases(iterations: Iterations, phases: Mapping[int, PhaseTimes]) -> dict[str, Intervals]:
    """Return when in its iterations a process is in which phase, by the phase's name."""
    times = phases.get(int(iterations.pid[0]))
    if times is not None:
        return times.within(iterations.begin_ns, iterations.end_ns)
    return {phase.name: merge(getattr(iterations, phase.begin), getattr(iterations, phase.end)) for phase in PHASES}


def _metrics(samples: GpuSamples, window: Intervals, phases: Mapping[str, Intervals]) -> dict[GpuMetric, MetricSummary]:
    every = ((metric, _series(samples, metric)) for metric in GpuMetric)
    summaries = {metric: _metric(metric, series, window, phases) for metric, series in every if series is not None}
    return {metric: summary for metric, summary in summaries.items() if summary is not None}


def _series(samples: GpuSamples, metric: GpuMetric) -> GpuSeries | None:
    rows = samples.where(samples.metric == int(metric))
    return GpuSeries(rows.time_ns, rows.period_ns, rows.value) if len(rows) else None


def _metric(
    metric: GpuMetric, series: GpuSeries, window: Intervals, phases: Mapping[str, Intervals]
) -> MetricSummary | None:
    """Summarise one series over the window; None where no sample is of it."""
    weights = series.weights(window)
    values = series.value[weights > 0]
    if len(values) == 0:
        return None
    mean = float(np.average(series.value, weights=weights))
    held_ns = series.held_ns() if metric is GpuMetric.POWER_W else 0  # other values may rightly stay as they are
    is_rate = metric.name.endswith("_BYTES_PER_S")
    return MetricSummary(
        metric=metric,
        samples=len(values),
        interval_ns=series.interval_ns,
        mean_over_ns=series.mean_over_ns,
        held_ns=held_ns,
        mean=mean,
        minimum=float(values.min()),
        maximum=float(values.max()),
        bytes=float((series.value * weights).sum() / 1e9) if is_rate else None,
        phases={name: _phase_mean(series.inside(times, held_ns)) for name, times in phases.items()},
        weight_ns=int(weights.sum()),
    )


def _phase_mean(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> PhaseMean:
    return PhaseMean(float(values.mean()) if len(values) >= _FEWEST else None, len(values))


def _throttled(samples: GpuSamples, window: Intervals) -> dict[str, float]:
    """Return the share of the window's samples that give each reason; those that never occur are left out."""
    series = _series(samples, GpuMetric.THROTTLE_REASONS)
    if series is None:
        return {}
    bits = series.value[series.weights(window) > 0]
    bits = np.where((bits >= 0) & (bits < 1 << 53), bits, 0).astype(np.int64)  # a float holds as many exactly
    shares = {
        name: float(np.bitwise_and(bits, bit).astype(bool).mean()) if len(bits) else 0.0
        for bit, name in THROTTLE_REASONS.items()
    }
    return {name: share for name, share in shares.items() if share}
