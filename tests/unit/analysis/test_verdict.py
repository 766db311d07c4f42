"""Each verdict, from a trace that deserves it, and that it names its evidence."""

from types import SimpleNamespace
from typing import Any

import pytest
from support.synthetic import BYTES_PER_BIN, DONE, ITERATION_NS, MS, START_NS, WAIT, Job, K, enqueued, in_parts

from netprof.analysis import analyze
from netprof.analysis.account.causes import HOST, LINK_FULL, TRANSPORT, UNSEEN, WAIT_CAUSES
from netprof.analysis.account.held_up import Kind
from netprof.analysis.findings.blame import Blame
from netprof.analysis.findings.stragglers.stragglers_parts import Culprit
from netprof.analysis.findings.verdict.cause_facts import holds_up
from netprof.analysis.findings.verdict.grounds import Case
from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.analysis.findings.waiting.cause_words import ProblemKind
from netprof.analysis.findings.waiting.waiting_words import words
from netprof.trace import TraceReader


@pytest.fixture
def verdict(tmp_path):
    return lambda job: analyze(TraceReader(job.write(tmp_path / "t.netprof"))).of(VERDICT)


def filled(begin, end, every=1, **about):
    """A job whose link is at line rate from `begin` to `end` of each iteration, in every so-many-th bin."""
    job = Job(**about).fill()
    job.wire = [
        (rank + 1, direction, START_NS + step * ITERATION_NS + at, BYTES_PER_BIN - 5000, BYTES_PER_BIN)
        for rank in range(job.ranks)
        for step in range(job.iterations + 1)
        for at in range(begin, end, every * MS)
        for direction in (0, 1)
    ]
    return job


def test_a_full_link(verdict):
    found = verdict(filled(33 * MS, 136 * MS))
    assert found.case is LINK_FULL
    assert found.family is ProblemKind.NETWORK
    assert found.headline == "NETWORK: the ranks' links (1 Gbit/s) are full for 94 ms of every step"
    assert found.sentence == "without that a step takes 106 ms instead of 200 ms"
    assert found.next[0].text.startswith("fewer bytes")


def test_silence_in_the_wait_is_a_busy_host(verdict):
    found = verdict(filled(33 * MS, 68 * MS))
    assert found.case is HOST
    assert found.family is ProblemKind.HELD_UP
    assert found.headline == "HELD UP BY BOTH RANKS: 72 ms of every step on their CPUs, after the last byte"
    assert "a full link costs 26 ms of it" in found.sentence, "the second cause matters too"
    assert len(found.next) == 2


