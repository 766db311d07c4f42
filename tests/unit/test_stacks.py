"""Python stacks of the rank that others wait for: what py-spy writes, who is sampled, and what is told of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.synthetic import ITERATION_NS, MS, START_NS, Job

from netprof.analysis import analyze
from netprof.analysis.findings.stragglers.stacks import STACKS, StacksOf
from netprof.probes.stacks import probe as stacks_probe
from netprof.probes.stacks.chrome_trace import stacks_of
from netprof.probes.stacks.probe import LateRank, StacksProbe
from netprof.schema import MarkKind
from netprof.session.live_follow import TraceSource
from netprof.trace import TraceReader
from netprof.views.html.flames import ROW, flames
from netprof.views.html.page import render
from netprof.views.live.draw import draw
from netprof.views.live.state import ViewState


def frame(phase: str, name: str, at_us: int, tid: int = 1, line: int = 3) -> dict[str, object]:
    return {"ph": phase, "name": name, "ts": at_us, "tid": tid, "args": {"filename": "/job/train.py", "line": line}}


def test_stacks_are_what_was_open_between_two_events() -> None:
    events = [
        frame("B", "<module>", 100),
        frame("B", "step", 100),
        frame("E", "step", 300),
        frame("B", "load;", 300),
        frame("E", "load;", 900),
        frame("E", "<module>", 900),
        frame("B", "worker", 0, tid=2),
        frame("E", "worker", 5000, tid=2),
    ]
    assert [tuple(each) for each in stacks_of(json.dumps(events).encode())] == [
        (100, 300, "<module> (train.py:3);step (train.py:3)"),
        (300, 900, "<module> (train.py:3);load? (train.py:3)"),
    ]


@pytest.mark.parametrize("data", [b"", b"{}", b"[1, {}]", b'[{"tid": "a", "ts": 1}]', b"[" * 100_000])
def test_a_damaged_file_holds_no_stack(data: bytes) -> None:
    assert stacks_of(data) == []


def marks(rows: list[tuple[int, int, MarkKind]]) -> dict[str, np.ndarray]:
    columns = zip(*rows, strict=True)
    return {name: np.array(column) for name, column in zip(("time_ns", "pid", "kind"), columns, strict=True)}


def test_who_waits_least_is_named_if_others_wait_for_much_longer() -> None:
    late = LateRank()
    rows = []
    for step in range(10):
        at = step * 100 * MS
        rows += [(at + 10 * MS, 1, MarkKind.DDP_WAIT), (at + 90 * MS, 1, MarkKind.DDP_STATS)]
        rows += [(at + 80 * MS, 2, MarkKind.DDP_WAIT), (at + 90 * MS, 2, MarkKind.DDP_STATS)]
    late.see(marks(rows[:4]))
    late.see(marks(rows[4:]))
    assert late.named(1000 * MS, [1, 2]) == 2
    assert late.named(1000 * MS, [1]) is None


def test_a_wait_that_goes_on_counts_too_and_nobody_is_named_where_all_wait_alike() -> None:
    late = LateRank()
    late.see(marks([(0, 2, MarkKind.DDP_FORWARD), (10 * MS, 1, MarkKind.DDP_WAIT)]))
    assert late.named(2000 * MS, [1, 2]) == 2
    alike = LateRank()
    alike.see(marks([(1, pid, MarkKind.DDP_WAIT) for pid in (1, 2)]))
    alike.see(marks([(90 * MS, pid, MarkKind.DDP_STATS) for pid in (1, 2)]))
    assert alike.named(100 * MS, [1, 2]) is None


def sampled() -> Job:
    """A job whose rank 1 is late in `load`."""
    job = Job(iterations=10)
    job.fill()
    late_ns = 50 * MS
    job.marks = [(mark[0] + late_ns, *mark[1:]) if mark[1] == 101 else mark for mark in job.marks]
    rows = []
    for step in range(10):
        at = START_NS + step * ITERATION_NS
        # rank 0 posts its first bucket at 31 ms; rank 1 does at 81 ms
        rows += [(at + 81 * MS, 39 * MS, 101, "<module> (a.py:1);load (a.py:7)")]
        rows += [(at + 42 * MS, 42 * MS, 101, "<module> (a.py:1);other (a.py:9)")]
    names = ("time_ns", "period_ns", "pid", "frames")
    job.extra["stacks"] = {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    return job


def test_lines_have_their_share_of_the_wait_and_not_of_the_time(tmp_path: Path) -> None:
    (found,) = analyze(TraceReader(sampled().write(tmp_path / "t.netprof"))).of(STACKS)
    assert found.name == "rank 1"
    assert found.lines[0][0] == "load (a.py:7)"
    assert sum(share for _, share in found.lines) == pytest.approx(1)


def test_frames_are_as_wide_as_they_took_and_below_their_callers() -> None:
    stacks = {"main (a.py:1);load (a.py:7)": 3.0, "main (a.py:1);<b>&x (a.py:9)": 1.0, "tiny (a.py:2)": 1e-6}
    (flame,) = flames([StacksOf(1, "rank 1", 4.0, (), stacks)])
    main, load, other = flame.frames
    assert [(round(each.x), each.y, round(each.width)) for each in (main, load, other)] == [
        (0, 0, 1000),
        (0, ROW, 750),
        (750, ROW, 250),
    ]
    assert load.title == "load (a.py:7): 75 %, 3.00 s"
    assert flame.height == 2 * ROW


def test_the_page_draws_a_flame_graph_and_escapes_names(tmp_path: Path) -> None:
    job = sampled()
    job.extra["stacks"]["frames"] = [frames.replace("load", "<script>") for frames in job.extra["stacks"]["frames"]]
    page = render(analyze(TraceReader(job.write(tmp_path / "t.netprof"))))
    graph = page.partition('<svg class="flame"')[2].partition("</svg>")[0]
    assert graph.count("<rect") == 2, "what it did while no rank waited for it is left out"
    assert "<script>" not in graph
    assert "&lt;script&gt; (a.py:7)" in graph


def test_enter_shows_the_last_stack_of_the_rank(tmp_path: Path) -> None:
    recent = TraceSource(sampled().write(tmp_path / "t.netprof")).look()
    assert recent.stacks[101].frames == ("<module> (a.py:1)", "load (a.py:7)")
    drawn = "\n".join(each.plain for each in draw(recent, ViewState("x", detail=True, selected=1), 100, 40))
    assert "load (a.py:7)" in drawn
    assert drawn.index("load (a.py:7)") < drawn.index("<module> (a.py:1)"), "the innermost first"
    others = "\n".join(each.plain for each in draw(recent, ViewState("x", detail=True, selected=0), 100, 40))
    assert "load (a.py:7)" not in others


def test_without_py_spy_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks_probe, "py_spy", lambda: None)
    (skipped,) = StacksProbe(wanted=True).describe().skipped
    assert "netprof-ebpf[stacks]" in skipped.remedy
    assert StacksProbe(wanted=False).describe().skipped == ()
    assert StacksProbe(wanted=True).drain() == {}
