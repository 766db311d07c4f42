"""What the view is given: the same conclusions as the report's, over a window that slides, from rows in pieces."""

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from support.synthetic import ITERATION_NS, MS, START_NS, Job, mark_columns, wire_columns

from netprof.analysis import analyze
from netprof.analysis.events.iterations import Iterations
from netprof.analysis.findings.collectives.collectives import COLLECTIVES
from netprof.analysis.findings.flows.flow_properties import FLOW_PROPERTIES
from netprof.analysis.findings.flows.flows import FLOWS
from netprof.analysis.findings.flows.reconciliation import RECONCILIATION
from netprof.analysis.findings.iterations.iterations import ITERATIONS
from netprof.analysis.findings.links.links import LINKS
from netprof.analysis.findings.recording.recording import RECORDING
from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.analysis.live import budget as budget_module
from netprof.analysis.live import live_state as state_module
from netprof.analysis.live.inbox import Inbox
from netprof.analysis.live.live_state import LiveState
from netprof.analysis.live.past_iterations import PastIterations, continued
from netprof.analysis.live.window import RecentFold, Window
from netprof.analysis.section import Analysis, Section
from netprof.analysis.sections import conclude
from netprof.analysis.tables.columns import empty
from netprof.analysis.tables.flow_table import read_flows
from netprof.analysis.tables.marks import read_marks
from netprof.analysis.wire.fold import WireFold
from netprof.schema import MarkKind, tables
from netprof.trace import TraceReader


def feed(job, inbox, state, step_ns=250 * MS):
    """Hand a job's rows over as a recorder would, piece by piece; yields after each look."""
    inbox.add("flows", job.flows())
    marks = mark_columns(sorted(job.marks))
    wire = wire_columns(job.wire)
    end_ns = START_NS + (job.iterations + 1) * ITERATION_NS
    for now_ns in range(START_NS, end_ns + step_ns, step_ns):
        for table, columns, times in (("marks", marks, marks["time_ns"]), ("wire", wire, wire["first_ns"])):
            rows = (times >= now_ns - step_ns) & (times < now_ns)
            if rows.any():
                inbox.add(table, {name: values[rows] for name, values in columns.items()})
        inbox.reached(now_ns)
        yield state.look()


@pytest.fixture
def live():
    def start(job):
        inbox = Inbox(replace(job.meta(), stopped_ns=None))
        return inbox, LiveState(inbox, MS)

    return start


@pytest.mark.slow
def test_conclusions_are_those_of_the_report(live, tmp_path):
    job = Job().fill()
    inbox, state = live(job)
    for _ in feed(job, inbox, state):
        state._conclusions.next_s = 0.0  # conclude every time
    recent = state.look()
    inbox.add("marks", mark_columns([(START_NS + 11 * ITERATION_NS, 999, 999, int(MarkKind.PROCESS_EXIT), 0, 0)]))
    report = analyze(TraceReader(job.write(tmp_path / "t.netprof")))
    found = recent.analysis
    assert found.of(ITERATIONS).count == report.of(ITERATIONS).count == 10
    assert found.of(VERDICT).sentence == report.of(VERDICT).sentence
    assert found.of(ITERATIONS).durations == report.of(ITERATIONS).durations
    for ours, theirs in zip(found.of(LINKS), report.of(LINKS), strict=True):
        assert ours.idle == theirs.idle
        assert (ours.tx_bytes, ours.rx_bytes) == (theirs.tx_bytes, theirs.rx_bytes)
    assert [flow.tx for flow in found.of(FLOWS)] == [flow.tx for flow in report.of(FLOWS)]
    assert found.of(COLLECTIVES).summary.bus_bandwidth_bps == report.of(COLLECTIVES).summary.bus_bandwidth_bps


def said(section: Section[Any], analysis: Analysis) -> dict[str, Any]:
    """Return a section's part of the JSON, but for what needs the recording whole."""
    document = dict(section.document(analysis.of(section)))
    if section is RECONCILIATION:
        for each in (document["reconciliation"], *document["reconciliation"]["flows"]):
            del each["unrecorded_bytes"]
    return document


@pytest.mark.slow
def test_every_section_says_of_a_window_what_the_report_says_of_a_trace_as_long(tmp_path):
    job = Job(ranks=3, other_traffic=0.2, drops=4).fill()
    meta = job.meta()
    reader = TraceReader(job.write(tmp_path / "t.netprof"))
    window = Window(MS)
    window.set_ranks(meta)
    for name in tables():
        table = reader.table(name)
        if table.num_rows:
            window.add(name, {column: table.column(column).to_numpy() for column in table.schema.names})
    assert meta.stopped_ns is not None
    evidence = window.evidence(meta, meta.started_ns, meta.stopped_ns)
    evidence.hosts = reader.hosts  # a window does not know the trace's name
    report, live = analyze(reader), conclude(evidence)
    assert live.sections == report.sections
    for section in report.sections:
        if section is not FLOW_PROPERTIES:  # which takes a look at every row by iteration: only the report does
            assert said(section, live) == said(section, report), section.name
        if section not in (COLLECTIVES, FLOW_PROPERTIES):  # where flow properties are shown
            assert live.parts(section) == report.parts(section), section.name
    assert live.notes == report.notes


