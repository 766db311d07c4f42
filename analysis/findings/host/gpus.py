"""The job's GPUs, and how finely each of their numbers can be trusted in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from netprof.analysis.declared import Column, at, json_of, table
from netprof.analysis.events.phases import PHASES
from netprof.analysis.findings.host.gpu_summary import GpuSummary, MetricSummary, gpu_notes, merge_gpus, summarize_gpus
from netprof.analysis.findings.names import gpu_on_host
from netprof.analysis.form import Pairs, Part
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.gpu_samples import read_gpu_samples
from netprof.schema import GpuMetric
from netprof.units import duration, share, size

_ABOUT = "means over the {window}; busy: any kernel ran, however little of the GPU it used"
_Write = Callable[[float], str]
_UNITS: tuple[tuple[str, _Write], ...] = (
    ("_BYTES_PER_S", lambda value: f"{size(value)}/s"),
    ("_BYTES", size),
    ("_PERCENT", lambda value: f"{value:.1f} %"),
    ("_MHZ", lambda value: f"{value:.0f} MHz"),
    ("_W", lambda value: f"{value:.0f} W"),
)
_WORDS = {"sm": "SM", "pcie": "PCIe", "nvlink": "NVLink", "dram": "DRAM"}

_COLUMNS: tuple[tuple[str, GpuMetric, int], ...] = (
    ("busy", GpuMetric.BUSY_PERCENT, 0),
    ("SM", GpuMetric.SM_ACTIVE_PERCENT, 0),
    ("tensor", GpuMetric.TENSOR_ACTIVE_PERCENT, 9),
    ("memory bw.", GpuMetric.DRAM_BANDWIDTH_PERCENT, 3),
    ("memory", GpuMetric.MEMORY_USED_BYTES, 4),
    ("power", GpuMetric.POWER_W, 0),
    ("SM clock", GpuMetric.SM_CLOCK_MHZ, 2),
    ("PCIe tx", GpuMetric.PCIE_TX_BYTES_PER_S, 8),
    ("PCIe rx", GpuMetric.PCIE_RX_BYTES_PER_S, 6),
    ("NVLink tx", GpuMetric.NVLINK_TX_BYTES_PER_S, 7),
    ("NVLink rx", GpuMetric.NVLINK_RX_BYTES_PER_S, 5),
)
"""Heading, metric, and which one goes first where there is little room; 0: it stays."""

_BY_PHASE: tuple[tuple[str, GpuMetric, _Write], ...] = (
    ("SM", GpuMetric.SM_ACTIVE_PERCENT, lambda value: f"{value:.0f} %"),
    ("busy", GpuMetric.BUSY_PERCENT, lambda value: f"{value:.0f} %"),
    ("power", GpuMetric.POWER_W, lambda value: f"{value:.0f} W"),
)


def _conclude(analysis: Analysis) -> tuple[GpuSummary, ...]:
    evidence = analysis.evidence
    samples = read_gpu_samples(evidence.table("gpu"))
    summaries = summarize_gpus(
        samples, evidence.meta.gpus, evidence.iterations, evidence.ranks, evidence.recording, evidence.phases
    )
    return tuple(replace(each, on_host=gpu_on_host(each.gpu.index, evidence)) for each in summaries)


def metric_name(metric: GpuMetric) -> str:
    """Return a metric's name for a person: without its unit."""
    name = metric.name
    for unit, _ in _UNITS:
        name = name.removesuffix(unit)
    return " ".join(_WORDS.get(word, word) for word in name.lower().split("_"))


def metric_value(value: float | None, metric: GpuMetric) -> str:
    """Return a metric's value with the unit that its name says."""
    if value is None:
        return "-"
    write = next((write for unit, write in _UNITS if metric.name.endswith(unit)), lambda value: f"{value:.1f}")
    return write(value)


def _gpu(summary: GpuSummary) -> dict[str, Any]:
    gpu = summary.gpu
    return {
        **json_of(gpu, "gpu=index name uuid pids sources"),
        **json_of(summary, "ranks window window_s throttled"),
        "memory_bytes": gpu.memory_bytes or None,
        "found_by": gpu.found_by or None,
        "metrics": _metrics(summary.metrics),
        "processes": [{"pid": pid, "metrics": _metrics(metrics)} for pid, metrics in summary.processes.items()],
    }


def _metrics(summaries: Mapping[GpuMetric, MetricSummary]) -> dict[str, Any]:
    keys = "samples interval_s mean_over_s held_s resolution_s mean min=minimum max=maximum bytes phases"
    return {metric.name.lower(): json_of(summary, keys) for metric, summary in summaries.items()}


