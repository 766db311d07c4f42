"""Messages from one rank to another: which is the same on both sides, and who is late to it."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.synthetic import ITERATION_NS, MS, START_NS, Job, K

from netprof.analysis import analyze
from netprof.analysis.account.causes import LATE_RANK
from netprof.analysis.events.messages import with_messages
from netprof.analysis.events.order import ClockBounds
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.analysis.findings.waiting.bubbles import BUBBLES
from netprof.analysis.findings.waiting.waiting import WAITING
from netprof.schema import NOT_SAID
from netprof.trace import TraceReader

BYTES = 500_000


def post(job: Job, at: int, rank: int, peer: int, *, receives: bool, wait: tuple[int, int], ranks: int = 2) -> None:
    """Rank `rank` posts a message to or from `peer` at an instant, and waits for it in a span of time."""
    pid, work = 100 + rank, 0x7000 + 16 * rank + receives
    posted = K.RECEIVE_POSTED if receives else K.SEND_POSTED
    job.marks.append((at, pid, pid, int(K.MESSAGE_PEER), peer, int(receives), ranks << 32 | rank))
    job.marks.append((at + 1, pid, pid, int(posted), BYTES, 0, work))
    job.marks.append((wait[0], pid, pid, int(K.POSTED_WAIT), work, 0, 0))
    job.marks.append((wait[1], pid, pid, int(K.POSTED_WAIT_OVER), 0, 0, 0))


def pipeline(steps: int = 12) -> Job:
    """Rank 0 sends and waits for the answer; rank 1 takes 100 ms for it."""
    job = Job(iterations=steps)
    for step in range(steps + 1):
        at = START_NS + step * ITERATION_NS
        for rank in range(2):
            job.mark(at + (0 if rank else 150 * MS), 100 + rank, K.BACKWARD)
            job.mark(at + 190 * MS, 100 + rank, K.OPTIMIZER_STEP)
        post(job, at + 10 * MS, 0, 1, receives=False, wait=(at + 10 * MS + 2, at + 11 * MS))
        post(job, at + 12 * MS, 0, 1, receives=True, wait=(at + 12 * MS + 2, at + 130 * MS))
        post(job, at + 5 * MS, 1, 0, receives=True, wait=(at + 5 * MS + 2, at + 20 * MS))
        post(job, at + 120 * MS, 1, 0, receives=False, wait=(at + 120 * MS + 2, at + 121 * MS))
        for bin_ns in range(at + 121 * MS, at + 130 * MS, MS):
            job.wire += [(2, 0, bin_ns, 60_000, 62_000), (1, 1, bin_ns, 60_000, 62_000)]
    return job


def read(job: Job, folder: Path) -> Evidence:
    return Evidence.of_trace(TraceReader(job.write(folder / "t.netprof")))


def test_both_sides_of_a_message_are_one_event_of_two(tmp_path: Path) -> None:
    found = read(pipeline(), tmp_path).exchanges
    members, messages = found.members, found.collectives
    assert len(messages) == 4 * 13
    assert (members.seen == 2).all()
    assert (np.unique(members.event, return_counts=True)[1] == 2).all()
    assert len(set(members.group.tolist())) == 1
    answers = (messages.pid == 100) & (messages.begin_ns % ITERATION_NS == (12 * MS + START_NS) % ITERATION_NS)
    assert (members.last_pid[answers] == 101).all()
    assert (members.ready_ns - messages.begin_ns)[answers].tolist() == [108 * MS] * 13


def test_who_sends_late_is_waited_for(tmp_path: Path) -> None:
    found = analyze(TraceReader(pipeline().write(tmp_path / "t.netprof")))
    waiting = found.of(WAITING)
    assert waiting is not None
    first = waiting.causes[0]
    assert (first.cause.name, first.rank) == ("late_rank", 1)
    # of the 108 ms for which rank 1 is late, it waits for 8 itself
    assert first.ns / waiting.exposed_ns == pytest.approx(100 / 135, abs=0.01)
    assert found.of(VERDICT).case is LATE_RANK


def test_a_message_whose_other_side_is_not_recorded_names_nobody(tmp_path: Path) -> None:
    job = pipeline()
    job.marks = [mark for mark in job.marks if mark[1] == 100]
    members = read(job, tmp_path).exchanges.members
    assert (members.seen == 1).all()
    assert (members.event == -1).all()


def test_messages_in_a_group_are_told_apart_by_the_peer(tmp_path: Path) -> None:
    job = Job(iterations=3, ranks=3, world_size=3)
    for step in range(12):
        at = START_NS + step * 50 * MS
        post(job, at, 0, 2, receives=False, wait=(at + 2, at + MS), ranks=3)
        post(job, at, 2, 0, receives=True, wait=(at + 2, at + 2 * MS), ranks=3)
        post(job, at + 3 * MS, 1, NOT_SAID, receives=True, wait=(at + 3 * MS + 2, at + 4 * MS), ranks=3)
    found = read(job, tmp_path).exchanges
    assert set(found.collectives.pid.tolist()) == {100, 102}, "a receive of anybody's has no peer"
    assert (found.members.seen == 2).all()


def test_a_message_that_is_waited_for_long_after_it_was_posted_holds_no_other_wait_up(tmp_path: Path) -> None:
    """An isend that is waited for at the end of the step is not what a receive before that waits for."""
    job = pipeline()
    for step in range(13):
        at = START_NS + step * ITERATION_NS
        for row, mark in enumerate(job.marks):
            if mark[:2] == (at + 10 * MS + 2, 100):
                job.marks[row] = (at + 131 * MS, *mark[1:])
            if mark[:2] == (at + 11 * MS, 100):
                job.marks[row] = (at + 132 * MS, *mark[1:])
    waiting = analyze(TraceReader(job.write(tmp_path / "t.netprof"))).of(WAITING)
    assert waiting is not None
    assert (waiting.causes[0].cause.name, waiting.causes[0].rank) == ("late_rank", 1)


def test_bubbles_say_which_rank_waits_for_which_and_until_that_comes(tmp_path: Path) -> None:
    found = analyze(TraceReader(pipeline().write(tmp_path / "t.netprof"))).of(BUBBLES)
    by_rank = {(each.rank, each.peer_rank): each for each in found}
    mine, other = by_rank[0, 1], by_rank[1, 0]
    steps = mine.window_ns / ITERATION_NS
    assert mine.waits_ns / steps == pytest.approx((118 + 1) * MS, rel=0.001)
    assert mine.late_ns / steps == pytest.approx(108 * MS, rel=0.001), "rank 1 sends at 120 ms"
    assert other.waits_ns / steps == pytest.approx((15 + 1) * MS, rel=0.001)
    assert other.late_ns / steps == pytest.approx(5 * MS, rel=0.001), "rank 0 sends at 10 ms"


def test_replicas_of_a_pipeline_are_told_apart_by_their_bytes(tmp_path: Path) -> None:
    """Ranks 0 and 2, and 1 and 3, are pipelines of two; the first message of rank 2 is cut off."""
    job = Job(iterations=12, ranks=4, world_size=4)
    for step in range(13):
        at = START_NS + step * ITERATION_NS
        for rank in range(4):
            job.mark(at, 100 + rank, K.BACKWARD)
            job.mark(at + 190 * MS, 100 + rank, K.OPTIMIZER_STEP)
        for replica, late in ((0, 80 * MS), (1, 10 * MS)):
            stage(job, at + late, 100 + replica, 0, (at + late + 2, at + 100 * MS))
            if step or replica:
                stage(job, at + 5 * MS, 102 + replica, 1, (at + 5 * MS + 2, at + 101 * MS))
            job.wire += [(1 + replica, 0, at + 90 * MS, 60_000, 62_000), (3 + replica, 1, at + 90 * MS, 60_000, 62_000)]
    ends = [f"10.0.0.{rank + 1}" for rank in range(4)]
    job.flow_changes = {
        "remote_addr": [ends[rank] for rank in (2, 3, 0, 1)],
        "remote_port": [40_000 + rank for rank in (2, 3, 0, 1)],
    }
    found = analyze(TraceReader(job.write(tmp_path / "t.netprof"))).of(BUBBLES)
    assert {(each.rank, each.peer_rank) for each in found} == {(0, 2), (2, 0), (1, 3), (3, 1)}


def stage(job: Job, at: int, pid: int, number: int, wait: tuple[int, int]) -> None:
    """The first stage of a pipeline sends a message, or the second one receives it."""
    work = 0x7000 + 16 * pid + number
    job.marks.append((at, pid, pid, int(K.MESSAGE_PEER), 1 - number, number, 2 << 32 | number))
    job.marks.append((at + 1, pid, pid, int(K.RECEIVE_POSTED if number else K.SEND_POSTED), BYTES, 0, work))
    job.marks.append((wait[0], pid, pid, int(K.POSTED_WAIT), work, 0, 0))
    job.marks.append((wait[1], pid, pid, int(K.POSTED_WAIT_OVER), 0, 0, 0))


def test_clocks_that_do_not_tell_leave_it_open_who_was_late(tmp_path: Path) -> None:
    evidence = read(pipeline(), tmp_path)
    found = partial(with_messages, evidence.marks, evidence.collectives, evidence.members, evidence.ranks, 2, {})
    apart = ClockBounds(np.array([0.0, 200.0 * MS]), {100: 0, 101: 1})
    assert (found().members.untold_ns == 0).all()
    members = found(clocks=apart).members
    assert (members.untold_ns > 90 * MS).all()
    assert (members.untold_ns < 200 * MS).all()
