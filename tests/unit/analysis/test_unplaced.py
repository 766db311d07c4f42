"""Bins that were merged while the recorder was held up: no byte is lost, no rate is invented, and no time is idle."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.synthetic import ITERATION_NS, MS, RATE_BPS, START_NS, Job, wire_columns

from netprof.analysis import analyze
from netprof.analysis.section import Analysis
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.wire.unplaced import is_unplaced, spread
from netprof.errors import TraceError
from netprof.schema import TRANSMIT
from netprof.trace import TraceReader, TraceWriter

LINK = LinkKey(7, "eth0")
HELD_UP = (START_NS + 3 * ITERATION_NS + 60 * MS, START_NS + 4 * ITERATION_NS + 100 * MS)
AMOUNTS = ("payload_bytes", "wire_bytes", "retransmitted_bytes", "packets")


def merged(table: dict[str, Any], begin_ns: int, end_ns: int) -> dict[str, Any]:
    """Return wire rows as a recorder has them that was held up: each flow's bins of that time are one row."""
    held = (table["bin_start_ns"] >= begin_ns) & (table["bin_start_ns"] < end_ns)
    parts = [{name: values[~held] for name, values in table.items()}]
    for flow, direction in {*zip(table["flow_id"][held].tolist(), table["direction"][held].tolist(), strict=True)}:
        rows = np.flatnonzero(held & (table["flow_id"] == flow) & (table["direction"] == direction))
        one = {name: values[rows[:1]] for name, values in table.items()}
        one |= {name: table[name][rows].sum(keepdims=True) for name in AMOUNTS}
        one["last_ns"] = table["last_ns"][rows[-1:]] - 1
        parts.append(one)
    return {name: np.concatenate([part[name] for part in parts]) for name in table}


def recorded(path: Path, *, held_up: bool, rate_bps: float = RATE_BPS) -> Analysis:
    job = Job(rate_bps=rate_bps).fill()
    wire = wire_columns(job.wire)
    job.write(path)
    (path / "wire.arrows").unlink()
    writer = TraceWriter(path.with_suffix(".other"), job.meta())
    writer.append("wire", merged(wire, *HELD_UP) if held_up else wire)
    writer.close(job.meta())
    (path.with_suffix(".other") / "wire.arrows").rename(path / "wire.arrows")
    return analyze(TraceReader(path))


@pytest.mark.slow
def test_all_bytes_count_and_none_of_the_time_is_idle(tmp_path: Path) -> None:
    whole, held = (recorded(tmp_path / f"{held}.netprof", held_up=held) for held in (False, True))
    before, after = (analysis.document()["links"][0] for analysis in (whole, held))
    unknown_s = (HELD_UP[1] - HELD_UP[0]) / 1e9
    assert after["tx_bytes"] == pytest.approx(before["tx_bytes"], rel=1e-6)
    assert after["utilization_tx"] == pytest.approx(before["utilization_tx"], rel=1e-3)
    assert before["unknown_s"] == 0
    assert after["unknown_tx_s"] == pytest.approx(unknown_s, abs=2e-3)
    idle_s = 0.12  # of that time, the silence that nobody can know of
    assert before["idle_tx_total_s"] - after["idle_tx_total_s"] == pytest.approx(idle_s, abs=2e-3)
    (note,) = (note for note in held.notes if note.startswith("when bytes passed eth0 is unknown for 240.0 ms"))
    assert "it is not idle" in note


def test_a_few_bytes_at_unknown_times_leave_no_time_that_is_known_to_be_idle(tmp_path: Path) -> None:
    """On a link so fast that they hardly occupy it, wherever they are."""
    link = recorded(tmp_path / "t.netprof", held_up=True, rate_bps=1e12).document()["links"][0]
    assert link["unknown_tx_s"] > 0.2
    assert link["idle_tx_total_s"] == pytest.approx(link["window_s"] - link["unknown_tx_s"], rel=0.01)


@pytest.mark.slow
def test_no_rate_that_never_was(tmp_path: Path) -> None:
    lanes = [recorded(tmp_path / f"{held}.netprof", held_up=held).evidence.links.lanes for held in (False, True)]
    most = [int(bins.wire_bytes.max()) for each in lanes if (bins := each.of_link(LINK, TRANSMIT)) is not None]
    assert most[1] == most[0]


@pytest.mark.slow
def test_what_a_rank_waits_for_then_is_not_known(tmp_path: Path) -> None:
    """Whether the link was full, or what else it was, nobody can say; how long everybody waited is known."""
    whole, held = (recorded(tmp_path / f"{held}.netprof", held_up=held).document()["waiting"] for held in (False, True))
    assert held["exposed_s"] == whole["exposed_s"]
    assert sum(cause["seconds"] for cause in held["causes"]) == pytest.approx(held["exposed_s"], abs=1e-9)
    assert "unseen" not in {cause["cause"] for cause in whole["causes"]}
    (unseen,) = (cause for cause in held["causes"] if cause["cause"] == "unseen")
    others = (sum(c["seconds"] for c in each["causes"] if c["cause"] != "unseen") for each in (whole, held))
    assert unseen["seconds"] == pytest.approx(next(others) - next(others), abs=1e-9)
    assert unseen["seconds"] > 0
    assert "bytes passed at unknown moments: the recorder was held up" in unseen["sentence"]


