"""Counters of any source, as it describes them itself: how much, how fast, when at its worst, and of what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from netprof.analysis.declared import Column, by_key, plain, share_of, table
from netprof.analysis.definitions import COUNTERS as DEFINITION
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.links.nic import increases, since_before
from netprof.analysis.form import Part
from netprof.analysis.piece import Piece
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.counters import CounterSamples
from netprof.model import Series
from netprof.schema import COUNT
from netprof.units import duration, share

_SECOND_NS = 10**9
_MICROSECONDS = "us"
_SECONDS_PER = {"ns": 1e-9, _MICROSECONDS: 1e-6}


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


@dataclass(frozen=True)
class CountersFinding:
    """Every quantity, and what it is made from: by subject its total (of a level, its last value), and a level's mean.

    `length_ns` is the time that it is over.
    """

    summaries: tuple[CounterSummary, ...]
    totals: tuple[Mapping[str, int], ...]
    length_ns: int


def _conclude(analysis: Analysis) -> CountersFinding:
    evidence = analysis.evidence
    samples, length_ns = evidence.counters, evidence.recording.total_ns
    quantities = by_key([evidence.meta.series], lambda series: (series.source, series.name))
    summaries = [_of_quantity(each, samples, length_ns, _time(evidence)) for each in quantities.values()]
    return _finding([each for each in summaries if each is not None], length_ns)


def _time(evidence: Evidence) -> Piece:
    """Return the time that samples are taken of: of hosts that recorded different times, what all did."""
    if not evidence.piece.is_all or not any(host.left_out_ns for host in evidence.hosts):
        return evidence.piece
    return Piece(int(evidence.recording.begin_ns[0]), int(evidence.recording.end_ns[-1]) + 1)


def _of_quantity(
    alike: Sequence[Series], samples: CounterSamples, length_ns: int, piece: Piece
) -> tuple[CounterSummary, dict[str, int]] | None:
    """Summarise series of one quantity; None where none of them was sampled."""
    parts = {each: _of_series(each, samples, piece) for each in alike}
    parts = {each: part for each, part in parts.items() if len(part)}
    if not parts:
        return None
    about = next(iter(parts))
    counts = about.kind == COUNT
    totals = {
        each.subject: int(increases(part.value).sum() if counts else part.value[-1]) for each, part in parts.items()
    }
    mean = None if counts else float(np.mean([part.value.mean() for part in parts.values()]))
    busiest = _busiest(list(parts.values())) if counts else None
    return _summarize(about, totals, mean, busiest, length_ns), totals


def _of_series(series: Series, samples: CounterSamples, piece: Piece) -> CounterSamples:
    """Return a series' samples; of a piece of a recording also the one before it, for what was counted since."""
    rows = samples.where(samples.series == series.id)
    return rows if piece.is_all else rows.where(since_before(np.arange(len(rows)), rows.time_ns, piece)[0])


def _summarize(
    about: Series | CounterSummary,
    totals: Mapping[str, int],
    mean: float | None,
    busiest: float | None,
    length_ns: int,
) -> CounterSummary:
    worst = max(totals, key=lambda subject: totals[subject])
    total = sum(totals.values())
    return CounterSummary(
        **{name: getattr(about, name) for name in ("source", "name", "unit", "kind", "meaning")},
        subjects=len(totals),
        total=total,
        per_second=share_of(total * _SECOND_NS, length_ns) if about.kind == COUNT else mean,
        busiest_per_second=busiest,
        worst_subject=worst,
        worst_total=totals[worst],
    )


def _merge(parts: Sequence[CountersFinding], whole: Analysis) -> CountersFinding:
    length_ns = sum(part.length_ns for part in parts)
    every = (zip(part.summaries, part.totals, repeat(part.length_ns)) for part in parts)
    quantities = by_key(every, lambda each: (each[0].source, each[0].name))
    return _finding([_in_one(each, length_ns) for each in quantities.values()], length_ns)


def _finding(quantities: Sequence[tuple[CounterSummary, Mapping[str, int]]], length_ns: int) -> CountersFinding:
    return CountersFinding(
        tuple(summary for summary, _ in quantities), tuple(totals for _, totals in quantities), length_ns
    )


def _in_one(
    parts: Sequence[tuple[CounterSummary, Mapping[str, int], int]], length_ns: int
) -> tuple[CounterSummary, dict[str, int]]:
    about, counts = parts[0][0], parts[0][0].kind == COUNT
    totals: dict[str, int] = {}
    for _, each, _ in parts:
        totals |= {name: totals.get(name, 0) + value if counts else value for name, value in each.items()}
    known = [(summary.per_second or 0.0, weight) for summary, _, weight in parts if weight]
    mean = sum(value * weight for value, weight in known) / max(1, sum(weight for _, weight in known))
    busiest = max((s.busiest_per_second for s, _, _ in parts if s.busiest_per_second is not None), default=None)
    return _summarize(about, totals, mean, busiest, length_ns), totals


def _busiest(parts: Sequence[CounterSamples]) -> float | None:
    """Return the most that was counted in any second between samples, all subjects together.

    What the kernel brings up to date less often than that (pressure, every two seconds) is seen over as long.
    """
    times = np.concatenate([part.time_ns[1:] for part in parts])
    steps = np.concatenate([increases(part.value) for part in parts])
    if len(times) == 0:
        return None
    order = np.argsort(times, kind="stable")
    times, through = times[order], np.concatenate(([0], np.cumsum(steps[order])))
    changes = [np.diff(part.time_ns[1:][increases(part.value) > 0]) for part in parts]
    window_ns = max(_SECOND_NS, min((int(apart.min()) for apart in changes if len(apart)), default=0))
    begin = np.searchsorted(times, times - window_ns, "right")
    return float((through[1:] - through[begin]).max()) * _SECOND_NS / window_ns


def _parts(finding: CountersFinding) -> Iterator[Part]:
    for source, summaries in by_key([finding.summaries], lambda summary: summary.source).items():
        yield Part(f"Counters of the {source}", bodies=[table(_COLUMNS, summaries)])


def _most(summary: CounterSummary) -> str | None:
    """Return what has the largest part; None where there is no other."""
    worst = f"{summary.worst_subject} {_amount(summary.worst_total, summary)}"
    return worst if summary.subjects > 1 and summary.total else None


_COLUMNS = (
    Column("counter", lambda summary: summary.name.replace("_", " ")),
    Column("total", lambda summary: _amount(summary.total, summary)),
    Column("per second", lambda summary: _speed(summary.per_second, summary) if summary.kind == COUNT else "-"),
    Column("mean", lambda summary: "-" if summary.kind == COUNT else _amount(summary.per_second or 0.0, summary)),
    Column("busiest second", lambda summary: _speed(summary.busiest_per_second, summary)),
    Column("most of it", _most, none="-", left=True),
    Column("means", "meaning", left=True, goes=1),
)


def _amount(value: float, summary: CounterSummary) -> str:
    if summary.unit in _SECONDS_PER:
        return duration(value * _SECONDS_PER[summary.unit])
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
    lambda finding: {"counters": plain(finding.summaries)},
    lambda finding: tuple(_parts(finding)),
    definitions=lambda finding: (DEFINITION,) if finding.summaries else (),
    merge=_merge,
)
