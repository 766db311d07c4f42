"""The report as Markdown, to paste into an issue or a chat: what a person reads first, the rest folded away.

Every text from the trace is escaped: it can neither become markup nor HTML, and no name becomes a mention or a link.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING

from netprof.analysis.findings.verdict.first_screen import FIRST_SCREEN
from netprof.analysis.form import Cell, Grid, Pairs, Part, Spark, Stack
from netprof.views.colours import LETTERS
from netprof.views.console_form import bars
from netprof.views.safe import safe_text

if TYPE_CHECKING:
    from netprof.analysis import Analysis
    from netprof.views.reporter import Report

_ACTIVE = re.compile(r"[\\`*_\[\]<>|~&$^]|(?<=[a-z]):(?=//)|(?<=www)\.")  # also what would be linked by itself
_MENTIONS = re.compile(r"[@#]")  # a comment behind it keeps chats from looking up a person or an issue
_BAR_CELLS = 30
_FIRST_PARTS = 2
"""Of the first screen: the step and the ranks; the network is in what is folded."""


def write(report: Report, out: IO[bytes]) -> None:
    """Write the report. Raises OSError."""
    out.write(render(report.analysis).encode())


def render(analysis: Analysis) -> str:
    """Return the report of `analysis` as GitHub's flavour of Markdown."""
    return "\n".join(_lines(analysis)).rstrip() + "\n"


def _lines(analysis: Analysis) -> Iterator[str]:
    first = analysis.of(FIRST_SCREEN)
    yield f"**{escaped(first.headline)}**"
    if first.sentence:
        yield from ("", escaped(first.sentence))
    yield ""
    for label, value in first.advice.rows:
        code = safe_text(value[2:]).replace("`", "") if value.startswith("$ ") else ""
        yield f"- `{code}`" if code else f"- {label}: {escaped(value)}"
    for part in first.parts[:_FIRST_PARTS]:
        for body in part.bodies:
            yield ""
            yield from _grid(body) if isinstance(body, Grid) else _pairs(body)
    parts = [part for section in analysis.sections for part in analysis.parts(section)]
    yield from folded("Everything", [line for part in parts for line in part_lines(part)])
    notes = [f"- {escaped(note)}" for note in analysis.notes]
    yield from folded("To trust these numbers", ["", *notes] if notes else [])
    meanings = [f"- **{escaped(term.term)}**: {escaped(term.text)}" for term in analysis.definitions]
    yield from folded("Definitions", ["", *meanings] if meanings else [])


def escaped(text: str) -> str:
    """Return text from outside as text: nothing in it is markup, in a table either."""
    return _MENTIONS.sub(r"\\\g<0><!-- -->", _ACTIVE.sub(r"\\\g<0>", safe_text(text)))


def part_lines(part: Part) -> Iterator[str]:
    """Yield a headed part of a report, line by line."""
    yield from ("", f"### {escaped(part.title)}", "")
    if part.about:
        yield from (escaped(part.about), "")
    for body in part.bodies:
        if isinstance(body, Grid):
            yield from _grid(body.shortened())
        else:
            yield from _pairs(body)
        yield ""


def _grid(grid: Grid) -> Iterator[str]:
    headings = [escaped(heading) or " " for heading in grid.headings]
    yield _row(headings)
    left = [index == 0 or heading in grid.left for index, heading in enumerate(grid.headings)]
    yield _row(["---" if is_left else "---:" for is_left in left])
    for row in grid.rows:
        yield _row([_cell(cell) for cell in row])
    if grid.left_out:
        yield from ("", f"{grid.left_out} more are not listed.")


def _pairs(pairs: Pairs) -> Iterator[str]:
    yield from (f"- {escaped(label)}: **{escaped(value)}**" for label, value in pairs.rows)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    """Return a cell; a bar is drawn in characters, at its place."""
    if isinstance(cell, str):
        return escaped(cell)
    if isinstance(cell, Spark):
        return f"`{cell.text}`"
    if isinstance(cell, Stack) or cell.name in LETTERS:
        return f"`{bars(cell.bars if isinstance(cell, Stack) else (cell,), _BAR_CELLS).plain}`"
    begin, end = cell.edges(_BAR_CELLS)
    drawn = "░" * begin + ("█" * (end - begin) or ("▏" if cell.part else ""))
    return f"`{drawn:░<{_BAR_CELLS}}`"


def folded(title: str, lines: Sequence[str]) -> Iterator[str]:
    """Yield lines that are hidden until somebody wants to see them; nothing where there are none."""
    if lines:
        yield from ("", f"<details><summary>{title}</summary>", *lines, "", "</details>")
