"""Each verdict, from a trace that deserves it, and that it names its evidence."""

from types import SimpleNamespace
from typing import Any

import pytest
from support.synthetic import BYTES_PER_BIN, DONE, ITERATION_NS, MS, START_NS, WAIT, Job, K

from netprof.analysis import analyze
from netprof.analysis.account.causes import HOST, LINK_FULL, TRANSPORT, UNSEEN, WAIT_CAUSES
from netprof.analysis.account.held_up import Kind
from netprof.analysis.findings.blame import Blame
from netprof.analysis.findings.stragglers.stragglers_parts import Who
from netprof.analysis.findings.verdict.verdict import VERDICT, Case, _holds_up
from netprof.analysis.findings.waiting.cause_words import Family
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
    assert found.family is Family.NETWORK
    assert found.headline == "NETWORK: the ranks' links (1 Gbit/s) are full for 94 ms of every step"
    assert found.sentence == "without that a step takes 106 ms instead of 200 ms"
    assert found.next[0].text.startswith("fewer bytes")


def test_silence_in_the_wait_is_a_busy_host(verdict):
    found = verdict(filled(33 * MS, 68 * MS))
    assert found.case is HOST
    assert found.family is Family.HELD_UP
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
        stragglers=[SimpleNamespace(kind=kind, who=Who("eth0 of rank 1", ranks=(1,), link="eth0"))]
    )
    assert _holds_up(Blame(link="eth0", ranks=ranks), found) is holds
    assert not _holds_up(Blame(link="eth0", ranks=ranks), None)
