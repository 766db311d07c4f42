"""The report in a notebook's cell: plain tables, which take the notebook's own style."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from netprof.analysis.events.phases import BACKWARD, EXPOSED, FORWARD, REST
from netprof.analysis.findings.verdict import VERDICT
from netprof.analysis.form import Bar, Cell, Grid, Pairs, Part
from netprof.views.safe import safe_text

if TYPE_CHECKING:
    from netprof.analysis import Analysis

_COLOURS = {FORWARD.name: "#4d5d82", BACKWARD.name: "#1d9a8a", EXPOSED.name: "#d9502e", REST.name: "#a4afbd"}


def render(analysis: Analysis) -> str:
    """Return HTML without a script or a style sheet. Every text from the trace is escaped."""
    return "\n".join(_lines(analysis))


def _lines(analysis: Analysis) -> Iterator[str]:
    yield f"<p><b>{_text(analysis.of(VERDICT).text)}</b></p>"
    for section in analysis.sections:
        for part in analysis.parts(section):
            if not part.detail:
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
    if not isinstance(cell, Bar):
        return f'<td style="text-align:{side}">{_text(cell)}</td>'
    place = f"margin-left:{100 * cell.before:.2f}%;width:{100 * cell.part:.2f}%"
    colour = _COLOURS.get(cell.name, "currentColor")
    return f'<td style="min-width:16em"><div style="{place};height:.9em;background:{colour}"></div></td>'


def _text(text: str) -> str:
    return escape(safe_text(text))
