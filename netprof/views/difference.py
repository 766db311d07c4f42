"""What two runs differ in: on a terminal, as Markdown, as JSON (docs/json.md). Nothing is computed here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from netprof.analysis.compare.compared_run import Run
from netprof.analysis.compare.difference import CONFIDENCE, Change, Difference
from netprof.analysis.compare.difference_form import parts, sentence, sentences
from netprof.analysis.declared import json_of
from netprof.views.console_form import print_part
from netprof.views.json_text import json_text
from netprof.views.markdown import escaped, folded, part_lines
from netprof.views.safe import safe_text

SCHEMA = 1


def draw(difference: Difference, console: Console) -> None:
    """Print a comparison for a person."""
    for number, line in enumerate(sentences(difference)):
        console.print(Padding(Text(safe_text(line), style="" if number else "bold"), (0, 0, 0, 2 if number else 0)))
    for part in parts(difference):
        if not part.detail:
            print_part(part, console)


def to_markdown(difference: Difference) -> str:
    """Return a comparison as GitHub's flavour of Markdown."""
    lines = [f"**{escaped(sentence(difference))}**"]
    for part in parts(difference):
        lines += folded(part.title, list(part_lines(part))) if part.detail else part_lines(part)
    return "\n".join(lines).rstrip() + "\n"


def write_json(difference: Difference, failed: Sequence[Change], out: IO[str]) -> None:
    """Write the document. Raises OSError."""
    out.write(json_text(to_json(difference, failed)) + "\n")


def to_json(difference: Difference, failed: Sequence[Change] = ()) -> dict[str, Any]:
    """Return a comparison as a document of plain dicts, lists, strings and finite numbers (docs/json.md)."""
    return {
        "schema": SCHEMA,
        "verdict": sentence(difference),
        "comparable": not difference.not_comparable,
        "confidence": CONFIDENCE,
        **json_of(difference, "not_comparable changed links notes"),
        "a": _run(difference.before),
        "b": _run(difference.after),
        "changes": [_change(change) for change in difference.changes],
        "by_rank": [{"rank": change.rank, **_change(change)} for change in difference.by_rank],
        "failed": [change.quantity.name for change in failed],
    }


def _run(run: Run) -> dict[str, Any]:
    rates = [rate if np.isfinite(rate) else None for rate in run.line_rates_bps.tolist()]
    return json_of(run, "trace=name hosts iterations ranks world_size", line_rates_bps=rates)


def _change(change: Change) -> dict[str, Any]:
    shares = {f"{name}_share": change.share(getattr(change, name)) for name in ("difference", "low", "high")}
    quantity = "name=quantity.name title=quantity.title unit=quantity.unit statistic=quantity.statistic.name"
    return json_of(change, f"{quantity} a=before b=after difference low high told=smallest verdict", **shares)
