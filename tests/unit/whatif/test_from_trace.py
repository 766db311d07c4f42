"""Traces whose answer is known in closed form, through the adapter and through the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from support.synthetic import ITERATION_NS, MS, START_NS, Job, K, trace_of
from typer.testing import CliRunner

from netprof.analysis import analyze
from netprof.analysis.tables.intervals import merge
from netprof.analysis.whatif.ask import Question, ask
from netprof.analysis.whatif.fit_recording import fitted_transport
from netprof.analysis.whatif.from_trace import from_trace
from netprof.analysis.whatif.fusion import fuse
from netprof.analysis.whatif.recorded_steps import own_seconds
from netprof.analysis.whatif.schedule import GradientSchedule
from netprof.analysis.whatif.transports import GLOO_TURNS
from netprof.cli.whatif import whatif
from netprof.errors import NetprofError, TraceError, UsageError
from netprof.model import Device, LineRate, Meta, StartedProbe
from netprof.trace import TraceReader

GRADIENTS_MS = (22, 25, 29, 35, 40, 41)  # three before the first launch at 30 ms, three before the second at 41 ms


def schedule(job: Job, path: Path, **options: float) -> GradientSchedule:
    return from_trace(analyze(TraceReader(job.write(path / "t.netprof"))), **options)


def with_gradients(job: Job, steps: int) -> Job:
    for rank in range(job.ranks):
        for step in range(steps):
            at = START_NS + step * ITERATION_NS
            for index, ms in enumerate(GRADIENTS_MS):
                job.mark(at + ms * MS, 100 + rank, K.GRADIENT_READY, index, tid=200 + rank)
    return job


def test_what_a_trace_says(tmp_path: Path) -> None:
    found = schedule(Job().fill(), tmp_path)
    seen = found.observed
    assert seen is not None
    assert seen.iteration_s == pytest.approx(0.200)
    assert found.compute_s == pytest.approx(0.200 - 0.098)
    assert (seen.wait_s, seen.tail_s) == pytest.approx((0.042, 0.002))
    assert seen.pace.launch_s == pytest.approx([0.031, 0.042]), "launch and hand-over"
    assert seen.pace.bytes.tolist() == [4e6, 6e6]
    assert found.recorded is not None
    (program,) = found.recorded.programs
    assert program.own_s is not None
    assert sorted(set(program.own_s.ravel().round(6))) == [0.035, 0.072], "the overlap is shared out"
    assert seen.wire_bytes_per_byte == pytest.approx(1.0)
    assert (seen.line_rate_bps, seen.line_rate_source) == (1e9, "eth0: tbf")
    assert seen.workers == 2


@pytest.mark.slow
def test_the_model_gives_the_measured_iteration_back(tmp_path: Path) -> None:
    found = schedule(Job().fill(), tmp_path)
    answer = ask(found, Question((2,), (1e9, 5e8), (1.0, 2.0), "observed", "measured"))
    assert answer.measured_model_s == pytest.approx(0.200)
    plain, halved, slow, slow_halved = answer.sweep.iteration_s
    assert plain == pytest.approx(0.200)
    assert slow == pytest.approx(0.200 + 0.080), "10 MB at 1 byte of wire each, at half the rate"
    assert halved == pytest.approx(0.200 - 0.040)
    assert slow_halved == pytest.approx(plain), "half the bytes on half the link"
    assert answer.full_use_s == pytest.approx(0.102 + 0.031 + 0.080 - 0.042), "no latency, no copies, no tail"


def test_a_stall_is_no_part_of_a_typical_iteration(tmp_path: Path) -> None:
    job = Job(iterations=12).fill()
    late = START_NS + 5 * ITERATION_NS + 100 * MS
    job.marks = [(t + (300 * MS if t >= late else 0), *rest) for t, *rest in job.marks]
    found = schedule(job, tmp_path).recorded
    assert found is not None
    assert found.iteration_s == pytest.approx(0.200)
    assert max(float(each.own_s.max()) for each in found.programs if each.own_s is not None) == pytest.approx(0.072)


@pytest.mark.slow
def test_collectives_are_enough_where_buckets_have_no_marks(tmp_path: Path) -> None:
    found = schedule(Job().fill().without([K.BUCKET_LAUNCH, K.BUCKET_DONE]), tmp_path)
    assert found.observed is not None
    assert found.observed.pace.launch_s == pytest.approx([0.031, 0.042])


def test_gradients_carry_the_buckets_bytes(tmp_path: Path) -> None:
    found = schedule(with_gradients(Job().fill(), steps=3), tmp_path)
    assert found.ready_s == pytest.approx([ms * 1e-3 for ms in GRADIENTS_MS])
    assert found.bytes == pytest.approx([4e6 / 3] * 3 + [2e6] * 3)
    assert any("3 sampled steps" in note and "spread evenly" in note for note in found.gradient_notes)
    assert fuse(found, "paper").bytes.sum() == pytest.approx(10e6)


def test_the_rank_that_waits_least_is_followed(tmp_path: Path) -> None:
    job = Job().fill()
    waits = [m for m in job.marks if m[3] == K.DDP_WAIT and m[1] == 101]
    job.without([K.DDP_WAIT], pid=101)
    job.marks += [(m[0] + 20 * MS, *m[1:]) for m in waits]
    found = schedule(job, tmp_path)
    assert found.observed is not None
    assert found.observed.wait_s == pytest.approx(0.062)
    assert found.compute_s == pytest.approx(0.200 - 0.078)


COLLECTIVES = (K.COLLECTIVE_BEGIN, K.COLLECTIVE_SIZE, K.COLLECTIVE_END)
GLOO = (StartedProbe("marks:gloo"),)


@pytest.mark.parametrize(
    ("job", "says"),
    [
        (lambda: Job(world_size=1, ranks=1).fill(), "one worker"),
        (lambda: Job(world_size=None, ranks=1).fill(), "only one was recorded"),
        (lambda: Job().fill().without([K.DDP_WAIT]), "no whole step"),
        (lambda: Job().fill().without([K.COLLECTIVE_SIZE]), "collective of known size"),
        (lambda: Job().fill().without(COLLECTIVES), "collective of known size"),
        (lambda: Job(changes={"probes_started": GLOO}).fill().without(COLLECTIVES), "to carry the gradients"),
        (lambda: Job().fill().without([K.COLLECTIVE_SIZE, K.BUCKET_LAUNCH, K.BUCKET_DONE]), "collective of known size"),
    ],
)
def test_a_trace_that_cannot_serve_says_why(tmp_path: Path, job, says: str) -> None:
    with pytest.raises(NetprofError, match=says) as caught:
        schedule(job(), tmp_path)
    assert caught.value.hint


@pytest.mark.slow
def test_an_unknown_line_rate_can_be_given(tmp_path: Path) -> None:
    unknown = schedule(Job(rate_bps=None).fill(), tmp_path)
    assert unknown.observed is not None
    assert unknown.recorded is not None
    with pytest.raises(NetprofError) as caught:
        fitted_transport(unknown.observed, unknown.recorded)
    assert "--line-rate" in caught.value.hint
    ideal = ask(unknown, Question((2,), (1e9,), (1.0,), "observed", "ideal"))
    assert ideal.measured_model_s is None
    given_rate = from_trace(analyze(TraceReader(tmp_path / "t.netprof")), line_rate_bps=1e9)
    assert given_rate.observed is not None
    assert given_rate.observed.line_rate_source == "--line-rate"
    assert given_rate.recorded is not None
    found = fitted_transport(given_rate.observed, given_rate.recorded)[0]
    assert found.rest_s_per_byte(next(iter(found.fits))) == pytest.approx(2.7e-9)


@pytest.mark.slow
def test_what_is_known_of_gloo_is_said_of_gloo_alone(tmp_path: Path) -> None:
    found = schedule(Job().fill(), tmp_path)
    assert found.observed is not None
    assert found.recorded is not None
    assert found.recorded.by_gloo
    gathered = next(iter(GLOO_TURNS))
    assert fitted_transport(found.observed, found.recorded)[0].turns[gathered] == 0.5
    by_another = replace(found.recorded, by_gloo=False)
    assert gathered not in fitted_transport(found.observed, by_another)[0].turns


def test_the_world_size_is_said_to_be_assumed(tmp_path: Path) -> None:
    found = schedule(Job(world_size=None).fill(), tmp_path)
    assert found.observed is not None
    assert found.observed.workers == 2
    assert any("world size is unknown" in note for note in found.notes)


def test_observed_wire_bytes_are_carried_to_other_worker_counts_as_a_rings(tmp_path: Path) -> None:
    found = schedule(Job(world_size=4).fill(), tmp_path)
    four = ask(found, Question((4, 8), (1e9,), (1.0,), "observed", "ideal"))
    assert four.wire_source == "observed"
    assert four.sweep.overhead_s[0] == pytest.approx(0.031 + 0.080 - 0.042)
    assert four.sweep.overhead_s[1] == pytest.approx(0.031 + 0.080 * (2 * 7 / 8) / (2 * 3 / 4) - 0.042)


def test_a_log_has_no_measured_transport() -> None:
    log = GradientSchedule(np.array([0.1]), np.array([1e6]), 1.0)
    with pytest.raises(UsageError, match="no measured transport"):
        ask(log, Question((2,), (1e9,), (1.0,), "none", "measured"))


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 200)), max_size=30))
def test_own_times_add_up_to_the_time_in_which_any_is_outstanding(rows: list[tuple[int, int]]) -> None:
    begin = np.array([b for b, _ in rows], dtype=np.int64)
    end = np.array([b + d for b, d in rows], dtype=np.int64)
    own = own_seconds(begin, end)
    assert own.sum() * 1e9 == pytest.approx(merge(begin, end).total_ns)
    assert (own * 1e9 <= (end - begin) + 1e-6).all()


def run(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(whatif)
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


@pytest.mark.slow
def test_the_command_on_a_trace(tmp_path: Path) -> None:
    path = str(Job().fill().write(tmp_path / "t.netprof"))
    text = run(path, "--bandwidth", "500mbit,1,10")
    assert "▶ 1 Gbit/s" in text
    assert "500 Mbit/s" in text
    assert "observed: 1.000 per byte" in text
    assert "It is the link's speed" in " ".join(text.split())
    answer = json.loads(run(path, "--bandwidth", "500mbit,1", "--compression", "1", "--json"))
    assert answer["measured"]["model_iteration_s"] == pytest.approx(0.200)
    assert [p["bandwidth_gbps"] for p in answer["points"]] == [0.5, 1.0]
    assert {goal["scaling_factor"] for goal in answer["compression_needed"]} == {0.9, 0.95, 0.99}
    assert answer["conclusion"]


@pytest.mark.slow
def test_other_fusion_needs_gradient_marks_and_says_what_does_not(tmp_path: Path) -> None:
    bare = str(Job().fill().write(tmp_path / "bare.netprof"))
    with pytest.raises(NetprofError) as caught:
        run(bare, "--fusion", "paper")
    assert "--fusion observed" in caught.value.hint
    marked = with_gradients(Job().fill(), steps=2).write(tmp_path / "marked.netprof")
    assert "buckets     paper" in run(str(marked), "--fusion", "paper")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--bandwidth", "0"], "carries nothing"),
        (["--bandwidth", "0mbit"], "carries nothing"),
        (["--bandwidth", "fast"], "not a rate"),
        (["--bandwidth", "nan"], "not a rate"),
        (["--bandwidth", "1,,2"], "rate"),
        (["--workers", "1"], "exchanges nothing"),
        (["--workers", "two"], "not a number of workers"),
        (["--compression", "0.5"], "not a compression ratio"),
        (["--compression", "inf"], "not a compression ratio"),
        (["--fusion", "tight"], "not a fusion policy"),
        (["--transport", "perfect"], "not a transport"),
        (["--codec-ns-per-byte", "-1"], "below zero"),
        (["--fusion-threshold-mib", "0"], "zero bytes"),
        (["--batch-time", "0"], "not a duration"),
        (["--csv", "-", "--json"], "standard output"),
        (["--add-cost", "/nonexistent/add.log"], "cannot read /nonexistent/add.log"),
        (["--csv", "/nonexistent/out.csv"], "cannot write /nonexistent/out.csv"),
    ],
)
def test_options_that_cannot_be_meant(options: list[str], says: str) -> None:
    with pytest.raises(NetprofError, match=says) as caught:
        run(str(trace_of(iterations=4)), *options)
    assert "\n" not in caught.value.message


def test_a_log_needs_a_batch_time(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("0.1,5\n")
    with pytest.raises(UsageError) as caught:
        run(str(log))
    assert "--batch-time" in caught.value.hint
    log.write_bytes(b"0.1,5\n\xff\xfe,3\n")
    with pytest.raises(NetprofError, match="line 2 is not text"):
        run(str(log), "--batch-time", "1")
    with pytest.raises(NetprofError, match="cannot read"):
        run(str(tmp_path / "missing"), "--batch-time", "1")
    with pytest.raises(TraceError, match="not a netprof trace"):
        run(str(tmp_path))


def test_a_device_of_unknown_rate_with_few_bytes_is_not_the_busiest(tmp_path: Path) -> None:
    class TwoDevices(Job):
        def flows(self) -> dict[str, Any]:
            columns = {name: [*values, values[0]] for name, values in super().flows().items()}
            changed = {"flow_id": 3, "device": "mgmt0", "remote_addr": "10.9.9.9", "local_port": 55555}
            return columns | {name: [*columns[name][:-1], value] for name, value in changed.items()}

        def meta(self) -> Meta:
            meta = super().meta()
            return replace(meta, devices=(*meta.devices, Device("mgmt0", 7, LineRate(None, "unknown"))))

    job = TwoDevices().fill()
    job.wire = [*job.wire, *((3, 0, START_NS + k * 100 * MS, 300, 400) for k in range(20))]
    seen, alone = (schedule(each, tmp_path / name).observed for name, each in (("two", job), ("one", Job().fill())))
    assert seen is not None
    assert alone is not None
    assert (seen.line_rate_bps, seen.line_rate_source) == (1e9, "eth0: tbf")
    assert (seen.overhead, seen.wire_bytes_per_byte) == (alone.overhead, alone.wire_bytes_per_byte)


def test_of_several_legs_of_one_replayed_rank_the_slowest_holds(tmp_path: Path) -> None:
    found = schedule(Job(ranks=1, world_size=4).fill(), tmp_path)
    plain = Question((4,), (1e9,), (1.0,), "observed", "measured")
    free, one, other = (
        float(ask(found, replace(plain, legs_bps=legs)).sweep.iteration_s[0])
        for legs in ({}, {0: 1e8, 1: 1e10}, {1: 1e10, 0: 1e8})
    )
    assert one == other > free


def test_loopback_is_no_link(tmp_path: Path) -> None:
    job = Job().fill()
    job.flow_changes["device"] = ["lo", "lo"]
    found = schedule(job, tmp_path).observed
    assert found is not None
    assert found.wire_bytes_per_byte is None
