"""The mark probe on a small real program whose calls are known to the last argument."""

import ctypes
import dataclasses
import os
import platform
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from netprof.errors import NetprofError, NotPermittedError
from netprof.model import Target
from netprof.probes.frameworks import Framework, Mark, Memory, Register
from netprof.probes.job import procfs
from netprof.probes.kernel.loader import map_lookup
from netprof.probes.kernel.targets import TargetMap
from netprof.probes.marks import plan
from netprof.probes.marks.costs import CLASSES
from netprof.probes.marks.libraries import Library, Mapping, executable_mappings, open_library
from netprof.probes.marks.probe import MarkProbe
from netprof.schema import MarkKind

PROGRAMS = Path(__file__).parents[1] / "programs"
X86 = platform.machine() == "x86_64"

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="attaching uprobes needs root"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="the known program needs gcc to be compiled"),
]

BEGIN = Mark(MarkKind.DDP_FORWARD, "toy_begin", (Register(1), Register(3), Register(6)))
SMALL = Mark(MarkKind.BUCKET_LAUNCH, "toy_fields", (Memory(1, 0, 1), Memory(1, 2, 2), Memory(1, 4, 4)))
LARGE = Mark(MarkKind.COLLECTIVE_SIZE, "toy_fields", (Memory(1, 8, 8), Register(2)))


def toy(*marks: Mark) -> tuple[Framework, ...]:
    return (Framework("toy", "libtoy*.so*", marks),)