@pytest.mark.slow
def test_iterations_are_numbered_and_none_is_missed(live):
    job = Job(iterations=150).fill()
    inbox, state = live(job)
    for recent in feed(job, inbox, state, 190 * MS):
        for pid in (100, 101):
            own = recent.past.of_pid(pid)
            assert (np.diff(own.number) == 1).all()
            assert (own.duration_ns == ITERATION_NS).all()
    assert recent.past.of_pid(100).number.tolist() == list(range(51, 151))


@pytest.mark.slow
def test_memory_and_work_do_not_grow_with_the_recording(live):
    job = Job(iterations=400, ranks=1).fill()
    inbox, state = live(job)
    rows = []
    for recent in feed(job, inbox, state, 500 * MS):
        state._conclusions.next_s = 0.0
        rows.append(recent.analysis.of(RECORDING).recorded.wire_rows if recent.analysis else 0)
    assert max(rows[60:]) <= 1.3 * rows[60]
    assert recent.window_ns == 100 * ITERATION_NS
    begins = np.arange(401) * ITERATION_NS + START_NS
    since_ns = recent.through_ns - recent.window_ns
    assert recent.analysis.of(ITERATIONS).count == ((begins[:-1] >= since_ns) & (begins[1:] <= recent.through_ns)).sum()
    assert len(state._window._parts) <= 8  # of four seconds each
    assert state._window.columns("marks", 0)["time_ns"][0] > START_NS + 250 * ITERATION_NS


@pytest.mark.slow
def test_slow_iterations_stretch_the_window(live):
    job = Job(iterations=8, ranks=1)
    for step in range(9):
        job.step(0, START_NS + step * 20 * 1000 * MS)
    job.iterations = 8 * 100 + 1  # of synthetic's 200 ms, for the end
    inbox, state = live(job)
    for _ in feed(job, inbox, state, 1000 * MS):
        state._conclusions.next_s = 0.0
    recent = state.look()
    assert recent.window_ns == 120 * 10**9
    assert recent.analysis is not None
    assert recent.analysis.of(ITERATIONS).count == 5


def test_folds_put_together_are_one_fold():
    job = Job(ranks=3).fill()
    flows = read_flows(job.flows(), {})
    wire = wire_columns(job.wire)
    whole, parts = WireFold(flows, MS), [WireFold(flows, MS) for _ in range(4)]
    whole.add(wire)
    order = np.random.default_rng(0).permutation(len(wire["flow_id"]))
    for part, rows in zip(parts, np.array_split(order, 4), strict=True):
        part.add({name: values[rows] for name, values in wire.items()})
    joined = RecentFold(flows, MS, parts)
    assert joined.rows == whole.rows
    assert joined.span_ns() == whole.span_ns()
    for direction in (0, 1):
        for name in ("wire_bytes", "payload_bytes", "packets", "first_ns", "last_ns"):
            assert (getattr(joined.totals(direction), name) == getattr(whole.totals(direction), name)).all()
    assert joined.lanes().links == whole.lanes().links
    for (lane, way, bins), (other_lane, other_way, other) in zip(whole.lanes(), joined.lanes(), strict=True):
        assert (lane, way) == (other_lane, other_way)
        assert (other.number == bins.number).all()
        assert (other.wire_bytes == bins.wire_bytes).all()
        assert (other.lead_ns == bins.lead_ns).all()


def test_a_flow_that_comes_later_is_known_from_then_on():
    job = Job(ranks=2).fill()
    wire = wire_columns(job.wire)
    window = Window(MS)
    flows = job.flows()
    for flow in (0, 1):
        window.add("flows", {name: [values[flow]] for name, values in flows.items()})
        mine = wire["flow_id"] == flow + 1
        window.add("wire", {name: values[mine] for name, values in wire.items()})
    analysis = conclude(window.evidence(job.meta(), START_NS, START_NS + 11 * ITERATION_NS))
    assert [flow.flow_id for flow in analysis.of(FLOWS)] == [1, 2]
    assert analysis.of(RECORDING).recorded.wire_rows == len(wire["flow_id"])


