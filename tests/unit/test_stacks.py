"""Python stacks of the rank that others wait for: what py-spy writes, who is sampled, and what is told of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.synthetic import ITERATION_NS, MS, START_NS, Job, K

from netprof.analysis import analyze
from netprof.analysis.findings.stragglers.stacks import STACKS, ProcessStacks
from netprof.model import Target
from netprof.probes.marks.libraries import Library
from netprof.probes.stacks import frame_names
from netprof.probes.stacks import probe as stacks_probe
from netprof.probes.stacks.chrome_trace import stacks_of
from netprof.probes.stacks.frame_names import Functions, frame, readable
from netprof.probes.stacks.late import LateRank
from netprof.probes.stacks.native import NativeStacks
from netprof.probes.stacks.probe import StacksProbe
from netprof.schema import MarkKind
from netprof.session.live_follow import FollowedTraceSource
from netprof.trace import TraceReader
from netprof.views.html.flames import ROW, flames
from netprof.views.html.page import render
from netprof.views.live.draw import draw
from netprof.views.live.view_state import ViewState


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


@pytest.mark.parametrize("outermost", ["<module>", "_run_module_as_main"])
def test_the_main_thread_is_told_from_one_that_is_there_for_longer(outermost: str) -> None:
    """Also of `python -m`, as torchrun -m starts ranks."""
    main = [event("B", outermost, 100), event("B", "step", 100), event("E", "step", 900), event("E", outermost, 900)]
    other = [event("B", "_bootstrap", 0, tid=2), event("E", "_bootstrap", 5000, tid=2)]
    (stack,) = stacks_of(json.dumps(other + main).encode())
    assert stack.frames.endswith("step (train.py:3)")


def test_the_thread_that_trains_need_not_be_the_main_one() -> None:
    """Ray trains in a thread of its own, while the main one waits for calls."""
    waits = [event("B", "<module>", 0), event("E", "<module>", 9000)]
    idle = [event("B", "_bootstrap", 0, tid=2), event("E", "_bootstrap", 9000, tid=2)]
    trains = [event("B", "_bootstrap", 0, tid=3)]
    for at_us in range(0, 8000, 1000):
        trains += [event("B", "step", at_us, tid=3), event("E", "step", at_us + 500, tid=3)]
    found = stacks_of(json.dumps(waits + idle + trains).encode(), by_main=False)
    assert {each.frames for each in found} == {"_bootstrap (train.py:3);step (train.py:3)", "_bootstrap (train.py:3)"}
    assert stacks_of(json.dumps(waits).encode(), by_main=False) == []


def test_the_main_thread_trains_where_it_has_marks_of_that() -> None:
    late = LateRank()
    both = marks([(1, 101, K.OPTIMIZER_STEP), (2, 101, K.OPTIMIZER_STEP), (3, 102, K.FORWARD)])
    late.see(both | {"tid": np.array([101, 7, 8])})
    assert [late.trainer_of(pid) for pid in (101, 102, 103)] == [101, 8, 103]


@pytest.mark.parametrize("data", [b"", b"{}", b"[1, {}]", b'[{"tid": "a", "ts": 1}]', b"[" * 100_000])
def test_a_damaged_file_holds_no_stack(data: bytes) -> None:
    assert stacks_of(data) == []


def marks(rows: Sequence[tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Return the columns of marks of main threads: when, of which process, what kind, and perhaps arg0 and arg2."""
    columns = zip(*((*row, 0, 0)[:5] for row in rows), strict=True)
    names = ("time_ns", "pid", "kind", "arg0", "arg2")
    found = {name: np.array(column) for name, column in zip(names, columns, strict=True)}
    return found | {"tid": found["pid"]}


def test_who_waits_least_is_named_if_others_wait_for_much_longer() -> None:
    late = LateRank()
    rows = []
    for step in range(10):
        at = step * 100 * MS
        rows += [(at + 10 * MS, 1, MarkKind.DDP_WAIT), (at + 90 * MS, 1, MarkKind.DDP_STATS)]
        rows += [(at + 80 * MS, 2, MarkKind.DDP_WAIT), (at + 90 * MS, 2, MarkKind.DDP_STATS)]
    late.see(marks(rows[:4]))
    late.see(marks(rows[4:]))
    assert late.named(1000 * MS, [1, 2, 3]) == 2, "3 takes no part, as an evaluator that has torch loaded"
    assert late.named(1000 * MS, [1]) is None


def test_a_wait_that_goes_on_counts_too_and_nobody_is_named_where_all_wait_alike() -> None:
    late = LateRank()
    late.see(marks([(0, 2, MarkKind.DDP_FORWARD), (10 * MS, 1, MarkKind.DDP_WAIT)]))
    assert late.named(2000 * MS, [1, 2]) == 2
    alike = LateRank()
    alike.see(marks([(1, pid, MarkKind.DDP_WAIT) for pid in (1, 2)]))
    alike.see(marks([(90 * MS, pid, MarkKind.DDP_STATS) for pid in (1, 2)]))
    assert alike.named(100 * MS, [1, 2]) is None


