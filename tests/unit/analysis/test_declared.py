"""Columns of tables, keys of JSON and sums of pieces: each declared once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from operator import add

import pytest

from netprof.analysis.declared import Column, added, by_key, json_of, merged, put_together, share_of, table
from netprof.analysis.form import Bar
from netprof.units import listed


class Way(IntEnum):
    THERE = 1


class Seen(Enum):
    WHOLE = "as a whole"


@dataclass(frozen=True)
class Part:
    way: Way
    seen: Seen


@dataclass(frozen=True)
class Row:
    name: str
    waited_ns: int
    begin_ns: int
    ran_s: float | None = None
    part: Part | None = None
    times_ns: tuple[int, ...] = ()

    @property
    def share(self) -> float:
        return 0.5


def test_a_table_has_what_its_columns_say() -> None:
    columns = (
        Column("who", "name"),
        Column("way", "part.way", lambda way: way.name, none="?", left=True, goes=2),
        Column("twice", lambda row: row.waited_ns * 2, goes=1),
        Column("bar", lambda row: Bar(0.0, 1.0, row.name)),
        Column("ran", "ran_s", "{:.1f} s".format),
    )
    rows = [Row("a", 1, 2), Row("b", 3, 4, 1.5, Part(Way.THERE, Seen.WHOLE)), Row("c", 5, 6)]
    grid = table(columns, rows, most=2, brief=1)
    assert grid.headings == ["who", "way", "twice", "bar", "ran"]
    assert grid.rows == [
        ["a", "?", "2", Bar(0.0, 1.0, "a"), "unknown"],
        ["b", "THERE", "6", Bar(0.0, 1.0, "b"), "1.5 s"],
    ]
    assert (set(grid.left), list(grid.optional), grid.brief, grid.total) == ({"way"}, ["twice", "way"], 1, 3)


def test_a_table_is_drawn_of_the_rows_of_a_document_too() -> None:
    assert table([Column("at", "place.at")], [{"place": {"at": 7}}, {"place": None}]).rows == [["7"], ["unknown"]]


def test_json_has_fields_by_their_names_and_times_in_seconds() -> None:
    row = Row("a", 2_000_000_000, 5, part=Part(Way.THERE, Seen.WHOLE), times_ns=(1, 2))
    assert json_of(row, "name waited_s begin_ns since=waited_ns share way=part.way part times_ns", more=1) == {
        "name": "a",
        "waited_s": 2.0,
        "begin_ns": 5,
        "since": 2.0,
        "share": 0.5,
        "way": "there",
        "part": {"way": "there", "seen": "as a whole"},
        "times_ns": [1, 2],
        "more": 1,
    }
    assert json_of(row, "ran_s deep=part.seen") == {"ran_s": None, "deep": "as a whole"}
    assert json_of(Row("b", 0, 0), "deep=part.way") == {"deep": None}
    with pytest.raises(AttributeError):
        json_of(row, "nothing_of_that_name")


def test_sums_are_unknown_where_one_part_is() -> None:
    parts = [Row("a", 1, 2, 0.5), Row("a", 3, 4, None)]
    assert added(parts, "waited_ns begin_ns ran_s") == {"waited_ns": 4, "begin_ns": 6, "ran_s": None}


def test_rows_of_pieces_are_put_together_by_their_key() -> None:
    pieces = [[("a", 1), ("b", 2)], [("b", 3), ("c", 4)]]
    assert by_key(pieces, lambda row: row[0]) == {"a": [("a", 1)], "b": [("b", 2), ("b", 3)], "c": [("c", 4)]}
    assert put_together(pieces, lambda row: row[0], lambda a, b: (a[0], add(a[1], b[1]))) == [
        ("a", 1),
        ("b", 5),
        ("c", 4),
    ]


def test_mappings_are_put_together_by_their_keys() -> None:
    assert merged([{"a": 1}, {"b": 2, "a": 3}, {}], list) == {"a": [1, 3], "b": [2]}


def test_a_share_of_nothing_is_unknown() -> None:
    assert share_of(1, 2) == 0.5
    assert share_of(0, 2) == 0.0
    assert [share_of(1, 0), share_of(None, 2), share_of(1, None)] == [None] * 3


def test_names_beyond_the_first_are_counted() -> None:
    assert listed(["a", "b"], 2) == "a, b"
    assert listed([1, 2, 3, 4], 2) == "1, 2 and 2 more"
    assert listed([], 2) == ""
