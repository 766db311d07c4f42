"""Whether what a digest's tables number is there: at both ends of what can be, for every such column."""

from __future__ import annotations

import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.synthetic import Job, trace_of

from netprof.analysis.digest.digest import Digest
from netprof.analysis.digest.opened import EVERY_TABLE, digest_of_trace, unfit
from netprof.analysis.digest.spans import SpanSet, What
from netprof.analysis.digest.ways import WayOut

_MOST_PIDS = 1 << 22


@pytest.fixture(scope="module")
def digest() -> Digest:
    found = digest_of_trace(trace_of(iterations=12))
    spans, ways = SpanSet(What.RESENDS, -1, -1, -1, "", 0.0, 0.0), WayOut(-1, "", 0)
    host = found.host
    more: dict[str, Any] = {"spans": (*host.spans, spans), "ways": (*host.ways, ways)}
    return replace(found, host=replace(host, **more))


def said(digest: Digest, *, read: Any = EVERY_TABLE) -> list[str]:
    return list(unfit(digest.host, digest.tables, read))


def with_row(digest: Digest, table: str, column: str, value: int) -> Digest:
    """Return the digest with a table of one row, in which all is 0 but one column."""
    kind = type(getattr(digest.tables, table))
    row = {each.name: np.zeros(1, np.int64) for each in fields(kind)} | {column: np.array([value])}
    return replace(digest, tables=replace(digest.tables, **{table: kind(**row)}))


def test_a_digest_as_it_is_made_fits(digest: Digest) -> None:
    assert said(digest) == []


@pytest.mark.parametrize(
    ("table", "column", "counted"),
    [
        ("waiting", "window", "windows"),
        ("surely", "window", "windows"),
        ("way_busy", "window", "windows"),
        ("did", "window", "windows"),
        ("link_seconds", "link", "links"),
        ("spans", "set", "spans"),
        ("way_busy", "way", "ways"),
    ],
)
def test_a_column_numbers_what_is_there(digest: Digest, table: str, column: str, counted: str) -> None:
    held = getattr(digest.host, counted, None)
    count = len(getattr(digest.tables, counted) if held is None else held)
    assert count > 0
    assert said(with_row(digest, table, column, count - 1)) == []
    for value in (-1, count):
        assert said(with_row(digest, table, column, value)) == [
            f"column {column} of table {table} numbers what is not there"
        ]


def test_rows_of_a_table_that_was_not_read_are_not_looked_for(digest: Digest) -> None:
    found = with_row(digest, "waiting", "window", 1000)
    assert said(found, read=("waiting",)) == []
    assert said(found, read=("windows",)) == []
    assert len(said(found, read=("waiting", "windows"))) == 1


@pytest.mark.parametrize("table", ["iterations", "waiting", "surely", "steps", "did", "collectives"])
def test_the_processes_of_a_table(digest: Digest, table: str) -> None:
    for value in (-1, _MOST_PIDS - 1):
        assert said(with_row(digest, table, "pid", value)) == []
    for value in (-2, _MOST_PIDS):
        assert said(with_row(digest, table, "pid", value)) == ["it names processes that no kernel has"]


@pytest.mark.parametrize(
    "place",
    ["told_ranks", "pids", "unbounded", "on_gpu", "profiled", "spans", "ways", "ranks"],
)
def test_the_processes_of_the_document(digest: Digest, place: str) -> None:
    for value, fits in ((-1, True), (_MOST_PIDS - 1, True), (-2, False), (_MOST_PIDS, False), (10**400, False)):
        assert (said(replace(digest, host=_naming(digest, place, value))) == []) == fits, value


def _naming(digest: Digest, place: str, pid: int) -> Any:
    host = digest.host
    if place == "told_ranks":
        return replace(host, told_ranks={pid: 0})
    if place == "unbounded":
        return replace(host, unbounded={pid: "its bytes were not seen"})
    if place == "on_gpu":
        return replace(host, on_gpu=(pid,))
    if place == "profiled":
        return replace(host, profiled=(pid,))
    if place == "pids":
        return replace(host, host=replace(host.host, pids={pid: 1}))
    first, *rest = getattr(host, place)
    changed: dict[str, Any] = {place: (replace(first, pid=pid), *rest)}
    return replace(host, **changed)


def test_what_is_recorded_again_to_the_same_place_is_digested_again(tmp_path: Path) -> None:
    """A process that lives for days, as a worker of Dask, has seen what lay there before."""
    first = digest_of_trace(Job(iterations=3).fill().write(tmp_path / "h0.netprof"))
    assert digest_of_trace(tmp_path / "h0.netprof") is first
    shutil.rmtree(tmp_path / "h0.netprof")
    again = digest_of_trace(Job(iterations=5).fill().write(tmp_path / "h0.netprof"))
    assert len(again.tables.windows) == len(first.tables.windows) + 2
