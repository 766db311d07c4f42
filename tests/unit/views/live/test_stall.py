"""A job that stops moving is stalled within two seconds, and who did not arrive is named; a slow one is not."""

from dataclasses import replace

import pytest
from support.synthetic import BUCKETS, ITERATION_NS, MS, PAYLOAD_PER_BIN, START_NS, Job, mark_columns, wire_columns

from netprof.analysis.findings.iterations.iterations import ITERATIONS
from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.analysis.live.inbox import Inbox
from netprof.analysis.live.live_state import LiveState
from netprof.schema import MarkKind
from netprof.views.live.draw import draw
from netprof.views.live.view_state import ViewState
from netprof.views.progress import line

STOP_NS = START_NS + 10 * ITERATION_NS
STEP_NS = 200 * MS


def stopped(job, pid, at_ns, others_at_ns):
    """The job until one process stops, and the others some time after it, since they wait for it."""
    until = {100 + rank: others_at_ns for rank in range(job.ranks)} | {pid: at_ns}
    job.marks = [m for m in job.marks if m[0] < until[m[1]]]
    job.wire = [row for row in job.wire if row[2] < at_ns]
    return job


def looks(job, until_ns, extra=(), step_ns=STEP_NS):
    """Hand the rows over as a recorder would, and look after each piece; `extra` are rows of marks."""
    inbox = Inbox(replace(job.meta(), stopped_ns=None))
    state = LiveState(inbox, MS)
    inbox.add("flows", job.flows())
    marks, wire = mark_columns(sorted([*job.marks, *extra])), wire_columns(job.wire)
    for now_ns in range(START_NS, until_ns, step_ns):
        for table, columns, times in (("marks", marks, marks["time_ns"]), ("wire", wire, wire["first_ns"])):
            rows = (times >= now_ns - step_ns) & (times < now_ns)
            if rows.any():
                inbox.add(table, {name: values[rows] for name, values in columns.items()})
        inbox.reached(now_ns)
        yield state.look()


def shown(recent, width=80, height=24):
    return [row.plain.rstrip() for row in draw(recent, ViewState("t"), width, height)]


def late(ranks=3):
    """Rank 1 stops in its forward pass; the others go on until they wait for its buckets."""
    job = Job(ranks=ranks, world_size=ranks).fill()
    return stopped(job, 101, STOP_NS + 10 * MS, STOP_NS + 60 * MS)


@pytest.mark.slow
def test_a_job_that_moves_is_not_stalled():
    job = Job(ranks=2, iterations=20).fill()
    assert all(recent.stall is None for recent in looks(job, START_NS + 20 * ITERATION_NS))


@pytest.mark.slow
def test_within_two_seconds_it_is_stalled_and_who_did_not_arrive_is_named():
    seen = list(looks(late(), STOP_NS + 2000 * MS))
    assert all(recent.stall is None for recent in seen if recent.through_ns < STOP_NS + 500 * MS)
    stall = seen[-1].stall
    assert stall is not None
    assert stall.absent == (101,)
    assert stall.waiting == (100, 102)
    assert stall.gone == ()
    assert STOP_NS < stall.since_ns < STOP_NS + 100 * MS
    first = " ".join(shown(seen[-1])[1:3])
    assert "rank 1 (pid 101) has not arrived, the others wait" in first
    assert "line rate" not in first
    assert "stalled for" in line(seen[-1], None)
    assert "py-spy dump --pid 101" in first


@pytest.mark.slow
def test_it_stays_stalled_for_as_long_as_nothing_moves():
    seen = list(looks(late(), STOP_NS + 330 * 1000 * MS, step_ns=3000 * MS))[-1]
    assert seen.stall is not None
    assert seen.stall.absent == (101,)


@pytest.mark.slow
def test_heartbeats_are_no_progress():
    job = late()
    job.wire += [(1, 0, STOP_NS + k * 50 * MS, 200, 266) for k in range(60)]
    assert list(looks(job, STOP_NS + 2400 * MS))[-1].stall is not None


@pytest.mark.slow
def test_bytes_are_progress():
    """A bucket that takes ten times as long as ever: slow, but not stalled."""
    job = late()
    job.wire += [(1, 0, STOP_NS + k * 10 * MS, PAYLOAD_PER_BIN, PAYLOAD_PER_BIN) for k in range(300)]
    assert all(recent.stall is None for recent in looks(job, STOP_NS + 2800 * MS))


@pytest.mark.slow
def test_it_moves_again():
    job = Job(ranks=2, iterations=30)
    for rank in (0, 1):
        for step in range(31):
            job.step(rank, START_NS + step * ITERATION_NS + (3000 * MS if step > 10 else 0))
    states = [recent.stall is not None for recent in looks(job, START_NS + 30 * ITERATION_NS + 3000 * MS)]
    assert any(states)
    assert not states[-1]


