"""The scaling factor: as estimated from all ranks of a trace, and as measured against one worker alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.synthetic import DONE, ITERATION_NS, MS, START_NS, WAIT, Job, K
from typer.testing import CliRunner

from netprof.analysis import analyze
from netprof.analysis.events.split import splits_of
from netprof.analysis.findings.collectives.scaling import SCALING
from netprof.analysis.findings.iterations.iterations import ITERATIONS
from netprof.analysis.sections import conclude
from netprof.cli.main import app
from netprof.trace import TraceReader


def late(job: Job, pid: int, by_ns: int) -> Job:
    """The rank's last gradient comes so much later: it waits less."""
    waits = [mark for mark in job.marks if mark[3] == K.DDP_WAIT and mark[1] == pid]
    job.without([K.DDP_WAIT], pid=pid)
    job.marks += [(mark[0] + by_ns, *mark[1:]) for mark in waits]
    return job


@pytest.mark.slow
def test_the_rank_that_computes_most_sets_the_pace(tmp_path: Path) -> None:
    job = late(Job(ranks=4, world_size=4).fill(), 102, 40 * MS)
    found = analyze(TraceReader(job.write(tmp_path / "t.netprof"))).of(SCALING)
    assert found is not None
    most, usual = ITERATION_NS - (DONE - WAIT) + 40 * MS, ITERATION_NS - (DONE - WAIT)
    assert found.estimate == found.factor == pytest.approx(most / ITERATION_NS)
    assert found.straggler_share == pytest.approx((most - (3 * usual + most) / 4) / ITERATION_NS)


@pytest.mark.slow
def test_ranks_are_compared_in_the_same_steps(tmp_path: Path) -> None:
    """Every other step, from wait to wait, is of the typical length, and rank 1 computes more in those, else rank 0."""
    job, at = Job(iterations=41), START_NS
    slow = set()
    for step in range(42):
        for rank in range(2):
            begin = at - 3 * MS * rank  # a little before the other one
            job.step(rank, begin)
            if step % 2 == rank:
                slow.add((begin + WAIT, 100 + rank))
        at += ITERATION_NS + (0, 40 * MS, 0, 80 * MS)[step % 4] - 50 * MS * (step % 4 == 1)
    job.marks = [(m[0] + 20 * MS * ((m[0], m[1]) in slow), *m[1:]) if m[3] == K.DDP_WAIT else m for m in job.marks]
    evidence = analyze(TraceReader(job.write(tmp_path / "t.netprof"))).evidence
    [split] = splits_of(evidence.iteration_times)
    assert split.steps == 20
    assert split.iteration_s == pytest.approx(0.2)
    assert split.compute_s[101] - split.compute_s[100] == pytest.approx(0.020)


def test_who_is_late_now_and_then_is_late_in_the_step_that_waits_for_it(tmp_path: Path) -> None:
    """Rank 1 begins every fifth step 900 ms late: its own iteration before is the long one, rank 0's is that step."""
    job, at = Job(iterations=24), START_NS
    for step in range(25):
        late_ns = 900 * MS * (step % 5 == 4)
        job.step(0, at)
        waiting = at + WAIT
        job.marks = [(m[0] + late_ns if m[0] > waiting else m[0], *m[1:]) if m[1] == 100 else m for m in job.marks]
        job.step(1, at + late_ns)
        at += ITERATION_NS + late_ns
    found = analyze(TraceReader(job.write(tmp_path / "t.netprof"))).of(SCALING)
    assert found is not None
    assert found.estimate == pytest.approx(1 - (DONE - WAIT) / ITERATION_NS)
    assert found.straggler_share == pytest.approx(0.0)


def test_ranks_with_nothing_in_common_count_by_themselves(tmp_path: Path) -> None:
    job = Job(iterations=6)
    for step in range(3):
        job.step(0, START_NS + step * ITERATION_NS)
        job.step(1, START_NS + (step + 4) * ITERATION_NS)
    found = analyze(TraceReader(job.write(tmp_path / "t.netprof"))).of(SCALING)
    assert found is not None
    assert found.estimate == pytest.approx(1 - (DONE - WAIT) / ITERATION_NS)


@pytest.mark.slow
@pytest.mark.parametrize("longer_ms", [14, 100, 700])
def test_ranks_that_do_not_keep_step_have_a_factor_each(tmp_path: Path, longer_ms: int) -> None:
    """Ranks 1 and 3 train by themselves, and their iterations last longer."""
    job, longer_ns = Job(ranks=4, world_size=4, iterations=40), longer_ms * MS
    for step in range(41):
        for rank in range(4):
            job.step(rank, START_NS + step * (ITERATION_NS + longer_ns * (rank % 2)))
    path = job.write(tmp_path / "t.netprof")
    analysis = analyze(TraceReader(path))
    found = analysis.of(SCALING)
    assert found is not None
    slow_ns, exposed_ns = ITERATION_NS + longer_ns, DONE - WAIT
    factors = [1 - exposed_ns / slow_ns, 1 - exposed_ns / ITERATION_NS]
    assert [pace.ranks for pace in found.paces] == [(1, 3), (0, 2)]
    assert [pace.iteration_s * 1e9 for pace in found.paces] == pytest.approx([slow_ns, ITERATION_NS], rel=2e-3)
    assert [pace.factor for pace in found.paces] == pytest.approx(factors, rel=2e-3)
    assert found.estimate == pytest.approx(sum(factors) / 2, rel=2e-3)
    [note] = [note for note in analysis.notes if "keep step" in note]
    assert "ranks 1, 3" in note
    assert [pace["ranks"] for pace in analysis.document()["paces"]] == [[1, 3], [0, 2]]


