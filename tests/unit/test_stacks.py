"""Python stacks of the rank that others wait for: what py-spy writes, who is sampled, and what is told of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from support.synthetic import ITERATION_NS, MS, START_NS, Job

from netprof.analysis import analyze
from netprof.analysis.findings.stragglers.stacks import STACKS, StacksOf
from netprof.model import Target
from netprof.probes.stacks import probe as stacks_probe
from netprof.probes.stacks.chrome_trace import stacks_of
from netprof.probes.stacks.functions import frame, readable
from netprof.probes.stacks.late import LateRank
from netprof.probes.stacks.native import NativeStacks
from netprof.probes.stacks.probe import StacksProbe
from netprof.schema import MarkKind
from netprof.session.live_follow import TraceSource
from netprof.trace import TraceReader
from netprof.views.html.flames import ROW, flames
from netprof.views.html.page import render
from netprof.views.live.draw import draw
from netprof.views.live.state import ViewState


def event(phase: str, name: str, at_us: int, tid: int = 1, line: int = 3) -> dict[str, object]:
    return {"ph": phase, "name": name, "ts": at_us, "tid": tid, "args": {"filename": "/job/train.py", "line": line}}


def test_stacks_are_what_was_open_between_two_events() -> None:
    events = [
        event("B", "<module>", 100),
        event("B", "step", 100),
        event("E", "step", 300),
        event("B", "load;", 300),
        event("E", "load;", 900),
        event("E", "<module>", 900),
        event("B", "worker", 0, tid=2),
        event("E", "worker", 5000, tid=2),
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


def test_native_functions_have_their_share_of_the_time_on_a_cpu(tmp_path: Path) -> None:
    job = sampled()
    stacks = job.extra["stacks"]
    for step in range(10):
        at = START_NS + step * ITERATION_NS
        for ends, frames in (
            (50, "f [a.so];gemm [b.so]"),
            (60, "f [a.so];gemm [b.so]"),
            (70, "sort [c.so]"),
            (99, "x [d]"),
        ):
            for name, value in zip(stacks, (at + ends * MS, 10 * MS, 101, frames), strict=True):
                stacks[name].append(value)
    analysis = analyze(TraceReader(job.write(tmp_path / "t.netprof")))
    python, native = analysis.of(STACKS)
    assert python.lines[0][0] == "load (a.py:7)"
    assert (native.name, native.native) == ("rank 1", True)
    (gemm, most), (sort, less) = native.lines[:2]
    assert (gemm, sort) == ("gemm [b.so]", "sort [c.so]")
    assert most == pytest.approx(2 / 3, abs=0.1)
    assert less == pytest.approx(1 / 3, abs=0.1)
    assert [flame.name for flame in flames(analysis.of(STACKS))] == ["rank 1", "rank 1, native"]
    recent = TraceSource(tmp_path / "t.netprof").look()
    assert recent.stacks[101].frames[-1] == "load (a.py:7)", "the line of Python, not the function"


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
    assert not StacksProbe(wanted=True).drain()


def test_a_process_that_ends_while_it_is_sampled_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks_probe, "py_spy", lambda: Path("/bin/false"))
    for ended, skipped in ((True, ()), (False, ("py-spy cannot read process",))):
        probe = StacksProbe(wanted=True)
        monkeypatch.setattr(stacks_probe, "is_same", lambda target, ended=ended: not ended)
        probe._begin(Target(os.getpid(), 0))
        probe.drain(final=True)
        probe.close()
        reasons = [each.reason for each in probe.describe().skipped if each.name == "stacks"]
        assert len(reasons) == len(skipped)
        assert all(reason.startswith(begin) for reason, begin in zip(reasons, skipped, strict=True))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("_ZN2at6native5copy_ERNS_6TensorERKS1_b", "at::native::copy_"),
        ("_ZNK3c1010TensorImpl5sizesEv", "c10::TensorImpl::sizes"),
        ("_ZNSt6vectorIiSaIiEE4growEv", "std::vector"),
        ("_ZN12_GLOBAL__N_14workEv", "(anonymous)::work"),
        ("_Z4workv", "work"),
        ("_ZN999", "_ZN999"),
        ("dgemm_kernel", "dgemm_kernel"),
        ("_Z", "_Z"),
    ],
)
def test_mangled_names_are_made_readable(name: str, words: str) -> None:
    assert readable(name) == words


def test_hostile_names_stay_one_frame() -> None:
    assert frame("a;b\n\x1b[31m" + "x" * 500, "lib;.so") == "a?b??[31m" + "x" * 91 + " [lib?.so]"


SPIN = """
import os, zlib
print("ready", flush=True)
data, parent = bytes(1 << 20), os.getppid()
while os.getppid() == parent:
    zlib.crc32(data)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a perf event of another process needs root")
def test_a_process_that_computes_is_sampled_where_it_computes() -> None:
    with subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        native = NativeStacks(200)
        try:
            native.begin(process.pid)
            deadline_s = time.monotonic() + 20
            while native.waiting() < 20 and time.monotonic() < deadline_s:
                time.sleep(0.02)
            native.end()
            (rows,) = native.rows(final=True)
        finally:
            native.close()
            process.kill()
    functions = Counter(stack.rpartition(";")[2] for stack in rows["frames"])
    assert sum(count for name, count in functions.items() if "crc32" in name) > 0.8 * functions.total()
    assert set(rows["pid"]) == {process.pid}
    assert all(each.endswith("]") for each in rows["frames"])