class Toy:
    """A running toy_main: `say` sends a line and returns the answer."""

    def __init__(self, argv: list[str]) -> None:
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid

    def say(self, line: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(line.replace("\n", "\1") + "\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self) -> str:
        """Wait for a line of its output."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], 30)
        assert ready, "no answer"
        answer = self.process.stdout.readline().strip()
        assert answer, f"the program ended: {self.process.poll()}"
        return answer

    def end(self) -> int:
        """Close its input; it must end well, whatever was done to it."""
        if self.process.stdin and not self.process.stdin.closed:
            self.process.stdin.close()
        return self.process.wait(30)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    cc = ["gcc", "-O0", "-g0"] + (["-fcf-protection=none"] if X86 else [])
    library, program = str(PROGRAMS / "toy.c"), str(PROGRAMS / "toy_main.c")
    subprocess.run([*cc, "-shared", "-fPIC", library, "-o", folder / "libtoy.so"], check=True)
    subprocess.run([*cc, program, "-o", folder / "toy", "-ldl", "-lpthread"], check=True)
    static = [*cc, "-DTOY_STATIC", program, library, "-lpthread", "-o"]
    subprocess.run([*static, folder / "libtoy-in-program.so"], check=True)
    return folder


@pytest.fixture
def toys(built: Path) -> Iterator[list[Toy]]:
    running: list[Toy] = []
    yield running
    for each in running:
        assert each.end() == 0, "the program did not survive being probed"


def start(toys: list[Toy], built: Path, library: Path | None = None) -> Toy:
    process = Toy([str(built / "toy")])
    toys.append(process)
    process.say(f"load {library or built / 'libtoy.so'}")
    return process


@pytest.fixture(params=["uprobe_multi", "perf events"])
def multi(request: pytest.FixtureRequest) -> bool:
    wanted = bool(request.param == "uprobe_multi")
    if wanted:
        with MarkProbe(frameworks=toy(BEGIN)) as probe:
            if "uprobe_multi" not in probe.method:
                pytest.skip("this kernel has no uprobe_multi that filters by process (6.10)")
    return wanted


def rows(probe: MarkProbe, kind: MarkKind) -> list[tuple[int, ...]]:
    """Drain, and return (pid, tid, arg0, arg1, arg2) of one kind in order of time."""
    table = probe.drain()["marks"]
    order = np.argsort(table["time_ns"], kind="stable")
    names = ("pid", "tid", "arg0", "arg1", "arg2")
    return [tuple(int(table[name][i]) for name in names) for i in order if table["kind"][i] == kind]


def test_every_call_is_recorded_with_its_arguments(toys: list[Toy], built: Path, multi: bool) -> None:
    program = start(toys, built)
    program.say("call 50")  # before the attach: not ours
    with MarkProbe(frameworks=toy(BEGIN, SMALL, LARGE), multi=multi) as probe:
        assert probe.attach(program.pid) == ("toy",)
        before_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        program.say("call 300")
        after_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        table = probe.drain()["marks"]
        assert probe.lost() == 0
        assert probe.skipped == []
    assert set(table["pid"].tolist()) == set(table["tid"].tolist()) == {program.pid}
    assert before_ns <= table["time_ns"].min() <= table["time_ns"].max() <= after_ns
    args = np.stack([table[f"arg{i}"] for i in range(3)], axis=1)
    turn = np.arange(300, dtype=np.uint64)
    begin, small, large = (args[table["kind"] == mark.kind] for mark in (BEGIN, SMALL, LARGE))
    assert np.array_equal(begin, np.stack([turn, turn + 2, turn + 5], axis=1))
    assert np.array_equal(small, np.stack([turn % 256, turn + 1000, turn + 100000], axis=1))
    assert np.array_equal(large, np.stack([turn | 1 << 40, turn, turn * 0], axis=1))


def test_all_threads_and_no_other_process(toys: list[Toy], built: Path, multi: bool) -> None:
    ours, other = start(toys, built), start(toys, built)
    with MarkProbe([ours.pid], frameworks=toy(BEGIN), multi=multi) as probe:
        other.say("call 40")
        ours.say("call 10")
        ours.say("thread 20")
        seen = rows(probe, MarkKind.DDP_FORWARD)
    assert {pid for pid, *_ in seen} == {ours.pid}
    assert sorted(Counter(tid for _, tid, *_ in seen).values()) == [10, 20]


def test_the_map_of_processes_can_belong_to_another_program(toys: list[Toy], built: Path) -> None:
    first, second = start(toys, built), start(toys, built)
    with TargetMap() as targets:
        with MarkProbe([first.pid], targets=targets, frameworks=toy(BEGIN), multi=False) as probe:
            second.say("call 3")
            assert rows(probe, MarkKind.DDP_FORWARD) == []
            targets.add(second.pid)  # as the kernel does at a fork
            second.say("call 4")
            assert {row[0] for row in rows(probe, MarkKind.DDP_FORWARD)} == {second.pid}
            probe.detach(first.pid)
        assert map_lookup(targets.fd, first.pid.to_bytes(4, "little"), 4) is not None, "the owner says who is in it"


def test_a_forked_child_is_recorded_once_attached(toys: list[Toy], built: Path) -> None:
    program = start(toys, built)
    with MarkProbe([program.pid], frameworks=toy(BEGIN)) as probe:
        program.say("fork 10")  # runs into the parent's breakpoints, without being ours
        assert rows(probe, MarkKind.DDP_FORWARD) == []
        program.say("call 5")
        assert len(rows(probe, MarkKind.DDP_FORWARD)) == 5


def test_a_process_that_becomes_another_program(toys: list[Toy], built: Path, multi: bool) -> None:
    program = start(toys, built)
    with MarkProbe([program.pid], frameworks=toy(BEGIN), multi=multi) as probe:
        program.say("exec")
        program.say(f"load {built / 'libtoy.so'}")
        probe.attach(program.pid)
        program.say("call 5")
        assert len(rows(probe, MarkKind.DDP_FORWARD)) == 5
    assert breakpoints(program, built / "libtoy.so") == 0


def test_a_library_loaded_after_the_attach_is_found_by_attaching_again(toys: list[Toy], built: Path) -> None:
    program = Toy([str(built / "toy")])
    toys.append(program)
    with MarkProbe(frameworks=toy(BEGIN)) as probe:
        probe.follow([dataclasses.replace(as_target(program), frameworks=())])
        assert probe.attach(program.pid) == ()
        assert "libtoy*.so*" in probe.skipped[0].reason
        program.say(f"load {built / 'libtoy.so'}")
        program.say("call 3")
        assert probe.attach(program.pid) == probe.attach(program.pid) == ("toy",)
        program.say("call 4")
        assert [row[2] for row in rows(probe, MarkKind.DDP_FORWARD)] == [0, 1, 2, 3]
        assert probe.skipped == []
        assert len(probe.started) == 1


def test_sampled_marks_can_be_dropped(toys: list[Toy], built: Path, multi: bool) -> None:
    sampled = Mark(MarkKind.GRADIENT_READY, "toy_fields", (Register(2),), sampled=True)
    program = start(toys, built)
    with MarkProbe([program.pid], frameworks=toy(BEGIN, sampled), multi=multi) as probe:
        assert probe.sampling
        program.say("call 6")
        assert Counter(probe.drain()["marks"]["kind"].tolist()) == {MarkKind.DDP_FORWARD: 6, MarkKind.GRADIENT_READY: 6}
        probe.drop_sampled()
        assert not probe.sampling
        program.say("call 7")
        assert Counter(probe.drain()["marks"]["kind"].tolist()) == {MarkKind.DDP_FORWARD: 7}


def as_target(program: Toy) -> Target:
    stat = procfs.read_stat(program.pid)
    assert stat is not None
    return Target(program.pid, stat.start_ticks, frameworks=("toy",))


def test_a_recording_samples_until_every_process_that_trains_and_lives_has_stepped_enough(
    toys: list[Toy], built: Path
) -> None:
    step = Mark(MarkKind.DDP_WAIT, "toy_begin")
    sampled = Mark(MarkKind.GRADIENT_READY, "toy_fields", (Register(2),), sampled=True)
    first, second, third = (start(toys, built) for _ in range(3))

    def record(*calls: tuple[Toy, int]) -> None:
        for program, count in calls:
            program.say(f"call {count}")
        probe.notice("marks", probe.drain()["marks"])

    with MarkProbe(frameworks=toy(step, sampled)) as probe:
        probe.follow([as_target(first), as_target(second)])
        record((first, 30), (second, 19))
        assert probe.sampling, "the second has not had its share"
        record((second, 1))
        assert not probe.sampling
        probe.follow([as_target(first), as_target(second), as_target(third)])
        probe.settle()
        assert probe.sampling, "one more joined"
        record((second, 20), (third, 20))
        assert probe.sampling, "the first has not stepped since"
        assert first.end() == 0
        record((second, 1))
        assert not probe.sampling, "the first does not live any more"


def test_a_process_that_turns_out_to_be_a_launcher_is_not_waited_for(toys: list[Toy], built: Path) -> None:
    sampled = Mark(MarkKind.GRADIENT_READY, "toy_fields", (Register(2),), sampled=True)
    launcher, rank = start(toys, built), start(toys, built)
    with MarkProbe(frameworks=toy(Mark(MarkKind.DDP_WAIT, "toy_begin"), sampled)) as probe:
        probe.follow([as_target(launcher), as_target(rank)])
        rank.say("call 30")
        probe.notice("marks", probe.drain()["marks"])
        assert probe.sampling, "as far as one knows, the other has not stepped yet"
        probe.follow([dataclasses.replace(as_target(launcher), frameworks=()), as_target(rank)])
        rank.say("call 1")
        probe.notice("marks", probe.drain()["marks"])
        assert not probe.sampling


def test_a_library_of_a_launcher_or_helper_is_not_called_absent(toys: list[Toy], built: Path) -> None:
    helper = start(toys, built)
    none = Toy([str(built / "toy")])
    toys.append(none)
    with MarkProbe(frameworks=toy(BEGIN)) as probe:
        probe.follow([dataclasses.replace(as_target(none), frameworks=())])
        assert "no process of the job has the library" in probe.describe().skipped[0].reason
        probe.follow([dataclasses.replace(as_target(program), frameworks=()) for program in (none, helper)])
        (said,) = probe.describe().skipped
        assert f"only a launcher or a helper of the job ({helper.pid}) has the library" in said.reason
        assert helper.end() == 0
        assert probe.describe().skipped == (said,), "it had it"


def test_a_process_that_is_said_to_have_exited_is_let_go(toys: list[Toy], built: Path) -> None:
    program = start(toys, built)
    with MarkProbe(frameworks=toy(BEGIN)) as probe:
        probe.follow([as_target(program)])
        program.say("call 3")
        assert len(rows(probe, MarkKind.DDP_FORWARD)) == 3
        exit_row = {"time_ns": [1], "pid": [program.pid], "kind": [MarkKind.PROCESS_EXIT], "arg0": [0]}
        probe.notice("marks", {name: np.array(values) for name, values in exit_row.items()})
        program.say("call 3")
        assert rows(probe, MarkKind.DDP_FORWARD) == []


def test_a_full_ring_counts_what_it_lost(toys: list[Toy], built: Path) -> None:
    program = start(toys, built)
    with MarkProbe([program.pid], frameworks=toy(BEGIN), ring_bytes=4096) as probe:
        program.say("call 1000")
        kept = rows(probe, MarkKind.DDP_FORWARD)
        assert 0 < len(kept) <= 4096 // 56
        assert probe.lost() == 1000 - len(kept)
        program.say("call 2")
        assert len(rows(probe, MarkKind.DDP_FORWARD)) == 2


def test_values_that_cannot_be_are_thrown_away_and_said(toys: list[Toy], built: Path) -> None:
    wrong_layout = Mark(MarkKind.COLLECTIVE_SIZE, "toy_fields", (Memory(1, 8, 8, valid=(1, 2, 4, 8)),))
    no_memory = Mark(MarkKind.BUCKET_DONE, "toy_pointer", (Memory(1, 0, 8),))
    program = start(toys, built)
    with MarkProbe([program.pid], frameworks=toy(BEGIN, wrong_layout, no_memory)) as probe:
        program.say("call 9")
        assert Counter(probe.drain()["marks"]["kind"].tolist()) == {MarkKind.DDP_FORWARD: 9}
        said = {skipped.name: skipped.reason for skipped in probe.skipped}
    assert said.keys() == {"marks:toy:collective_size", "marks:toy:bucket_done"}
    assert said["marks:toy:bucket_done"].startswith("9 records")


def test_missing_and_ambiguous_functions_are_said_and_the_rest_recorded(toys: list[Toy], built: Path) -> None:
    missing = Mark(MarkKind.DDP_WAIT, "toy_never_was")
    twins = Mark(MarkKind.DDP_BACKWARD, "toy_twin_")
    program = start(toys, built)
    with MarkProbe([program.pid], frameworks=toy(missing, BEGIN, twins)) as probe:
        program.say("call 4")
        assert len(rows(probe, MarkKind.DDP_FORWARD)) == 4
        said = {skipped.name: skipped for skipped in probe.skipped}
        assert probe.started[0].detail.startswith("1 of 3 functions of libtoy.so")
    assert "no function toy_never_was" in said["marks:toy:ddp_wait"].reason
    assert "toy_twin_a, toy_twin_b" in said["marks:toy:ddp_backward"].reason
    assert all(skipped.remedy for skipped in said.values())


def test_versions_of_a_library_are_told_apart_by_what_they_have(toys: list[Toy], built: Path) -> None:
    older, newer = dataclasses.replace(BEGIN, until="toy_twin_a"), dataclasses.replace(BEGIN, until="toy_never_was")
    since = dataclasses.replace(LARGE, since="toy_twin_b")
    later = dataclasses.replace(LARGE, kind=MarkKind.DDP_WAIT, since="toy_never_was")
    program = start(toys, built)
    with MarkProbe([program.pid], frameworks=toy(older, newer, since, later)) as probe:
        program.say("call 6")
        assert Counter(probe.drain()["marks"]["kind"].tolist()) == {
            MarkKind.DDP_FORWARD: 6,
            MarkKind.COLLECTIVE_SIZE: 6,
        }
        assert probe.skipped == []


@pytest.mark.skipif(not X86, reason="the functions with these first instructions are x86-64 assembly")
def test_first_instructions_that_are_dear_here(toys: list[Toy], built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "DEAR_NS", 500)  # less than any single-stepped one costs
    rare = Mark(MarkKind.DDP_FORWARD, "toy_slow", (Register(1),))
    frequent = Mark(MarkKind.GRADIENT_READY, "toy_slow", sampled=True)
    behind = Mark(MarkKind.BUCKET_LAUNCH, "toy_endbr", (Register(1),))
    program = start(toys, built)
    with MarkProbe([program.pid], frameworks=toy(rare, frequent, behind)) as probe:
        program.say("call 3")
        table = probe.drain()["marks"]
        assert [skipped.name for skipped in probe.skipped] == ["marks:toy:gradient_ready"]
        assert len(probe.warnings) == 1
        assert re.search(r"this kernel single-steps: at least \d+\.\d µs a call \(48 89 f8", probe.warnings[0])
    assert Counter(table["kind"].tolist()) == {MarkKind.DDP_FORWARD: 3, MarkKind.BUCKET_LAUNCH: 3}
    for kind in (MarkKind.DDP_FORWARD, MarkKind.BUCKET_LAUNCH):
        assert table["arg0"][table["kind"] == kind].tolist() == [0, 1, 2]


@pytest.mark.skipif(not X86, reason="the functions with these first instructions are x86-64 assembly")
def test_first_instructions_that_are_not_dear_here(
    toys: list[Toy], built: Path, monkeypatch: pytest.MonkeyPatch, multi: bool
) -> None:
    """What is measured decides, not the kind of instruction."""
    monkeypatch.setattr(plan, "DEAR_NS", 1e9)
    frequent = Mark(MarkKind.GRADIENT_READY, "toy_slow", sampled=True)
    program = start(toys, built)
    with MarkProbe([program.pid], frameworks=toy(frequent), multi=multi) as probe:
        program.say("call 3")
        assert probe.drain()["marks"]["kind"].tolist() == [MarkKind.GRADIENT_READY] * 3
        assert (probe.skipped, probe.warnings) == ([], [])
        costs = probe.costs.all()
    assert set(costs) == set(CLASSES["x86_64"])
    assert 0 < costs["push"] < costs["other"]


@pytest.mark.skipif(not X86, reason="the function that cannot be probed is x86-64 assembly")
def test_a_function_that_the_kernel_refuses_leaves_the_others(toys: list[Toy], built: Path, multi: bool) -> None:
    refused = Mark(MarkKind.DDP_WAIT, "toy_never")
    program = start(toys, built)
    with MarkProbe([program.pid], frameworks=toy(BEGIN, refused, LARGE), multi=multi) as probe:
        program.say("call 3")
        assert (
            sorted(probe.drain()["marks"]["kind"].tolist())
            == [MarkKind.DDP_FORWARD] * 3 + [MarkKind.COLLECTIVE_SIZE] * 3
        )
        (skipped,) = probe.skipped
        assert skipped.name == "marks:toy:ddp_wait"
        assert "an instruction that cannot be probed" in skipped.reason
        assert probe.started[0].detail.startswith("2 of 3")


def test_symbols_of_a_program_without_dynamic_ones_and_none_at_all(toys: list[Toy], built: Path) -> None:
    whole, stripped = built / "libtoy-in-program.so", built / "libtoy-stripped.so"
    subprocess.run(["strip", "--strip-all", "-o", stripped, whole], check=True)
    for path in (whole, stripped):
        toys.append(Toy([str(path)]))
        toys[-1].say("call 1")
    with MarkProbe(frameworks=toy(BEGIN)) as probe:
        assert [probe.attach(each.pid) for each in toys] == [("toy",), ("toy",)]
        for each in toys:
            each.say("call 2")
        assert {row[0] for row in rows(probe, MarkKind.DDP_FORWARD)} == {toys[0].pid}
        assert "libtoy-stripped.so has no function" in probe.skipped[0].reason


@pytest.mark.parametrize("name", ["plain", "with space", "new\nline", "x (deleted)", "\\012"])
def test_hostile_paths(toys: list[Toy], built: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    shutil.copy(built / "libtoy.so", folder / "libtoy.so")
    program = start(toys, built, folder / "libtoy.so")
    with MarkProbe([program.pid], frameworks=toy(BEGIN)) as probe:
        program.say("call 4")
        assert len(rows(probe, MarkKind.DDP_FORWARD)) == 4


def test_a_library_that_was_deleted_or_replaced(toys: list[Toy], built: Path, tmp_path: Path) -> None:
    path = tmp_path / "libtoy.so"
    shutil.copy(built / "libtoy.so", path)
    program = start(toys, built, path)
    path.unlink()
    shutil.copy("/bin/true", path)
    with MarkProbe([program.pid], frameworks=toy(BEGIN)) as probe:
        program.say("call 4")
        assert len(rows(probe, MarkKind.DDP_FORWARD)) == 4


def test_a_library_in_another_mount_namespace(toys: list[Toy], built: Path, tmp_path: Path) -> None:
    script = 'mount -t tmpfs none "$1" && cp "$2"/* "$1" && exec "$1/toy"'
    program = Toy(["unshare", "--mount", "sh", "-c", script, "sh", str(tmp_path), str(built)])
    toys.append(program)
    program.say(f"load {tmp_path / 'libtoy.so'}")
    assert not list(tmp_path.iterdir()), "the library is visible from here"
    with MarkProbe([program.pid], frameworks=toy(BEGIN)) as probe:
        program.say("call 4")
        assert len(rows(probe, MarkKind.DDP_FORWARD)) == 4


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_process_with_libraries_without_end(
    toys: list[Toy], built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netprof.probes.marks.reading.MAX_LIBRARIES", 3)
    program = start(toys, built)
    for number in range(5):
        shutil.copy(built / "libtoy.so", tmp_path / f"libtoy{number}.so")
        program.say(f"load {tmp_path / f'libtoy{number}.so'}")
    with MarkProbe(frameworks=toy(BEGIN)) as probe:
        before = _open_files()
        probe.attach(program.pid)
        assert "more than 3" in probe.skipped[-1].reason
        assert _open_files() - before <= 2 * 3  # a file and a link each


def test_a_disk_that_does_not_answer_holds_up_nothing_else(
    toys: list[Toy], built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its library is attached to once the disk answers; until then the recording says so and goes on."""
    answers, asked = threading.Event(), threading.Event()
    shutil.copy(built / "libtoy.so", tmp_path / "libtoy_far.so")

    def open_it(pid: int, mapping: Mapping) -> Library:
        if mapping.basename == "libtoy_far.so":
            asked.set()
            answers.wait(60)
        return open_library(pid, mapping)

    monkeypatch.setattr("netprof.probes.marks.reading.open_library", open_it)
    near, far = start(toys, built), start(toys, built, tmp_path / "libtoy_far.so")
    with MarkProbe(frameworks=toy(BEGIN)) as probe:
        probe.follow([as_target(near)])
        begin_s = time.monotonic()
        probe.follow([as_target(near), as_target(far)])
        assert asked.wait(10)
        near.say("call 3")
        far.say("call 3")
        assert len(rows(probe, MarkKind.DDP_FORWARD)) == 3
        assert time.monotonic() - begin_s < 5
        assert f"the libraries of process {far.pid} are not read yet" in probe.skipped[-1].reason
        answers.set()
        probe.settle()
        assert probe.skipped == []
        far.say("call 4")
        assert len(rows(probe, MarkKind.DDP_FORWARD)) == 4
    answers.clear()
    asked.clear()
    with MarkProbe(frameworks=toy(BEGIN)) as probe:
        probe.follow([as_target(near)])
        probe.follow([as_target(near), as_target(far)])
        assert asked.wait(10)
        begin_s = time.monotonic()
    assert time.monotonic() - begin_s < 5, "nor does it hold up the end"
    answers.set()


def test_a_process_that_ended_or_never_was() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    with MarkProbe([ended.pid], frameworks=toy(BEGIN)) as probe:
        assert probe.attach(2**22 + 1) == ()
        assert probe.drain()["marks"]["kind"].size == 0


def test_an_ended_process_is_forgotten_on_detach(toys: list[Toy], built: Path) -> None:
    first, second = start(toys, built), start(toys, built)
    with MarkProbe([first.pid, second.pid], frameworks=toy(BEGIN)) as probe:
        first.end()
        probe.detach(first.pid)
        second.say("call 3")
        assert len(rows(probe, MarkKind.DDP_FORWARD)) == 3


CATCHER = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    print(library.toy_caught(ctypes.c_uint64(int(line))), flush=True)
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="the program that throws needs g++ to be compiled")
def test_exceptions_pass_through_probed_functions(toys: list[Toy], tmp_path: Path, multi: bool) -> None:
    library = tmp_path / "libtoy.so"
    subprocess.run(["g++", "-O1", "-shared", "-fPIC", PROGRAMS / "toy_throw.cpp", "-o", library], check=True)
    program = Toy([sys.executable, "-c", CATCHER, str(library)])
    toys.append(program)
    assert program.answer() == "ready"
    with MarkProbe(
        [program.pid], frameworks=toy(dataclasses.replace(BEGIN, args=(Register(1),))), multi=multi
    ) as probe:
        assert program.say("50") == "25"
        assert [row[2] for row in rows(probe, MarkKind.DDP_FORWARD)] == list(range(50))


def breakpoints(process: Toy, library: Path) -> int:
    """Count the bytes of the mapped library's code that differ from the file's."""
    lines = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
    line = next(line for line in lines if line.endswith(str(library)) and " r-xp " in line)
    begin, end = (int(part, 16) for part in line.split()[0].split("-"))
    offset = int(line.split()[2], 16)
    with open(f"/proc/{process.pid}/mem", "rb") as memory:
        memory.seek(begin)
        code = memory.read(end - begin)
    file = library.read_bytes()[offset : offset + len(code)]
    return sum(a != b for a, b in zip(code, file, strict=False))


def test_nothing_is_left_after_closing(toys: list[Toy], built: Path, multi: bool) -> None:
    program = start(toys, built)
    with MarkProbe([program.pid], frameworks=toy(BEGIN, LARGE), multi=multi):
        assert breakpoints(program, built / "libtoy.so") == 2
    assert breakpoints(program, built / "libtoy.so") == 0
    program.say("call 3")


RECORDER = """
import sys, time
from netprof.probes.frameworks import Framework, Mark
from netprof.probes.marks.libraries import executable_mappings, open_library
from netprof.probes.kernel.loader import map_lookup, map_update
from netprof.probes.marks.probe import MarkProbe
from netprof.schema import MarkKind
probe = MarkProbe([int(sys.argv[1])], frameworks=[Framework("t", "libtoy.so", (Mark(MarkKind.DDP_WAIT, "toy_begin"),))])
print(len(probe.started), flush=True)
time.sleep(600)
"""


def test_a_killed_recorder_leaves_the_job_alone(toys: list[Toy], built: Path) -> None:
    program = start(toys, built)
    recorder = subprocess.Popen([sys.executable, "-c", RECORDER, str(program.pid)], stdout=subprocess.PIPE, text=True)
    assert recorder.stdout is not None
    assert recorder.stdout.readline().strip() == "1"
    assert breakpoints(program, built / "libtoy.so") == 1
    program.say("call 100")
    recorder.send_signal(signal.SIGKILL)
    recorder.wait()
    recorder.stdout.close()
    deadline = time.monotonic() + 10
    while breakpoints(program, built / "libtoy.so") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert breakpoints(program, built / "libtoy.so") == 0
    program.say("call 100")


def test_a_job_killed_while_recorded(toys: list[Toy], built: Path) -> None:
    program = start(toys, built)
    toys.remove(program)
    with MarkProbe([program.pid], frameworks=toy(BEGIN)) as probe:
        program.say("call 8")
        program.process.kill()
        program.process.wait()
        assert len(rows(probe, MarkKind.DDP_FORWARD)) == 8
        probe.detach(program.pid)


def test_without_the_right_to_load_programs(toys: list[Toy], built: Path) -> None:
    child = os.fork()
    if child == 0:
        try:  # give up every capability, but stay the user who may read this checkout
            ctypes.CDLL(None).capset(struct.pack("=Ii", 0x20080522, 0), bytes(24))
            MarkProbe(frameworks=toy(BEGIN))
        except NotPermittedError as error:
            os._exit(0 if error.exit_code == 3 and error.hint else 2)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_library_is_opened_by_its_path_where_map_files_is_closed(
    toys: list[Toy], built: Path, tmp_path: Path
) -> None:
    path = tmp_path / "lib toy\n.so"
    shutil.copy(built / "libtoy.so", path)
    program = start(toys, built, path)
    mapping = next(each for each in executable_mappings(program.pid) if each.basename == path.name)
    closed = dataclasses.replace(mapping, address_range="0-0")  # no such entry in map_files
    library = open_library(program.pid, closed)
    assert library.identity == (path.stat().st_dev, path.stat().st_ino)
    library.close()
    path.unlink()
    with pytest.raises(NetprofError):
        open_library(program.pid, closed)
    shutil.copy("/bin/true", path)  # another file under the name: not the one that runs
    with pytest.raises(NetprofError, match="replaced"):
        open_library(program.pid, closed)
    path.unlink()
    os.mkfifo(path)  # opening it would wait for ever
    with pytest.raises(NetprofError):
        open_library(program.pid, closed)
