"""What a recording costs: sampled when it is time to, and never a reason to stop."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from netprof.errors import NetprofError
from netprof.model import ProbeCost, ProgramCost
from netprof.session import cost
from netprof.session.cost import BpfCostSampler, RecorderCost


class World:
    """A clock, the kernel's statistics (on between `began` and `ended`), and how often each program ran."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.cpu_s = 0.0
        self.refuses = False
        self.runs: dict[str, int] = {}
        self.began: list[float] = []
        self.ended: list[float] = []

    @contextmanager
    def statistics(self) -> Iterator[None]:
        if self.refuses:
            raise NetprofError("not here")
        self.began.append(self.now_s)
        yield
        self.ended.append(self.now_s)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(cost, "time", SimpleNamespace(monotonic=lambda: made.now_s, process_time=lambda: made.cpu_s))
    monkeypatch.setattr(cost, "run_time_statistics", made.statistics)
    monkeypatch.setattr(cost, "program_statistics", lambda program: (made.runs[program] * 1000, made.runs[program]))
    return made


def loaded(name: str, *programs: str) -> Any:
    return SimpleNamespace(name=name, programs=lambda: programs, program_fd=lambda program: f"{name} {program}")


FLOW, MARKS = loaded("flow", "a", "b"), loaded("marks", "a")


def nothing() -> tuple[Any, ...]:
    return ()


def test_programs_are_timed_for_a_fifth_of_a_second_every_five(world: World) -> None:
    sampler = BpfCostSampler(lambda: (FLOW, MARKS))
    world.runs = {"flow a": 5, "flow b": 7, "marks a": 9}
    for tenths in range(120):
        world.now_s = 100 + tenths / 10
        sampler.tick()
        world.runs["flow a"] += 1  # others have it timed all the time
    assert world.began == pytest.approx([100, 105, 110])
    assert world.ended == pytest.approx([100.2, 105.2, 110.2])
    sampled_s, programs = sampler.result()
    assert sampled_s == pytest.approx(0.6)
    assert programs == (ProgramCost("a", 6, 6000), ProgramCost("b", 0, 0), ProgramCost("a", 0, 0))


def test_what_is_being_timed_counts_until_it_is_asked_for(world: World) -> None:
    sampler = BpfCostSampler(nothing)
    sampler.tick()
    world.now_s = 100.125
    assert sampler.result()[0] == pytest.approx(0.125)
    assert world.ended == [100.125]
    assert sampler.result()[0] == pytest.approx(0.125)


def test_what_is_known_of_a_program_that_is_gone_stays(world: World) -> None:
    objects, world.runs = [MARKS], {"marks a": 9, "flow a": 0, "flow b": 0}
    sampler = BpfCostSampler(lambda: objects)
    sampler.tick()
    world.runs["marks a"] = 11
    assert sampler.result()[1] == (ProgramCost("a", 2, 2000),)
    objects[:] = [FLOW]
    world.now_s = 105.0
    sampler.tick()
    world.runs = {"marks a": 99, "flow a": 1, "flow b": 0}
    found = (ProgramCost("a", 2, 2000), ProgramCost("a", 1, 1000), ProgramCost("b", 0, 0))
    assert sampler.result()[1] == found
    world.now_s = 110.0
    sampler.tick()
    world.runs = {"flow a": 0, "flow b": 0}
    assert sampler.result()[1] == found, "they were loaded anew"


def test_without_statistics_the_cost_is_unknown_and_asked_for_again(world: World) -> None:
    sampler = BpfCostSampler(nothing)
    world.refuses = True
    sampler.tick()
    world.refuses = False
    world.now_s = 104.9
    sampler.tick()
    assert world.began == []
    world.now_s = 105.0
    sampler.tick()
    assert world.began == [105.0]


def test_the_start_is_told_from_the_recording(world: World) -> None:
    world.cpu_s = 1.75
    spent = RecorderCost()
    world.now_s, world.cpu_s = 102.0, 2.25
    spent.started()
    world.now_s, world.cpu_s = 112.0, 3.25
    found = spent.result(123, [ProbeCost("nic", 0.5)], (0.4, (ProgramCost("a", 1, 2),)))
    assert (found.wall_s, found.cpu_s, found.start_s, found.start_cpu_s) == (12.0, 1.5, 2.0, 0.5)
    assert (found.trace_bytes, found.bpf_sampled_s) == (123, 0.4)
    assert (found.programs, found.probes) == ((ProgramCost("a", 1, 2),), (ProbeCost("nic", 0.5),))
    assert found.cpu_share == pytest.approx(0.1)


def test_peak_memory_is_this_program_s(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Path(f"/proc/{os.getpid()}/status").read_text().splitlines()
    told = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024
    assert told <= RecorderCost().result(0, [], (0.0, ())).peak_memory_bytes < 2 * told

    def refused(self: Path) -> str:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Path, "read_text", refused)
    assert RecorderCost().result(0, [], (0.0, ())).peak_memory_bytes >= told // 2