def test_a_steady_lead_or_a_few_late_steps_are_no_other_pace(tmp_path: Path) -> None:
    job, at = Job(iterations=6), START_NS
    for step in range(7):
        job.step(0, at)
        job.step(1, at + (0, 90 * MS, 10 * MS, 0, 95 * MS, 0, 0)[step])
        at += ITERATION_NS
    analysis = analyze(TraceReader(job.write(tmp_path / "t.netprof")))
    found = analysis.of(SCALING)
    assert found is not None
    assert [set(pace.ranks) for pace in found.paces] == [{0, 1}]
    assert not [note for note in analysis.notes if "keep step" in note]


def stalling(job: Job) -> Job:
    """Every fifth iteration waits 900 ms more for its buckets."""
    step = START_NS
    for number in range(job.iterations + 1):
        for rank in range(job.ranks):
            job.step(rank, step)
        step += ITERATION_NS
        if number % 5 == 4:
            mine = (step - ITERATION_NS + WAIT, step)
            job.marks = [(m[0] + 900 * MS * (mine[0] < m[0] < mine[1]), *m[1:]) for m in job.marks]
            step += 900 * MS
    return job


def test_stalls_now_and_then_are_seen_in_all_time(tmp_path: Path) -> None:
    analysis = analyze(TraceReader(stalling(Job(iterations=50)).write(tmp_path / "t.netprof")))
    durations = analysis.of(ITERATIONS).durations
    assert durations is not None
    exposed = (DONE - WAIT) / MS
    assert durations.exposed_share == pytest.approx(exposed / 200)
    assert durations.exposed_share_of_all_time == pytest.approx((5 * exposed + 900) / 1900)
    document = analysis.document()["iterations"]
    assert document["exposed_communication_share_of_all_time"] == durations.exposed_share_of_all_time
    [part] = analysis.parts(ITERATIONS)
    grid = part.bodies[1]
    assert "of all time" in grid.headings  # type: ignore[union-attr]


def test_a_steady_job_has_no_column_for_all_time(tmp_path: Path) -> None:
    [part] = analyze(TraceReader(Job().fill().write(tmp_path / "t.netprof"))).parts(ITERATIONS)
    assert "of all time" not in part.bodies[1].headings  # type: ignore[union-attr]


def report(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["report", *map(str, arguments)])
    return done.exit_code, done.output if done.exception is None else str(getattr(done.exception, "message", ""))


@pytest.fixture
def four(tmp_path: Path) -> Path:
    return Job().fill().write(tmp_path / "job.netprof")


@pytest.mark.slow
def test_a_baseline_in_seconds_or_from_a_trace_of_one_worker(four: Path, tmp_path: Path) -> None:
    alone = Job(ranks=1, world_size=1).fill().write(tmp_path / "alone.netprof")
    for baseline, measured in (("0.15", 0.75), ("150ms", 0.75), (str(alone), 1.0)):
        code, text = report(four, "--json", "--baseline", baseline)
        assert code == 0, text
        found = json.loads(text)
        assert found["scaling_factor_measured"] == found["scaling_factor"] == pytest.approx(measured)
        assert found["scaling_basis"] == "single-worker baseline"
        assert found["scaling_factor_estimate"] == pytest.approx(0.51)
    assert "scaling 0.75 (measured against one worker's 150.0 ms; 0.51 estimated" in " ".join(
        report(four, "--baseline", "0.15")[1].split()
    )
    without = json.loads(report(four, "--json")[1])
    assert without["scaling_factor_measured"] is None
    assert without["scaling_factor"] == without["scaling_factor_estimate"] == pytest.approx(0.51)


@pytest.mark.slow
@pytest.mark.parametrize(("baseline", "is_told"), [("200ms", False), ("220ms", True)])
def test_a_baseline_that_is_slower_than_the_job_is_told_of(four: Path, baseline: str, is_told: bool) -> None:
    notes = json.loads(report(four, "--json", "--baseline", baseline)[1])["notes"]
    assert any("is no baseline of the same work" in note for note in notes) == is_told


@pytest.mark.slow
def test_a_baseline_that_is_none_says_why(four: Path, tmp_path: Path) -> None:
    empty = Job(iterations=1, ranks=1, world_size=1).write(tmp_path / "empty.netprof")
    for baseline, says in (
        (str(four), "recording of 2 ranks, not of one"),
        (str(empty), "no whole iteration"),
        ("soon", "neither a time nor a trace"),
        ("-1", "not a duration"),
        ("nan", "not a duration"),
        (str(tmp_path), ""),
    ):
        code, text = report(four, "--baseline", baseline)
        assert code != 0
        assert says in text, (baseline, text)


def test_the_baseline_is_no_part_of_a_window_of_a_recording_that_goes_on(four: Path) -> None:
    analysis = conclude(analyze(TraceReader(four), baseline_s=0.1).evidence)
    found = analysis.of(SCALING)
    assert found is not None
    assert found.measured == pytest.approx(0.5)
