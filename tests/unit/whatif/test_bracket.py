"""What a recording cannot explain is replayed both ways: the interval holds both, and a wide one is a range."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from netprof.analysis import analyze
from netprof.analysis.whatif.ask import Question, ask
from netprof.analysis.whatif.compression import Codec, Half
from netprof.analysis.whatif.from_trace import from_trace
from netprof.analysis.whatif.points import grid
from netprof.analysis.whatif.schedule import GradientSchedule
from netprof.analysis.whatif.sweep import Sweep, bracketed
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
    assert width[1] < 0.04, "at 1 Gbit/s, as it was recorded"
    assert width[0] > 2 * width[1], "at 100 Mbit/s"
    assert any("goes with the link's rate or is the hosts' own time" in note for note in answer.notes)


def test_what_is_not_known_to_a_fifth_is_a_range(sharded: GradientSchedule) -> None:
    answer = ask(sharded, Question((2,), RATES, (1.0,), "observed", "measured"))
    wide = replace(answer, sweep=replace(answer.sweep, iteration_low_s=0.7 * answer.sweep.iteration_s))
    out = io.StringIO()
    view.draw(wide, Console(file=out, width=120))
    assert " ms to " in out.getvalue() or " s to " in out.getvalue()


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
