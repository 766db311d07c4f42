"""What a recording cannot explain is replayed all ways: the interval holds them, and a wide one is a range."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from netprof.analysis import analyze
from netprof.analysis.tables.columns import Float64
from netprof.analysis.whatif.ask import Question, ask
from netprof.analysis.whatif.certainty import COMPUTING, MINUTES, bracketed
from netprof.analysis.whatif.changes import Prediction
from netprof.analysis.whatif.compression import Codec, Half, TopK
from netprof.analysis.whatif.fit_recording import Excess, fitted_transport
from netprof.analysis.whatif.from_trace import from_trace
from netprof.analysis.whatif.points import grid
from netprof.analysis.whatif.prices import Pricing, ProgramPrices, RankLinks
from netprof.analysis.whatif.program import Program
from netprof.analysis.whatif.replay import replay
from netprof.analysis.whatif.schedule import CpuTime, GradientSchedule
from netprof.analysis.whatif.sweep import Replay, Sweep
from netprof.analysis.whatif.transports import FullLink
from netprof.trace import TraceReader
from netprof.views import whatif as view

RATES = (1e8, 1e9, 1e10)


@pytest.fixture(scope="module")
def sharded(checkout: Path) -> GradientSchedule:
    """Its links were full for longer than its bytes need: by turns, or because hosts served them late."""
    return from_trace(analyze(TraceReader(checkout / "tests/golden/recordings/sharded/sharded.netprof")))


def swept(*iteration_s: float, apart: float | None = None) -> Sweep:
    points, found = grid((2,), RATES, (1.0,)), np.array(iteration_s)
    bounds = () if apart is None else (found - apart, found + apart)
    return Sweep(points, found - 1, found, 1 / found, 1 / found, *bounds)


def test_the_interval_holds_both_replays() -> None:
    found = bracketed(swept(4, 2, 1, apart=0.1), swept(3, 2, 1.5, apart=0.2))
    assert found.iteration_s.tolist() == [4, 2, 1]
    assert found.iteration_low_s is not None
    assert found.iteration_high_s is not None
    assert found.iteration_low_s.tolist() == pytest.approx([2.8, 1.8, 0.9])
    assert found.iteration_high_s.tolist() == pytest.approx([4.1, 2.2, 1.7])


def test_one_iteration_has_no_interval() -> None:
    assert bracketed(swept(4, 2, 1), swept(3, 2, 1)).iteration_low_s is None


def test_the_recorded_conditions_need_no_bracket(sharded: GradientSchedule) -> None:
    answer = ask(sharded, Question((2,), RATES, (1.0,), "observed", "measured"))
    low, high = answer.sweep.iteration_low_s, answer.sweep.iteration_high_s
    assert low is not None
    assert high is not None
    width = (high - low) / answer.sweep.iteration_s
    assert width[1] < 0.04 + 2 * MINUTES, "at 1 Gbit/s, as it was recorded"
    assert width[0] > 2 * width[1], "at 100 Mbit/s"
    assert any("goes with the link's rate or is the hosts' own time" in note for note in answer.notes)


def test_what_is_not_known_to_a_fifth_is_a_range(sharded: GradientSchedule) -> None:
    answer = ask(sharded, Question((2,), RATES, (1.0,), "observed", "measured"))
    wide = replace(answer, sweep=replace(answer.sweep, iteration_low_s=0.7 * answer.sweep.iteration_s))
    out = io.StringIO()
    view.draw(wide, Console(file=out, width=120))
    lines = out.getvalue().splitlines()
    at = next(number for number, line in enumerate(lines) if line.strip().startswith("10 Gbit/s"))
    factors, to, times, most = (line.split() for line in lines[at : at + 4])
    assert (to[0], times[:2], most[0]) == ("up", ["a", "step"], "up")
    assert float(factors[-1]) < float(to[-1])
    assert float(times[-2]) < float(most[-2])


def test_what_is_said_of_an_interval_holds_it(sharded: GradientSchedule) -> None:
    answer = ask(sharded, Question((2,), (1e9,), (1.0,), "observed", "measured"))
    time_s = answer.sweep.iteration_s
    for low, high, said in ((0.99, 1.15, "±15 %"), (0.85, 1.01, "±15 %"), (0.9, 1.2, "")):
        sweep = replace(answer.sweep, iteration_low_s=low * time_s, iteration_high_s=high * time_s)
        view.draw(replace(answer, sweep=sweep), Console(file=(out := io.StringIO()), width=120))
        intervals = [line.split("interval")[1].strip() for line in out.getvalue().splitlines() if "  interval" in line]
        assert [each for each in intervals if each.startswith("±") and "percentile" not in each] == [said] * bool(said)
    assert sharded.observed is not None
    recorded_s = sharded.observed.iteration_s
    change = Prediction("links of 2 Gbit/s", 0.5 * recorded_s, 0.45 * recorded_s, 0.8 * recorded_s)
    view.draw(answer, Console(file=(out := io.StringIO()), width=120), [change])
    assert "50 % ±30 %" in out.getvalue()


def test_what_no_link_can_give_is_not_above_what_its_range_holds(sharded: GradientSchedule, checkout: Path) -> None:
    asked = Question((2,), (1e12,), (1.0,), "observed", "measured")
    found = ask(sharded, asked)
    assert found.sweep.iteration_low_s is not None
    assert found.sweep.scaling_factor[0] < 0.9 <= found.base.worker_s / found.sweep.iteration_low_s[0]
    assert (
        "No link or compression surely reaches a scaling factor of 0.90, but the intervals hold it" in found.conclusion
    )
    leg = from_trace(analyze(TraceReader(checkout / "tests/golden/recordings/slow-leg/slow-leg.netprof")))
    assert "the scaling factor stays below 0.890" in ask(leg, replace(asked, workers=(3,))).conclusion


def test_the_interval_holds_what_codecs_take_at_best_and_at_worst(sharded: GradientSchedule) -> None:
    typical, fastest, slowest = ({"fp16": Codec(each * 1e-9, each * 1e-9)} for each in (2.0, 1.0, 9.0))
    asked = Question((2,), (1e9,), (Half("fp16"),), "observed", "measured", codecs=typical)
    alone, held = (ask(sharded, each).sweep for each in (asked, replace(asked, codecs_else=(fastest, slowest))))
    assert held.iteration_s.tolist() == alone.iteration_s.tolist()
    for sweep, wider in ((alone, 1.0), (held, 1.1)):
        assert sweep.iteration_low_s is not None
        assert sweep.iteration_high_s is not None
        assert (sweep.iteration_high_s / sweep.iteration_low_s >= wider).all()
    assert (held.iteration_high_s or np.zeros(1))[0] > (alone.iteration_high_s or np.zeros(1))[0]
    assert (held.iteration_low_s or np.zeros(1))[0] < (alone.iteration_low_s or np.zeros(1))[0]


def test_on_a_fast_link_a_step_may_take_what_its_ranks_take_of_the_cpus(sharded: GradientSchedule) -> None:
    assert sharded.observed is not None
    asked = Question((2,), RATES, (1.0, 10.0), "observed", "measured")
    took = CpuTime(busy_s=0.3, compute_s=0.1, wait_s=0.004, all_wait_s=0.05)
    free, busy = (
        ask(replace(sharded, observed=replace(sharded.observed, cpu_time=each)), asked) for each in (None, took)
    )
    assert busy.sweep.iteration_s.tolist() == free.sweep.iteration_s.tolist()
    assert busy.sweep.iteration_low_s is not None
    assert busy.sweep.iteration_high_s is not None
    assert free.sweep.iteration_low_s is not None
    fast, small = (
        int(np.flatnonzero((busy.sweep.points.bandwidth_bps == 1e10) & chosen)[0])
        for chosen in (busy.sweep.points.compression == 1, busy.sweep.points.compression == 10)
    )
    at_once_s = ask(sharded, replace(asked, bandwidth_bps=(np.inf,))).sweep.iteration_s
    more_s = np.maximum(MINUTES * busy.sweep.iteration_s, COMPUTING * np.tile([0, 0.9], 3) * np.tile(at_once_s, 3))
    assert busy.sweep.iteration_high_s[fast] == pytest.approx(0.3 + 0.9 * 0.05 + more_s[fast])
    assert busy.sweep.iteration_high_s[small] == pytest.approx(0.12 + 0.9 * 0.05 + more_s[small])
    lower_s = free.sweep.iteration_low_s - busy.sweep.iteration_low_s
    other = (busy.sweep.points.bandwidth_bps == 1e10) | (busy.sweep.points.compression == 10)
    assert lower_s[other] == pytest.approx(0.9 * 0.004), "there it is not known how long ranks wait for a CPU"
    assert lower_s[~other] == pytest.approx(0)
    assert any(note.startswith("the ranks of a machine take 300 ms of CPU time a step") for note in busy.notes)
    assert not any("CPU time a step" in note for note in free.notes)


def test_a_step_that_computes_differs_by_more_than_one_that_waits(sharded: GradientSchedule) -> None:
    """What a wait for the link hides shows where smaller gradients leave nothing to wait for."""
    codec = {"topk:1%": Codec(20e-9, 10e-9)}
    asked = Question((2,), (1e9,), (1.0, TopK(0.01)), "observed", "measured", codecs=codec)
    answer = ask(sharded, asked)
    (_, computing_s) = ask(sharded, replace(asked, bandwidth_bps=(np.inf,))).sweep.iteration_s
    plain_s, small_s = np.asarray(answer.sweep.iteration_high_s) - answer.sweep.iteration_s
    assert small_s > COMPUTING * 0.98 * computing_s > MINUTES * answer.sweep.iteration_s[1]
    assert plain_s < COMPUTING * computing_s


def test_a_step_takes_some_time_however_long_ranks_waited_for_cpus(sharded: GradientSchedule) -> None:
    assert sharded.observed is not None
    long_s = 2 * sharded.observed.iteration_s
    took = CpuTime(busy_s=long_s, compute_s=long_s, wait_s=long_s, all_wait_s=long_s)
    crowded = replace(sharded, observed=replace(sharded.observed, cpu_time=took))
    answer = ask(crowded, Question((2,), (*RATES, 1e12), (1.0,), "observed", "measured"))
    assert answer.sweep.iteration_low_s is not None
    assert (answer.sweep.iteration_low_s > 0).all()
    view.draw(answer, Console(file=(out := io.StringIO()), width=120))
    assert not re.search(r" -\d", out.getvalue())


def test_however_long_ranks_waited_for_cpus_they_have_to_compute(sharded: GradientSchedule) -> None:
    """A step takes the CPU time of its computing, or one worker's step if that is shorter, less what those vary by."""
    assert sharded.observed is not None
    for compute_s in (0.001, 0.02, 10.0):
        took = CpuTime(busy_s=compute_s, compute_s=compute_s, wait_s=10.0, all_wait_s=10.0)
        crowded = replace(sharded, observed=replace(sharded.observed, cpu_time=took))
        answer = ask(crowded, Question((2,), (1e9, 1e12), (1.0, 100.0), "observed", "measured"))
        least_s = 0.8 * (1 - COMPUTING) * min(compute_s, answer.base.worker_s)
        assert answer.sweep.iteration_low_s is not None
        assert (answer.sweep.iteration_low_s >= 0.999 * least_s).all()