def test_a_few_bytes_on_a_link_say_nothing_of_what_goes_another_way(verdict):
    job = filled(100 * MS, 136 * MS)
    job.wire = [(flow, direction, at, payload // 50, wire // 50) for flow, direction, at, payload, wire in job.wire]
    found = verdict(job)
    assert found.case is UNSEEN
    assert found.headline == "WAITS 48 % of the time for something netprof cannot see"


def test_neither_silent_nor_full(verdict):
    job = filled(33 * MS, 136 * MS)
    job.wire = [(flow, direction, at, payload // 2, wire // 2) for flow, direction, at, payload, wire in job.wire]
    found = verdict(job)
    assert found.case is TRANSPORT
    assert found.headline == "NETWORK: 94 ms of every step, no link full: the senders have nothing to send"


def test_compute_bound(verdict):
    job = Job().fill()
    moved = {START_NS + step * ITERATION_NS + WAIT for step in range(job.iterations + 1)}
    later = DONE - WAIT - 10 * MS
    job.marks = [(m[0] + later, *m[1:]) if m[0] in moved and m[3] == K.DDP_WAIT else m for m in job.marks]
    found = verdict(job)
    assert found.case is Case.COMPUTE_BOUND
    assert found.headline == "COMPUTE: the job waits 5 % of the time"
    assert found.sentence == ("a faster network would gain at most 10 ms of a step; eth0 averages 40 % of line rate")


def test_the_link_that_holds_everybody_is_the_one_that_is_named(verdict):
    job = filled(33 * MS, 136 * MS)
    job.wire = [row for row in job.wire if row[0] == 2 or row[2] % (2 * MS)]
    assert verdict(job).headline == "NETWORK: rank 1's eth1 (1 Gbit/s) is full; the other links have room"


def test_without_a_line_rate_no_link_is_called_full(verdict):
    found = verdict(filled(33 * MS, 136 * MS, rate_bps=None))
    assert found.case is TRANSPORT
    assert "its line rate is unknown" in found.headline
    assert found.next[0].text == "give the line rate with --line-rate"


def test_iterations_and_line_rate_unknown(verdict):
    job = Job(rate_bps=None).fill()
    job.marks = []
    found = verdict(job)
    assert found.case is Case.ITERATIONS_UNKNOWN
    assert "only bytes per flow" in found.sentence


def test_no_traffic(verdict):
    job = Job().fill()
    job.wire = []
    assert verdict(job).case is UNSEEN


def test_traffic_of_other_processes_than_the_ranks_says_nothing_about_the_wait(verdict):
    job = Job().fill()
    job.flow_changes |= {"pid": [900, 901], "rank": [-1, -1]}
    assert verdict(job).case is UNSEEN


@pytest.mark.parametrize("cause", WAIT_CAUSES)
def test_nobody_need_be_behind_a_cause(cause):
    """As where several hosts know a part each: no sentence has a hole in it."""
    happened, next_step = words(cause, Blame(), 0.5)
    assert "50 %" in happened
    for text in (happened, next_step):
        assert "  " not in text
        assert " ," not in text
        assert text.strip() == text


@pytest.mark.parametrize(
    ("ranks", "kind", "holds"), [((1,), Kind.LINK, True), ((0,), Kind.LINK, False), ((1,), Kind.RANK, False)]
)
def test_only_the_link_that_is_a_straggler_surely_holds_the_others_up(ranks, kind, holds):
    found: Any = SimpleNamespace(
        stragglers=[SimpleNamespace(kind=kind, who=Culprit("eth0 of rank 1", ranks=(1,), link="eth0"))]
    )
    assert holds_up(Blame(link="eth0", ranks=ranks), found) is holds
    assert not holds_up(Blame(link="eth0", ranks=ranks), None)


def test_a_world_size_of_nodes_leaves_no_rank_alone(verdict):
    """An operator sets WORLD_SIZE to the number of nodes, and each node spawns its ranks."""
    assert verdict(filled(33 * MS, 136 * MS, world_size=1)).case is LINK_FULL


def test_a_communicator_has_no_more_ranks_than_the_job(tmp_path):
    job = in_parts(Job(world_size=1).fill(), 2)
    assert analyze(TraceReader(job.write(tmp_path / "t.netprof"))).evidence.world_size == 2


def test_a_step_is_seen_where_one_collective_of_another_library_is(verdict):
    job = enqueued()
    job.wire = []
    for rank in range(2):
        at, tid = START_NS + 195 * MS, 300 + rank
        job.mark(at, 100 + rank, K.COLLECTIVE_BEGIN, tid=tid)
        job.mark(at + 1, 100 + rank, K.COLLECTIVE_SIZE, 1, 4, tid=tid)
        job.mark(at + MS, 100 + rank, K.COLLECTIVE_END, tid=tid)
    found = verdict(job)
    assert found.case is UNSEEN
    assert found.headline.startswith("WAITING UNKNOWN: NCCL only enqueues")


def test_a_cause_that_saves_nothing_shortens_no_step(verdict):
    """Rank 0 waits for the link in even steps, rank 1 in odd ones: without it no step is shorter."""
    found = verdict(one_waits_at_a_time())
    assert found.step is not None
    assert [part.saves_s for part in found.step.parts if part.name == LINK_FULL.name] == [0.0]
    assert found.case is LINK_FULL
    assert "without that" not in found.sentence
    assert found.sentence.startswith("the mean rank waits")


def one_waits_at_a_time():
    job = filled(33 * MS, 136 * MS)
    moved = []
    for time, pid, tid, kind, *rest in job.marks:
        step, offset = divmod(time - START_NS, ITERATION_NS)
        waits = (step + pid) % 2 == 0
        moved.append((time if waits or kind != K.DDP_WAIT else time - offset + DONE - MS, pid, tid, kind, *rest))
    job.marks = moved
    return job