rows = st.lists(
    st.tuples(st.integers(0, 5_000), st.integers(0, 200_000), *(st.integers(0, 1 << 40) for _ in AMOUNTS)), min_size=1
)


@given(rows)
def test_the_parts_add_up(made: list[tuple[int, ...]]) -> None:
    first, lasted, *amounts = np.array(made, np.int64).T
    table = {"first_ns": first, "last_ns": first + lasted, "bin_start_ns": first // 1000 * 1000, "flow_id": first}
    table |= dict(zip(AMOUNTS, amounts, strict=True))
    pieces = list(spread(table, 1000))
    parts = {name: np.concatenate([piece[name] for piece, _ in pieces]) for name in table}
    row = np.concatenate([of for _, of in pieces])
    assert not is_unplaced(parts, 1000).any()
    assert (parts["flow_id"] == first[row]).all()
    assert (parts["first_ns"] <= parts["last_ns"]).all()
    assert (parts["first_ns"] >= first[row]).all()
    assert (parts["last_ns"] <= (first + lasted)[row]).all()
    for name in AMOUNTS:
        assert np.bincount(row, parts[name], len(made)).astype(np.int64).tolist() == table[name].tolist()


@pytest.mark.parametrize("most", [1, 100, 5_000, 1 << 30])
def test_rows_are_spread_over_some_of_their_bins_where_there_are_too_many(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never all at once, and no byte is lost; a short row keeps all of its bins beside one of an eternity."""
    monkeypatch.setattr("netprof.analysis.wire.unplaced._AT_ONCE", 64)
    lasted = np.array([5_000, 10**6, 9 * 10**6])
    table = {name: np.full(3, 1 << 39, np.uint64) for name in AMOUNTS}
    table |= {"first_ns": np.zeros(3, np.int64), "bin_start_ns": np.zeros(3, np.int64), "last_ns": lasted - 1}
    pieces = list(spread(table, 1000, most))
    assert max(len(row) for _, row in pieces) <= 64
    bins = np.bincount(np.concatenate([row for _, row in pieces]), minlength=3)
    assert bins.sum() <= max(3, min(most, 10_005))
    assert bins.sum() >= min(most, 10_005) * 0.95
    if most >= 100:
        assert bins[0] == 5
        last = max(int(piece["bin_start_ns"][row == 2].max(initial=0)) for piece, row in pieces)
        assert last >= lasted[2] - (9000 / bins[2] + 1) * 1000, "to its end, not only its beginning"
    for name in AMOUNTS:
        assert sum(int(piece[name].sum()) for piece, _ in pieces) == 3 << 39


def test_a_row_that_ends_before_it_begins_makes_no_room_for_others() -> None:
    """Only a damaged trace has one; how far back it goes does not lengthen what the rest is spread over."""
    table = {name: np.full(2, 1 << 20, np.uint64) for name in AMOUNTS}
    table |= {"first_ns": np.array([0, 10**9]), "bin_start_ns": np.zeros(2, np.int64), "last_ns": np.array([10**9, 0])}
    rows = np.concatenate([row for _, row in spread(table, 1000, 100)])
    assert np.bincount(rows).tolist() == [99, 1]


@pytest.mark.slow
def test_many_rows_of_long_times_take_little_memory(tmp_path: Path) -> None:
    """What a hostile trace asks for is bounded, in however many batches it comes: here 10^12 bins."""
    path, job = tmp_path / "t.netprof", Job(ranks=1).fill()
    job.changes["stopped_ns"] = None
    writer = TraceWriter(path, job.meta())
    writer.append("flows", job.flows())
    for at in range(4):
        wire = wire_columns(job.wire * 20)
        wire["last_ns"] = wire["last_ns"] + (1 << 50) - np.arange(len(wire["last_ns"])) * 7919 * MS - at
        writer.append("wire", wire)
    writer.close(job.meta())
    tracemalloc.start()
    lanes = analyze(TraceReader(path)).evidence.links.lanes
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(len(bins) for _, _, bins in lanes) <= (1 << 20) + 4 * len(job.wire) * 20
    assert peak_bytes < 512 << 20


def test_a_row_of_an_eternity_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "t.netprof"
    job = Job(ranks=1).fill()
    wire = wire_columns(job.wire)
    wire["last_ns"][5] = 1 << 59
    job.changes["stopped_ns"] = None
    job.wire = []
    job.write(path)
    (path / "wire.arrows").unlink(missing_ok=True)
    writer = TraceWriter(tmp_path / "other", job.meta())
    writer.append("wire", wire)
    writer.close(job.meta())
    (tmp_path / "other" / "wire.arrows").rename(path / "wire.arrows")
    with pytest.raises(TraceError, match="more than the 366 that are believed"):
        analyze(TraceReader(path))
