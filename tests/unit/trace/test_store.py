"""What a slice of time needs of earlier rows is kept, whatever was let go of before it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.profiles import examples

from netprof.schema import KINDS, MarkKind, RowKind, tables, time_column
from netprof.trace import store as store_module
from netprof.trace.store import ALWAYS, NEVER, Store, chosen, outlasts

TABLES = ("counters", "marks", "flow_devices", "flow_paths", "link_changes", "nccl_ranks", "tcp", "flows")
LAST_NS = 40


def rows_of(table: str, at_ns: list[int], key: list[int], value: list[int]) -> dict[str, Any]:
    """Rows whose key has a number, in order of time, and whose other columns hold a value."""
    kind, columns = KINDS[table], {}
    for field in tables()[table]:
        numbers = at_ns if field.name == kind.time else key if field.name in kind.key else value
        text = str(field.type) == "string"
        columns[field.name] = [str(each) for each in numbers] if text else np.array(numbers, np.int64)
    if table == "marks":
        columns["kind"] = np.where(np.array(value) % 3 == 0, int(MarkKind.NCCL_COMM_INIT), int(MarkKind.DDP_WAIT))
    return columns


@st.composite
def recordings(draw: st.DrawFn) -> list[tuple[str, dict[str, Any]]]:
    """Batches of some tables, each in order of time; and now and then the time from which on slices are wanted."""
    batches = []
    for table in draw(st.lists(st.sampled_from(TABLES), min_size=1, max_size=3, unique=True)):
        rows = draw(st.lists(st.tuples(st.integers(0, LAST_NS), st.integers(0, 3), st.integers(0, 9)), min_size=1))
        rows.sort(key=lambda row: row[0])
        size = draw(st.integers(1, len(rows)))
        parts = (rows[first : first + size] for first in range(0, len(rows), size))
        batches += [(table, rows_of(table, *map(list, zip(*part, strict=True)))) for part in parts]
    return batches


def listed(table: str, rows: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Rows as tuples, sorted; of what has no time the last of each key: the others say nothing."""
    found = list(zip(*(list(rows[name]) for name in tables()[table].names), strict=True))
    if KINDS[table].time is None:
        found = list({row[0]: row for row in found}.values())
    return sorted(found)


