"""A table where it fits, and the same rows as labelled lines where it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

Cell = str | Text


@dataclass(frozen=True)
class Grid:
    """Headings and rows; the first column names the row, the others are right-aligned numbers unless in `left`.

    `optional` are the headings of columns that may go, the first one first, before the table gives up its shape.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    left: frozenset[str] = frozenset()
    optional: Sequence[str] = ()


def title(console: Console, text: str, about: str = "") -> None:
    """Print the heading of a section, and what its numbers are about."""
    console.print()
    console.print(Text(text, style="bold") + Text(f"  {about}" if about else "", style="dim"))


def bullets(console: Console, rows: Sequence[tuple[Text, Text]]) -> None:
    """Print texts behind a mark each; long ones wrap under themselves."""
    if not rows:
        return
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for mark, text in rows:
        table.add_row(mark, text)
    console.print(_indented(table))


def show(console: Console, grid: Grid) -> None:
    """Print a grid. Cells are never read as markup."""
    for given_up in range(len(grid.optional) + 1):
        smaller = _without(grid, set(grid.optional[:given_up]))
        if _width(smaller) <= console.width:
            console.print(_table(smaller))
            return
    for row in grid.rows:
        _show_row(console, grid.headings, row)


def pairs(console: Console, rows: Sequence[tuple[str, Cell]]) -> None:
    """Print labelled lines, the labels in one column; long values wrap under themselves."""
    if not rows:
        return
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in rows:
        table.add_row(Text(label), _text(value))
    console.print(_indented(table))


def _without(grid: Grid, headings: set[str]) -> Grid:
    kept = [index for index, heading in enumerate(grid.headings) if heading not in headings]
    rows = [[row[index] for index in kept] for row in grid.rows]
    return Grid([grid.headings[index] for index in kept], rows, grid.left)


def _table(grid: Grid) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("", width=0)
    for index, heading in enumerate(grid.headings):
        left = index == 0 or heading in grid.left
        table.add_column(Text(heading), justify="left" if left else "right", no_wrap=True)
    for row in grid.rows:
        table.add_row("", *(_text(cell) for cell in row))
    return table


def _width(grid: Grid) -> int:
    """Return the width that the table wants: the indent, the widest cell of every column, and the gaps."""
    columns = zip(grid.headings, *([_text(cell).plain for cell in row] for row in grid.rows), strict=True)
    return 1 + sum(max(Text(cell).cell_len for cell in column) + 2 for column in columns)


def _show_row(console: Console, headings: Sequence[str], row: Sequence[Cell]) -> None:
    console.print(Text("  ") + _text(row[0]), overflow="fold")
    rest = Table.grid(padding=(0, 2, 0, 0))
    rest.add_column(width=2)
    rest.add_column(style="dim", overflow="fold")
    rest.add_column(overflow="fold")
    for heading, cell in zip(headings[1:], row[1:], strict=True):
        rest.add_row("", Text(heading), _text(cell))
    console.print(rest)


def _indented(table: Table) -> Table:
    outer = Table.grid(padding=0)
    outer.add_column(width=2)
    outer.add_column()
    outer.add_row("", table)
    return outer


def _text(cell: Cell) -> Text:
    return cell if isinstance(cell, Text) else Text(cell)