def _parts(gpus: Sequence[GpuSummary]) -> Iterator[Part]:
    if not gpus:  # the notes then say why
        return
    known = {metric for summary in gpus for metric in summary.metrics}
    columns = [column for column in _COLUMNS if column[1] in known]
    grid = table((*_WHICH, *(_mean(*column) for column in columns)), gpus)
    lines = [("resolution", _resolution(gpus, columns))]
    for summary in gpus:
        slowed = {reason: part for reason, part in summary.throttled.items() if reason != "idle"}
        if slowed:
            about = ", ".join(f"{reason} {share(part)}" for reason, part in slowed.items())
            lines.append((f"GPU {summary.called} clocks", f"lowered by {about} of the samples"))
        lines += _by_phase(summary)
    window = " or the ".join(dict.fromkeys(summary.window for summary in gpus))
    yield Part("GPUs", _ABOUT.format(window=window), [grid, Pairs(lines)])
    for summary in gpus:
        yield _of_one(summary)


def _by_phase(summary: GpuSummary) -> Iterator[tuple[str, str]]:
    """Yield a line for each metric that is told apart by phase: phases with enough samples of their own."""
    for name, metric, write in _BY_PHASE:
        metric_summary = summary.metrics.get(metric)
        means = ((phase.title, _of_phase(phase.name)(metric_summary)) for phase in PHASES) if metric_summary else ()
        known = [f"{title} {write(mean)}" for title, mean in means if mean is not None]
        if known:
            yield f"GPU {summary.called} {name}", ", ".join(known) + " (samples within one phase)"


def _of_one(summary: GpuSummary) -> Part:
    """Return every metric of a GPU: spread, means by phase where samples lie wholly in one, and resolution."""
    phases = [phase for phase in PHASES if any(phase.name in metric.phases for metric in summary.metrics.values())]
    columns = (
        Column("metric", lambda pair: metric_name(pair[0])),
        _value("mean", lambda metric: metric.mean),
        _value("least", lambda metric: metric.minimum, 1),
        _value("most", lambda metric: metric.maximum, 2),
        *(_value(phase.short, _of_phase(phase.name), 3 + place) for place, phase in enumerate(phases)),
        Column("resolution", lambda pair: duration(pair[1].resolution_ns / 1e9), goes=9),
    )
    about = "by phase: of the samples that lie wholly in one" if phases else ""
    return Part(f"GPU {_name(summary)}", about, [table(columns, list(summary.metrics.items()))], detail=True)


def _value(heading: str, value: Callable[[MetricSummary], float | None], goes: int = 0) -> Column:
    return Column(heading, lambda pair: metric_value(value(pair[1]), pair[0]), goes=goes)


def _of_phase(name: str) -> Callable[[MetricSummary], float | None]:
    return lambda metric: metric.phases[name].mean if name in metric.phases else None


def _name(summary: GpuSummary) -> str:
    return summary.gpu.name if summary.on_host else f"{summary.gpu.index} {summary.gpu.name}".rstrip()


_WHICH = (
    Column("GPU", _name),
    Column("rank", "ranks", lambda ranks: ",".join(map(str, ranks)) or "?", goes=1),
)


def _mean(name: str, metric: GpuMetric, goes: int) -> Column:
    """Return a column of means; of what is held (memory), of the most."""
    which = "maximum" if metric is GpuMetric.MEMORY_USED_BYTES else "mean"
    return Column(name, lambda each: metric_value(at(each.metrics.get(metric), which), metric), goes=goes)


def _resolution(gpus: Sequence[GpuSummary], columns: Sequence[tuple[str, GpuMetric, int]]) -> str:
    """Say what each column cannot tell apart: the longest of its GPUs' resolutions, columns that share one together."""
    names: dict[str, list[str]] = {}
    for name, metric, _ in columns:
        longest_ns = max(summary.metrics[metric].resolution_ns for summary in gpus if metric in summary.metrics)
        names.setdefault(duration(longest_ns / 1e9), []).append(name)
    sampled = "; ".join(f"{', '.join(alike)} {length}" for length, alike in names.items())
    return f"{sampled} (what is shorter cannot be told apart; NVML's busy may be a mean over up to 1 s)"


GPUS = Section(
    "gpus",
    _conclude,
    ("gpu", "marks"),
    lambda gpus: {"gpus": [_gpu(summary) for summary in gpus]},
    lambda gpus: tuple(_parts(gpus)),
    gpu_notes,
    merge=lambda parts, whole: merge_gpus(parts),
)
