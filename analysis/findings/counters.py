"""Counters of any source, as it describes them itself: how much, how fast, when at its worst, and of what."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netprof.analysis.definitions import COUNTERS as DEFINITION
from netprof.analysis.form import Grid, Part
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.columns import Int64
from netprof.analysis.tables.counters import CounterSamples, read_counters
from netprof.model import Series
from netprof.schema import COUNT
from netprof.units import duration, share

_SECOND_NS = 10**9
_MICROSECONDS = "us"


@dataclass(frozen=True)
class CounterSummary:
    """One quantity of one source over the recording, all its subjects (CPUs, ports) together.

    Of a count, `total` is by how much it grew and `per_second` how fast; of a level they are its last value and its
    mean. `busiest_per_second` is the most in any second, `worst_subject` what has the largest part, `worst_total`.
    """

    source: str
    name: str
    unit: str
    kind: str
    meaning: str
    subjects: int
    total: int
    per_second: float | None
    busiest_per_second: float | None
    worst_subject: str
    worst_total: int


def _conclude(analysis: Analysis) -> tuple[CounterSummary, ...]:
    evidence = analysis.evidence
    samples, length_ns = read_counters(evidence.table("counters")), evidence.recording.total_ns
    quantities: dict[tuple[str, str], list[Series]] = {}
    for series in evidence.meta.series:
        quantities.setdefault((series.source, series.name), []).append(series)
    found = (_summarize(each, samples, length_ns) for each in quantities.values())
    return tuple(summary for summary in found if summary is not None)


def _summarize(alike: Sequence[Series], samples: CounterSamples, length_ns: int) -> CounterSummary | None:
    """Summarise series of one quantity; None where none of them was sampled."""
    parts = {each: samples.where(samples.series == each.id) for each in alike}
    parts = {each: part for each, part in parts.items() if len(part)}
    if not parts:
        return None
    about = next(iter(parts))
    counts = about.kind == COUNT
    totals = {each: _growth(part) if counts else int(part.value[-1]) for each, part in parts.items()}
    worst = max(totals, key=lambda each: totals[each])
    total = sum(totals.values())
    return CounterSummary(
        source=about.source,
        name=about.name,
        unit=about.unit,
        kind=about.kind,
        meaning=about.meaning,
        subjects=len(parts),
        total=total,
        per_second=_rate(total, length_ns)
        if counts
        else float(np.mean([part.value.mean() for part in parts.values()])),
        busiest_per_second=_busiest(list(parts.values())) if counts else None,
        worst_subject=worst.subject,
        worst_total=totals[worst],
    )


def _steps(part: CounterSamples) -> Int64:
    """Return what was counted up to each sample but the first; a count that begins anew counts from zero."""
    grown = np.diff(part.value)
    return np.where(grown >= 0, grown, part.value[1:])


def _growth(part: CounterSamples) -> int:
    return int(_steps(part).sum())


def _mean(parts: Sequence[CounterSamples]) -> float:
    return float(np.mean([part.value.mean() for part in parts]))


def _rate(total: int, length_ns: int) -> float | None:
    return total * _SECOND_NS / length_ns if length_ns > 0 else None


def _busiest(parts: Sequence[CounterSamples]) -> float | None:
    """Return the most that was counted in any second between samples, all subjects together.

    What the kernel brings up to date less often than that (pressure, every two seconds) is seen over as long.
    """
    times = np.concatenate([part.time_ns[1:] for part in parts])
    steps = np.concatenate([_steps(part) for part in parts])
    if len(times) == 0:
        return None
    order = np.argsort(times, kind="stable")
    times, through = times[order], np.concatenate(([0], np.cumsum(steps[order])))
    changes = [np.diff(part.time_ns[1:][_steps(part) > 0]) for part in parts]
    window_ns = max(_SECOND_NS, min((int(apart.min()) for apart in changes if len(apart)), default=0))
    begin = np.searchsorted(times, times - window_ns, "right")
    return float((through[1:] - through[begin]).max() * _SECOND_NS / window_ns)


def _document(found: Sequence[CounterSummary]) -> dict[str, Any]:
    return {"counters": [dataclasses.asdict(summary) for summary in found]}


def _parts(found: Sequence[CounterSummary]) -> Iterator[Part]:
    for source in dict.fromkeys(summary.source for summary in found):
        own = [summary for summary in found if summary.source == source]
        headings = ("counter", "total", "per second", "busiest second", "most of it", "means")
        grid = Grid(headings, [_row(summary) for summary in own], frozenset({"most of it", "means"}), ("means",))
        yield Part(f"Counters of the {source}", bodies=[grid])


def _row(summary: CounterSummary) -> tuple[str, ...]:
    worst = f"{summary.worst_subject} {_amount(summary.worst_total, summary)}" if summary.subjects > 1 else "-"
    return (
        summary.name.replace("_", " "),
        _amount(summary.total, summary),
        _speed(summary.per_second, summary),
        _speed(summary.busiest_per_second, summary),
        worst if summary.total else "-",
        summary.meaning,
    )


def _amount(value: float, summary: CounterSummary) -> str:
    if summary.unit == _MICROSECONDS:
        return duration(value / 1e6)
    return f"{value:,.0f} {summary.unit}".replace(",", " ").rstrip()


def _speed(value: float | None, summary: CounterSummary) -> str:
    """Return a rate; microseconds a second are a share of the time."""
    if value is None:
        return "-"
    return share(value / 1e6) if summary.unit == _MICROSECONDS else f"{value:.3g}"


COUNTERS = Section(
    "counters",
    _conclude,
    ("counters",),
    _document,
    lambda found: tuple(_parts(found)),
    definitions=lambda found: (DEFINITION,) if found else (),
)
