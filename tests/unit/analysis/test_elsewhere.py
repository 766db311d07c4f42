"""Time that no mark explains: a trainer that is blocked while its process's bytes move."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.synthetic import ITERATION_NS, MS, START_NS, Job, K

from netprof.analysis import analyze
from netprof.analysis.account.causes import LINK_FULL
from netprof.analysis.findings.stalls.hang import HANG
from netprof.analysis.findings.stragglers.thread_time import THREAD_TIME
from netprof.analysis.findings.verdict.grounds import Case
from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.analysis.findings.waiting.waiting import WAITING
from netprof.analysis.section import Analysis
from netprof.analysis.tables.blocked import read_blocked
from netprof.analysis.tables.intervals import joined, merge
from netprof.model import Series
from netprof.schema import LEVEL, PROCESS_SERIES, BlockedIn, NcclRankState
from netprof.trace import TraceReader

Row = tuple[int, int, int, BlockedIn]  # begin, length, pid, kind; ns


def blocked(rows: list[Row]) -> dict[str, object]:
    return {
        "time_ns": [begin + length for begin, length, _, _ in rows],
        "period_ns": [length for _, length, _, _ in rows],
        "pid": [pid for _, _, pid, _ in rows],
        "tid": [pid for _, _, pid, _ in rows],
        "kind": [int(kind) for *_, kind in rows],
    }


def stepping(rows: list[Row], moves: bool = True, steps: int = 12) -> Job:
    """Two ranks with an optimizer step each 200 ms, whose bytes fill their links from 60 to 140 ms of it."""
    job = Job(iterations=steps)
    for step in range(steps + 1):
        at = START_NS + step * ITERATION_NS
        for rank in range(2):
            job.mark(at, 100 + rank, K.BACKWARD)
            job.mark(at + 150 * MS, 100 + rank, K.OPTIMIZER_STEP)
            for bin_ns in range(at + 60 * MS, at + 140 * MS, MS) if moves else ():
                job.wire += [(rank + 1, way, bin_ns, 124_000, 125_000) for way in (0, 1)]
    job.extra["blocked"] = blocked(rows)
    return job


def each_step(offset: int, length: int, kind: BlockedIn, steps: int = 12) -> list[Row]:
    return [(START_NS + step * ITERATION_NS + offset, length, pid, kind) for step in range(steps) for pid in (100, 101)]


def analysis(job: Job, folder: Path) -> Analysis:
    return analyze(TraceReader(job.write(folder / "t.netprof")))


def test_a_trainer_blocked_in_a_socket_while_bytes_move_communicates(tmp_path: Path) -> None:
    found = analysis(stepping(each_step(50 * MS, 100 * MS, BlockedIn.SOCKET)), tmp_path)
    waiting = found.of(WAITING)
    assert waiting is not None
    assert waiting.exposed_share == pytest.approx(0.5, abs=0.01)
    assert [(cause.cause.name, round(cause.share, 1)) for cause in waiting.causes if cause.share > 0.01] == [
        ("link_full", 0.8),
        ("unseen", 0.2),
    ]
    assert found.of(VERDICT).case is LINK_FULL
    own = found.evidence.iterations
    assert (own.exposed_phase_ns == 100 * MS).all()
    assert (own.backward_ns <= own.wait_ns).all()
    assert (own.done_ns <= own.end_ns).all()


@pytest.mark.parametrize("kind", [BlockedIn.SLEEP, BlockedIn.FILE, BlockedIn.PIPE, BlockedIn.CPU])
def test_what_is_no_socket_and_no_lock_does_not_communicate(kind: BlockedIn, tmp_path: Path) -> None:
    found = analysis(stepping(each_step(50 * MS, 100 * MS, kind)), tmp_path)
    assert found.evidence.unmarked == {}
    waiting = found.of(WAITING)
    assert waiting is not None
    assert waiting.exposed_share == 0


@pytest.mark.parametrize("waits_for_a_gpu", [False, True])
def test_that_nccl_is_loaded_does_not_make_a_process_compute_on_a_gpu(waits_for_a_gpu: bool, tmp_path: Path) -> None:
    """Most builds of torch load it, on a machine without any GPU too."""
    job = stepping(each_step(50 * MS, 100 * MS, BlockedIn.SOCKET))
    job.changes["targets"] = tuple(replace(each, frameworks=("torch", "nccl")) for each in job.meta().targets)
    if waits_for_a_gpu:
        for pid in (100, 101):
            job.mark(START_NS, pid, K.DEVICE_WAIT)
            job.mark(START_NS + MS, pid, K.DEVICE_WAIT_OVER)
    found = analysis(job, tmp_path)
    assert sorted(found.evidence.unmarked) == ([] if waits_for_a_gpu else [100, 101])
    assert (found.of(VERDICT).case is LINK_FULL) is not waits_for_a_gpu


def test_nor_does_a_lock_while_no_byte_moves(tmp_path: Path) -> None:
    rows = each_step(145 * MS, 50 * MS, BlockedIn.LOCK)
    assert analysis(stepping(rows), tmp_path).evidence.unmarked == {}


def test_a_job_that_sleeps_is_not_called_compute_bound(tmp_path: Path) -> None:
    found = analysis(stepping(each_step(0, 150 * MS, BlockedIn.SLEEP)), tmp_path)
    verdict = found.of(VERDICT)
    assert verdict.case is Case.ASLEEP
    assert "asleep in a timer" in verdict.sentence
    computing = analysis(stepping(each_step(0, 50 * MS, BlockedIn.SLEEP)), tmp_path / "other")
    assert computing.of(VERDICT).case is Case.COMPUTE_BOUND


def test_all_time_of_a_thread_is_accounted_for(tmp_path: Path) -> None:
    rows = each_step(50 * MS, 100 * MS, BlockedIn.SOCKET) + each_step(0, 10 * MS, BlockedIn.CPU)
    time = analysis(stepping(rows), tmp_path).of(THREAD_TIME)
    assert time is not None
    for rank in time.ranks:
        assert sum(rank.parts_ns.values()) == rank.span_ns
        assert rank.parts_ns["unmarked_communication"] == 12 * 100 * MS
        assert rank.parts_ns["cpu"] == 12 * 10 * MS


def test_without_iterations_the_account_is_of_all_time(tmp_path: Path) -> None:
    job = stepping(each_step(50 * MS, 100 * MS, BlockedIn.LOCK))
    job.marks = [(START_NS, 100, 100, int(K.RPC_SENT), 0, 0), (START_NS, 101, 101, int(K.RPC_SENT), 0, 0)]
    found = analysis(job, tmp_path)
    assert len(found.evidence.iterations) == 0
    waiting = found.of(WAITING)
    assert waiting is not None
    assert waiting.exposed_share == pytest.approx(12 * 100 / (13 * 200 + 10), abs=0.01)


def test_a_remote_call_waits_for_its_answer_whatever_carries_it(tmp_path: Path) -> None:
    job = stepping(each_step(50 * MS, 100 * MS, BlockedIn.LOCK), moves=False)
    assert analysis(job, tmp_path).evidence.unmarked == {}
    for step in range(12):
        job.mark(START_NS + step * ITERATION_NS + 49 * MS, 100, K.RPC_SENT)
    assert analysis(job, tmp_path / "rpc").evidence.unmarked[100].total_ns == 12 * 100 * MS


def test_backward_passes_are_steps_where_the_optimizer_is_unmarked(tmp_path: Path) -> None:
    job = stepping([])
    job.without([K.OPTIMIZER_STEP], pid=101)
    its = analysis(job, tmp_path).evidence.iterations
    assert (its.pid == 100).sum() == (its.pid == 101).sum() == 11


def standing() -> Job:
    """Rank 0 waits from the begin to the end, rank 1 sleeps."""
    job, whole = Job(iterations=30), 31 * ITERATION_NS
    job.extra["blocked"] = blocked(
        [(START_NS - 10 * MS, whole, 100, BlockedIn.LOCK), (START_NS - 10 * MS, whole, 101, BlockedIn.SLEEP)]
    )
    return job


def test_a_job_that_stands_from_the_begin_is_told_rank_by_rank(tmp_path: Path) -> None:
    found = analysis(standing(), tmp_path)
    hang = found.of(HANG)
    assert hang is not None
    assert hang.from_begin
    assert [(each.rank, each.waits) for each in hang.ranks] == [(0, True), (1, False)]
    assert found.of(VERDICT).case is Case.STALLED
    assert "rank 1 is asleep in a timer; rank 0 waits" in found.of(VERDICT).sentence


@pytest.mark.parametrize(("looked_s", "is_known"), [(0, True), (-5, True), (-100, False)])
def test_what_tcp_said_long_before_the_begin_tells_nothing_of_a_hang(
    looked_s: int, is_known: bool, tmp_path: Path
) -> None:
    """A ring holds the last minutes, and the first look at each process, hours ago: bytes moved since."""
    job, looked_ns = standing(), START_NS + looked_s * 1000 * MS
    names = ("sent_before", "received_before", "unacked")
    job.changes["series"] = tuple(
        Series(number, PROCESS_SERIES, "pid 100", name, "", LEVEL, "") for number, name in enumerate(names)
    )
    job.extra["counters"] = {"series": [0, 1, 2], "time_ns": [looked_ns] * 3, "value": [8 * 10**9, 7 * 10**9, 4711]}
    hang = analysis(job, tmp_path).of(HANG)
    assert hang is not None
    assert (hang.is_known, hang.since_ns < START_NS - 1000 * MS) == (is_known, is_known)
    assert hang.ranks[0].unacked_bytes == (4711 if is_known else 0)


@pytest.mark.parametrize(("behind", "said"), [(11, "rank 1 asked for fewer collectives (11; 12 by others)"), (12, "")])
def test_of_a_job_that_stands_nccl_tells_who_asked_for_less(behind: int, said: str, tmp_path: Path) -> None:
    job, pids = standing(), [100, 101]
    alike = {"time_ns": START_NS, "communicator": "0xf:a", "size": 2, "host": "::1", "state": NcclRankState.RUNNING}
    job.extra["nccl_ranks"] = {name: [value, value] for name, value in alike.items()}
    job.extra["nccl_ranks"] |= {"rank": [0, 1], "process": pids, "pid": pids, "collectives": [12, behind]}
    hang = analysis(job, tmp_path).of(HANG)
    assert hang is not None
    assert hang.collective == (f"NCCL's RAS: of communicator 0xf:a {said}" if said else "")
    assert hang.sentence.endswith(hang.collective)


def test_a_job_whose_ranks_compute_or_whose_bytes_move_does_not_stand(tmp_path: Path) -> None:
    job = Job(iterations=30)
    job.extra["blocked"] = blocked([(START_NS, 100 * MS, 100, BlockedIn.LOCK), (START_NS, MS, 101, BlockedIn.CPU)])
    assert analysis(job, tmp_path).of(HANG) is None
    moving = stepping(each_step(0, 199 * MS, BlockedIn.LOCK))
    assert analysis(moving, tmp_path / "moving").of(HANG) is None


def test_threads_of_a_process_are_blocked_where_all_are_and_a_lock_is_the_last_reason() -> None:
    table = {
        "time_ns": [100, 80],
        "period_ns": [100, 60],
        "pid": [1, 1],
        "tid": [1, 2],
        "kind": [int(BlockedIn.LOCK), int(BlockedIn.SOCKET)],
    }
    found = read_blocked({name: np.array(values) for name, values in table.items()})
    assert list(found.of_process(1, [1, 2])) == [BlockedIn.SOCKET]
    assert found.of_process(1, [1, 2])[BlockedIn.SOCKET].total_ns == 60
    assert found.of_process(1)[BlockedIn.LOCK].total_ns == 100
    assert found.of_process(2) == {}


def test_intervals_that_hardly_lie_apart_are_one() -> None:
    found = joined(merge(np.array([0, 12, 30]), np.array([10, 20, 40])), 2)
    assert list(zip(found.begin_ns.tolist(), found.end_ns.tolist(), strict=True)) == [(0, 20), (30, 40)]
