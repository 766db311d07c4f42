"""Totals that are added up while a recording grows come to what the report says of all of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from golden.conclusions import traces

from netprof.analysis import analyze
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.bounds.bounds import BOUNDS
from netprof.analysis.findings.iterations.iterations import ITERATIONS
from netprof.analysis.findings.waiting.waiting import WAITING
from netprof.analysis.live.budget import Budget
from netprof.analysis.pieces import sight_before
from netprof.analysis.tables.marks import Marks
from netprof.analysis.totals import growing
from netprof.analysis.totals.growing import Backlog, GrowingAccount
from netprof.analysis.totals.sums import STEP_BUCKETS_S, Totals
from netprof.errors import TraceError
from netprof.model import Meta
from netprof.schema import RECEIVE, TRANSMIT, MarkKind, tables, time_column
from netprof.session.live_follow import recent_rows
from netprof.trace import TraceReader

S = 10**9
SLICE_NS = 700_000_000
FLOWS = tables()["flows"]
MARKED = ["late-rank", "loss", "slow-leg", "undisturbed", "delay", "accumulate", "two-in-turn", "stopped-a-while"]


def grown(reader: TraceReader, slice_ns: int = SLICE_NS, *, tail: bool = True) -> GrowingAccount:
    """Replay a trace as its recorder handed it over, and conclude after every slice."""
    account = GrowingAccount(reader.meta.bin_ns)
    whole = {name: recent_rows(name, batch) for name in tables() if (batch := _one(reader, name)) is not None}
    stop_ns = reader.meta.stopped_ns
    assert stop_ns is not None
    until_ns = reader.meta.started_ns
    low_ns = -(1 << 62)
    while until_ns < stop_ns:
        until_ns = min(until_ns + slice_ns, stop_ns)
        for name, rows in whole.items():
            age = time_column(name)
            times = (
                np.asarray(rows[age]).astype(np.int64) if age else np.full(len(next(iter(rows.values()))), low_ns + 1)
            )
            now = np.flatnonzero((times > low_ns) & (times <= until_ns))
            if len(now):
                account.add(name, {key: np.asarray(values)[now] for key, values in rows.items()})
        low_ns = until_ns
        account.conclude(reader.meta, until_ns)
    if tail:
        account.conclude(reader.meta, until_ns, final=True)
    return account


def _one(reader: TraceReader, name: str) -> Any:
    table = reader.table(name).combine_chunks()
    return table.to_batches()[0] if table.num_rows else None


@pytest.mark.slow
@pytest.mark.parametrize("name", MARKED)
def test_the_totals_are_those_of_the_report(name: str) -> None:
    reader = TraceReader(traces(name)[0])
    whole, account = analyze(reader), grown(reader)
    totals = account.totals
    steps = whole.of(ITERATIONS).times
    assert {pid: rank.steps for pid, rank in totals.ranks.items() if rank.steps} == dict(
        zip(*(each.tolist() for each in np.unique(steps.pid, return_counts=True)), strict=True)
    )
    assert sum(rank.step_ns for rank in totals.ranks.values()) == int(steps.duration_ns.sum(dtype=np.int64))
    longer = np.array([[each > edge_s for edge_s in STEP_BUCKETS_S] for each in steps.duration_ns / 1e9])
    bucket = longer.sum(axis=1)
    for pid, sums in totals.ranks.items():
        found = np.bincount(bucket[steps.pid == pid], minlength=len(STEP_BUCKETS_S) + 1)
        assert sums.step_buckets.tolist() == found.tolist()
    fold = whole.evidence.fold
    for direction in (TRANSMIT, RECEIVE):
        moved = sum(each[direction] for each in totals.moved_bytes.values())
        assert moved == int(fold.totals(direction).wire_bytes.sum())
    assert sum(rank.retransmitted_bytes for rank in totals.ranks.values()) == int(
        fold.totals(TRANSMIT).retransmitted_bytes.sum()
    )
    said = whole.of(WAITING)
    assert said is not None
    for rank in said.by_rank:
        causes = totals.ranks[rank.pid].waiting_ns
        assert causes.sum() == rank.exposed_ns, "every exposed nanosecond has one cause"
        np.testing.assert_allclose(causes, rank.causes_ns, atol=0.02 * rank.exposed_ns + 1e6)
    assert sum(sum(rank.collectives.values()) for rank in totals.ranks.values()) == len(whole.evidence.collectives)


def test_what_is_only_launched_is_bounded() -> None:
    reader = TraceReader(traces("launches-only")[0])
    said, account = analyze(reader).of(BOUNDS), grown(reader)
    assert said is not None
    least = sum(int(rank.at_least_ns.sum()) for rank in account.totals.ranks.values())
    most = sum(int(rank.at_most_ns.sum()) for rank in account.totals.ranks.values())
    assert 0 < least <= most
    assert most == pytest.approx(said.most.exposed_ns, rel=0.05)
    assert not any(rank.waiting_ns.any() for rank in account.totals.ranks.values())


def test_totals_only_grow_and_little_is_kept() -> None:
    reader = TraceReader(traces("late-rank")[0])
    rows = sum(reader.table(name).num_rows for name in ("wire", "marks", "tcp", "counters"))
    account = grown(reader, tail=False)
    assert account.through_ns is not None
    assert account.through_ns > reader.meta.started_ns
    assert account.rows < rows, "what has been concluded from is let go of"


def test_bytes_that_come_late_are_counted_once() -> None:
    reader = TraceReader(traces("undisturbed")[0])
    account = grown(reader, tail=False)
    before = sum(sum(each) for each in account.totals.moved_bytes.values())
    batch = next(iter(reader.batches("wire")))
    late = recent_rows("wire", batch.slice(0, 5))
    account.add("wire", late)
    account.conclude(reader.meta, account.through_ns or 0)
    after = sum(sum(each) for each in account.totals.moved_bytes.values())
    assert after - before == int(np.asarray(late["wire_bytes"]).sum())


def test_flows_that_are_still_open_are_known_however_many_have_closed() -> None:
    backlog = Backlog(1_000_000)
    for flow in range(1, 4201):
        row = {name: "" if pa.types.is_string(kind) else 0 for name, kind in zip(FLOWS.names, FLOWS.types, strict=True)}
        backlog.add("flows", {name: [value] for name, value in (row | {"flow_id": flow, "device": "eth0"}).items()})
        rows = {name: np.zeros(2, np.int64) for name in tables()["flow_devices"].names}
        backlog.add("flow_devices", rows | {"flow_id": np.full(2, flow), "device": ["eth0", "eth1"]})
        if flow > 4:
            backlog.add("totals", {"flow_id": np.array([flow]), "time_ns": np.array([flow]), "closed": np.array([1])})
    known = backlog._flow_table().flow_id.tolist()
    assert known[:4] == [1, 2, 3, 4]
    assert known[-1] == 4200
    assert len(known) < 4096
    assert set(backlog.columns("flow_devices", 0)["flow_id"].tolist()) == set(known)


@pytest.mark.parametrize(("exits", "ago_s", "is_read"), [(True, 2, False), (True, 0.5, True), (False, 30, True)])
def test_a_process_that_is_gone_is_not_read_again_for_ever(exits: bool, ago_s: float, is_read: bool) -> None:
    """Process 1 goes on, 2 made its last mark `ago_s` before the end of the piece."""
    end_ns, ended_ns = 1000 * S, round((1000 - ago_s) * S)
    found: Any = SimpleNamespace(
        iterations=SimpleNamespace(
            pid=np.array([1, 1, 1, 2, 2, 2]),
            begin_ns=np.array(
                [*(end_ns - each * S for each in (3, 2, 1)), *(ended_ns - each * S for each in (3, 2, 1))]
            ),
        )
    )
    last = MarkKind.PROCESS_EXIT if exits else MarkKind.DDP_WAIT
    columns = {name: np.zeros(2, np.int64) for name in ("tid", "arg0", "arg1", "arg2")}
    kinds = np.array([int(MarkKind.DDP_WAIT), int(last)])
    marks = Marks(time_ns=np.array([end_ns, ended_ns]), pid=np.array([1, 2]), kind=kinds, **columns)
    assert (2 in sight_before(found, marks, end_ns)) is is_read
    assert 2 not in sight_before(found, marks, end_ns + 61 * S)


def test_a_piece_that_cannot_be_concluded_from_counts_its_bytes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, conclude, failed = TraceReader(traces("undisturbed")[0]), GrowingAccount.conclude, []
    healthy = grown(reader, tail=False)

    def fails(totals: Totals, piece: Evidence) -> None:
        raise TraceError("these rows cannot be believed")

    def tolerant(account: GrowingAccount, meta: Meta, through_ns: int, *, final: bool = False) -> bool:
        try:
            return conclude(account, meta, through_ns, final=final)
        except TraceError as error:
            failed.append(error)
            return False

    monkeypatch.setattr(Totals, "_add_steps", fails)
    monkeypatch.setattr(GrowingAccount, "conclude", tolerant)
    account = grown(reader, tail=False)
    assert failed
    assert account.totals.moved_bytes == healthy.totals.moved_bytes
    assert account.through_ns == healthy.through_ns
    assert account.rows == healthy.rows


def test_rows_that_cannot_be_read_are_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = TraceReader(traces("undisturbed")[0])
    account = GrowingAccount(reader.meta.bin_ns)
    monkeypatch.setattr(growing, "find_all_iterations", lambda marks: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        account.conclude(reader.meta, reader.meta.started_ns + 10 * S)
    assert account.through_ns == reader.meta.started_ns + 10 * S - growing._SETTLED_NS


def test_work_that_fails_is_spaced_out_too() -> None:
    budget = Budget(0.01, 5.0)
    with pytest.raises(ZeroDivisionError), budget.spending():
        1 / 0  # noqa: B018
    assert not budget.is_due
