"""A long recording, concluded from piece by piece, says what it says as a whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.profiles import examples
from support.synthetic import BYTES_PER_BIN, ITERATION_NS, MS, START_NS, Job, K, mark_columns, tcp_columns, wire_columns

from netprof.analysis import Analysis, analyze
from netprof.analysis.findings.collectives.nccl import NCCL
from netprof.analysis.findings.host.counters import COUNTERS
from netprof.analysis.findings.iterations.iterations import ITERATIONS
from netprof.analysis.pieces import Pieces, PieceSize
from netprof.analysis.spread import spread_of, sum_of
from netprof.errors import TraceError
from netprof.model import Series
from netprof.schema import COUNT, NIC_COUNTERS, BlockedIn
from netprof.trace import TraceReader, TraceWriter

S = 10**9
ITERATIONS_IN_ALL = 40
LATE = (7, 19, 20, 33)
"""Iterations in which rank 1 begins its collectives later."""
LATER = (K.BUCKET_LAUNCH, K.COLLECTIVE_BEGIN, K.COLLECTIVE_SIZE)
ABOUT = {"median", "p10", "rtt_us", "busiest_per_second"}
"""What is put together from little that is kept of each piece: not to the last digit."""


class Sampled(Job):
    """A job whose devices and flows are sampled as often as a recorder does."""

    def nic(self) -> dict[str, Any]:
        times = np.arange(START_NS, START_NS + (self.iterations + 1) * ITERATION_NS + 1, 50 * MS)
        counters = (*NIC_COUNTERS, "qdisc_drops")
        columns: dict[str, Any] = {name: np.zeros(self.ranks * len(times), np.int64) for name in counters}
        for way, name in enumerate(("tx_bytes", "rx_bytes")):
            columns[name] = np.concatenate([self._moved(rank, way, times) for rank in range(self.ranks)])
        names = [device.device for device in self.meta().devices]
        return columns | {
            "device": [name for name in names for _ in times],
            "netns": [7] * self.ranks * len(times),
            "time_ns": np.tile(times, self.ranks),
        }

    def write(self, path: Path) -> Path:
        writer = TraceWriter(path, self.meta())
        writer.append("flows", self.flows())
        writer.append("marks", mark_columns(self.marks))
        writer.append("wire", wire_columns(self.wire))
        writer.append("nic", self.nic())
        for step in range(10 * self.iterations):
            columns = {name: values[: self.ranks] for name, values in tcp_columns(self.ranks, 0).items()}
            grown = {"time_ns": START_NS + step * 20 * MS, "busy_us": step * 9_000, "rtt_us": 100 + step % 7}
            writer.append("tcp", columns | {name: [value] * self.ranks for name, value in grown.items()})
        writer.close(self.meta())
        return path

    def _moved(self, rank: int, way: int, times: np.ndarray) -> np.ndarray:
        rows = np.array([(r[2] + MS, r[4]) for r in self.wire if r[:2] == (rank + 1, way)], np.int64).reshape(-1, 2)
        return np.cumsum(np.append(0, rows[:, 1]))[np.searchsorted(rows[:, 0], times, "right")]


def job(iterations: int = ITERATIONS_IN_ALL) -> Sampled:
    """Two ranks, with some lateness and some other traffic, and a tail of iterations that differ."""
    made = Sampled(iterations=iterations)
    made.fill()
    for step in LATE:
        low, high = START_NS + step * ITERATION_NS, START_NS + (step + 1) * ITERATION_NS
        made.marks = [
            (m[0] + 9 * MS, *m[1:]) if low <= m[0] < high and m[1] == 101 and m[3] in LATER else m for m in made.marks
        ]
    return made


def sized(rows: int) -> PieceSize:
    """Pieces of so many rows, however short."""
    return PieceSize(rows, at_once=rows, shortest_ns=1)


def in_pieces(path: Path, count: int) -> tuple[Analysis, int]:
    """Analyze in about `count` pieces; returns how many there are too."""
    whole = Pieces(TraceReader(path), sized(1 << 60))
    rows = sum(found.rows.sum() * (4 if name == "marks" else 1) for name, found in whole._index.tables.items())
    each = max(1, int(rows) // count)
    return analyze(TraceReader(path), size=sized(each)), len(Pieces(TraceReader(path), sized(each)))


def differences(a: Any, b: Any, path: str = "") -> list[str]:
    """Return where two documents differ by more than is owed to what is kept of pieces."""
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return [each for key in a for each in differences(a[key], b[key], f"{path}/{key}")]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [
            each for row, (x, y) in enumerate(zip(a, b, strict=True)) for each in differences(x, y, f"{path}/{row}")
        ]
    about = any(word in path.rsplit("/", 1)[-1] for word in ABOUT) or "flow_properties" in path
    same = a == pytest.approx(b, rel=0.002 if about else 1e-9) if isinstance(a, float) and b is not None else a == b
    return [] if same else [f"{path}: {a} {b}"]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return job().write(tmp_path_factory.mktemp("pieces") / "t.netprof")


@pytest.fixture(scope="module")
def whole(trace: Path) -> Analysis:
    return analyze(TraceReader(trace))


@pytest.mark.slow
@examples(6)
@given(count=st.integers(2, 14))
def test_pieces_say_what_the_whole_says(trace: Path, whole: Analysis, count: int) -> None:
    pieces, found = in_pieces(trace, count)
    assert found >= count
    assert whole.of(ITERATIONS).count == ITERATIONS_IN_ALL
    assert differences(whole.document(), pieces.document()) == []
    assert json.dumps(pieces.document()), "plain data"


@pytest.mark.slow
def test_pieces_are_few_where_rows_are_few(trace: Path) -> None:
    assert len(Pieces(TraceReader(trace))) == 1


@pytest.mark.slow
def test_the_order_of_the_batches_is_nothing(trace: Path, tmp_path: Path) -> None:
    made = job()
    writer = TraceWriter(tmp_path / "t.netprof", made.meta())
    writer.append("flows", made.flows())
    for pid in (101, 100):
        writer.append("marks", mark_columns([mark for mark in made.marks if mark[1] == pid]))
    for row in (3, 2, 1, 0):
        writer.append("wire", wire_columns([r for r in made.wire if (r[0] - 1) * 2 + r[1] == row]))
    writer.append("nic", made.nic())
    writer.close(made.meta())
    whole = analyze(TraceReader(tmp_path / "t.netprof")).document()
    assert differences(whole, in_pieces(tmp_path / "t.netprof", 5)[0].document()) == []


@pytest.mark.slow
def test_a_stall_that_fills_pieces_is_in_the_account_once(tmp_path: Path) -> None:
    made = job()
    made.marks = [(m[0] + 60 * S * (m[0] >= START_NS + 20 * ITERATION_NS + 60 * MS), *m[1:]) for m in made.marks]
    made.wire = [(*r[:2], r[2] + 60 * S * (r[2] >= START_NS + 20 * ITERATION_NS + 60 * MS), *r[3:]) for r in made.wire]
    made.wire += [(1, 0, START_NS + 5 * S + k * 25 * MS, 100, 166) for k in range(2000)]  # heartbeats
    made.changes["stopped_ns"] = START_NS + (ITERATIONS_IN_ALL + 1) * ITERATION_NS + 60 * S
    path = made.write(tmp_path / "t.netprof")
    whole, (pieces, count) = analyze(TraceReader(path)).document(), in_pieces(path, 8)
    found = pieces.document()
    assert count >= 8
    assert found["iterations"]["count"] == whole["iterations"]["count"] == ITERATIONS_IN_ALL
    assert found["iterations"]["max_s"] == pytest.approx(60.2)
    assert found["waiting"]["exposed_s"] == pytest.approx(whole["waiting"]["exposed_s"], rel=1e-9)
    assert found["waiting"]["worst_iterations"][0]["number"] == 20


@pytest.mark.slow
@pytest.mark.parametrize("count", [4, 6, 9])
def test_a_hang_that_fills_the_last_pieces_is_what_the_whole_says(tmp_path: Path, count: int) -> None:
    """The last piece begins at the step that does not end, and holds no whole one."""
    made, cut_ns = job(), START_NS + 20 * ITERATION_NS + 60 * MS
    made.marks = [mark for mark in made.marks if mark[0] < cut_ns]
    made.wire = [row for row in made.wire if row[2] < cut_ns]
    made.wire += [(1, 0, START_NS + 5 * S + k * 25 * MS, 100, 166) for k in range(3000)]  # heartbeats
    made.changes["stopped_ns"] = START_NS + 21 * ITERATION_NS + 80 * S
    path = made.write(tmp_path / "t.netprof")
    whole, found = analyze(TraceReader(path)).document(), in_pieces(path, count)[0].document()
    assert found["family"] == whole["family"] == "stalled"
    for key in ("headline", "sentence", "hang"):
        assert found[key] == whole[key]
    for key in ("unclosed_s", "exposed_s", "by_rank", "unknown_s"):
        assert differences(whole["waiting"][key], found["waiting"][key]) == []


def with_blocked(made: Sampled, path: Path, times_ns: range, kind: BlockedIn) -> Path:
    """Write a job whose trainers are blocked in something all the while before each of some times."""
    writer = TraceWriter(path, made.meta())
    writer.append("flows", made.flows())
    writer.append("marks", mark_columns(made.marks))
    writer.append("wire", wire_columns(made.wire))
    pids, times = ([row[column] for row in [(pid, at) for at in times_ns for pid in (100, 101)]] for column in (0, 1))
    blocked = {"period_ns": [times_ns.step] * len(pids), "kind": [int(kind)] * len(pids)}
    writer.append("blocked", {"pid": pids, "tid": pids, "time_ns": times} | blocked)
    writer.close(made.meta())
    return path


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 6])
def test_a_hang_without_marks_began_when_bytes_last_moved_in_any_piece(tmp_path: Path, count: int) -> None:
    made, stands_ns, end_ns = Sampled(iterations=0), START_NS + 60 * S, START_NS + 120 * S
    made.wire = [
        (rank, way, START_NS + k * 20 * MS, 124000, 125000) for k in range(3000) for rank in (1, 2) for way in (0, 1)
    ]
    made.changes["stopped_ns"] = end_ns
    path = with_blocked(made, tmp_path / "t.netprof", range(stands_ns, end_ns, 5 * MS), BlockedIn.SOCKET)
    whole, found = analyze(TraceReader(path)).document(), in_pieces(path, count)[0].document()
    assert whole["hang"]["seconds"] == pytest.approx(60, abs=1)
    assert found["hang"] == whole["hang"]
    assert found["sentence"] == whole["sentence"]


@pytest.mark.slow
@pytest.mark.parametrize("count", [13, 16])
def test_long_steps_of_which_the_last_piece_holds_a_few_are_no_hang(tmp_path: Path, count: int) -> None:
    """The recording stops in a step in which nothing moves for two seconds, as in every one."""
    made, times = job(), 40
    stopped_ns = START_NS + (ITERATIONS_IN_ALL * 200 - 5) * times * MS
    slow = [(START_NS + (mark[0] - START_NS) * times, *mark[1:]) for mark in made.marks]
    made.marks = [mark for mark in slow if mark[0] < stopped_ns]
    wire = [(*row[:2], START_NS + (row[2] - START_NS) * times, *row[3:]) for row in made.wire]
    made.wire = [row for row in wire if row[2] < stopped_ns]
    made.changes["stopped_ns"] = stopped_ns
    path = with_blocked(made, tmp_path / "t.netprof", range(START_NS, stopped_ns, 100 * MS), BlockedIn.POLL)
    assert analyze(TraceReader(path)).document()["hang"] is None
    assert in_pieces(path, count)[0].document()["hang"] is None


@pytest.mark.slow
def test_a_process_that_ends_in_the_middle_holds_up_nothing(tmp_path: Path) -> None:
    made = job()
    made.marks = [m for m in made.marks if m[1] != 101 or m[0] < START_NS + 10 * ITERATION_NS + 50 * MS]
    path = made.write(tmp_path / "t.netprof")
    whole, found = analyze(TraceReader(path)).document(), in_pieces(path, 6)[0].document()
    assert len(list(Pieces(TraceReader(path), sized(3_500)))) == len(Pieces(TraceReader(path), sized(3_500))) > 4
    for document in (whole, found):
        assert [rank["iterations"]["count"] for rank in document["ranks"]] == [ITERATIONS_IN_ALL, 10]
    assert found["waiting"]["exposed_s"] == pytest.approx(whole["waiting"]["exposed_s"], rel=1e-9)


@pytest.mark.slow
def test_what_was_created_long_ago_is_still_known(tmp_path: Path) -> None:
    made = job()
    made.mark(START_NS - 5 * MS, 100, K.NCCL_COMM_INIT, 8)
    for step in range(ITERATIONS_IN_ALL):
        made.marks.append((START_NS + step * ITERATION_NS + 30 * MS, 100, 100, int(K.NCCL_ALL_REDUCE), 1000, 7, 0xC0))
    path = made.write(tmp_path / "t.netprof")
    whole, pieces = analyze(TraceReader(path)).of(NCCL), in_pieces(path, 6)[0].of(NCCL)
    assert [each.ranks for each in whole.processes] == [each.ranks for each in pieces.processes] == [(8,)]
    assert [each.operations for each in pieces.processes] == [ITERATIONS_IN_ALL]


@pytest.mark.slow
def test_a_counter_that_seldom_moves_is_not_lost_between_pieces(tmp_path: Path) -> None:
    made = job()
    made.changes["series"] = (Series(0, "host", "drops", "CPU 0", "packets", COUNT, "dropped"),)
    writer = TraceWriter(tmp_path / "t.netprof", made.meta())
    writer.append("flows", made.flows())
    writer.append("marks", mark_columns(made.marks))
    writer.append("wire", wire_columns(made.wire))
    writer.append("counters", {"series": [0, 0], "time_ns": [START_NS, START_NS + 7 * S], "value": [100, 142]})
    writer.close(made.meta())
    pieces, count = in_pieces(tmp_path / "t.netprof", 8)
    assert count >= 8
    assert [(each.total, each.subjects) for each in pieces.of(COUNTERS).summaries] == [(42, 1)]


@pytest.mark.slow
def test_every_row_and_iteration_is_of_one_piece(trace: Path) -> None:
    whole = analyze(TraceReader(trace)).evidence
    rows = wire = exposed_ns = 0
    begins = []
    for piece in Pieces(TraceReader(trace), sized(4_000)):
        rows += piece.fold.rows
        wire += int(piece.fold.totals(0).wire_bytes.sum())
        begins.append(piece.iterations.begin_ns)
        exposed_ns += sum(times.total_ns for times in piece.exposed.values())
        assert piece.account.waiting.length_ns.sum() == sum(times.total_ns for times in piece.exposed.values())
    assert len(begins) > 2
    assert rows == whole.fold.rows
    assert wire == (ITERATIONS_IN_ALL + 1) * 80 * 2 * BYTES_PER_BIN
    assert sorted(np.concatenate(begins).tolist()) == sorted(whole.iterations.begin_ns.tolist())
    assert exposed_ns == sum(times.total_ns for times in whole.exposed.values())


@given(st.lists(st.lists(st.floats(1e-6, 1e12), max_size=30), min_size=1, max_size=5))
def test_spreads_add_up(parts: list[list[float]]) -> None:
    every = np.array([value for part in parts for value in part])
    found = sum_of([spread_of(np.array(part)) for part in parts])
    assert found == spread_of(every)
    if len(every):
        assert found.quantile(0.0) == pytest.approx(every.min(), rel=0.001)
        assert found.quantile(1.0) == pytest.approx(every.max(), rel=0.001)
        assert found.quantile(0.5) == pytest.approx(float(np.median(every)), rel=0.001)


def test_nothing_has_no_spread() -> None:
    assert spread_of(np.zeros(0)).quantile(0.5) is None
    assert spread_of(np.zeros(3)).quantile(0.5) == 0.0


def test_no_room_to_sort_rows_is_said(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("netprof.trace.index.pa.ipc.new_stream", full)
    with pytest.raises(TraceError, match="cannot be sorted: No space left on device"):
        in_pieces(trace, 12)
