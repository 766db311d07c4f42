"""Who holds a job up: named when it matters and is sure, with what it did meanwhile; never for want of luck."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.synthetic import ITERATION_NS, MS, START_NS, Job, K, trace_of, with_late_rank

from netprof.analysis import analyze
from netprof.analysis.account.causes import LATE_RANK
from netprof.analysis.account.episodes import MATTERS, episodes
from netprof.analysis.account.held_up import HeldUp, Kind
from netprof.analysis.findings.stragglers import doing
from netprof.analysis.findings.stragglers.doing import NO_TIMES, Doing, Spent, Times, TimesOfPieces, what_it_did
from netprof.analysis.findings.stragglers.stragglers import STRAGGLERS, find_stragglers
from netprof.analysis.findings.stragglers.stragglers_parts import Culprit, StragglersParts, one_after_another
from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.analysis.findings.waiting.waiting import WAITING
from netprof.analysis.pieces import PieceSize
from netprof.analysis.result_tables import result_table
from netprof.analysis.tables.intervals import Windows, at_least, interval
from netprof.trace import TraceReader

EVERY_NS = 100 * MS


def found(held_ms: np.ndarray, every_ns: int = EVERY_NS):
    begin_ns = START_NS + np.arange(held_ms.shape[1]) * every_ns
    return episodes((held_ms * MS).astype(np.int64), begin_ns, begin_ns + every_ns)


def scatter(count: int, iterations: int, seed: int, scale_ms: float = 3.0) -> np.ndarray:
    """What chance does: in each iteration one is last, by an exponential amount."""
    random = np.random.default_rng(seed)
    held = np.zeros((count, iterations))
    held[random.integers(count, size=iterations), np.arange(iterations)] = random.exponential(scale_ms, iterations)
    return held


@pytest.mark.parametrize(("scale_ms", "most"), [(0.5, 0), (3.0, 0), (10.0, 1), (30.0, 10)])
@pytest.mark.parametrize("count", [2, 4, 16])
def test_chance_is_hardly_ever_taken_for_somebody(count: int, scale_ms: float, most: int) -> None:
    alarms = sum(bool(found(scatter(count, 100, seed, scale_ms))) for seed in range(200))
    assert alarms <= most, "where a third of all time is chance, no more often than the confidence says"


@pytest.mark.parametrize("late_ms", [10.0, 30.0, 80.0])
def test_one_that_is_late_from_some_iteration_on_is_named_soon_and_nobody_else(late_ms: float) -> None:
    for seed in range(20):
        held = scatter(4, 100, seed, 2.0)
        held[2, 50:] += late_ms
        (one,) = found(held)
        assert one.one == 2
        assert one.last == 99
        assert one.still
        assert abs(one.first - 50) <= 5
        assert (one.known - 50) * EVERY_NS < 5 * 10**9
        assert one.ns == pytest.approx(50 * late_ms * MS, rel=0.2)


def test_with_iterations_of_seconds_ten_of_them_are_enough() -> None:
    held = scatter(2, 40, 1, 20.0)
    held[1, 20:] += 600.0
    (one,) = found(held, 2_000 * MS)
    assert one.one == 1
    assert one.known - 20 < 10


def test_a_single_pause_is_enough_if_it_is_long() -> None:
    held = scatter(4, 100, 3, 2.0)
    held[0, 60] = 1500.0
    lengths = np.full(100, EVERY_NS)
    lengths[60] += 1500 * MS
    end_ns = START_NS + np.cumsum(lengths)
    (one,) = episodes((held * MS).astype(np.int64), end_ns - lengths, end_ns)
    assert (one.one, one.first, one.last, one.known) == (0, 60, 60, 60)
    held[0, 60] = 100.0
    assert not found(held)


def test_what_all_have_in_common_is_nobodys() -> None:
    assert not found(np.full((4, 100), 40.0))


def test_two_that_are_late_in_turn_are_both_named() -> None:
    held = scatter(4, 100, 5, 1.0)
    held[1, ::2] += 60.0
    held[3, 1::2] += 60.0
    assert {each.one for each in found(held)} == {1, 3}


def test_with_nobody_to_compare_with_nothing_is_said() -> None:
    assert not found(np.full((1, 100), 80.0))
    assert not found(np.zeros((4, 0)))


def test_time_that_is_in_enough_sets() -> None:
    sets = [interval(0, 10), interval(5, 20), interval(10, 30)]
    two = at_least(sets, 2)
    assert list(zip(two.begin_ns.tolist(), two.end_ns.tolist(), strict=True)) == [(5, 20)]
    assert at_least(sets, 1).total_ns == 30
    assert at_least([], 1).total_ns == 0


def times(**more: float) -> Times:
    """Four ranks that do the same in two iterations, but for what the third has more of; ms, or MB."""
    usual = {
        "FORWARD": 20,
        "BACKWARD": 30,
        "REST": 10,
        "RUNNING": 40,
        "CPU_WAIT": 5,
        "STOPPED": 0,
        "STOLEN": 0,
        "WRITTEN": 0,
        "COLLECTING": 0,
        "THROTTLED": 0,
        "IN_FILE": 0,
        "IN_PIPE": 0,
        "PROFILED": 0,
    }
    ns = np.zeros((4, len(Spent), 2), np.float32)
    for of in Spent:
        ns[:, of] = usual[of.name] * MS
        ns[2, of] += more.get(of.name, 0) * MS
    return Times((10, 11, 12, 13), ns)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"REST": 60}, doing.DATA),
        ({"REST": 60, "RUNNING": 55}, doing.COMPUTE_BETWEEN),
        ({"REST": 60, "RUNNING": 20}, doing.DATA),
        ({"REST": 60, "IN_FILE": 40}, doing.READING),
        ({"REST": 60, "IN_PIPE": 40, "RUNNING": 10}, doing.LOADER),
        ({"BACKWARD": 60, "RUNNING": 55, "COLLECTING": 50}, doing.GARBAGE),
        ({"BACKWARD": 60, "RUNNING": 15, "CPU_WAIT": 40, "THROTTLED": 45}, doing.THROTTLED),
        ({"FORWARD": 60, "RUNNING": 55, "PROFILED": 1}, doing.PROFILER),
        ({"FORWARD": 60, "PROFILED": 1}, doing.COMPUTE),
        ({"REST": 60, "WRITTEN": 20}, doing.CHECKPOINT),
        ({"FORWARD": 30, "BACKWARD": 30, "RUNNING": 60}, doing.COMPUTE),
        ({"FORWARD": 60}, doing.COMPUTE),
        ({"FORWARD": 20, "BACKWARD": 30, "REST": 10, "CPU_WAIT": 55, "RUNNING": 5}, doing.CPU_TAKEN),
        ({"REST": 40, "CPU_WAIT": 38}, doing.CPU_TAKEN),
        ({"BACKWARD": 60, "RUNNING": 58, "STOLEN": 50}, doing.CPU_TAKEN),
        ({"REST": 2000, "STOPPED": 1950}, doing.PAUSED),
    ],
)
def test_what_a_rank_did_is_what_it_has_more_of(more: dict[str, float], expected: Doing) -> None:
    assert what_it_did(times(**more), 12, np.arange(2)) is expected


def test_an_older_trace_tells_only_where_in_its_step_a_rank_was() -> None:
    unknown = times(REST=60)
    unknown.ns[:, Spent.RUNNING :] = np.nan
    assert what_it_did(unknown, 12, np.arange(2)) is doing.BETWEEN
    unknown = times(FORWARD=60)
    unknown.ns[:, Spent.RUNNING :] = np.nan
    assert what_it_did(unknown, 12, np.arange(2)) is doing.COMPUTE


def late_job(path: Path, iterations: int = 40, since: int = 0) -> Path:
    """Rank 2 of four is 45 ms late in each step from one on."""
    return with_late_rank(Job(ranks=4, world_size=4, iterations=iterations).fill(), 2, 45 * MS, since).write(path)


@pytest.mark.slow
def test_a_late_rank_is_named_in_the_report_with_what_it_did(tmp_path: Path) -> None:
    analysis = analyze(TraceReader(late_job(tmp_path / "t")))
    finding = analysis.of(STRAGGLERS)
    assert finding is not None
    (one,) = finding.stragglers
    assert (one.kind, one.who.rank, one.cause, one.doing) == (Kind.RANK, 2, LATE_RANK, doing.COMPUTE)
    assert one.share == pytest.approx((31 + 45 - 42) / 200, abs=0.01)  # the others wait from 42 ms on
    assert one.confidence >= 0.95
    (document,) = analysis.document()["stragglers"]
    assert (document["rank"], document["cause"], document["doing"]) == (2, "late_rank", "compute")
    assert "rank 2 holds the others up" in str(analysis.parts(STRAGGLERS)[0].bodies[1].rows[0][1])


def test_ranks_that_are_late_before_their_passes_are_late_in_turn(tmp_path: Path) -> None:
    """Who begins its forward pass late is in its iteration before, and the others wait in the one that follows."""
    job, at = Job(iterations=0), START_NS
    for step in range(20):
        begins = [at + (100 * MS if rank == step % 2 else 0) for rank in (0, 1)]
        done = max(begins) + 40 * MS
        for rank, begin in enumerate(begins):
            pid, autograd, worker = 100 + rank, 200 + rank, 300 + rank
            job.mark(begin, pid, K.DDP_FORWARD)
            job.mark(begin + 10 * MS, pid, K.DDP_BACKWARD)
            job.mark(begin + 20 * MS, pid, K.BUCKET_LAUNCH, 7, tid=autograd)
            job.mark(begin + 20 * MS, pid, K.COLLECTIVE_BEGIN, tid=worker)
            job.mark(begin + 20 * MS + 1, pid, K.COLLECTIVE_SIZE, 250_000, 4, tid=worker)
            job.mark(begin + 25 * MS, pid, K.DDP_WAIT, tid=autograd)
            job.mark(done, pid, K.COLLECTIVE_END, tid=worker)
            job.mark(done + 1000, pid, K.BUCKET_DONE, 7, tid=autograd)
            job.mark(done + 2000, pid, K.DDP_STATS, tid=autograd)
        job.wire += [(rank + 1, way, done - MS, 500_000, 530_000) for rank in (0, 1) for way in (0, 1)]
        at = done + 10 * MS
    analysis = analyze(TraceReader(job.write(tmp_path / "t.netprof")))
    waiting = analysis.of(WAITING)
    assert waiting is not None
    (late,) = [each for each in waiting.causes if each.cause is LATE_RANK]
    assert late.saves_s == pytest.approx(18 * 0.1, abs=0.11)
    assert "late in turn: rank 0 in 10 and rank 1 in 9 of 19 steps" in analysis.of(VERDICT).sentence


@pytest.mark.slow
def test_nobody_is_named_where_all_do_the_same(tmp_path: Path) -> None:
    finding = analyze(TraceReader(trace_of(ranks=4, world_size=4, iterations=40))).of(STRAGGLERS)
    assert finding is not None
    assert not finding.stragglers


@pytest.mark.slow
def test_a_recording_in_pieces_tells_the_same(tmp_path: Path) -> None:
    path = late_job(tmp_path / "t", iterations=60, since=30)
    size = PieceSize(rows=2_000, at_once=2_000, shortest_ns=2 * 10**9)
    whole, pieces = (analyze(TraceReader(path), size=each).of(STRAGGLERS) for each in (None, size))
    assert whole is not None
    assert pieces is not None
    assert whole.stragglers == pieces.stragglers
    assert [each.first for each in whole.stragglers] == [30]


@pytest.mark.slow
def test_who_came_last_is_a_table(tmp_path: Path) -> None:
    table = result_table(analyze(TraceReader(late_job(tmp_path / "t"))), "arrivals")
    assert set(table["rank"].tolist()) == {2}
    assert np.median(table["late_ns"]) == 45 * MS
    assert set(table["doing"]) == {"compute"}
    assert len(table["iteration"]) == 40
    assert (table["late_ns"] >= MATTERS * ITERATION_NS).all()


def test_what_pieces_tell_of_ranks_is_what_the_whole_would() -> None:
    """One piece knows a process less, and another one something less of each."""
    random = np.random.default_rng(4)
    ns = random.integers(0, 10**9, (3, len(Spent), 30)).astype(np.float32)
    ns[2, :, :10] = np.nan
    ns[:, Spent.WRITTEN, 10:] = np.nan
    ns[:, Spent.STOPPED, 10:] = 0.0
    whole = Times((10, 11, 12), ns)
    told = tuple(of for of in Spent if of not in (Spent.WRITTEN, Spent.STOPPED))
    later = Times((12, 10, 11), ns[[2, 0, 1]][:, list(told), 10:], told, none=(Spent.STOPPED,))
    pieces = TimesOfPieces([Times((10, 11), ns[:2, :, :10]), later], np.array([0, 10, 30]))
    assert pieces.pids == whole.pids
    for pid in whole.pids:
        assert np.array_equal(pieces.of(pid), whole.of(pid), equal_nan=True)
    for rows in (np.arange(30), np.array([3, 9, 10, 29]), np.arange(30) % 3 == 0, np.array([12, 13])):
        (total, known), (expected, expected_known) = pieces.sums(rows), whole.sums(rows)
        assert total == pytest.approx(expected)
        assert np.array_equal(known, expected_known)


def test_a_wait_of_seconds_in_one_piece_is_kept_to_the_nanosecond() -> None:
    """It does not fit into 32 bits, in which the waits of most pieces are kept."""

    def part(held_ns: list[int], keys: tuple[int, ...]) -> StragglersParts:
        windows = Windows(*(np.arange(2, dtype=np.int64) + each for each in (0, 1)))
        ns = np.array(held_ns, np.int64).reshape(len(keys), 2, 2)
        return StragglersParts(
            windows, [HeldUp(Kind.RANK, keys, ns)], Times((), np.zeros((0, 0, 2), np.float32), ()), {}
        )

    long_ns = 2**31 + 1
    whole = one_after_another([part([1, 2, 3, 4], (10,)), part([5, 6, 7, 8, 0, long_ns, 0, 9], (11, 10))])
    (held,) = whole.held
    assert held.keys == (10, 11)
    assert held.ns.tolist() == [[[1, 2, 0, long_ns], [3, 4, 0, 9]], [[0, 0, 5, 6], [0, 0, 7, 8]]]


def test_nothing_is_more_than_what_is_unknown_of_the_others() -> None:
    """All wait for their loaders alike, but only one's threads were watched."""
    some = times(REST=60, RUNNING=55)
    some.ns[[0, 1, 3], Spent.RUNNING] = np.nan
    assert what_it_did(some, 12, np.arange(2)) is doing.BETWEEN


def test_others_are_those_of_which_it_is_known() -> None:
    """Two of the others ended before: the time that they do not train is not between their steps."""
    some = times(REST=60)
    some.ns[[0, 1]] = np.nan
    some.ns[2, Spent.RUNNING] += 60 * MS
    assert what_it_did(some, 12, np.arange(2)) is doing.COMPUTE_BETWEEN


def test_one_far_longer_step_hides_no_straggler() -> None:
    lengths = np.full(19, 200 * MS)
    lengths[9] = 100_000 * MS
    end_ns = np.cumsum(lengths)
    held = np.zeros((8, 2, 19), np.int64)
    held[3, 0] = 100 * MS
    held[3, 0, 9] = 4990 * MS
    names: dict[tuple[Kind, object], Culprit] = {(Kind.RANK, pid): Culprit(f"rank {pid}", pid) for pid in range(8)}
    windows, ranks = Windows(end_ns - lengths, end_ns), HeldUp(Kind.RANK, tuple(range(8)), held)
    for one in find_stragglers(StragglersParts(windows, [ranks], NO_TIMES, names)).stragglers:
        assert one.iterations > 0
