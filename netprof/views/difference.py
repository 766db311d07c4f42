"""What two runs differ in: on a terminal, as Markdown, as JSON (`netprof diff A B --json`). Nothing is computed here.

| key | meaning |
|---|---|
| `schema` | version of this document, 1 |
| `verdict` | the conclusion in one or two sentences |
| `comparable`, `not_comparable[]` | false: another model, world size, line rate...; why, a sentence each |
| `changed` | whether anything surely changed |
| `confidence` | how sure it is that all intervals hold at once |
| `a`, `b` | the runs: `trace` as it was named, `hosts`, `iterations`, `ranks`, `world_size`, `line_rates_bps` by rank \
(null: unknown) |
| `changes[]` | of the job: `name`, `title`, `unit` (s, bytes, bps, 1), `statistic` (median, mean, 10th percentile), \
`a`, `b`, `difference` and what it surely lies between, `low` and `high`; the same as shares of `a`: \
`difference_share`, `low_share`, `high_share` (null: `a` is 0); `told`: the least that is called a change; \
`verdict`: more, less, same (within 3 %; of a part of an iteration, of the iteration), unsure |
| `by_rank[]` | the same of each `rank` that changed otherwise than the others |
| `failed[]` | names of what got worse by more than --fail-above allows |
| `notes[]` | what else is not the same about the runs, a sentence each |
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import IO, Any

import numpy as np
from rich.console import Console
from rich.text import Text

from netprof.analysis.compare.difference import CONFIDENCE, Change, Difference
from netprof.analysis.compare.difference_form import parts, sentence
from netprof.analysis.compare.run import Run
from netprof.views.console_form import print_part
from netprof.views.markdown import escaped, folded, part_lines
from netprof.views.safe import safe_text

SCHEMA = 1


def draw(difference: Difference, console: Console) -> None:
    """Print a comparison for a person."""
    console.print(Text(safe_text(sentence(difference)), style="bold"))
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
    json.dump(to_json(difference, failed), out, indent=1, allow_nan=False)
    out.write("\n")


def to_json(difference: Difference, failed: Sequence[Change] = ()) -> dict[str, Any]:
    """Return a comparison as a document of plain dicts, lists, strings and finite numbers; see the module for keys."""
    return {
        "schema": SCHEMA,
        "verdict": sentence(difference),
        "comparable": not difference.not_comparable,
        "not_comparable": list(difference.not_comparable),
        "changed": difference.changed,
        "confidence": CONFIDENCE,
        "a": _run(difference.before),
        "b": _run(difference.after),
        "changes": [_change(each) for each in difference.changes],
        "by_rank": [{"rank": each.rank, **_change(each)} for each in difference.by_rank],
        "failed": [each.quantity.name for each in failed],
        "notes": list(difference.notes),
    }


def _run(run: Run) -> dict[str, Any]:
    return {
        "trace": run.name,
        "hosts": list(run.hosts),
        "iterations": run.iterations,
        "ranks": list(run.ranks),
        "world_size": run.world_size,
        "line_rates_bps": [rate if np.isfinite(rate) else None for rate in run.line_rates_bps.tolist()],
    }


def _change(change: Change) -> dict[str, Any]:
    quantity = change.quantity
    return {
        "name": quantity.name,
        "title": quantity.title,
        "unit": quantity.unit,
        "statistic": quantity.statistic.name,
        "a": change.before,
        "b": change.after,
        "difference": change.difference,
        "low": change.low,
        "high": change.high,
        **{f"{name}_share": change.share(getattr(change, name)) for name in ("difference", "low", "high")},
        "told": change.told,
        "verdict": change.verdict,
    }