def test_a_view_that_does_not_fetch_loses_old_rows_not_memory():
    job = Job(ranks=1).fill()
    inbox = Inbox(job.meta())
    inbox.add("flows", job.flows())
    wire = wire_columns(job.wire * 20)
    holding = {name: {each: ["1"] for each in tables()[name].names} for name in ("settings", "nccl_ranks", "counters")}
    for name, columns in holding.items():
        inbox.add(name, columns | {each: [1] for each in ("time_ns", "since_ns") if each in columns})
    for _ in range(40):
        inbox.add("wire", wire)
        inbox.add("marks", mark_columns(job.marks))
    _, _, rows = inbox.fetch()
    assert sum(len(next(iter(columns.values()))) for _, columns in rows) <= 500_004
    lasting = {"flows", *holding}
    assert {name for name, _ in rows[:4]} == lasting, "what holds until later rows is kept, however many come"
    kept = sum(len(next(iter(columns.values()))) for name, columns in rows if name not in lasting)
    assert inbox.dropped == 40 * (len(wire["flow_id"]) + len(job.marks)) - kept
    assert inbox.steps[100] == 40 * 11
    assert inbox.fetch()[2] == []


@pytest.mark.slow
def test_the_recorder_stays_without_pandas():
    parts = ("session.live", "session.live_follow", "views.live.display", "views.progress")
    code = f"import sys, {', '.join('netprof.' + part for part in parts)}; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_iterations_without_ddp_are_counted():
    past, marks = empty(PastIterations), mark_columns([])
    steps = np.arange(8) * ITERATION_NS + START_NS
    for first in (0, 2, 4):
        begins = steps[first : first + 4]
        begin, end = begins[:-1], begins[1:]
        found = Iterations(np.full(3, 7), begin, begin, begin, begin, end)
        past = continued(past, found, read_marks(marks), {})
    assert past.number.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert (past.begin_ns == steps[:7]).all()


def test_iterations_in_which_several_models_wait_are_counted_once():
    job = Job(ranks=1)
    for step in range(8):
        for model in (1, 2):
            job.mark(START_NS + step * ITERATION_NS + model * MS, 100, MarkKind.DDP_WAIT, model)
    begin = np.arange(4) * ITERATION_NS + START_NS
    found = Iterations(np.full(4, 100), begin, begin, begin + MS, begin + MS, begin + ITERATION_NS)
    past = continued(empty(PastIterations), found, read_marks(mark_columns(job.marks)), {100: 16})
    assert past.number.tolist() == [1, 2, 3, 4]


@pytest.mark.slow
def test_who_is_late_is_looked_for_more_often_while_something_has_changed(live, monkeypatch):
    looks, clock = {}, SimpleNamespace(now_s=0.0, cpu_s=0.0)
    clock.monotonic = lambda: clock.now_s

    def thread_time():
        clock.cpu_s += 0.05  # what any work takes
        return clock.cpu_s

    clock.thread_time = thread_time
    monkeypatch.setattr(budget_module, "time", clock)
    for changed in (False, True):
        search = Mock(return_value=())
        monkeypatch.setattr(state_module, "stragglers_now", search)
        monkeypatch.setattr(state_module, "has_changed", lambda past, at_ns, changed=changed: changed)
        job = Job(iterations=60).fill()
        for number, _ in enumerate(feed(job, *live(job))):
            clock.now_s = number * 0.25
        looks[changed] = search.call_count
    assert looks[True] > 2 * looks[False] > 0


def test_a_verdict_of_few_steps_is_soon_replaced(live, monkeypatch):
    """What takes 50 ms may be done every 10 s; until ten steps were seen, four times as often."""
    clock = SimpleNamespace(now_s=0.0, cpu_s=0.0)
    clock.monotonic = lambda: clock.now_s

    def thread_time():
        clock.cpu_s += 0.05
        return clock.cpu_s

    clock.thread_time = thread_time
    monkeypatch.setattr(budget_module, "time", clock)
    job, at_s = Job(iterations=120).fill(), []

    def concluded(evidence):
        at_s.append(clock.now_s)
        return conclude(evidence)

    monkeypatch.setattr(state_module, "conclude", concluded)
    for number, _ in enumerate(feed(job, *live(job))):
        clock.now_s = number * 0.25
    apart_s = np.diff(at_s)
    assert apart_s[0] < 3 < 9 < apart_s[-1], at_s


def test_strips_end_where_it_is_known_why_links_are_idle(live):
    inbox, state = live(Job().fill())
    *_, recent = feed(Job().fill(), inbox, state)
    assert 0 < recent.strips_through_ns == recent.idle_through_ns <= recent.through_ns
    assert replace(recent, idle_through_ns=recent.through_ns - 10 * 10**9).strips_through_ns == recent.through_ns
