"""GPUs: the latest sample of each, where any are recorded."""

from __future__ import annotations

from rich.text import Text

from netprof.analysis.recent import Recent
from netprof.views.format import rate
from netprof.views.live.rows import heading, row, stacked
from netprof.views.safe import safe_text

_BAR = 20


def gpu_rows(recent: Recent, width: int, most: int) -> list[Text]:
    """Return a heading and a row for each GPU; nothing where no GPU is recorded."""
    if not recent.gpus:
        return []
    rows = [heading("GPUs", "latest sample")]
    for name, values in list(recent.gpus.items())[: most - 1]:
        busy = values.get("sm_percent", 0.0) / 100
        bar = stacked([(busy, "█", "green"), (1 - busy, "·", "bright_black")], min(_BAR, max(4, width // 6)))
        rows.append(row(f" {safe_text(name, 20):<6} ", bar, "  ", " · ".join(_value(*item) for item in values.items())))
    return rows


def _value(name: str, value: float) -> str:
    """Write a column as its name says its unit."""
    label, _, unit = name.rpartition("_")
    if unit == "percent":
        return f"{label} {value:.0f} %"
    if unit == "w":
        return f"{label} {value:.0f} W"
    if unit == "bps":
        return f"{label} {rate(value)}"
    return f"{name} {value:.4g}"
