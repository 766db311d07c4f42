"""What must hold for any trace: causes add up, shares are shares, the order of rows is nothing."""

import contextlib
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.profiles import examples
from support.synthetic import BYTES_PER_BIN, MS, START_NS, Job, K, mark_columns, tcp_columns, wire_columns

from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.collectives.collectives import COLLECTIVES
from netprof.analysis.findings.collectives.ranks import RANKS
from netprof.analysis.findings.flows.flow_properties import FLOW_PROPERTIES
from netprof.analysis.findings.iterations.iterations import ITERATIONS
from netprof.analysis.findings.links.links import LINKS
from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.analysis.sections import conclude
from netprof.analysis.wire.fold import WireFold
from netprof.errors import TraceError
from netprof.schema import tables
from netprof.views.json_report import to_json


@st.composite
def jobs(draw):
    """Ranks that step at their own pace on one or two devices; wire bytes anywhere, never above line rate."""
    ranks = draw(st.integers(1, 3))
    job = Job(iterations=6, ranks=ranks, one_device=draw(st.booleans()))
    for rank in range(ranks):
        at = START_NS + draw(st.integers(0, 20 * MS))
        for _ in range(draw(st.integers(2, 6))):
            forward, backward, exposed, rest = (draw(st.integers(1000, 20 * MS)) for _ in range(4))
            launch, length = at + forward + draw(st.integers(1, backward)), draw(st.integers(1, exposed))
            wait, pid = at + forward + backward, 100 + rank
            for time, kind, tid in (
                (at, K.DDP_FORWARD, pid),
                (at + forward, K.DDP_BACKWARD, pid),
                (launch, K.BUCKET_LAUNCH, pid),
                (launch + 1, K.COLLECTIVE_BEGIN, 300 + rank),
                (wait + length - 1, K.COLLECTIVE_END, 300 + rank),
                (wait, K.DDP_WAIT, pid),
                (wait + length, K.BUCKET_DONE, pid),
                (wait + exposed + 1, K.DDP_STATS, pid),
            ):
                if draw(st.integers(0, 30)):
                    job.mark(time, pid, kind, 1, 4, tid=tid)
            at = wait + exposed + rest + 2
    share = BYTES_PER_BIN // (ranks if job.one_device else 1)
    bins = st.tuples(st.integers(1, ranks), st.integers(0, 1), st.integers(0, 400), st.integers(0, share))
    for flow, direction, number, amount in draw(st.lists(bins, max_size=80, unique_by=lambda row: row[:3])):
        job.wire.append((flow, direction, START_NS + number * MS, amount, amount))
    return job


def concluded(job):
    """The analysis of a job without writing it."""
    columns = {
        "marks": mark_columns(job.marks),
        "flows": job.flows(),
        "tcp": tcp_columns(job.ranks, START_NS),
    }

    def fold(evidence):
        folded = WireFold(evidence.flows, MS, evidence.cells)
        folded.add(wire_columns(job.wire))
        return folded

    return conclude(Evidence(job.meta(), lambda name: columns.get(name, tables()[name].empty_table()), fold))


@pytest.mark.slow
@examples(150)
@given(jobs())
def test_causes_add_up_and_shares_are_shares(job):
    for link in concluded(job).of(LINKS):
        for idle in (link.idle, link.idle_tx, link.idle_rx):
            assert 0 <= idle.total_ns <= link.window_ns
            if link.window == "iterations":
                causes = (
                    idle.no_gradient_ns,
                    idle.gradients_waiting_ns,
                    idle.nothing_outstanding_ns,
                    idle.after_last_byte_ns,
                )
                assert sum(causes) == idle.total_ns
                assert idle.gradients_waiting_ns <= link.outstanding_ns <= link.window_ns
        for usage in (link.utilization_tx, link.utilization_rx):
            assert 0 <= usage <= 1 + MS * 2 / max(link.window_ns, MS)
        assert link.idle.total_ns <= min(link.idle_tx.total_ns, link.idle_rx.total_ns)


anything = st.one_of(st.integers(0, 400 * MS), st.integers(0, (1 << 63) - 1 - START_NS))
chaos = st.lists(
    st.tuples(anything, st.integers(100, 102), st.sampled_from([*map(int, K), 200]), st.integers(0, 2)), max_size=60
)


@pytest.mark.slow
@examples(150)
@given(
    chaos, st.lists(st.tuples(st.integers(0, 9), st.integers(0, 255), anything, st.just(5), st.just(9)), max_size=20)
)
def test_nonsense_is_concluded_from_or_refused_but_never_crashes(marks, wire):
    job = Job(ranks=2, iterations=2)
    for time, pid, kind, number in marks:
        job.mark(START_NS + time, pid, kind, number, (1 << 64) - 1 if number == 2 else 4, tid=number)
    job.wire = [(flow, direction, START_NS + time, *amounts) for flow, direction, time, *amounts in wire]
    with contextlib.suppress(TraceError):
        json.dumps(to_json(concluded(job)), allow_nan=False)


@pytest.mark.slow
@examples(60)
@given(jobs(), st.integers(0, 1 << 30))
def test_the_order_of_rows_is_nothing(job, seed):
    first = concluded(job)
    times = {mark[0] for mark in job.marks}
    random = np.random.default_rng(seed)
    if len(times) == len(job.marks):  # at one and the same time, the order recorded is all there is
        random.shuffle(job.marks)
    random.shuffle(job.wire)
    again = concluded(job)
    assert again.of(VERDICT) == first.of(VERDICT)
    assert again.of(ITERATIONS).durations == first.of(ITERATIONS).durations
    assert again.of(LINKS) == first.of(LINKS)
    assert again.of(RANKS) == first.of(RANKS)
    assert again.of(COLLECTIVES).summary == first.of(COLLECTIVES).summary
    assert again.of(FLOW_PROPERTIES) == first.of(FLOW_PROPERTIES)
