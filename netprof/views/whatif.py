"""Drawing a what-if for people. Nothing is computed here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from netprof.analysis.declared import Column, table
from netprof.analysis.findings.collectives.collective_kinds import kind_name
from netprof.analysis.form import Cell, Grid, Pairs
from netprof.analysis.whatif import text
from netprof.analysis.whatif.certainty import COMPUTING, MINUTES
from netprof.views.console_form import pairs, show, title
from netprof.views.safe import safe_text

if TYPE_CHECKING:
    from netprof.analysis.whatif.answer import Answer
    from netprof.analysis.whatif.changes import Prediction
    from netprof.analysis.whatif.fit import AlphaBeta
    from netprof.analysis.whatif.schedule import Observation
    from netprof.analysis.whatif.transports import Spoken

_CERTAIN = 0.2
_PLAIN = "1"
"""The label of what is not compressed."""
_SHOWN = 0.01  # share of the bytes below which a kind of collective is not described


def draw(answer: Answer, console: Console, changes: Sequence[Prediction] = ()) -> None:
    """Print the conclusion, what could be changed, the tables for each worker count, and what they rest on."""
    if changes and answer.observed is not None:
        console.print(Text(safe_text(_most(changes[0], answer.observed.iteration_s)), style="bold"))
    console.print(Padding(Text(safe_text(answer.conclusion), style="" if changes else "bold"), (0, 0, 0, 2)))
    if changes and answer.observed is not None:
        title(console, "One change at a time", "the one that saves most first")
        show(console, _changes(changes, answer.observed.iteration_s))
    for workers in sorted({int(count) for count in answer.sweep.points.workers}):
        title(
            console,
            f"{workers} workers",
            f"scaling factor and typical step, by link and compression{_of_ranges(answer, workers)}",
        )
        show(console, _predictions(answer, workers))
        title(console, f"{workers} workers", "smallest compression that reaches a scaling factor, intervals aside")
        show(console, _needed(answer, workers))
    if answer.bucket_sizes:
        title(console, "Other bucket sizes", "DistributedDataParallel's rule, without compression")
        show(console, table(_BUCKET_SIZES, answer.bucket_sizes))
    title(console, "Rests on")
    pairs(console, Pairs(_basis(answer)))


def _changes(changes: Sequence[Prediction], iteration_s: float) -> Grid:
    """A row a change: a step with it, what that saves of the recorded one, and how sure it is."""
    columns = (
        Column("change", "name"),
        Column("a step", "iteration_s", text.seconds),
        Column("saves", lambda change: _saved(change, iteration_s)),
        Column("if", "assumption"),
    )
    return table(columns, changes)


def _most(change: Prediction, iteration_s: float) -> str:
    """Return the headline: the change that saves most."""
    step = f"a step of {text.seconds(change.iteration_s)} instead of {text.seconds(iteration_s)}"
    return f"{change.name[0].upper()}{change.name[1:]} would save most: {step}"


def _saved(change: Prediction, iteration_s: float) -> str:
    saved = text.percent(1 - change.iteration_s / iteration_s)
    if change.low_s is None or change.high_s is None:
        return f"{saved}, how sure is unknown"
    reach_s = max(change.high_s - change.iteration_s, change.iteration_s - change.low_s)
    return f"{saved} ±{text.percent(reach_s / iteration_s)}"


def _predictions(answer: Answer, workers: int) -> Grid:
    """Rows of a link: the scaling factor, the iteration time, its interval; a column a compression."""
    points = answer.sweep.points
    mine = points.workers == workers
    labels = np.array(points.labels)
    columns = list(dict.fromkeys(labels[mine].tolist()))
    rows: list[list[Cell]] = []
    strong: frozenset[int] = frozenset()
    observed = answer.observed
    marked = observed.line_rate_bps if observed is not None and observed.workers == workers else None
    shown = columns if marked is None or _PLAIN in columns else [_PLAIN, *columns]
    for bandwidth in sorted({*points.bandwidth_bps[mine].tolist(), *([marked] if marked else [])}):
        if observed is not None and bandwidth == marked:
            strong = frozenset((len(rows), len(rows) + 1))
            rows += _measured(answer, observed, shown)
        chosen = np.flatnonzero(mine & (points.bandwidth_bps == bandwidth))
        if len(chosen):
            at = [int(chosen[labels[chosen] == label][0]) for label in columns]
            ranges = [_range(answer, number) for number in at]
            of_link = _from_to(text.rate(bandwidth), [factors for factors, _ in ranges])
            of_link += _from_to("  a step", [times for _, times in ranges]) + _intervals(answer, at, ranges)
            rows += [[row[0], *[""] * (len(shown) - len(columns)), *row[1:]] for row in of_link]
    faint = frozenset(number for number, row in enumerate(rows) if str(row[0]).startswith(" ")) - strong
    return Grid(["link", *(_title(label) for label in shown)], rows, strong=strong, faint=faint)


def _of_ranges(answer: Answer, workers: int) -> str:
    """Say why some numbers are ranges, where some are."""
    at = np.flatnonzero(answer.sweep.points.workers == workers)
    if not any(_range(answer, int(number))[0][1] for number in at):
        return ""
    return f"; its interval (up to) where wider than {text.percent(_CERTAIN)}"


def _from_to(label: str, ranges: Sequence[tuple[str, str]]) -> list[list[Cell]]:
    """Return a row of where ranges begin, and one of where they end; "" for a number."""
    rows: list[list[Cell]] = [[label, *(low for low, _ in ranges)], ["    up to", *(high for _, high in ranges)]]
    return rows if any(high for _, high in ranges) else rows[:1]


_Range = tuple[tuple[str, str], tuple[str, str]]
"""Where the scaling factor and the time of a point begin and end; "" for the end of a number."""


def _range(answer: Answer, at: int) -> _Range:
    """Return the scaling factor and the time of a point; ranges where its interval is wider than a fifth of the time.

    A scaling factor above 1 would be of ranks that wait less for their CPUs than they did.
    """
    result, time_s, factor = answer.sweep, float(answer.sweep.iteration_s[at]), float(answer.sweep.scaling_factor[at])
    if result.iteration_low_s is not None and result.iteration_high_s is not None:
        low_s, high_s = float(result.iteration_low_s[at]), float(result.iteration_high_s[at])
        if high_s - low_s > _CERTAIN * time_s:
            low, high = (text.factor(min(factor * time_s / end_s, 1.0) if end_s else 1.0) for end_s in (high_s, low_s))
            return (low, high), (text.seconds(low_s), text.seconds(high_s))
    return (text.factor(factor), ""), (text.seconds(time_s), "")


def _title(label: str) -> str:
    """Return a compression as a column is named: a bare ratio with an x."""
    if not label[0].isdigit():
        return label
    return "plain" if label == _PLAIN else text.ratio(float(label))


def _intervals(answer: Answer, at: list[int], ranges: Sequence[_Range]) -> list[list[Cell]]:
    """Return the row with how far the intervals of numbers reach at their further side; none where it is not known."""
    result = answer.sweep
    if result.iteration_low_s is None or result.iteration_high_s is None:
        return []
    reach_s = np.maximum(result.iteration_high_s - result.iteration_s, result.iteration_s - result.iteration_low_s)
    shares = (reach_s / result.iteration_s)[at].tolist()
    cells = ["" if high else f"±{text.percent(share)}" for share, (_, (_, high)) in zip(shares, ranges, strict=True)]
    return [["  interval", *cells]] if any(cells) else []


def _measured(answer: Answer, observed: Observation, columns: Sequence[str]) -> list[list[Cell]]:
    """Return the rows of the measured point, and of the same link fully used; in the column without compression."""
    name = text.rate(observed.line_rate_bps or math.inf)
    points = [(f"▶ {name} measured", observed.iteration_s)]
    if answer.full_use_s is not None:
        points.append((f"{name} fully used", answer.full_use_s))
    rows: list[list[Cell]] = []
    for label, step_s in points:
        for heading, cell in (
            (label, text.factor(answer.base.worker_s / step_s)),
            ("  a step", text.seconds(step_s)),
        ):
            rows.append([heading, *(cell if column == _PLAIN else "" for column in columns)])
    return rows


def _needed(answer: Answer, workers: int) -> Grid:
    """A row a link, a column a scaling factor, a cell the smallest compression ratio that reaches it."""
    mine = [goal for goal in answer.goals if goal.workers == workers]
    wanted = sorted({goal.scaling_factor for goal in mine})
    rows: list[list[Cell]] = []
    for bandwidth in sorted({goal.bandwidth_bps for goal in mine}):
        needed = {goal.scaling_factor: goal.compression for goal in mine if goal.bandwidth_bps == bandwidth}
        rows.append([text.rate(bandwidth), *(_ratio(needed[factor]) for factor in wanted)])
    return Grid(["link", *(f"{factor:.2f}" for factor in wanted)], rows)


_BUCKET_SIZES = (
    Column("bucket size", lambda size: f"{size.bucket_bytes / (1 << 20):g} MiB"),
    Column("buckets", "buckets"),
    Column("link", "bandwidth_bps", text.rate),
    Column("workers", "workers"),
    Column("a step", "iteration_s", text.seconds),
    Column("scaling factor", "scaling_factor", text.factor),
)


def _ratio(compression: float | None) -> str:
    if compression is None:
        return "none does"
    return "plain" if compression <= 1 else text.ratio(compression)


def _basis(answer: Answer) -> list[tuple[str, str]]:
    """Return what the numbers rest on, by name."""
    observed = answer.observed
    rows = [("buckets", answer.policy), ("wire bytes", _wire(answer))]
    rows += [("transport", line) for line in _transport(answer)]
    if observed is not None and answer.measured_model_s is not None:
        off = (answer.measured_model_s / observed.iteration_s - 1) * 100
        rows.append(
            (
                "measured",
                f"{text.seconds(observed.iteration_s)} on {text.rate(observed.line_rate_bps or math.inf)} "
                f"({observed.line_rate_source}), mean of the middle {observed.iterations} steps; "
                f"the model gives {text.seconds(answer.measured_model_s)} there ({off:+.1f} %)",
            )
        )
    if answer.sweep.iteration_low_s is not None:
        rows.append(
            (
                "interval",
                "±: 5th to 95th percentile of the recorded steps, whatever explains what links took beyond their "
                f"bytes, and {text.percent(MINUTES)} that jobs differ by from minute to minute; with smaller gradients "
                f"{text.percent(COMPUTING)} of what is computed",
            )
        )
    rows.append(("one worker", _baseline(answer, answer.base.worker_s, answer.base.worker_measured)))
    rows.append(("one host", _baseline(answer, answer.base.host_s, answer.base.host_measured)))
    return rows + [("note", note) for note in answer.notes]


def _wire(answer: Answer) -> str:
    observed = answer.observed
    if answer.wire_source == "observed" and observed is not None and observed.wire_bytes_per_byte is not None:
        return f"observed: {observed.wire_bytes_per_byte:.3f} per byte of buffer, of the busiest host"
    return "the ring algorithm's, none were observed: of an all-reduce 2(N-1)/N per byte"


def _transport(answer: Answer) -> list[str]:
    """Return the fit of each kind of collective, the one with the most bytes first."""
    if not answer.fits:
        return ["ideal: the link is always full"]
    most = sum(fit.total_bytes for fit in answer.fits.values())
    ordered = sorted(answer.fits.items(), key=lambda item: -item[1].total_bytes)
    return [_described(spoken, fit) for spoken, fit in ordered if fit.total_bytes >= _SHOWN * most]


def _described(spoken: Spoken, fit: AlphaBeta) -> str:
    latency = text.seconds(fit.latency_s) if fit.latency_known else "unknown, taken as 0"
    speed = "infinite" if fit.seconds_per_byte == 0 else text.rate(8 / fit.seconds_per_byte)
    sizes = f"{fit.sizes} size{'' if fit.sizes == 1 else 's'}"
    return (
        f"measured, {kind_name(spoken.kind)} of {spoken.ranks} ranks: latency {latency}, {speed} of buffer, fitted to "
        f"{fit.samples} of {sizes}; error {text.percent(fit.median_error)} in the median, "
        f"{text.percent(fit.worst_size_error)} of the worst size"
    )


def _baseline(answer: Answer, seconds: float, measured: bool) -> str:
    words = f"{text.seconds(seconds)} a step, {'measured' if measured else 'modelled'}"
    if answer.observed is None or answer.measured_model_s is None:
        return words
    return f"{words}; against it the measured scaling factor is {text.factor(seconds / answer.observed.iteration_s)}"
