"""Totals that are added up while a recording grows come to what the report says of all of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from golden.conclusions import traces

from netprof.analysis import analyze
from netprof.analysis.findings.bounds.bounds import BOUNDS
from netprof.analysis.findings.iterations.iterations import ITERATIONS
from netprof.analysis.findings.waiting.waiting import WAITING
from netprof.analysis.totals.growing import GrowingAccount
from netprof.analysis.totals.sums import STEP_BUCKETS_S
from netprof.schema import RECEIVE, TRANSMIT, tables, time_column
from netprof.session.live_follow import recent_rows
from netprof.trace import TraceReader

SLICE_NS = 700_000_000
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
