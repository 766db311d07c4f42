"""Lines instead of a live view: each is of its own second, and says whose interface it speaks of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import Mock

import pytest
from support.synthetic import ITERATION_NS, MS, START_NS, Job, mark_columns, wire_columns

from netprof.analysis.findings.stalls.stall import Stall
from netprof.analysis.live.inbox import Inbox
from netprof.analysis.live.live_state import LiveState
from netprof.analysis.live.now import Recent
from netprof.views.progress import line

S = 1000 * MS


def seconds(job: Job, count: int) -> Iterator[Recent]:
    """A look at the end of every second since the first iteration began."""
    inbox = Inbox(replace(job.meta(), started_ns=START_NS, stopped_ns=None))
    state = LiveState(inbox, MS)
    inbox.add("flows", job.flows())
    marks, wire = mark_columns(sorted(job.marks)), wire_columns(job.wire)
    for number in range(count):
        begin_ns, end_ns = START_NS + number * S, START_NS + (number + 1) * S
        for table, columns, times in (("marks", marks, marks["time_ns"]), ("wire", wire, wire["first_ns"])):
            rows = (times >= begin_ns) & (times < end_ns)
            inbox.add(table, {name: values[rows] for name, values in columns.items()}) if rows.any() else None
        inbox.reached(end_ns)
        yield state.look()


def lines(job: Job, count: int) -> list[str]:
    found: list[str] = []
    before = None
    for recent in seconds(job, count):
        found.append(line(recent, before))
        before = recent
    return found


def on_one_name(job: Job) -> Job:
    """Give every rank an interface of the same name, in a network namespace of its own."""
    devices = job.meta().devices
    job.changes["devices"] = tuple(replace(each, device="eth0", netns=7 + i) for i, each in enumerate(devices))
    job.flow_changes |= {"device": ["eth0"] * job.ranks, "netns": [7 + i for i in range(job.ranks)]}
    return job


def test_a_name_of_the_trace_controls_no_terminal() -> None:
    """A stall names hosts, whose names their traces hold."""
    (recent,) = seconds(Job(ranks=2, iterations=15).fill(), 1)
    stall = Mock(spec=Stall, sentence=lambda *_: "look at rank 1 on \x1b[2Jx")
    assert line(replace(recent, stall=stall), None) == r"1 s · look at rank 1 on \x1b[2Jx"


@pytest.mark.slow
def test_a_line_says_what_its_second_was_like_and_whose_interface_it_names() -> None:
    job = on_one_name(Job(ranks=2, iterations=15).fill())
    said = lines(job, 3)
    assert said[1] == (
        "2 s · iterations 5 to 9: 200.0 ms, 49.0 % exposed communication · "
        "eth0 of rank 0 sent 40.0 % of line rate, received 40.0 % of line rate"
    )
    assert "iterations 10 to 14: 200.0 ms" in said[2]


def test_figures_are_not_repeated_when_an_iteration_takes_longer() -> None:
    job = Job(ranks=1)
    for step in range(4):
        job.step(0, START_NS + step * 2500 * MS)
    job.wire = [row for row in job.wire if row[2] < START_NS + S]
    said = lines(job, 6)
    assert said[0] == "1 s · no whole iteration yet · eth0 sent 8.0 % of line rate, received 8.0 % of line rate"
    assert said[1] == "2 s · no whole iteration yet"
    assert "iteration 1: 2.50 s" in said[2]
    assert said[3] == "4 s · iteration 2 for 1.50 s"


def test_a_rate_where_the_line_rate_is_unknown() -> None:
    job = Job(ranks=1, iterations=15, rate_bps=None, world_size=None).fill()
    assert lines(job, 2)[1].endswith("eth0 sent 400.0 Mbit/s, received 400.0 Mbit/s")


def test_iterations_that_never_come_are_said_to_be_none() -> None:
    job = Job(ranks=1, iterations=60).fill()
    job.marks = []
    assert "no iterations seen" in lines(job, 11)[-1]
    assert ITERATION_NS == 200 * MS


def test_a_link_is_never_used_beyond_its_line_rate() -> None:
    said = lines(Job(iterations=15, rate_bps=0.2e9).fill(), 2)[-1]
    assert "of line rate" not in said
    assert re.search(r"sent \d+(\.\d+)? Mbit/s, received", said)
