"""Traces of jobs that do more than average DDP's buckets: replayed as recorded, and under other conditions."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import typer
from support.sharded import LATENCY_MS, MEGABYTE_MS, REDUCE, Sharded
from support.synthetic import ITERATION_NS, MS, START_NS, Job, K
from typer.testing import CliRunner

from netprof.analysis import analyze
from netprof.analysis.findings.collectives.scaling import SCALING
from netprof.analysis.whatif.ask import Question, ask
from netprof.analysis.whatif.certainty import MINUTES
from netprof.analysis.whatif.from_trace import from_trace
from netprof.analysis.whatif.recorded_steps import _before, _teams, last_posted
from netprof.analysis.whatif.schedule import GradientSchedule
from netprof.cli.whatif import whatif
from netprof.errors import NetprofError
from netprof.schema import TRANSMIT
from netprof.trace import TraceReader


def schedule(job: Job, path: Path, **options: float) -> GradientSchedule:
    return from_trace(analyze(TraceReader(job.fill().write(path / "t.netprof"))), **options)


def asked(found: GradientSchedule, *rates: float, **changes: object):
    fields: dict[str, object] = {"workers": (2,), "bandwidth_bps": rates, "compression": (1.0,)}
    return ask(found, Question(**{**fields, "policy": "observed", "transport": "measured", **changes}))  # type: ignore[arg-type]


def told_ms(job: Sharded) -> float:
    return float(np.median(np.diff(job.truth_ns[0]))) / MS


WIRE_MS = (1 + 2 + 2 + 1) * MEGABYTE_MS


@pytest.mark.slow
def test_a_sharded_job_is_replayed_as_it_was(tmp_path: Path) -> None:
    job = Sharded()
    found = schedule(job, tmp_path)
    assert found.observed is not None
    answer = asked(found, 1e9)
    assert found.observed.iteration_s * 1e3 == pytest.approx(50 + WIRE_MS + 4 * LATENCY_MS)
    assert found.observed.overhead == pytest.approx(1.0, rel=1e-3)
    assert answer.measured_model_s == pytest.approx(found.observed.iteration_s, rel=1e-3)
    assert answer.sweep.scaling_factor[0] == pytest.approx(50 / told_ms(job), rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("rate_bps", [1e8, 2.5e8, 4e9, 1e11])
def test_a_sharded_job_at_another_rate_is_what_that_job_is(tmp_path: Path, rate_bps: float) -> None:
    found = schedule(Sharded(), tmp_path)
    truly = Sharded(rate_bps=rate_bps, iterations=4).fill()
    assert asked(found, rate_bps).sweep.iteration_s[0] * 1e3 == pytest.approx(told_ms(truly), rel=2e-3)


@pytest.mark.slow
def test_a_straggler_makes_the_other_wait_and_without_it_nobody_does(tmp_path: Path) -> None:
    job = Sharded(late_ms=(0, 30))
    found = schedule(job, tmp_path)
    assert found.recorded is not None
    assert found.recorded.exposed_s[0] - found.recorded.exposed_s[1] == pytest.approx(0.030, rel=1e-3)
    answer = asked(found, 1e9, 1e8)
    slow = Sharded(late_ms=(0, 30), rate_bps=1e8, iterations=4).fill()
    assert answer.sweep.iteration_s[0] * 1e3 == pytest.approx(told_ms(job), rel=2e-3)
    assert answer.sweep.iteration_s[1] * 1e3 == pytest.approx(told_ms(slow), rel=2e-3)
    assert answer.sweep.scaling_factor[0] == pytest.approx(80 / told_ms(job), rel=2e-3), "the longest compute time"
    level = asked(found, 1e9, without_straggler=True)
    assert level.sweep.iteration_s[0] * 1e3 == pytest.approx(told_ms(Sharded().fill()), rel=2e-3)
    assert any("rank 1 computes longest" in note for note in level.notes)


@pytest.mark.slow
def test_one_leg_holds_the_ring(tmp_path: Path) -> None:
    found = schedule(Sharded(), tmp_path)
    truly = Sharded(rate_bps=2.5e8, iterations=4).fill()
    answer = asked(found, 1e9, legs_bps={1: 2.5e8})
    assert answer.sweep.iteration_s[0] * 1e3 == pytest.approx(told_ms(truly), rel=2e-3)
    assert any("rank 1's link is held to 250 Mbit/s" in note for note in answer.notes)
    with pytest.raises(NetprofError, match="no rank 7"):
        asked(found, 1e9, legs_bps={7: 1e9})


@pytest.mark.slow
def test_parameters_are_not_compressed_with_the_gradients(tmp_path: Path) -> None:
    found = schedule(Sharded(), tmp_path)
    halved = asked(found, 1e9, compression=(1.0, 2.0)).sweep.iteration_s
    assert (halved[0] - halved[1]) * 1e3 == pytest.approx((2 + 1) * MEGABYTE_MS / 2, rel=5e-3)


@pytest.mark.slow
def test_the_interval_is_that_of_the_recordings_own_spread(tmp_path: Path) -> None:
    steady = asked(schedule(Sharded(), tmp_path), 1e9).sweep
    assert steady.iteration_low_s is not None
    assert steady.iteration_low_s[0] == pytest.approx((1 - MINUTES) * steady.iteration_s[0])
    (tmp_path / "other").mkdir()
    spread = asked(
        schedule(Sharded(iterations=40, jitter_ms=(0, 8, 2, 6, 4, 3, 5)), tmp_path / "other"), 1e9, 1e8
    ).sweep
    assert spread.iteration_low_s is not None
    assert spread.iteration_high_s is not None
    assert np.all(spread.iteration_low_s < spread.iteration_s)
    assert np.all(spread.iteration_s < spread.iteration_high_s)
    own_s = spread.iteration_high_s - spread.iteration_low_s - 2 * MINUTES * spread.iteration_s
    assert 0.0003 < own_s[0] < 0.004


@pytest.mark.slow
def test_ranks_that_do_not_do_the_same_are_told(tmp_path: Path) -> None:
    job = Sharded().fill()
    job.marks = [
        mark for mark in job.marks if not (mark[1] == 101 and mark[3] == K.COLLECTIVE_SIZE and mark[6] == REDUCE)
    ]
    found = from_trace(analyze(TraceReader(job.write(tmp_path / "t.netprof"))))
    assert any("do not all do the same" in note for note in found.notes)
    assert asked(found, 1e9).measured_model_s is not None
    with pytest.raises(NetprofError, match="no ranks to compare"):
        asked(found, 1e9, without_straggler=True)


@pytest.mark.slow
def test_links_that_take_turns_are_full_for_longer_than_their_bytes_take(tmp_path: Path) -> None:
    """One rank sends in the first half of the exchange, the other in the second: on slow links both halves stretch."""
    job = Job().fill()
    job.wire = [row for row in job.wire if in_turn(*row[:3])]
    found = from_trace(analyze(TraceReader(job.write(tmp_path / "t.netprof"))))
    assert found.observed is not None
    assert found.observed.overhead == pytest.approx(0.5)
    assert asked(found, 1e9, 5e8, 2e9).sweep.iteration_s == pytest.approx([0.200, 0.280, 0.160], rel=1e-3)
    one_leg = asked(found, 1e9, legs_bps={1: 5e8}).sweep.iteration_s
    assert one_leg == pytest.approx([0.240], rel=1e-3), "only that one's half takes twice as long"


def in_turn(flow: int, direction: int, start_ns: int) -> bool:
    first_half = (start_ns - START_NS) % ITERATION_NS < 90 * MS
    return first_half == ((flow == 1) == (direction == TRANSMIT))


def test_ranks_that_were_not_recorded_at_the_same_time(tmp_path: Path) -> None:
    job = Sharded().fill()
    job.marks = [(mark[0] + (10**11 if mark[1] == 101 else 0), *mark[1:]) for mark in job.marks]
    found = from_trace(analyze(TraceReader(job.write(tmp_path / "t.netprof"))))
    assert any("stands for all" in note for note in found.notes)
    assert found.observed is not None
    assert found.observed.iteration_s * 1e3 == pytest.approx(told_ms(job), rel=1e-3)


@pytest.mark.slow
def test_of_ranks_that_do_not_keep_step_the_slowest_are_replayed(tmp_path: Path) -> None:
    job = Job(ranks=4, world_size=4, iterations=20)
    for step in range(21):
        for rank in range(4):
            job.step(rank, START_NS + step * (ITERATION_NS + 100 * MS * (rank % 2)))
    analysis = analyze(TraceReader(job.write(tmp_path / "t.netprof")))
    found, scaling = from_trace(analysis), analysis.of(SCALING)
    assert found.observed is not None
    assert found.recorded is not None
    assert scaling is not None
    assert (found.recorded.ranks, found.observed.workers) == ((1, 3), 2)
    assert found.observed.iteration_s == pytest.approx(0.300)
    assert found.compute_s / found.observed.iteration_s == pytest.approx(scaling.paces[0].factor)
    assert any("ranks 0, 2 (200 ms) do not keep step" in note for note in found.notes)
    assert asked(found, 1e9).measured_model_s == pytest.approx(0.300, rel=1e-3)


@pytest.mark.slow
def test_one_more_all_reduce_than_buckets_is_no_obstacle(tmp_path: Path) -> None:
    """find_unused_parameters reduces a bitmap, a hook its own small tensor: they are replayed with the buckets."""
    job = Job().fill()
    for rank in range(2):
        for step in range(job.iterations + 1):
            at, pid, worker = START_NS + step * ITERATION_NS, 100 + rank, 300 + 10 * rank
            job.mark(at + 138 * MS + 500_000, pid, K.COLLECTIVE_BEGIN, tid=worker)
            job.mark(at + 138 * MS + 500_001, pid, K.COLLECTIVE_SIZE, 12, 4, tid=worker)
            job.mark(at + 139 * MS, pid, K.COLLECTIVE_END, tid=worker)
    found = from_trace(analyze(TraceReader(job.write(tmp_path / "t.netprof"))))
    answer = asked(found, 1e9, 5e8)
    assert answer.measured_model_s == pytest.approx(0.200, rel=1e-3)
    assert answer.sweep.iteration_s[1] == pytest.approx(0.280, rel=2e-3)


@pytest.mark.slow
def test_buckets_of_another_size(tmp_path: Path) -> None:
    job = Job().fill()
    for rank in range(job.ranks):
        for step in range(3):
            for index, ms in enumerate((22, 25, 29, 35, 40, 41)):
                job.mark(START_NS + step * ITERATION_NS + ms * MS, 100 + rank, K.GRADIENT_READY, index, tid=200 + rank)
    found = from_trace(analyze(TraceReader(job.write(tmp_path / "t.netprof"))))
    small, usual, one = asked(found, 1e9, bucket_bytes=(1 << 20, 25 << 20, 100 << 20)).bucket_sizes
    assert (small.buckets, usual.buckets, one.buckets) == (6, 2, 1), "the first bucket closes at 1 MiB by default only"
    assert small.iteration_s < one.iteration_s, "it begins at the last gradient, and there is little latency here"
    (tmp_path / "other").mkdir()
    sharded = schedule(Sharded(), tmp_path / "other")
    with pytest.raises(NetprofError, match="DistributedDataParallel"):
        asked(sharded, 1e9, bucket_bytes=(1 << 20,))


def test_smaller_groups_are_told_by_their_events() -> None:
    events = np.array([[5, 1, -1], [5, 1, 8], [5, 2, 8], [5, 2, 8]])
    everybody = np.array([True, False, False])
    assert _teams(events, everybody).T.tolist() == [[5] * 4, [1, 1, 2, 2], [-1, -2, -3, -4]]
    assert _teams(events, np.ones(3, bool))[:, 2].tolist() == [0] * 4


@pytest.mark.parametrize(
    ("keep", "says", "remedy"),
    [
        ((), "no framework's marks", "doctor"),
        ((K.OPTIMIZER_STEP,), "no whole step", "--iterations"),
        ((K.NCCL_ALL_REDUCE,), "only enqueues", "gradient log"),
    ],
)
def test_a_trace_without_iterations_says_why(tmp_path: Path, keep: tuple[K, ...], says: str, remedy: str) -> None:
    job = Job().fill()
    job.marks = []
    for kind in keep:
        job.mark(START_NS, 100, kind, 1000, 7)
    with pytest.raises(NetprofError, match=says) as caught:
        from_trace(analyze(TraceReader(job.write(tmp_path / "t.netprof"))))
    assert remedy in caught.value.hint


def run(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(whatif)
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


@pytest.mark.slow
def test_the_command_takes_legs_methods_and_stragglers(tmp_path: Path) -> None:
    path = str(Sharded(late_ms=(0, 30)).fill().write(tmp_path / "t.netprof"))
    options = ["--bandwidth", "1", "--compression", "1,fp16,topk:1%", "--codec-ns-per-byte", "0"]
    said = json.loads(run(path, *options, "--leg", "0=100mbit", "--without-straggler", "--json"))
    assert [point["compression"] for point in said["points"]] == [1.0, "fp16", "topk:1%"]
    assert all(point["iteration_low_s"] <= point["iteration_s"] for point in said["points"])
    assert any("held to 100 Mbit/s" in note for note in said["notes"])
    assert {fit["kind"] for fit in said["fits"]} == {"all-reduce", "all-gather", "reduce-scatter"}
    assert "fp16" in run(path, *options)
    for wrong, says in (("0", "rank and its"), ("0=", "rank and its"), ("x=1", "rank and its"), ("0=0", "carries")):
        with pytest.raises(NetprofError, match=says):
            run(path, "--leg", wrong)


def test_what_went_before_is_the_step_before_on_all_ranks_or_the_step_itself() -> None:
    every = np.array([[0, 1, 2, 3], [1, 2, 3, 5]])
    assert _before(every, every).tolist() == [[0, 0, 1, 3], [1, 1, 2, 5]]
    assert _before(every[:, [1, 3]], every).tolist() == [[0, 3], [1, 5]]


@pytest.mark.slow
def test_ranks_that_are_late_in_turn_are_replayed_after_each_other(tmp_path: Path) -> None:
    """Every other step rank 0 computes 60 ms less before its passes, else rank 1."""
    job = Job()
    for step in range(41):
        for rank in range(2):
            job.step(rank, START_NS + step * 260 * MS + (60 * MS if step % 2 == rank else 0))
    found = from_trace(analyze(TraceReader(job.write(tmp_path / "t.netprof"))))
    assert found.recorded is not None
    program = found.recorded.main
    assert program.before is not None
    now, went = (one.compute_s[0] - one.compute_s[1] for one in (program, program.before))
    assert np.abs(now).min() > 0.05
    assert now == pytest.approx(-went)


def test_a_collective_is_posted_when_its_last_member_has_posted_it() -> None:
    teams = np.array([[0, 0], [0, 1], [-3, 1]])
    posted_ns = np.array([[[1, 20]], [[5, 3]], [[9, 4]]])
    assert last_posted(posted_ns, teams).tolist() == [[[5, 20]], [[5, 4]], [[9, 4]]]


def test_many_ranks_are_not_compared_each_with_each_at_once() -> None:
    ranks, each = 1000, 50
    tracemalloc.start()
    last_posted(np.zeros((ranks, 1, each), np.int64), np.zeros((ranks, each), np.int64))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * ranks * each * 8
