"""One change at a time, of real recordings: those that save time, the one that saves most first."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from netprof.analysis import analyze
from netprof.analysis.whatif.ask import Question, ask
from netprof.analysis.whatif.changes import changes
from netprof.analysis.whatif.compression import Codec
from netprof.analysis.whatif.from_trace import from_trace
from netprof.analysis.whatif.schedule import GradientSchedule
from netprof.trace import TraceReader
from netprof.views import whatif as view
from netprof.views.whatif_data import to_json

QUESTION = Question((2,), (1e9, 1e10), (1.0, 100.0), "observed", "measured")


def recorded(name: str, checkout: Path) -> GradientSchedule:
    return from_trace(analyze(TraceReader(checkout / f"tests/golden/recordings/{name}/{name}.netprof")))


@pytest.fixture
def late(checkout: Path) -> GradientSchedule:
    """Rank 1 comes 119 ms late to every step of 158 ms; the link is full for 29 ms of it."""
    return recorded("late-rank", checkout)


def test_the_straggler_comes_before_a_faster_link_where_it_costs_more(late: GradientSchedule) -> None:
    found = changes(late, QUESTION)
    assert [each.name for each in found[:2]] == ["rank 1 as fast as the others", "links of 2 Gbit/s"]
    assert late.observed is not None
    assert all(each.iteration_s < late.observed.iteration_s for each in found)
    assert [each.iteration_s for each in found] == sorted(each.iteration_s for each in found)
    assert all(each.low_s is not None and each.high_s is not None for each in found)
    assert all((each.low_s or 0) <= each.iteration_s <= (each.high_s or 0) for each in found)


def test_of_a_job_that_fills_its_links_the_link_comes_first(checkout: Path) -> None:
    found = changes(recorded("undisturbed", checkout), QUESTION)
    assert found[0].name == "links of 2 Gbit/s"
    (accumulated,) = (each for each in found if each.name == "gradients exchanged every 2 steps")
    assert accumulated.assumption == "batches get larger by as much"


def test_a_faster_device_that_idles_is_a_change_with_the_line_that_makes_it(checkout: Path) -> None:
    found = changes(recorded("two-nics-one-subnet", checkout), QUESTION)
    assert found[0].name == "device e10 in place of e1 (1 Gbit/s)"
    assert found[0].assumption == "ip route change 10.77.0.0/20 dev e10 metric 1"
    assert found[0].iteration_s < 0.25 * found[-1].iteration_s
    assert not any("in place of" in each.name for each in changes(recorded("undisturbed", checkout), QUESTION))


def test_where_nothing_was_measured_nothing_is_proposed(late: GradientSchedule) -> None:
    assert changes(late, replace(QUESTION, transport="ideal")) == ()
    assert late.observed is not None
    assert changes(replace(late, observed=replace(late.observed, line_rate_bps=None)), QUESTION) == ()


def test_changes_come_before_the_table_of_all_points(late: GradientSchedule) -> None:
    answer, found = ask(late, QUESTION), changes(late, QUESTION)
    out = io.StringIO()
    view.draw(answer, Console(file=out, width=120), found)
    said = out.getvalue()
    assert said.startswith("Rank 1 as fast as the others would save most: a step of 37.6 ms instead of 158 ms")
    assert said.index("rank 1 as fast as the others") < said.index("scaling factor and typical step")
    assert "76 % ±" in said
    assert [each["name"] for each in to_json(answer, found)["changes"]] == [each.name for each in found]


def test_a_link_that_is_fully_used_takes_no_longer_than_it_took(late: GradientSchedule) -> None:
    answer = ask(late, QUESTION)
    assert late.observed is not None
    assert answer.full_use_s is not None
    assert answer.full_use_s <= late.observed.iteration_s


def test_the_time_of_the_straggler_is_none_of_the_network(late: GradientSchedule) -> None:
    """Without it a step takes 38 ms, of which the network's share is told, and not of the recorded 158."""
    answer = ask(late, replace(QUESTION, without_straggler=True))
    assert "of a step of 37.6 ms" in answer.conclusion


def test_changes_are_of_the_job_as_it_was_whatever_else_is_asked(late: GradientSchedule) -> None:
    asked = replace(QUESTION, policy="ddp", codecs={"": Codec(1e-6, 1e-6)}, baseline_worker_s=0.001, legs_bps={1: 1e8})
    assert changes(late, asked) == changes(late, QUESTION)
