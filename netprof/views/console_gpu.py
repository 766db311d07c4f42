"""The report's table of GPUs, and how finely each of its numbers can be trusted in time."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console

from netprof.analysis import Analysis
from netprof.analysis.findings.gpus import PHASES, GpuSummary, MetricSummary
from netprof.schema import GpuMetric
from netprof.views.format import duration, share, size
from netprof.views.grid import Grid, pairs, show, title
from netprof.views.safe import safe_text

_ABOUT = "means over the {window}; busy: any kernel ran, however little of the GPU it used"
_Draw = Callable[[MetricSummary], str]


def _percent(summary: MetricSummary) -> str:
    return f"{summary.mean:.1f} %"


def _per_second(summary: MetricSummary) -> str:
    return f"{size(summary.mean)}/s"


_COLUMNS: tuple[tuple[str, GpuMetric, _Draw], ...] = (
    ("busy", GpuMetric.BUSY_PERCENT, _percent),
    ("SM", GpuMetric.SM_ACTIVE_PERCENT, _percent),
    ("tensor", GpuMetric.TENSOR_ACTIVE_PERCENT, _percent),
    ("memory bw.", GpuMetric.DRAM_BANDWIDTH_PERCENT, _percent),
    ("memory", GpuMetric.MEMORY_USED_BYTES, lambda summary: size(summary.maximum)),
    ("power", GpuMetric.POWER_W, lambda summary: f"{summary.mean:.0f} W"),
    ("SM clock", GpuMetric.SM_CLOCK_MHZ, lambda summary: f"{summary.mean:.0f} MHz"),
    ("PCIe tx", GpuMetric.PCIE_TX_BYTES_PER_S, _per_second),
    ("PCIe rx", GpuMetric.PCIE_RX_BYTES_PER_S, _per_second),
    ("NVLink tx", GpuMetric.NVLINK_TX_BYTES_PER_S, _per_second),
    ("NVLink rx", GpuMetric.NVLINK_RX_BYTES_PER_S, _per_second),
)
_LEAST_WANTED = ("SM clock", "memory bw.", "memory", "NVLink rx", "PCIe rx", "NVLink tx", "PCIe tx", "tensor")
_BY_PHASE = (
    ("SM", GpuMetric.SM_ACTIVE_PERCENT, "%"),
    ("busy", GpuMetric.BUSY_PERCENT, "%"),
    ("power", GpuMetric.POWER_W, "W"),
)


def gpus(analysis: Analysis, console: Console) -> None:
    """Print the GPUs that the job uses; nothing where none was sampled (the notes then say why)."""
    if not analysis.gpus:
        return
    windows = dict.fromkeys(summary.window for summary in analysis.gpus)
    title(console, "GPUs", _ABOUT.format(window=" or the ".join(windows)))
    columns = [column for column in _COLUMNS if any(column[1] in summary.metrics for summary in analysis.gpus)]
    rows = [(_name(summary), _ranks(summary), *_cells(summary, columns)) for summary in analysis.gpus]
    optional = ("rank", *(name for name in _LEAST_WANTED if name in {column[0] for column in columns}))
    show(console, Grid(("GPU", "rank", *(name for name, _, _ in columns)), rows, optional=optional))
    lines = [("resolution", _resolution(analysis, columns))]
    for summary in analysis.gpus:
        slowed = {reason: part for reason, part in summary.throttled.items() if reason != "idle"}
        if slowed:
            about = ", ".join(f"{reason} {share(part)}" for reason, part in slowed.items())
            lines.append((f"GPU {summary.gpu.index} clocks", f"lowered by {about} of the samples"))
        lines += _by_phase(summary)
    pairs(console, lines)


def _name(summary: GpuSummary) -> str:
    return f"{summary.gpu.index} {safe_text(summary.gpu.name, 40)}".rstrip()


def _ranks(summary: GpuSummary) -> str:
    return ",".join(map(str, summary.ranks)) or "?"


def _cells(summary: GpuSummary, columns: list[tuple[str, GpuMetric, _Draw]]) -> list[str]:
    return [draw(summary.metrics[metric]) if metric in summary.metrics else "-" for _, metric, draw in columns]


def _resolution(analysis: Analysis, columns: list[tuple[str, GpuMetric, _Draw]]) -> str:
    """Say what each column cannot tell apart: the longest of its GPUs' resolutions, columns that share one together."""
    names: dict[str, list[str]] = {}
    for name, metric, _ in columns:
        longest_ns = max(
            summary.metrics[metric].resolution_ns for summary in analysis.gpus if metric in summary.metrics
        )
        names.setdefault(duration(longest_ns / 1e9), []).append(name)
    sampled = "; ".join(f"{', '.join(alike)} {length}" for length, alike in names.items())
    return f"{sampled} (what is shorter cannot be told apart; NVML's busy may be a mean over up to 1 s)"


def _by_phase(summary: GpuSummary) -> list[tuple[str, str]]:
    """Return a line for each metric that is told apart by phase: phases with enough samples of their own."""
    lines = []
    for name, metric, unit in _BY_PHASE:
        found = summary.metrics.get(metric)
        if found is None:
            continue
        known = [
            f"{phase.replace('_', ' ')} {mean:.0f} {unit}"
            for phase in PHASES
            if phase in found.phases and (mean := found.phases[phase].mean) is not None
        ]
        if known:
            lines.append((f"GPU {summary.gpu.index} {name}", ", ".join(known) + " (samples within one phase)"))
    return lines
