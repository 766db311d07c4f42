"""What is declared once of a row of the report: the columns of its table, its keys in JSON, and how pieces add up.

A path names a field of a row (or a key, where a row is a mapping) or one further in: `tcp.rtt_us`. What it leads to is
None where anything on it is.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, reduce
from typing import Any, TypeVar

from netprof.analysis.form import Bar, Cell, Grid, Stack
from netprof.units import UNKNOWN

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading, and what a row has there: the value at a path, or what a function returns.

    `write` makes a cell of a value; `none` stands where that is not known. Texts are at the `left`, numbers are not.
    Where there is little room columns go, that with the least `goes` above 0 first.
    """

    heading: str
    value: str | Callable[[Any], Any]
    write: Callable[[Any], Cell] = str
    none: str = UNKNOWN
    left: bool = False
    goes: int = 0

    def cell(self, row: Any) -> Cell:
        """Return what a row has in this column."""
        value = at(row, self.value) if isinstance(self.value, str) else self.value(row)
        if isinstance(value, (Bar, Stack)):
            return value
        return self.none if value is None else self.write(value)


def table(columns: Iterable[Column], rows: Sequence[Any], most: int | None = None, **about: Any) -> Grid:
    """Return a table of `most` rows at most; `about` is what a `Grid` has besides columns and rows."""
    every = tuple(columns)
    return Grid(
        headings=[each.heading for each in every],
        rows=[[each.cell(row) for each in every] for row in rows[:most]],
        left=frozenset(each.heading for each in every if each.left),
        optional=[each.heading for each in sorted(every, key=lambda each: each.goes) if each.goes],
        total=len(rows),
        **about,
    )


def json_of(row: Any, keys: str, **more: Any) -> dict[str, Any]:
    """Return what JSON has of something: by each of the `keys` the field of that name, or by `key=path`; and `more`.

    What is in nanoseconds is in seconds under every key that does not say so itself; `window_s` is field `window_ns`.
    """
    made = {}
    for key, path, is_seconds in _keys(row.__class__, keys):
        value = at(row, path)
        made[key] = seconds(value) if is_seconds else plain(value)
    return made | more


@cache  # rows are many, kinds of rows are few
def _keys(kind: type, keys: str) -> tuple[tuple[str, str, bool], ...]:
    """Return each key with the path that it stands for in rows of a kind, and whether that is ns, and it is not."""
    known, paths = {*dir(kind), *getattr(kind, "__dataclass_fields__", ())}, []
    for each in keys.split():
        key, _, path = each.partition("=")
        in_ns = f"{key[:-1]}ns" if key.endswith("_s") else ""
        path = path or (in_ns if in_ns in known else key)
        is_ns = path == "ns" or path.endswith(("_ns", ".ns"))
        paths.append((key, path, is_ns and not key.endswith("_ns")))
    return tuple(paths)


def at(value: Any, path: str) -> Any:
    """Return what a path leads to."""
    for name in path.split("."):
        value = None if value is None else value[name] if isinstance(value, Mapping) else getattr(value, name)
    return value


def plain(value: Any) -> Any:
    """Return a value as JSON has it: members of enumerations are words, and rows are all of their fields."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Enum):
        return value.value if isinstance(value.value, str) else value.name.lower()
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, (list, tuple)) else value


_PLAIN = frozenset({int, float, str, bool, type(None)})


def seconds(ns: Any) -> Any:
    """Return nanoseconds in seconds: a number, or each by its name; None stays None."""
    if isinstance(ns, Mapping):
        return {name: seconds(each) for name, each in ns.items()}
    return None if ns is None else ns / 1e9


def share_of(part: float | None, whole: float | None) -> float | None:
    """Return a part of a whole; None where either is not known, or the whole is nothing."""
    return part / whole if part is not None and whole else None


def added(parts: Sequence[Any], names: str) -> dict[str, Any]:
    """Return the sums of some fields over all parts; None where one part's is not known."""
    columns = {name: [getattr(part, name) for part in parts] for name in names.split()}
    return {name: None if None in values else reduce(operator.add, values) for name, values in columns.items()}


def by_key(parts: Iterable[Iterable[T]], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return the rows of several parts, those of one key together, in their order."""
    rows_of: dict[K, list[T]] = {}
    for row in (row for part in parts for row in part):
        rows_of.setdefault(key(row), []).append(row)
    return rows_of


def merged(parts: Iterable[Mapping[K, T]], together: Callable[[list[T]], R]) -> dict[K, R]:
    """Return several mappings as one: what they have under one key, put together."""
    values: dict[K, list[T]] = {}
    for key, value in (item for part in parts for item in part.items()):
        values.setdefault(key, []).append(value)
    return {key: together(each) for key, each in values.items()}


def put_together(
    parts: Iterable[Iterable[T]], key: Callable[[T], Hashable], both: Callable[[T, T], T] = operator.add
) -> list[T]:
    """Return the rows of several parts, those of one key made one by one after the other by `both`."""
    return [reduce(both, rows) for rows in by_key(parts, key).values()]
