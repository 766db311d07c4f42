"""The neutral form of what a section says: tables and labelled lines that every view can draw.

Texts are ready to be read (quantities with their units) but not escaped: a text from the trace is as hostile here as
it was there, and each view makes it harmless in its own way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Bar:
    """A share of a whole, drawn at its place in it: from `before` on, `part` long, both 0 to 1.

    `name` tells its colour.
    """

    before: float
    part: float
    name: str

    def edges(self, room: int) -> tuple[int, int]:
        """Return from which to which of `room` cells it goes; what a damaged file has beyond the whole is cut off."""
        begin, end = (round(min(1.0, max(0.0, share)) * room) for share in (self.before, self.before + self.part))
        return begin, max(begin, end)


def in_a_row(parts: Iterable[tuple[str, float]]) -> list[Bar]:
    """Return bars of some names and shares, each behind the ones before."""
    bars, before = [], 0.0
    for name, part in parts:
        bars.append(Bar(before, part, name))
        before += part
    return bars


@dataclass(frozen=True)
class Stack:
    """Bars in one cell, none over another."""

    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Spark:
    """A value a cell, the newest at the right, each a share of the highest, 0 to 1; NaN where nothing is known.

    `name` tells its colour.
    """

    values: tuple[float, ...]
    name: str = ""

    @property
    def text(self) -> str:
        """The values by height, a character each; ↑ for what is higher than the highest."""
        return "".join(map(_height, self.values))


SPARKS = "▁▂▃▄▅▆▇█"


def _height(value: float) -> str:
    if value != value:
        return " "
    return "↑" if value > 1.0 else SPARKS[round(7 * max(0.0, value))]


Cell = str | Bar | Stack | Spark


@dataclass(frozen=True)
class Grid:
    """Headings and rows; the first column names the row, the others are right-aligned numbers unless in `left`.

    Where there is little room, columns may go (`optional` are their headings, the first one first), and only the first
    `brief` rows are needed. `total` is the number of rows that there are, where not all are here. `strong` rows stand
    out, `faint` ones stand back. `places` are begin and length of what each row
    is about, ns, where a view can go there.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    left: frozenset[str] = frozenset()
    optional: Sequence[str] = ()
    brief: int | None = None
    total: int | None = None
    strong: frozenset[int] = frozenset()
    faint: frozenset[int] = frozenset()
    places: Sequence[tuple[int, int]] = ()

    def without(self, headings: Collection[str]) -> Grid:
        """Return the grid without some of its columns."""
        kept = [index for index, heading in enumerate(self.headings) if heading not in headings]
        rows = [[row[index] for index in kept] for row in self.rows]
        return replace(self, headings=[self.headings[index] for index in kept], rows=rows)

    def shortened(self) -> Grid:
        """Return the grid with no more rows than are needed."""
        return replace(self, rows=self.rows[: self.brief], total=self.total or len(self.rows))

    @property
    def left_out(self) -> int:
        """How many rows there are beyond those that are here."""
        return max(0, (self.total or 0) - len(self.rows))


@dataclass(frozen=True)
class Pairs:
    """Labelled lines."""

    rows: Sequence[tuple[str, str]]

    def shortened(self) -> Pairs:
        """Return them as they are: all of them are needed."""
        return self


@dataclass(frozen=True)
class Part:
    """A headed part of the report; `about` says what its numbers are about.

    A `detail` is left out where a person reads from top to bottom, on a terminal.
    """

    title: str
    about: str = ""
    bodies: Sequence[Grid | Pairs] = ()
    detail: bool = False
