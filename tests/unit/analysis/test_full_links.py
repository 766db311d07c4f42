"""What is said of full links is never more than when they are full, whatever the wire did."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.profiles import examples
from support.synthetic import BYTES_PER_BIN, ITERATION_NS, MS, RATE_BPS, START_NS, WIRE_FROM, WIRE_TO, Job

from netprof.analysis import analyze
from netprof.analysis.account.bottlenecks import ONE_LINK, full_times
from netprof.analysis.account.causes import LINK_FULL
from netprof.analysis.account.waiting import Waiting
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.links.full_links import advice_on_full, full_sentence
from netprof.analysis.findings.waiting.waiting_words import blame
from netprof.analysis.tables.intervals import Intervals, covered_until
from netprof.trace import TraceReader


def within(times: Intervals, stretches: Waiting) -> int:
    return int((covered_until(times, stretches.end_ns) - covered_until(times, stretches.begin_ns)).sum())


def evidence_of(job: Job) -> Evidence:
    with tempfile.TemporaryDirectory() as folder:
        evidence = analyze(TraceReader(job.write(Path(folder, "t.netprof")))).evidence
        blame(evidence)  # reads what it needs while the trace is there
        return evidence


bursts = st.tuples(
    st.integers(0, 1),  # flow
    st.integers(0, 1),  # direction
    st.integers(40, 150),  # from, ms
    st.integers(1, 60),  # for, ms
    st.sampled_from([0.3, 0.9, 1.0]),  # of the line rate
)


@pytest.mark.slow  # looks at whole accounts
@examples(100)
@given(st.lists(bursts, max_size=8), st.sampled_from([0.25, 1.0, 4.0]))
def test_the_share_that_is_named_is_one_that_the_tables_hold(found: list[tuple[int, ...]], other: float) -> None:
    job = Job(iterations=3).fill()
    rates = {0: RATE_BPS, 1: RATE_BPS * other}
    rows: dict[tuple[int, int, int], int] = {}
    for step in range(4):
        for flow, way, begin, length, share in found:
            for bin_start in range(begin, begin + length):
                amount = int(BYTES_PER_BIN * share * rates[flow] / RATE_BPS)
                rows[flow + 1, way, START_NS + step * ITERATION_NS + bin_start * MS] = amount
    job.wire = [(*key, amount, amount) for key, amount in rows.items()]
    job.rate_changes = [("eth0", 1, rates[0]), ("eth1", 1, rates[1])]
    evidence = evidence_of(job)
    waiting = evidence.account.waiting
    slow, total = waiting.of(LINK_FULL), int(waiting.length_ns.sum())
    who = blame(evidence).get(LINK_FULL)
    if who is None:
        return
    claimed = who.part * int(slow.length_ns.sum()) / total
    sides = [full_times(side, evidence.recording) for side in evidence.links.sides if side.link.device == who.link]
    assert claimed <= max(within(each.own_full, waiting) for each in sides) / total + 1e-9
    assert who.in_turns is (who.part < ONE_LINK)
    if who.alone:
        others = [full_times(each, evidence.recording) for each in evidence.links.sides if each.link.device != who.link]
        room = sum(within(each.own_full, slow) for each in others) / len(others) if others else 0
        assert room < 0.5 * int(slow.length_ns.sum())
    assert ("a faster link" in advice_on_full(who)) <= (who.part >= ONE_LINK)


def in_turn(share: float) -> Job:
    """A job of which the first link is full for a share of the wire's time, and then the other."""
    change = WIRE_FROM + round((WIRE_TO - WIRE_FROM) * share / MS) * MS
    job = Job().fill()
    kept = {1: range(WIRE_FROM, change), 2: range(change, WIRE_TO)}
    job.wire = [row for row in job.wire if (row[2] - START_NS) % ITERATION_NS in kept[row[0]]]
    return job


@pytest.mark.parametrize(("share", "is_one"), [(0.5, False), (0.8, True), (1.0, True)])
def test_links_that_are_full_in_turn_are_not_one_full_link(share: float, is_one: bool) -> None:
    who = blame(evidence_of(in_turn(share)))[LINK_FULL]
    said = full_sentence(who, 0.8)
    assert who.part == pytest.approx(share, abs=0.1)
    if is_one:
        assert said.startswith(f"in {80 * who.part:.0f} % of the waiting eth0 of rank 0")
        return
    assert said.startswith("in 80 % of the waiting links are saturated by the job in turn, none for most of it")
    assert f"most of all eth0 of rank 0 (1.00 Gbit/s, sending): {80 * who.part:.0f} %" in said
    assert advice_on_full(who).startswith("no faster link helps alone")
