"""A what-if for programs: CSV and JSON. Nothing is computed here."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from netprof.analysis.declared import json_of, plain
from netprof.analysis.findings.collectives.collective_kinds import kind_name
from netprof.views.json_text import finite

if TYPE_CHECKING:
    from netprof.analysis.whatif.answer import Answer
    from netprof.analysis.whatif.changes import Prediction
    from netprof.analysis.whatif.fit import AlphaBeta
    from netprof.analysis.whatif.transports import Spoken

CSV_COLUMNS = ("workers", "bandwidth_gbps", "compression", "scaling_factor", "overhead_s", "iteration_s")


def to_csv(answer: Answer) -> str:
    """Return the sweep as CSV with CSV_COLUMNS, numbers in full precision."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    writer.writerows([_exact(row[name]) for name in CSV_COLUMNS] for row in _rows(answer))
    return out.getvalue()


def to_json(answer: Answer, changes: Sequence[Prediction] = ()) -> dict[str, Any]:
    """Return the answer as JSON-ready values; what is infinite, and a goal out of reach, is null."""
    observed = answer.observed
    document = {
        "policy": answer.policy,
        "transport": answer.transport,
        "wire_bytes": answer.wire_source,
        "measured": None
        if observed is None
        else json_of(
            observed,
            "iteration_s iterations mean_s workers workers_per_host line_rate_bps line_rate_source wire_bytes_per_byte",
            model_iteration_s=answer.measured_model_s,
            full_use_iteration_s=answer.full_use_s,
        ),
        "fit": None if answer.main_fit is None else _fit(*answer.main_fit),
        "fits": [_fit(spoken, fit) for spoken, fit in answer.fits.items()],
        "baselines": dataclasses.asdict(answer.base),
        "changes": plain(changes),
        "points": _rows(answer),
        "compression_needed": plain(answer.goals),
        "bucket_sizes": plain(answer.bucket_sizes),
        "conclusion": answer.conclusion,
        "notes": list(answer.notes),
    }
    return {name: finite(value) for name, value in document.items()}


def _fit(spoken: Spoken, fit: AlphaBeta) -> dict[str, Any]:
    return {"kind": kind_name(spoken.kind), "ranks": spoken.ranks, **dataclasses.asdict(fit)}


def _rows(answer: Answer) -> list[dict[str, Any]]:
    points, result = answer.sweep.points, answer.sweep
    nothing = [None] * len(points)
    low, high = result.iteration_low_s, result.iteration_high_s
    columns = {
        "workers": [int(count) for count in points.workers.tolist()],
        "bandwidth_gbps": (points.bandwidth_bps / 1e9).tolist(),
        "compression": [
            label if number else ratio
            for ratio, number, label in zip(
                points.compression.tolist(), points.method.tolist(), points.labels, strict=True
            )
        ],
        "scaling_factor": result.scaling_factor.tolist(),
        "host_scaling_factor": result.host_scaling_factor.tolist(),
        "overhead_s": result.overhead_s.tolist(),
        "iteration_s": result.iteration_s.tolist(),
        "iteration_low_s": nothing if low is None else low.tolist(),
        "iteration_high_s": nothing if high is None else high.tolist(),
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _exact(value: float | str) -> str:
    return value if isinstance(value, str) else repr(value).removesuffix(".0")
