"""The mark probe on a small real program whose calls are known to the last argument."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from support.toys import BEGIN, LARGE, PROGRAMS, SMALL, Toy, as_target, rows, start, toy

from netprof.errors import NotPermittedError
from netprof.probes.frameworks.table import Mark, MemoryField, Register
from netprof.probes.kernel.loader import map_lookup
from netprof.probes.kernel.targets import TargetMap
from netprof.probes.marks.probe import MarkProbe
from netprof.schema import MarkKind

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="attaching uprobes needs root"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="the known program needs gcc to be compiled"),
]


@pytest.mark.core
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


@pytest.mark.core
def test_all_threads_and_no_other_process(toys: list[Toy], built: Path, multi: bool) -> None:
    ours, other = start(toys, built), start(toys, built)
    with MarkProbe([ours.pid], frameworks=toy(BEGIN), multi=multi) as probe:
        other.say("call 40")
        ours.say("call 10")
        ours.say("thread 20")
        seen = rows(probe, MarkKind.DDP_FORWARD)
    assert {pid for pid, *_ in seen} == {ours.pid}
    assert sorted(Counter(tid for _, tid, *_ in seen).values()) == [10, 20]


@pytest.mark.core
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


@pytest.mark.core
def test_a_forked_child_is_recorded_once_attached(toys: list[Toy], built: Path) -> None:
    program = start(toys, built)
    with MarkProbe([program.pid], frameworks=toy(BEGIN)) as probe:
        program.say("fork 10")  # runs into the parent's breakpoints, without being ours
        assert rows(probe, MarkKind.DDP_FORWARD) == []
        program.say("call 5")
        assert len(rows(probe, MarkKind.DDP_FORWARD)) == 5


@pytest.mark.core
def test_a_process_that_becomes_another_program(toys: list[Toy], built: Path, multi: bool) -> None:
    program = start(toys, built)
    with MarkProbe([program.pid], frameworks=toy(BEGIN), multi=multi) as probe:
        program.say("exec")
        program.say(f"load {built / 'libtoy.so'}")
        probe.attach(program.pid)
        program.say("call 5")
        assert len(rows(probe, MarkKind.DDP_FORWARD)) == 5
    assert breakpoints(program, built / "libtoy.so") == 0


@pytest.mark.core
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


@pytest.mark.core
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


@pytest.mark.core
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


@pytest.mark.core
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


@pytest.mark.core
def test_a_full_ring_counts_what_it_lost(toys: list[Toy], built: Path) -> None:
    program = start(toys, built)
    with MarkProbe([program.pid], frameworks=toy(BEGIN), ring_bytes=4096) as probe:
        program.say("call 1000")
        kept = rows(probe, MarkKind.DDP_FORWARD)
        assert 0 < len(kept) <= 4096 // 56
        assert probe.lost() == 1000 - len(kept)
        program.say("call 2")
        assert len(rows(probe, MarkKind.DDP_FORWARD)) == 2


@pytest.mark.core
def test_values_that_cannot_be_are_thrown_away_and_said(toys: list[Toy], built: Path) -> None:
    wrong_layout = Mark(MarkKind.COLLECTIVE_SIZE, "toy_fields", (MemoryField(1, 8, 8, valid=(1, 2, 4, 8)),))
    no_memory = Mark(MarkKind.BUCKET_DONE, "toy_pointer", (MemoryField(1, 0, 8),))
    program = start(toys, built)
    with MarkProbe([program.pid], frameworks=toy(BEGIN, wrong_layout, no_memory)) as probe:
        program.say("call 9")
        assert Counter(probe.drain()["marks"]["kind"].tolist()) == {MarkKind.DDP_FORWARD: 9}
        said = {skipped.name: skipped.reason for skipped in probe.skipped}
    assert said.keys() == {"marks:toy:collective_size", "marks:toy:bucket_done"}
    assert said["marks:toy:bucket_done"].startswith("9 records")


@pytest.mark.core
def test_a_process_that_ended_or_never_was() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    with MarkProbe([ended.pid], frameworks=toy(BEGIN)) as probe:
        assert probe.attach(2**22 + 1) == ()
        assert probe.drain()["marks"]["kind"].size == 0


@pytest.mark.core
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


@pytest.mark.core
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


@pytest.mark.core
def test_nothing_is_left_after_closing(toys: list[Toy], built: Path, multi: bool) -> None:
    program = start(toys, built)
    with MarkProbe([program.pid], frameworks=toy(BEGIN, LARGE), multi=multi):
        assert breakpoints(program, built / "libtoy.so") == 2
    assert breakpoints(program, built / "libtoy.so") == 0
    program.say("call 3")


RECORDER = """
import sys, time
from netprof.probes.frameworks.table import Framework, Mark
from netprof.probes.marks.libraries import executable_mappings, open_library
from netprof.probes.kernel.loader import map_lookup, map_update
from netprof.probes.marks.probe import MarkProbe
from netprof.schema import MarkKind
probe = MarkProbe([int(sys.argv[1])], frameworks=[Framework("t", "libtoy.so", (Mark(MarkKind.DDP_WAIT, "toy_begin"),))])
print(len(probe.started), flush=True)
time.sleep(600)
"""


@pytest.mark.core
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


@pytest.mark.core
def test_a_job_killed_while_recorded(toys: list[Toy], built: Path) -> None:
    program = start(toys, built)
    toys.remove(program)
    with MarkProbe([program.pid], frameworks=toy(BEGIN)) as probe:
        program.say("call 8")
        program.process.kill()
        program.process.wait()
        assert len(rows(probe, MarkKind.DDP_FORWARD)) == 8
        probe.detach(program.pid)


@pytest.mark.core
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


def test_a_function_that_is_called_too_often_is_left_alone(toys: list[Toy], built: Path) -> None:
    """What a burst calls is kept; what goes on is detached, and the recording says so."""
    program = start(toys, built)
    with MarkProbe([program.pid], frameworks=toy(BEGIN)) as probe:
        for calls in (9000, 10, 9000, 9000):
            program.say(f"call {calls}")
            assert len(rows(probe, MarkKind.DDP_FORWARD)) == calls
        program.say("call 100")
        assert rows(probe, MarkKind.DDP_FORWARD) == []
        (skipped,) = probe.skipped
        assert "toy_begin is called more than 20000 times a second" in skipped.reason


def test_other_marks_go_on(toys: list[Toy], built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = start(toys, built)
    with MarkProbe([program.pid], frameworks=toy(BEGIN, SMALL)) as probe:
        monkeypatch.setattr("netprof.probes.marks.probe.called_often", lambda *_: {0})
        for _ in range(2):
            probe.drain()
        program.say("call 10")
        found = probe.drain()["marks"]["kind"].tolist()
        assert found == [SMALL.kind] * 10
        later = start(toys, built)
        probe.attach(later.pid)
        later.say("call 10")
        assert probe.drain()["marks"]["kind"].tolist() == [SMALL.kind] * 10
