"""The report in a notebook's cell: plain tables, which take the notebook's own style."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.analysis.form import Bar, Cell, Grid, Pairs, Part, Spark, Stack
from netprof.units import share
from netprof.views.colours import page_colour
from netprof.views.safe import safe_text

if TYPE_CHECKING:
    from netprof.analysis import Analysis

_STEPS = 10_000
"""Of how many steps a bar's place is a number: hundredths of a percent."""


def render(analysis: Analysis) -> str:
    """Return HTML without a script or a style sheet. Every text from the trace is escaped."""
    return "\n".join(_lines(analysis))


def _lines(analysis: Analysis) -> Iterator[str]:
    yield f"<p><b>{_text(analysis.of(VERDICT).text)}</b></p>"
    for part in analysis.brief_parts:
        yield from _part(part)
    notes = "".join(f"<li>{_text(note)}</li>" for note in analysis.notes)
    yield f"<details><summary>Notes</summary><ul>{notes}</ul></details>"


def _part(part: Part) -> Iterator[str]:
    about = f" <small>{_text(part.about)}</small>" if part.about else ""
    yield f"<details open><summary><b>{_text(part.title)}</b>{about}</summary>"
    for body in part.bodies:
        yield _grid(body.shortened()) if isinstance(body, Grid) else _pairs(body)
    yield "</details>"


def _grid(grid: Grid) -> str:
    aligned = ["left" if not index or name in grid.left else "right" for index, name in enumerate(grid.headings)]
    head = "".join(
        f'<th style="text-align:{side}">{_text(name)}</th>' for side, name in zip(aligned, grid.headings, strict=True)
    )
    rows = ("".join(_cell(side, cell) for side, cell in zip(aligned, row, strict=True)) for row in grid.rows)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _pairs(pairs: Pairs) -> str:
    rows = "".join(f"<tr><th>{_text(label)}</th><td>{_text(value)}</td></tr>" for label, value in pairs.rows)
    return f"<table><tbody>{rows}</tbody></table>"


def _cell(side: str, cell: Cell) -> str:
    if isinstance(cell, str):
        return f'<td style="text-align:{side}">{_text(cell)}</td>'
    if isinstance(cell, Spark):
        return f"<td>{_text(cell.text)}</td>"
    parts = cell.bars if isinstance(cell, Stack) else (cell,)
    drawn = "".join(_bar(bar) for bar in parts)
    return f'<td style="min-width:16em"><div style="position:relative;height:.9em">{drawn}</div></td>'


def _bar(bar: Bar) -> str:
    begin, end = bar.edges(_STEPS)
    place = f"left:{100 * begin / _STEPS:.2f}%;width:{100 * (end - begin) / _STEPS:.2f}%"
    about = f"{_text(bar.name.replace('_', ' '))} {share(bar.part)}"
    style = f"position:absolute;{place};height:100%;background:{page_colour(bar.name)}"
    return f'<div style="{style}" title="{about}"></div>'


def _text(text: str) -> str:
    return escape(safe_text(text))