def test_nobody_is_named_before_some_steps_were_seen() -> None:
    """Rank 1 waits as the recording begins, which is not seen, and rank 2 a little, right after."""
    late = LateRank()
    late.see(marks([(1, 1, K.DDP_STATS), (10 * MS, 2, K.DDP_WAIT), (60 * MS, 2, K.DDP_STATS)]))
    assert late.named(100 * MS, [1, 2]) is None


@pytest.mark.parametrize("work", [0xFFFF_8000_0000_0040, 0], ids=["FSDP", "MPI"])
def test_who_waits_least_for_works_or_in_calls_of_its_own_is_named(work: int) -> None:
    """Of FSDP and tensor parallelism a thread waits for a work; a call of MPI's has none, and is a wait by itself."""
    late, rows = LateRank(), list[tuple[int, ...]]()
    for step in range(10):
        for pid, asked in ((1, 10), (2, 80)):
            at = (step * 100 + asked) * MS
            if work:
                rows += [(at, pid, K.COLLECTIVE_ENQUEUE, work), (at + MS, pid, K.COLLECTIVE_BEGIN, work)]
                rows.append((at + 2 * MS, pid, K.WORK_WAIT, work))
            else:
                rows.append((at, pid, K.COLLECTIVE_BEGIN, 0))
            rows.append(((step * 100 + 90) * MS, pid, K.COLLECTIVE_END, work))
            rows.append(((step * 100 + 92) * MS, pid, K.WORK_WAIT, work or 7))  # it is done: nobody waits
    late.see(marks(rows[:7]))
    late.see(marks(rows[7:]))
    assert late.named(1000 * MS, [1, 2]) == 2
    late.see(marks([(1000 * MS, 1, K.COLLECTIVE_BEGIN, 0, 1)]))
    assert not late._waits, "what is only posted is no wait"
    late.see(marks([(1001 * MS, 1, K.COLLECTIVE_BEGIN, 0), (1002 * MS, 1, K.PROCESS_EXIT)]))
    assert not late._waits


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


def test_what_ranks_execute_while_a_job_stands_is_told_after_steps_too(tmp_path: Path) -> None:
    job = Job(iterations=30).fill()
    stands = START_NS + 8 * ITERATION_NS + 43 * MS  # rank 0 and 1 wait for a bucket
    job.marks = [mark for mark in job.marks if mark[0] < stands]
    at = START_NS + 20 * ITERATION_NS
    stuck = {"pid": [101], "frames": ["<module> (a.py:1);stuck (a.py:3)"]}
    job.extra["stacks"] = {"time_ns": [at], "period_ns": [1000 * MS], **stuck}
    analysis = analyze(TraceReader(job.write(tmp_path / "t.netprof")))
    (found,) = analysis.of(STACKS)
    assert (found.lines, found.seconds, found.stands) == ((("stuck (a.py:3)", 1.0),), 1.0, True)
    (part,) = analysis.parts(STACKS)
    assert part.about.endswith("in which the job stood")


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
    recent = FollowedTraceSource(tmp_path / "t.netprof").look()
    assert recent.stacks[101].frames[-1] == "load (a.py:7)", "the line of Python, not the function"


def test_frames_are_as_wide_as_they_took_and_below_their_callers() -> None:
    stacks = {"main (a.py:1);load (a.py:7)": 3.0, "main (a.py:1);<b>&x (a.py:9)": 1.0, "tiny (a.py:2)": 1e-6}
    (flame,) = flames([ProcessStacks(1, "rank 1", 4.0, (), stacks)])
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
    recent = FollowedTraceSource(sampled().write(tmp_path / "t.netprof")).look()
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


def test_a_process_that_is_no_python_is_sampled_natively_and_the_others_are_sampled_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stacks_probe, "py_spy", lambda: Path("/bin/false"))
    monkeypatch.setattr(stacks_probe, "is_same", lambda target: True)
    begun = list[int]()
    native = SimpleNamespace(begin=lambda pid, tid: begun.append(tid), end=lambda: None, rows=lambda final: ())
    native.missed, native.naming_s = 0, 0.0
    monkeypatch.setattr(stacks_probe, "NativeStacks", lambda rate_hz: native)
    probe = StacksProbe(wanted=True)
    probe.follow([Target(101, 0, frameworks=("mpi",))])
    monkeypatch.setattr(probe._late, "named", lambda now_ns, among: 101)
    probe.drain()
    first = probe._running
    assert first is not None
    assert first.py_spy is not None
    first.py_spy.wait()
    monkeypatch.setattr(probe, "_is_cheap", lambda: True)
    probe.drain()
    second = probe._running
    assert begun == [101, 101]
    assert second is not None
    assert second.py_spy is None, "it is not tried again"
    assert [each.reason for each in probe.describe().skipped] == ["py-spy cannot read process 101"]


