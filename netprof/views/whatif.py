"""Drawing a what-if: the table for people, CSV and JSON for programs. Nothing is computed here."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from netprof.analysis.whatif import text

if TYPE_CHECKING:
    from netprof.analysis.whatif.answer import Answer

CSV_COLUMNS = ("workers", "bandwidth_gbps", "compression", "scaling_factor", "overhead_s", "iteration_s")


def to_csv(answer: Answer) -> str:
    """Return the sweep as CSV with CSV_COLUMNS, numbers in full precision."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    writer.writerows([_exact(row[name]) for name in CSV_COLUMNS] for row in _rows(answer))
    return out.getvalue()


def to_json(answer: Answer) -> dict[str, Any]:
    """Return the answer as JSON-ready values; an infinite link speed and a goal out of reach are null."""
    observed = answer.observed
    return {
        "policy": answer.policy,
        "transport": answer.transport,
        "wire_bytes": answer.wire_source,
        "measured": None
        if observed is None
        else {
            "iteration_s": observed.iteration_s,
            "iterations": observed.iterations,
            "workers": observed.workers,
            "workers_per_host": observed.workers_per_host,
            "line_rate_bps": observed.line_rate_bps,
            "line_rate_source": observed.line_rate_source,
            "wire_bytes_per_byte": observed.wire_bytes_per_byte,
            "model_iteration_s": answer.measured_model_s,
            "full_use_iteration_s": answer.full_use_s,
        },
        "fit": None if answer.fit is None else dataclasses.asdict(answer.fit),
        "baselines": dataclasses.asdict(answer.base),
        "points": [
            {name: None if math.isinf(value) else value for name, value in row.items()} for row in _rows(answer)
        ],
        "compression_needed": [dataclasses.asdict(goal) for goal in answer.goals],
        "conclusion": answer.conclusion,
        "notes": list(answer.notes),
    }


def draw(answer: Answer, console: Console) -> None:
    """Print the tables, what they rest on, and the conclusion."""
    for workers in sorted({int(count) for count in answer.sweep.points.workers}):
        console.print(_grid_table(answer, workers))
        console.print(_goal_table(answer, workers))
    for line in _footnotes(answer):
        console.print(Text(line, style="dim"))
    console.print(Text(answer.conclusion, style="bold"))


