"""What is said about a sweep: the sentence, the goals, the curves, and the drawing of them."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from netprof.analysis.whatif import answer, text
from netprof.analysis.whatif.answer import plot_series
from netprof.analysis.whatif.ask import Question, ask
from netprof.analysis.whatif.program import GradBuckets, of_buckets
from netprof.analysis.whatif.recorded_steps import RecordedSteps
from netprof.analysis.whatif.schedule import GradientSchedule, Observation
from netprof.errors import NetprofError, UsageError
from netprof.views import whatif as view
from netprof.views.whatif_data import to_json

S = 100e6  # bytes of the one bucket
WIRE = 1.0  # per byte: 0.8 s at 1 Gbit/s


def observed(collective_s: float, compute_s: float, *, workers: int = 2, wire: float | None = WIRE) -> GradientSchedule:
    """A job with one bucket, launched when the last gradient is ready, on a link of 1 Gbit/s."""
    buckets = GradBuckets(np.array([compute_s]), np.array([S]))
    seen = Observation(
        iteration_s=compute_s + collective_s,
        iterations=10,
        workers=workers,
        workers_per_host=1,
        workers_on_a_machine=1,
        pace=buckets,
        wait_s=compute_s,
        tail_s=0.0,
        line_rate_bps=1e9,
        line_rate_source="\x1b[31meth0",
        wire_bytes_per_byte=wire,
        overhead=None if wire is None or workers < 2 else wire / (2 * (workers - 1) / workers),
    )
    program = replace(of_buckets(buckets, workers, compute_s, compute_s), own_s=np.full((1, 1, 1), collective_s))
    recorded = RecordedSteps(
        (100,), (0,), (program,), compute_s + collective_s, np.array([collective_s]), np.array([1e9]), np.zeros(1), True
    )
    notes = ("it is [bold]assumed[/bold]",)
    return GradientSchedule(np.zeros(0), np.zeros(0), compute_s, seen, recorded, notes)


def asked(schedule: GradientSchedule, transport: str = "measured", **changes: object):
    fields = {
        "workers": (2,),
        "bandwidth_bps": (1e10, 1e9, np.inf),
        "compression": (2.0, 1.0),
        "policy": "observed",
        "transport": transport,
    }
    return ask(schedule, Question(**{**fields, **changes}))  # type: ignore[arg-type]


def test_little_waiting_means_the_network_is_not_the_bottleneck() -> None:
    assert "not the bottleneck" in asked(observed(0.8, 30.0)).conclusion


def test_a_full_link_means_it_is_the_links_speed() -> None:
    words = asked(observed(0.85, 1.0)).conclusion
    assert "It is the link's speed" in words
    assert "gradients 13.1x smaller or a link of 13.1 Gbit/s" in words, "1 / 0.9 - 1 - 0.05 s are left for 0.8 s"


@pytest.mark.parametrize(
    ("mean_s", "said"), [(None, ""), (1.87, ""), (4.2, "add 2.35 s to the mean of all steps, 4.20 s")]
)
def test_rare_long_steps_are_said_apart(mean_s: float | None, said: str) -> None:
    schedule = observed(0.85, 1.0)
    assert schedule.observed is not None
    told = asked(replace(schedule, observed=replace(schedule.observed, mean_s=mean_s)))
    assert (said in told.conclusion) if said else ("Rare long steps" not in told.conclusion)
    assert to_json(told)["measured"]["mean_s"] == mean_s


def test_a_slow_transport_on_an_idle_link_is_named() -> None:
    words = asked(observed(4.0, 1.0)).conclusion
    assert "Most of it is the transport" in words
    assert "stays below 0.238" in words, "1 / (1 + 3.2)"


def test_a_slow_leg_is_the_network_too() -> None:
    words = asked(observed(4.0, 1.0), legs_bps={0: 1e6}).conclusion
    assert "stays below 0.238" in words, "with gradients of no size, as without the leg"


def test_no_faster_link_is_advised_where_a_leg_holds_the_job() -> None:
    words = asked(observed(0.85, 1.0), legs_bps={0: 5e9}).conclusion
    assert "smaller: a faster link for the others would not do" in words


def test_a_link_helps_where_compressing_gradients_does_not() -> None:
    """What FSDP gathers, and what experts exchange, is no gradient: it stays as it is, and a link carries it."""
    schedule = observed(0.85, 1.0)
    assert schedule.recorded is not None
    (program,) = schedule.recorded.programs
    no_gradients = replace(program, tensors=np.zeros_like(program.tensors))
    words = asked(replace(schedule, recorded=replace(schedule.recorded, programs=(no_gradients,)))).conclusion
    assert "takes a link of 13.1 Gbit/s: compressing gradients would not do" in words


def test_a_goal_reached_already_needs_nothing() -> None:
    answer = asked(observed(0.88, 10.0))
    assert "reached without compression" in answer.conclusion
    assert next(goal.compression for goal in answer.goals if goal.bandwidth_bps == 1e9) == 1.0


def test_goals_out_of_reach_are_none_and_null() -> None:
    answer = asked(observed(4.0, 1.0))
    assert all(goal.compression is None for goal in answer.goals)
    document = json.loads(json.dumps(to_json(answer), allow_nan=False))
    assert document["compression_needed"][0]["compression"] is None
    assert None in [point["bandwidth_gbps"] for point in document["points"]], "an infinitely fast link"


def test_observed_wire_bytes_beat_the_rings() -> None:
    """Two hosts of eight GPUs: a ring over 16 sends 1.875 S per host, a hierarchy S; the ring cannot explain it."""
    schedule = observed(0.85, 1.0, workers=16)
    assert asked(schedule, "ideal", workers=(16,)).full_use_s == pytest.approx(1.8)
    unseen = observed(0.85, 1.0, workers=16, wire=None)
    answer = asked(unseen, "ideal", workers=(16,))
    assert answer.full_use_s == pytest.approx(1.0 + 1.5)
    assert answer.wire_source == "algorithm"
    assert "none were observed" in drawn(answer, 100)


def test_a_job_of_one_worker_has_no_transport() -> None:
    with pytest.raises(NetprofError, match="one worker"):
        asked(observed(0.85, 1.0, workers=1))


def test_points_that_cannot_be_meant() -> None:
    for changes in ({"workers": (1,)}, {"bandwidth_bps": (0.0,)}, {"compression": (0.5,)}):
        with pytest.raises(UsageError):
            asked(observed(0.85, 1.0), **changes)


def test_curves_ascend_in_link_speed() -> None:
    curves = plot_series(asked(observed(0.85, 1.0)).sweep)
    assert [(c.workers, c.compression) for c in curves] == [(2, "2"), (2, "1")]
    assert curves[1].bandwidth_bps == (1e9, 1e10, np.inf)
    assert curves[1].iteration_s == pytest.approx((1.85, 1.13, 1.05))
    assert curves[1].scaling_factor == pytest.approx((1 / 1.85, 1 / 1.13, 1 / 1.05))


def test_measured_baselines_are_used_and_said_to_be_measured() -> None:
    answer = asked(observed(0.85, 1.0), baseline_worker_s=0.9, baseline_host_s=1.2)
    one = answer.sweep.points.bandwidth_bps == 1e9
    plain = one & (answer.sweep.points.compression == 1)
    assert answer.sweep.scaling_factor[plain] == pytest.approx(0.9 / 1.85)
    assert answer.sweep.host_scaling_factor[plain] == pytest.approx(1.2 / 1.85)
    assert "900 ms a step, measured" in drawn(answer, 120)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_it_is_drawn_at_any_width_and_nothing_from_the_trace_controls_the_terminal(width: int) -> None:
    text = drawn(asked(observed(0.85, 1.0)), width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "\x1b" not in text
    assert "[bold]assumed[/bold]" in text.replace("\n", " ") or width == 40
    assert "▶ 1 Gbit/s measured" in text
    assert "0.541" in text, "1 / 1.85"


@pytest.mark.parametrize("ratios", [(2.0, 1.0), (1.0, 2.0), (2.0,)])
def test_the_measured_point_stands_under_plain(ratios: tuple[float, ...]) -> None:
    lines = drawn(asked(observed(0.85, 1.0), compression=ratios), 120).splitlines()
    titles = next(line for line in lines if "plain" in line)
    measured = next(line for line in lines if "measured" in line and "0.541" in line)
    assert measured.index("0.541") + len("0.541") == titles.index("plain") + len("plain")


def drawn(answer, width: int) -> str:
    out = io.StringIO()
    view.draw(answer, Console(file=out, width=width, color_system=None))
    return out.getvalue()


def test_a_link_far_beyond_the_recorded_one_is_not_named_by_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "needed_compression", lambda replay, points, *_, **__: np.full(len(points), 25.0))
    words = asked(observed(0.85, 1.0)).conclusion
    assert "gradients 25x smaller or a link more than 20 times as fast" in words


def test_numbers_keep_to_three_digits_where_a_unit_is_full() -> None:
    rates = [text.rate(each) for each in (25e9, 999.7e6, 1e12, 1.6e12)]
    assert rates == ["25 Gbit/s", "1 Gbit/s", "1 Tbit/s", "1.6 Tbit/s"]
    assert [text.ratio(each) for each in (2.0, 999.4, 999.7, 1234.0)] == ["2x", "999x", "1000x", "1234x"]


def test_every_key_of_its_json_is_documented(checkout: Path) -> None:
    documented = (checkout / "docs" / "json.md").read_text().split("## A what-if")[1]
    found = to_json(asked(observed(0.85, 1.0)))
    measured = [each for each in found["measured"] if f"`{each}`" not in documented]
    points = [each for each in found["points"][0] if f"`{each}`" not in documented]
    assert not [each for each in found if f"`{each}" not in documented] + measured + points