@examples(200)
@given(recordings(), st.lists(st.integers(0, LAST_NS), max_size=4), st.booleans())
def test_a_slice_does_not_depend_on_what_was_let_go_of(
    batches: list[tuple[str, dict[str, Any]]], cuts_ns: list[int], early: bool
) -> None:
    whole, kept, carried = Store(), Store(), Store.of_what_holds()
    if early:  # rows that come late are let go of as they come
        kept._gone_ns = dict.fromkeys(TABLES, max(cuts_ns, default=ALWAYS))
    for table, rows in batches:
        for store in (whole, kept, carried):
            store.add(table, rows)
    for cut_ns in sorted(cuts_ns):
        kept.let_go(cut_ns)
    since_ns = max(cuts_ns, default=0)
    for table in {table for table, _ in batches}:
        for until_ns in (LAST_NS // 2, NEVER):
            wanted = whole.slice(table, since_ns, until_ns)
            assert listed(table, kept.slice(table, since_ns, until_ns)) == listed(table, wanted)
        after = dict(carried.carry()).get(table)
        before = whole.slice(table, LAST_NS + 1)
        assert (listed(table, after) if after else []) == listed(table, before)


@examples(100)
@given(recordings(), st.lists(st.integers(1, LAST_NS), min_size=1, max_size=4, unique=True))
def test_slices_hold_every_row_once_and_what_was_true_at_their_begin(
    batches: list[tuple[str, dict[str, Any]]], cuts_ns: list[int]
) -> None:
    store = Store()
    for table, rows in batches:
        store.add(table, rows)
    edges = [0, *sorted(cuts_ns), NEVER]
    for table in {table for table, _ in batches if KINDS[table].time is not None}:
        time, every = str(KINDS[table].time), store.slice(table, ALWAYS)
        seen = []
        for since_ns, until_ns in pairwise(edges):
            rows = store.slice(table, since_ns, until_ns)
            own = np.asarray(rows[time]) >= since_ns
            seen += listed(table, chosen(rows, own))
            earlier = chosen(rows, ~own)
            assert outlasts(table, earlier).all()
            if KINDS[table].holds:
                assert _last(table, earlier) == _last(table, chosen(every, np.asarray(every[time]) < since_ns))
        assert sorted(seen) == listed(table, every)


def _last(table: str, rows: dict[str, Any]) -> set[tuple[Any, ...]]:
    """All rows of each key with its latest time."""
    key, time = KINDS[table].key, str(KINDS[table].time)
    latest: dict[tuple[Any, ...], int] = {}
    every = [dict(zip(rows, row, strict=True)) for row in zip(*map(list, rows.values()), strict=True)]
    for row in every:
        latest[tuple(row[name] for name in key)] = max(int(row[time]), latest.get(tuple(row[n] for n in key), -1))
    return {tuple(row.values()) for row in every if row[time] == latest[tuple(row[name] for name in key)]}


def test_every_table_has_a_kind_whose_columns_it_has() -> None:
    assert KINDS.keys() == tables().keys()
    for name, kind in KINDS.items():
        assert {*kind.key, *([kind.time] if kind.time else [])} <= set(tables()[name].names)
        assert kind.holds or kind.rows is not RowKind.STATE
        assert time_column(name) in (kind.time, None)


def add_flow(store: Store, flow: int, *, closes: bool) -> None:
    peer = f"10.0.0.{flow}"
    store.add("flows", {"flow_id": [flow], "device": ["eth0"], "remote_addr": [peer]})
    store.add("flow_devices", {"flow_id": [flow] * 2, "direction": [0, 1], "since_ns": [flow] * 2})
    path = {"netns": [1] * 3, "device": ["eth0"] * 3, "direction": [0] * 3}
    store.add("flow_paths", path | {"remote_addr": [peer] * 3, "since_ns": [flow] * 3, "hop": [0, 1, 2]})
    if closes:
        store.add("totals", {"flow_id": np.array([flow]), "time_ns": np.array([flow]), "closed": np.array([1])})


def test_of_too_many_flows_those_that_closed_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flow 1 is the job's own: older than all others, and open."""
    store = Store(most_flows=12)
    store._gone_ns = dict.fromkeys(KINDS, NEVER)
    for flow in range(1, 101):
        add_flow(store, flow, closes=flow > 1)
    known = store.slice("flows", ALWAYS)["flow_id"].tolist()
    assert known[0] == 1
    assert known[-1] == 100
    assert len(known) <= 15
    assert set(store.slice("flow_devices", ALWAYS)["flow_id"].tolist()) == set(known)
    addresses = store.slice("flow_paths", ALWAYS)["remote_addr"].tolist()
    assert addresses[:3] == ["10.0.0.1"] * 3
    assert set(addresses) == {f"10.0.0.{flow}" for flow in known}
    assert len(store._closed) < 15
    assert store.dropped == 100 - len(known)


def test_of_too_many_open_flows_the_oldest_go_unless_they_are_in_use() -> None:
    store = Store(most_flows=10, in_use=lambda: {3})
    for flow in range(20):
        add_flow(store, flow, closes=False)
    known = store.slice("flows", ALWAYS)["flow_id"].tolist()
    assert known[0] == 3
    assert known[-1] == 19
    assert len(known) <= 13


def test_what_holds_is_bounded_too_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_SLACK_ROWS", 10)
    store = Store(most_rows=50)
    store._gone_ns = dict.fromkeys(KINDS, NEVER)
    for series in range(100):
        store.add("counters", {"series": [series], "time_ns": [series], "value": [1]})
        store.add("marks", {name: [int(MarkKind.NCCL_COMM_INIT)] for name in tables()["marks"].names})
    kept = dict(store.carry())
    series = kept["counters"]["series"].tolist()
    assert series == list(range(100 - len(series), 100))
    assert 50 <= len(series) < 100
    assert len(kept["marks"]["pid"]) == 50
    assert store.dropped == 100 - len(series) + 50
    assert store.rows == len(series) + 50


def test_of_what_only_changes_the_last_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.of_what_holds()
    for at_ns in range(20_000):
        store.add("counters", {"series": [at_ns % 3], "time_ns": [at_ns], "value": [at_ns]})
        store.add("tcp", {name: [at_ns] for name in tables()["tcp"].names})
    assert store.rows < 2_100
    assert dict(store.carry())["counters"]["value"].tolist() == [19_997, 19_998, 19_999]