def _rows(answer: Answer) -> list[dict[str, float]]:
    points, result = answer.sweep.points, answer.sweep
    columns = {
        "workers": [int(count) for count in points.workers.tolist()],
        "bandwidth_gbps": (points.bandwidth_bps / 1e9).tolist(),
        "compression": points.compression.tolist(),
        "scaling_factor": result.scaling_factor.tolist(),
        "host_scaling_factor": result.host_scaling_factor.tolist(),
        "overhead_s": result.overhead_s.tolist(),
        "iteration_s": result.iteration_s.tolist(),
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _exact(value: float) -> str:
    return repr(value).removesuffix(".0")


def _grid_table(answer: Answer, workers: int) -> Table:
    """Rows are links, columns compression ratios, a cell the scaling factor over the iteration time."""
    points, result = answer.sweep.points, answer.sweep
    ratios = sorted(set(points.compression.tolist()))
    table = Table(title=f"{workers} workers: scaling factor, iteration time", title_justify="left", title_style="bold")
    table.add_column("link")
    for ratio in ratios:
        table.add_column("plain" if ratio == 1 else text.ratio(ratio), justify="right")
    links = sorted(set(points.bandwidth_bps[points.workers == workers].tolist()))
    marked = _measured_rows(answer, workers)
    for bandwidth in sorted({*links, *([marked[0]] if marked else [])}):
        if marked and bandwidth == marked[0]:
            for label, iteration_s, style in marked[1]:
                cell = _cell(answer.base.worker_s / iteration_s, iteration_s)
                table.add_row(label, cell, *[""] * (len(ratios) - 1), style=style)
        if bandwidth in links:
            chosen = (points.workers == workers) & (points.bandwidth_bps == bandwidth)
            order = points.compression[chosen].argsort()
            values = zip(result.scaling_factor[chosen][order], result.iteration_s[chosen][order], strict=True)
            table.add_row(text.rate(bandwidth), *(_cell(float(s), float(t)) for s, t in values))
    return table


def _measured_rows(answer: Answer, workers: int) -> tuple[float, list[tuple[str, float, str]]] | None:
    """Return the measured link and its rows (label, iteration time, style); None where nothing was measured there."""
    observed = answer.observed
    if observed is None or observed.line_rate_bps is None or observed.workers != workers:
        return None
    name = text.rate(observed.line_rate_bps)
    rows = [(f"▶ {name}, measured", observed.iteration_s, "bold green")]
    if answer.full_use_s is not None:
        rows.append((f"{name}, fully used", answer.full_use_s, ""))
    return observed.line_rate_bps, rows


def _cell(scaling: float, iteration_s: float) -> Text:
    return Text.assemble(text.factor(scaling), "\n", (text.seconds(iteration_s), "dim"))


def _goal_table(answer: Answer, workers: int) -> Table:
    """Rows are links, columns scaling factors, a cell the smallest compression ratio that reaches it."""
    mine = [goal for goal in answer.goals if goal.workers == workers]
    wanted = sorted({goal.scaling_factor for goal in mine})
    table = Table(
        title=f"{workers} workers: smallest compression that reaches",
        title_justify="left",
        title_style="bold",
    )
    table.add_column("link")
    for factor in wanted:
        table.add_column(f"{factor:.2f}", justify="right")
    for bandwidth in sorted({goal.bandwidth_bps for goal in mine}):
        cells = [goal.compression for goal in mine if goal.bandwidth_bps == bandwidth]
        table.add_row(text.rate(bandwidth), *("none does" if c is None else _ratio(c) for c in cells))
    return table


def _ratio(compression: float) -> str:
    return "plain" if compression <= 1 else text.ratio(compression)


def _footnotes(answer: Answer) -> list[str]:
    """Say what the numbers rest on."""
    base, observed, lines = answer.base, answer.observed, []
    how = {True: "measured", False: "modelled"}
    lines.append(
        f"Baselines: one worker {text.seconds(base.worker_s)} ({how[base.worker_measured]}), "
        f"one host {text.seconds(base.host_s)} ({how[base.host_measured]}). Buckets: {answer.policy}."
    )
    if answer.wire_source == "observed" and observed is not None and observed.wire_bytes_per_byte is not None:
        lines.append(f"Wire bytes: observed, {observed.wire_bytes_per_byte:.3f} per byte of bucket and host.")
    else:
        lines.append("Wire bytes: the ring algorithm's, 2(N-1)/N per byte of bucket (none were observed).")
    if answer.fit is not None:
        lines.append(_fit_note(answer))
    if observed is not None and answer.measured_model_s is not None:
        off = answer.measured_model_s / observed.iteration_s - 1
        lines.append(
            f"Measured: {text.seconds(observed.iteration_s)} (mean of the middle {observed.iterations} iterations) on "
            f"{text.rate(observed.line_rate_bps or math.inf)} ({observed.line_rate_source}); the model gives "
            f"{text.seconds(answer.measured_model_s)} there, {off * 100:+.1f} %."
        )
    return lines + [f"Note: {note}." for note in answer.notes]


def _fit_note(answer: Answer) -> str:
    fit = answer.fit
    assert fit is not None
    alpha = text.seconds(fit.latency_s) if fit.latency_known else "unknown (one size only), taken as 0"
    speed = "infinite" if fit.seconds_per_byte == 0 else f"{1e-9 / fit.seconds_per_byte:.3g} GB/s"
    return (
        f"Transport: measured, latency {alpha}, bandwidth {speed} of buffer, fitted to {fit.samples} collectives of "
        f"{fit.sizes} sizes; median error {text.percent(fit.median_error)}, "
        f"worst size {text.percent(fit.worst_size_error)}."
    )
