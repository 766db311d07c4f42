"""GPUs: the latest values of each, where any are recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rich.text import Text

from netprof.analysis.live.now import Recent
from netprof.schema import GpuMetric
from netprof.units import size
from netprof.views.live.text_rows import Part, heading, row, stacked
from netprof.views.safe import safe_text

_BAR, _NAME = 20, 4
_ABOUT = "busy: any kernel ran; each the latest value, a mean over its own period"


def gpu_rows(recent: Recent, width: int, most: int) -> list[Text]:
    """Return a heading and a row for each GPU; nothing where no GPU is recorded."""
    if not recent.gpus:
        return []
    rows = [heading("GPUs", _ABOUT)]
    names = {number: safe_text(recent.gpu_names.get(number, str(number))) for number in recent.gpus}
    longest = max(_NAME, *map(len, names.values()))
    shown = list(recent.gpus.items())[: most - 1]
    return rows + [_gpu(f"{names[number]:>{longest}}  ", values, width) for number, values in shown]


def _gpu(name: str, values: Mapping[GpuMetric, float], width: int) -> Text:
    parts: list[Part | Text | str] = [name]
    busy = values.get(GpuMetric.BUSY_PERCENT)
    if busy is not None:
        bar = [(busy / 100, "█", "green"), (1 - busy / 100, "·", "bright_black")]
        parts += [stacked(bar, min(_BAR, max(4, width // 6))), f" {busy:3.0f} % busy"]
    for metric, text in _TEXTS.items():
        if metric in values:
            parts.append(f"  {text(values[metric])}")
    return row(*parts)


_TEXTS: dict[GpuMetric, Callable[[float], str]] = {
    GpuMetric.SM_ACTIVE_PERCENT: lambda value: f"SM {value:.0f} %",
    GpuMetric.TENSOR_ACTIVE_PERCENT: lambda value: f"tensor {value:.0f} %",
    GpuMetric.MEMORY_USED_BYTES: lambda value: f"{size(value)} used",
    GpuMetric.POWER_W: lambda value: f"{value:.0f} W",
    GpuMetric.PCIE_TX_BYTES_PER_S: lambda value: f"PCIe ↑ {size(value)}/s",
    GpuMetric.PCIE_RX_BYTES_PER_S: lambda value: f"↓ {size(value)}/s",
    GpuMetric.NVLINK_TX_BYTES_PER_S: lambda value: f"NVLink ↑ {size(value)}/s",
    GpuMetric.NVLINK_RX_BYTES_PER_S: lambda value: f"↓ {size(value)}/s",
    GpuMetric.SM_CLOCK_MHZ: lambda value: f"{value:.0f} MHz",
}