@pytest.mark.parametrize(("kind", "stands"), [(K.PROCESS_FORK, True), (K.COLLECTOR, True), (K.DDP_FORWARD, False)])
def test_a_job_that_hangs_may_fork_and_collect_garbage(
    kind: MarkKind, stands: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks_probe, "py_spy", lambda: Path("/bin/false"))
    probe = StacksProbe(wanted=True)
    probe.follow([Target(101, 0, frameworks=("torch",)), Target(102, 0, frameworks=("torch",))])
    assert [each.reason for each in probe.describe().skipped][-1:] == ["no rank was waited for, as far as marks tell"]
    probe._marked_s = time.monotonic() - 60
    probe.notice("marks", marks([(1, 101, kind)]))
    assert (probe._next() is not None) is stands
    probe.close()


def test_a_job_is_not_taken_to_hang_while_other_probes_are_opened_nor_in_a_long_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stacks_probe, "py_spy", lambda: Path("/bin/false"))
    monkeypatch.setattr(stacks_probe, "is_same", lambda target: True)
    late_s, now_s = 0.0, time.monotonic()
    clock = SimpleNamespace(monotonic=lambda: now_s + late_s, monotonic_ns=time.monotonic_ns)
    monkeypatch.setattr(stacks_probe, "time", clock)
    probe = StacksProbe(wanted=True)
    probe.follow([Target(os.getpid(), 0, frameworks=("torch",))])
    late_s += 60
    probe.drain()
    assert probe._running is None
    probe.notice("marks", marks([(1, 101, K.BACKWARD)]))
    late_s += 10
    probe.notice("marks", marks([(2, 101, K.BACKWARD)]))
    late_s += 15
    assert probe._next() is None, "a step takes ten seconds"
    late_s += 6
    assert probe._next() is not None
    probe.close()


class Unkillable:
    """A process that reads a file of a mount that hangs: it ends when that answers, whatever signal it gets."""

    killed = False

    def kill(self) -> None:
        self.killed = True

    def wait(self, timeout_s: float) -> None:
        raise subprocess.TimeoutExpired("py-spy", timeout_s)


def test_a_py_spy_that_cannot_be_ended_keeps_no_recording_from_ending() -> None:
    probe, stuck = StacksProbe(wanted=False), Unkillable()
    probe._running = stacks_probe._Window(Target(1, 1), 1, 0, 0.0, stuck)  # type: ignore[arg-type]
    probe.close()
    assert stuck.killed


def test_sampling_a_late_rank_pauses_while_it_has_cost_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks_probe, "py_spy", lambda: Path("/bin/false"))
    probe = StacksProbe(wanted=True)
    late, other = Target(101, 0, frameworks=("torch",)), Target(102, 0, frameworks=("torch",))
    probe.follow([late, other])
    monkeypatch.setattr(probe._late, "named", lambda now_ns, among: late.pid)
    assert probe._next() is late, "the first window waits for nothing"
    probe._begun_s, probe._py_spy_s = time.monotonic() - 4, 0.06
    assert probe._next() is None, "1.5 % of a CPU"
    probe._py_spy_s = 0.03
    assert probe._next() is late
    probe._py_spy_s, probe._marked_s = 0.06, 0.0
    monkeypatch.setattr(probe._late, "named", lambda now_ns, among: None)
    assert probe._next() is late, "a job that hangs is held up by nothing"
    probe.close()


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
def test_a_process_that_computes_is_sampled_where_it_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[int]()

    def functions(library: Library, until_s: float) -> Functions:
        read.append(os.fstat(library.descriptor).st_ino)
        return Functions(library, until_s)

    monkeypatch.setattr(frame_names, "Functions", functions)
    with subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        native = NativeStacks(200)
        try:
            for _ in range(2):
                native.begin(process.pid, process.pid)
                deadline_s = time.monotonic() + 20
                while native.waiting() < 20 and time.monotonic() < deadline_s:
                    time.sleep(0.02)
                native.end()
            windows = list(native.rows(final=True))
        finally:
            native.close()
            process.kill()
    assert len(windows) == 2
    assert len(set(read)) == len(read) > 0, "each file's symbols are read once"
    assert native.naming_s > 0
    stacks = [stack for rows in windows for stack in rows["frames"]]
    functions_seen = Counter(stack.rpartition(";")[2] for stack in stacks)
    assert sum(count for name, count in functions_seen.items() if "crc32" in name) > 0.8 * functions_seen.total()
    assert {pid for rows in windows for pid in rows["pid"]} == {process.pid}
    assert all(each.endswith("]") for each in stacks)