def test_all_of_the_excess_may_go_with_the_rate(sharded: GradientSchedule) -> None:
    assert sharded.observed is not None
    assert sharded.recorded is not None
    found, _ = fitted_transport(sharded.observed, sharded.recorded, Excess.ALL)
    plain, _ = fitted_transport(sharded.observed, sharded.recorded)
    for spoken, fit in found.fits.items():
        terms = [each.terms(np.array(spoken.kind), np.array(1e7), np.array(spoken.ranks)) for each in (found, plain)]
        assert terms[0].fixed_s == pytest.approx(0)
        assert fit.latency_s == 0
        as_recorded = [float(each.fixed_s + (each.bits + each.turn_bits) / found.bandwidth_bps) for each in terms]
        mean_bytes = fit.total_bytes / fit.samples
        assert fit.seconds_per_byte * mean_bytes == pytest.approx(
            plain.fits[spoken].latency_s + plain.fits[spoken].seconds_per_byte * mean_bytes
        )
        assert as_recorded[0] == pytest.approx(as_recorded[1], rel=0.2)


def test_behind_a_slow_leg_hosts_may_be_late_without_a_cost(sharded: GradientSchedule) -> None:
    asked = Question((2,), (1e9,), (1.0,), "observed", "measured")
    leg = ask(sharded, replace(asked, legs_bps={1: 1e8})).sweep
    full = ask(sharded, replace(asked, legs_bps={1: 1e8}, transport="ideal")).sweep
    assert leg.iteration_low_s is not None
    assert leg.iteration_low_s[0] <= full.iteration_s[0] - MINUTES * leg.iteration_s[0] + 1e-9
    alike, alike_full = (ask(sharded, replace(asked, transport=each)).sweep for each in ("measured", "ideal"))
    assert alike.iteration_low_s is not None
    assert alike.iteration_low_s[0] > alike_full.iteration_s[0] - MINUTES * alike.iteration_s[0]


def test_many_points_are_replayed_some_at_a_time(sharded: GradientSchedule, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept of them all at once would be gigabytes: of 61 speeds, three goals and 15 shares of the bits each."""
    points = grid((2, 4), RATES, (1.0, 10.0, Half("fp16")))
    assert sharded.recorded is not None
    program = sharded.recorded.main
    links = RankLinks.alike(program.rank_count, 1e9)
    replayed = Replay((program,), Pricing(FullLink(), links, 2, False, {}), program.compute_s.mean())
    at_once, kept = replayed.iterations_s(points), list[int]()

    def counted(program: Program, prices: ProgramPrices, points: int) -> Float64:
        kept.append(points * program.compute_s.size * len(program))
        return replay(program, prices, points)

    monkeypatch.setattr("netprof.analysis.whatif.sweep.replay", counted)
    monkeypatch.setattr("netprof.analysis.whatif.sweep._MOST_VALUES", 4 * program.compute_s.size * len(program))
    assert (replayed.iterations_s(points) == at_once).all()
    assert len(kept) == 5
    assert max(kept) == 4 * program.compute_s.size * len(program)
