"""Marks at the return of plain C functions: exact, and harmless in every way in which a function can be left."""

from __future__ import annotations

import dataclasses
import os
import platform
import select
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.kernel import kernel_release

from netprof.probes.frameworks.table import Constant, Framework, Mark, Register
from netprof.probes.marks.probe import MarkProbe
from netprof.schema import MarkKind

PROGRAMS = Path(__file__).parents[1] / "programs"
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="attaching uprobes needs root"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="the known program needs gcc to be compiled"),
]

FUNCTIONS = ("toy_value", "toy_block", "toy_deep", "toy_call", "toy_jump")
BEGIN, SIZE, END = MarkKind.COLLECTIVE_BEGIN, MarkKind.COLLECTIVE_SIZE, MarkKind.COLLECTIVE_END


def both_ends(name: str) -> tuple[Mark, Mark, Mark]:
    """Two marks at the entry and one at the return."""
    return (
        Mark(BEGIN, name, (Register(1),)),
        Mark(SIZE, name, (Constant(7), Register(1))),
        Mark(END, name, (Constant(1), Constant(2), Constant(3)), at_return=True),
    )


TOY = Framework("toy", "libtoy.so", tuple(mark for name in FUNCTIONS for mark in both_ends(name)))


class Program:
    """A running toy_returns: `say` sends a command and returns the number that answers it."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen([str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        assert self._answer() == "ready"

    def say(self, command: str) -> int:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        return int(self._answer())

    def end(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(30)

    def _answer(self) -> str:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], 30)
        assert ready, "no answer"
        answer = self.process.stdout.readline().strip()
        assert answer, f"the program ended: {self.process.wait(10)}"
        return answer


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("returns")
    cc = ["gcc", "-O0"] + (["-fcf-protection=none"] if platform.machine() == "x86_64" else [])
    source = str(PROGRAMS / "toy_returns.c")
    subprocess.run([*cc, "-DTOY_LIBRARY", "-shared", "-fPIC", source, "-o", folder / "libtoy.so"], check=True)
    subprocess.run([*cc, source, "-o", folder / "toy", f"-L{folder}", "-ltoy", f"-Wl,-rpath,{folder}"], check=True)
    return folder


@pytest.fixture
def program(built: Path) -> Iterator[Program]:
    running = Program(built / "toy")
    yield running
    assert running.end() == 0, "the program did not survive being probed"


@pytest.fixture(params=["uprobe_multi", "perf events"])
def multi(request: pytest.FixtureRequest) -> bool:
    wanted = bool(request.param == "uprobe_multi")
    if wanted:
        if kernel_release() < (6, 10):
            pytest.skip("uprobe_multi filters by process from Linux 6.10 on")
        with MarkProbe(frameworks=[TOY]) as probe:
            assert "uprobe_multi" in probe.method
    return wanted


def kinds(probe: MarkProbe) -> Counter[int]:
    return Counter(probe.drain()["marks"]["kind"].tolist())


def has_trampoline(program: Program) -> bool:
    """Tell whether the kernel has put a page of its own into the process, as it does where a return is probed."""
    return "[uprobes]" in Path(f"/proc/{program.pid}/maps").read_text()


@pytest.mark.core
def test_marks_of_one_event_come_in_the_tables_order_and_the_return_after_them(program: Program, multi: bool) -> None:
    with MarkProbe([program.pid], frameworks=[TOY], multi=multi) as probe:
        assert probe.started[0].detail.startswith("5 of 5 functions")
        assert program.say("call 500") == 500
        table = probe.drain()["marks"]
        assert probe.skipped == []
        assert probe.lost() == 0
    turns = np.arange(500, dtype=np.uint64)
    assert table["kind"].tolist() == [BEGIN, SIZE, END] * 500
    assert (np.diff(table["time_ns"]) >= 0).all()
    assert table["arg0"].reshape(-1, 3).T.tolist() == [turns.tolist(), [7] * 500, [1] * 500]
    assert table["arg1"].reshape(-1, 3).T[1].tolist() == turns.tolist()
    assert table["arg2"].reshape(-1, 3).T[2].tolist() == [3] * 500


def test_no_other_process_has_its_returns_probed(program: Program, built: Path, multi: bool) -> None:
    other = Program(built / "toy")
    with MarkProbe([program.pid], frameworks=[TOY], multi=multi) as probe:
        assert other.say("call 20") == 20
        assert not has_trampoline(other)
        assert kinds(probe) == {}
        assert probe.attach(other.pid) == ("toy",)
        assert other.say("call 20") == 20
        assert has_trampoline(other)
        assert kinds(probe) == {BEGIN: 20, SIZE: 20, END: 20}
        assert other.end() == 0
        probe.detach(other.pid)
        assert program.say("call 3") == 3
        assert kinds(probe) == {BEGIN: 3, SIZE: 3, END: 3}


@pytest.mark.core
@pytest.mark.parametrize(
    ("command", "answer", "begins", "ends"),
    [
        ("jump 200", 200, 400, 200),  # what is left by longjmp has no end, and takes nobody else's
        ("deep 40", 40, 41, 41),
        ("deep 100", 100, 101, 64),  # the kernel keeps 64 returns of a thread
        ("fork", 9, 1, 1),
        ("exit", 1, 1, 0),
    ],
)
def test_every_way_to_leave_a_function(
    program: Program, multi: bool, command: str, answer: int, begins: int, ends: int
) -> None:
    with MarkProbe([program.pid], frameworks=[TOY], multi=multi) as probe:
        assert program.say(command) == answer
        assert kinds(probe) == Counter({BEGIN: begins, SIZE: begins, END: ends})
        assert program.say("call 5") == 5
        assert kinds(probe) == {BEGIN: 5, SIZE: 5, END: 5}


def test_a_thread_interrupted_and_then_ended_inside_a_call(program: Program, multi: bool) -> None:
    with MarkProbe([program.pid], frameworks=[TOY], multi=multi) as probe:
        assert program.say("block") == 1
        assert program.say("signal") == 2
        assert kinds(probe) == {BEGIN: 2, SIZE: 2, END: 1}
        assert program.say("release") == 1
        assert kinds(probe) == {END: 1}
        assert program.say("block") == 1
        assert program.say("cancel") == 1
        assert kinds(probe) == {BEGIN: 1, SIZE: 1}
        assert program.say("call 5") == 5


def test_filtered_system_calls(program: Program, multi: bool) -> None:
    assert program.say("filter") == 1
    with MarkProbe([program.pid], frameworks=[TOY], multi=multi) as probe:
        assert program.say("call 50") == 50
        ends = kinds(probe)[END]
        refused = [skipped for skipped in probe.skipped if "system calls are filtered" in skipped.reason]
    assert (ends, len(refused)) in ((50, 0), (0, 1))


def test_detaching_in_the_middle_of_a_call_again_and_again(program: Program, multi: bool) -> None:
    for _ in range(20 if multi else 4):
        with MarkProbe([program.pid], frameworks=[TOY], multi=multi):
            assert program.say("block") == 1
        assert program.say("release") == 1
    assert program.say("call 100") == 100


RECORDER = """
import sys, time
sys.path[:0] = sys.argv[2].split(":")
from test_returns import TOY
from netprof.probes.marks.probe import MarkProbe
probe = MarkProbe([int(sys.argv[1])], frameworks=[TOY], multi=sys.argv[3] == "True")
print(len(probe.started), flush=True)
time.sleep(600)
"""


def test_a_recorder_killed_in_the_middle_of_a_call_again_and_again(program: Program, multi: bool) -> None:
    path = ":".join(map(str, Path(__file__).parents[:2]))
    for _ in range(10 if multi else 3):
        command = [sys.executable, "-c", RECORDER, str(program.pid), path, str(multi)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as recorder:
            assert recorder.stdout is not None
            assert recorder.stdout.readline() == "1\n"
            assert program.say("block") == 1
            recorder.send_signal(signal.SIGKILL)
        assert program.say("release") == 1
        assert program.say("call 10") == 10


def test_a_process_that_may_throw_through_its_calls_keeps_its_returns(built: Path, tmp_path: Path) -> None:
    """The program is C++, wants a function that sets error handlers, and throws: as an error handler of MPI may."""
    if shutil.which("g++") is None:
        pytest.skip("the program that throws needs g++ to be compiled")
    executable = tmp_path / "toy_handler"
    options = ["-O1", f"-L{built}", "-ltoythrow", f"-Wl,-rpath,{built}"]
    library, source = built / "libtoythrow.so", PROGRAMS / "toy_handler.cpp"
    subprocess.run(["g++", "-O1", "-DTOY_LIBRARY", "-shared", "-fPIC", source, "-o", library], check=True)
    subprocess.run(["g++", source, "-o", executable, *options], check=True)
    running = Program(executable)
    here = Framework("toy", library.name, both_ends("toy_fails"), throwing=("toy_set_handler",))
    with MarkProbe([running.pid], frameworks=[here]) as probe:
        assert "toy_handler may let a C++ exception pass" in probe.skipped[0].reason
        assert running.say("fail 3") == 3
        assert kinds(probe) == {BEGIN: 3, SIZE: 3}
    elsewhere = dataclasses.replace(here, throwing=("toy_never_was",))
    with MarkProbe([running.pid], frameworks=[elsewhere]) as probe:
        assert probe.skipped == []
    assert running.end() == 0
