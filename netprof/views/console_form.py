"""The neutral form on a terminal: a table where it fits, and the same rows as labelled lines where it does not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from netprof.analysis.form import Bar, Cell, Grid, Pairs, Part, Spark
from netprof.views.colours import LETTERS, terminal_style
from netprof.views.safe import safe_text

_LONGEST_CELL, _LONGEST_LINE = 120, 400
_MOST_LINES = 200
"""Lines of one kind that anybody reads; a table of thousands takes seconds to be laid out."""
_FEWEST_BAR_CELLS, _MOST_BAR_CELLS, _BESIDE_BAR = 8, 40, 44


def print_part(part: Part, console: Console) -> None:
    """Print a part of the report. Text from the trace is escaped and never read as markup."""
    bodies = [body.shortened() for body in part.bodies]
    left_out = [f"{len(grid.rows)} of {grid.total}" for grid in bodies if isinstance(grid, Grid) and grid.left_out]
    title(console, part.title, ", ".join([*left_out, part.about]).strip(", "))
    print_bodies(bodies, console)


def print_bodies(bodies: Iterable[Grid | Pairs], console: Console) -> None:
    """Print tables and labelled lines."""
    for body in bodies:
        if isinstance(body, Grid):
            show(console, body)
        else:
            pairs(console, body)


def title(console: Console, text: str, about: str = "") -> None:
    """Print the heading of a part, and what its numbers are about."""
    console.print()
    described = f"  {safe_text(about, _LONGEST_LINE)}" if about else ""
    console.print(Text(safe_text(text, _LONGEST_CELL), style="bold") + Text(described, style="dim"))


def bullets(console: Console, rows: Sequence[tuple[Text, Text]]) -> None:
    """Print texts behind a mark each; long ones wrap under themselves."""
    if not rows:
        return
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for mark, text in rows[:_MOST_LINES]:
        table.add_row(mark, text)
    if len(rows) > _MOST_LINES:
        table.add_row(rows[-1][0], Text(f"and {len(rows) - _MOST_LINES} more, which --json has"))
    console.print(_indented(table))


def show(console: Console, grid: Grid) -> None:
    """Print a grid; where it does not fit, with shorter bars or without some of its columns."""
    rows = grid_rows(grid, console.width)
    if rows is None:
        room = max(_FEWEST_BAR_CELLS, min(_MOST_BAR_CELLS, console.width - _BESIDE_BAR))
        for row in grid.rows:
            _show_row(console, grid.headings, row, room)
        return
    for line in rows:
        console.print(line, soft_wrap=True)


def grid_rows(grid: Grid, width: int) -> list[Text] | None:
    """Return the heading and the rows of a grid, no wider than `width`; None where it does not fit at all.

    Where there is little room bars become shorter, and then columns go.
    """
    for given_up in range(len(grid.optional) + 1):
        smaller = grid.without(grid.optional[:given_up])
        most = max(_FEWEST_BAR_CELLS, min(_MOST_BAR_CELLS, width - _BESIDE_BAR))
        room = max(_FEWEST_BAR_CELLS, min(most, most + width - _width(smaller, most)))
        if _width(smaller, room) <= width:
            return _lines(smaller, room)
    return None


def _lines(grid: Grid, room: int) -> list[Text]:
    """Return the rows of a grid with a gap between columns, numbers at the right."""
    left = [index == 0 or heading in grid.left for index, heading in enumerate(grid.headings)]
    cells = [[Text(heading, "dim") for heading in grid.headings]]
    cells += [[_text(cell, room) for cell in row] for row in grid.rows]
    widths = [max(cell.cell_len for cell in column) for column in zip(*cells, strict=True)]
    lines = []
    for number, row in enumerate(cells):
        line = Text("  ", no_wrap=True, end="\n")
        for place, (cell, wide) in enumerate(zip(row, widths, strict=True)):
            blank = " " * (wide - cell.cell_len)
            line.append_text(cell if left[place] else Text(blank))
            line.append_text(Text(blank) if left[place] else cell)
            line.append("  " if place < len(row) - 1 else "")
        line.rstrip()
        if number - 1 in grid.strong:
            line.stylize("bold")
        elif number - 1 in grid.faint:
            line.stylize("dim")
        lines.append(line)
    return lines


def pairs(console: Console, body: Pairs) -> None:
    """Print labelled lines, the labels in one column; long values wrap under themselves."""
    if not body.rows:
        return
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    more = len(body.rows) - _MOST_LINES
    rows = [*body.rows[:_MOST_LINES], ("", f"and {more} more, which --json has")] if more > 0 else body.rows
    for label, value in rows:
        table.add_row(Text(safe_text(label, _LONGEST_CELL)), Text(safe_text(value, _LONGEST_LINE)))
    console.print(_indented(table))


def _width(grid: Grid, room: int) -> int:
    """Return the width that the table wants: the indent, the widest cell of every column, and the gaps."""
    columns = zip(grid.headings, *([_text(cell, room).plain for cell in row] for row in grid.rows), strict=True)
    return sum(max(Text(cell).cell_len for cell in column) + 2 for column in columns)


def _show_row(console: Console, headings: Sequence[str], row: Sequence[Cell], room: int) -> None:
    console.print(Text("  ") + _text(row[0], room), overflow="fold")
    rest = Table.grid(padding=(0, 2, 0, 0))
    rest.add_column(width=2)
    rest.add_column(style="dim", overflow="fold")
    rest.add_column(overflow="fold")
    for heading, cell in zip(headings[1:], row[1:], strict=True):
        rest.add_row("", Text(heading), _text(cell, room))
    console.print(rest)


def _indented(table: Table) -> Table:
    outer = Table.grid(padding=0)
    outer.add_column(width=2)
    outer.add_column()
    outer.add_row("", table)
    return outer


def _text(cell: Cell, room: int) -> Text:
    """Return a cell; a bar as a block at its place in `room` cells, so that the rows read like a track."""
    if isinstance(cell, str):
        return Text(safe_text(cell, _LONGEST_CELL))
    if isinstance(cell, Bar):
        return _alone(cell, room)
    if isinstance(cell, Spark):
        return Text(cell.text, terminal_style(cell.name) or "cyan")
    return bars(cell.bars, room)


def _alone(bar: Bar, room: int) -> Text:
    begin, end = bar.edges(room)
    if bar.name in LETTERS:
        end = max(end, begin + 1)
        begin = min(begin, room - 1)
        return Text(" " * begin) + _block(bar, min(end, room) - begin)
    block = "█" * (end - begin) or ("▏" if bar.part else "")
    return Text(" " * begin) + Text(block, style=terminal_style(bar.name))


def bars(stacked: Sequence[Bar], room: int) -> Text:
    """Return bars in one row of `room` cells: each begins with its letter, so that it is known without colours."""
    made = Text()
    for bar in stacked:
        begin, end = bar.edges(room)
        made.append("·" * (begin - len(made)), "bright_black")
        made.append_text(_block(bar, end - begin))
    return made + Text("·" * (room - len(made)), "bright_black")


def _block(bar: Bar, cells: int) -> Text:
    """Return a bar with its letter at the beginning: only that is reversed, for a reversed full block is invisible."""
    block = Text()  # without a style: a sum has its first text's style throughout
    if cells < 1:
        return block
    style, letter = terminal_style(bar.name), LETTERS.get(bar.name, "")
    block.append(letter, f"reverse {style}")
    return block.append("█" * (cells - len(letter)), style)