@pytest.mark.slow
def test_a_rank_that_has_exited_is_named():
    job = stopped(Job(ranks=2).fill(), 101, STOP_NS + 10 * MS, STOP_NS + 60 * MS)
    gone = (STOP_NS + 11 * MS, 101, 101, int(MarkKind.PROCESS_EXIT), 0, 0)
    seen = list(looks(job, STOP_NS + 2000 * MS, [gone]))[-1]
    assert seen.stall is not None
    assert "rank 1 (pid 101) has exited" in " ".join(shown(seen)[1:3])


@pytest.mark.slow
def test_the_end_of_a_job_is_no_stall():
    job = stopped(Job(ranks=2).fill(), 101, STOP_NS + 10 * MS, STOP_NS + 10 * MS)
    gone = [(STOP_NS + 11 * MS, pid, pid, int(MarkKind.PROCESS_EXIT), 0, 0) for pid in (100, 101)]
    assert list(looks(job, STOP_NS + 3000 * MS, gone))[-1].stall is None


@pytest.mark.slow
def test_where_all_wait_the_first_to_fall_silent_is_named():
    """Rank 1 stops in the transfer of a bucket: the others send what they have, and wait as well."""
    at_ns = STOP_NS + BUCKETS[1][1] + 30 * MS
    job = stopped(Job(ranks=3, world_size=3).fill(), 101, at_ns, at_ns)
    job.wire = [row for row in job.wire if row[0] != 2 or row[1] != 0 or row[2] < at_ns - 10 * MS]
    for until_ns in (STOP_NS + 2200 * MS, STOP_NS + 20_000 * MS):
        stall = list(looks(job, until_ns))[-1].stall
        assert stall is not None
        assert stall.absent == ()
        assert stall.waiting == (100, 101, 102)
        assert stall.silent_first == 101
    said = stall.sentence({100: 0, 101: 1, 102: 2}, STOP_NS)
    assert "every rank waits, and no byte moves; rank 1 (pid 101) was the first to send nothing more" in said


@pytest.mark.slow
def test_where_no_byte_is_seen_nobody_is_blamed():
    at_ns = STOP_NS + BUCKETS[1][1] + 30 * MS
    job = stopped(Job(ranks=2).fill(), 101, at_ns, at_ns)
    job.wire = []
    stall = list(looks(job, STOP_NS + 2200 * MS))[-1].stall
    assert stall is not None
    assert stall.silent_first is None
    assert "or they wait for different collectives" in stall.sentence({}, STOP_NS)


@pytest.mark.slow
@pytest.mark.parametrize("pause", [2, 20])
def test_iterations_with_long_pauses_are_no_stalls(pause):
    job = Job(ranks=2)
    step_ns = pause * 1000 * MS
    for rank in (0, 1):
        for step in range(9):
            job.step(rank, START_NS + step * step_ns)
    assert all(recent.stall is None for recent in looks(job, START_NS + 8 * step_ns, step_ns=step_ns // 10))


def test_before_there_is_an_iteration_the_view_waits_and_then_knows_at_once():
    job = Job(ranks=2, iterations=8).fill()
    for recent in looks(job, START_NS + 8 * ITERATION_NS):
        first = shown(recent)[1]
        assert "unknown" not in first
        assert len(recent.past) or "waiting for the first whole step" in first
        if len(recent.past):
            assert recent.analysis is not None
            assert recent.analysis.of(ITERATIONS).durations is not None


def test_what_to_do_is_not_cut_off_where_there_is_little_room():
    recent = list(looks(Job(ranks=2).fill(), START_NS + 9 * ITERATION_NS))[-1]
    rows = shown(recent, 40, 12)
    assert recent.analysis is not None
    assert recent.analysis.of(VERDICT).headline in " ".join(" ".join(rows).split()), "the verdict is never cut"
    assert any(row.startswith(" → ") for row in rows)
    assert any("▸" in row for row in rows), "and how it goes"


@pytest.mark.slow
def test_a_rank_that_is_stopped_while_it_waits_is_named_where_the_others_get_on():
    """Rank 1 stops in the wait of an iteration that the others finish: they wait for it in the next one."""
    job = stopped(Job(ranks=3, world_size=3).fill(), 101, STOP_NS - ITERATION_NS + 100 * MS, STOP_NS + 60 * MS)
    stall = list(looks(job, STOP_NS + 2000 * MS))[-1].stall
    assert stall is not None
    assert stall.silent_first == 101
