"""When a job is over: with those that train, or with all of it where nobody ever did."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from netprof.errors import UsageError
from netprof.model import Target
from netprof.probes.job.processes import find_job
from netprof.session import job_processes as job_module
from netprof.session.job_processes import Job
from netprof.session.options import GivenRanks


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    with ExitStack() as stack:
        found = [stack.enter_context(subprocess.Popen(["sleep", "60"])) for _ in range(2)]
        yield found
        for each in found:
            each.kill()


def targets(processes: list[subprocess.Popen[bytes]]) -> list[Target]:
    return [find_job([each.pid])[0] for each in processes]


def ended(job: Job) -> bool:
    until_s = time.monotonic() + 5
    while not job.over() and time.monotonic() < until_s:
        job.wait(0.05)
    return job.over()


def test_it_is_over_with_those_that_train(processes: list[subprocess.Popen[bytes]]) -> None:
    trains, helps = targets(processes)
    job = Job([replace(trains, frameworks=("torch",)), helps], asks_kernel=False)
    assert not job.over()
    processes[0].kill()
    assert ended(job), "whoever else is still there"
    job.close()


def test_where_nobody_trains_it_is_over_with_the_last(processes: list[subprocess.Popen[bytes]]) -> None:
    job = Job(targets(processes), asks_kernel=False)
    processes[0].kill()
    processes[0].wait()
    job.wait(0.2)
    assert not job.over()
    processes[1].kill()
    assert ended(job)
    job.close()


@pytest.fixture
def launched() -> Iterator[tuple[subprocess.Popen[str], Job, int]]:
    """A shell that has started what trains, the job that was found from the shell, and the pid of what trains."""
    shell = subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait; read line"], stdin=-1, stdout=-1, text=True)
    assert shell.stdout is not None
    pid = int(shell.stdout.readline())
    found = find_job([shell.pid])
    job = Job([replace(each, frameworks=("torch",)) if each.pid == pid else each for each in found], asks_kernel=False)
    yield shell, job, pid
    job.close()
    shell.kill()
    shell.communicate()


def nothing_trains(job: Job) -> None:
    until_s = time.monotonic() + 5
    while not job.waiting and not job.over() and time.monotonic() < until_s:
        job.wait(0.05)


def test_while_what_started_the_ranks_lives_it_may_start_others(launched: tuple[Any, Job, int]) -> None:
    shell, job, pid = launched
    assert not job.over()
    os.kill(pid, signal.SIGKILL)
    nothing_trains(job)
    assert not job.over()
    assert job.waiting == f"every rank has ended; waiting up to 60 s for process {shell.pid} to start others"
    shell.kill()
    shell.wait()
    assert ended(job), "at once when nothing can start any more"
    assert job.waiting == ""


def test_a_launcher_that_starts_nothing_is_not_waited_for_for_ever(
    launched: tuple[Any, Job, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, job, pid = launched
    os.kill(pid, signal.SIGKILL)
    nothing_trains(job)
    began_s = time.monotonic()
    clock = SimpleNamespace(monotonic=lambda: began_s + job_module.RESTART_S - 1)
    monkeypatch.setattr(job_module, "time", clock)
    assert not job.over()
    job._joined_s = began_s + 10  # a process joined, which may still be importing its framework
    clock.monotonic = lambda: began_s + job_module.RESTART_S + 9
    assert not job.over()
    clock.monotonic = lambda: began_s + job_module.RESTART_S + 10
    assert job.over()


def test_helpers_that_ended_are_forgotten_but_for_the_last(
    processes: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A data loader's workers are others in every epoch."""
    monkeypatch.setattr(job_module, "_MOST_ENDED", 3)
    trains, helps = targets(processes)
    job = Job([replace(trains, frameworks=("torch",)), helps], asks_kernel=False)
    workers = [Target(1 << 30 | number, 1) for number in range(10)]
    rank = Target(1 << 29, 1, frameworks=("torch",))
    monkeypatch.setattr(job._watch, "refresh", lambda: [rank, *workers])
    forgotten: list[tuple[int, int]] = []
    monkeypatch.setattr(job._watch, "forget", forgotten.append)
    job._next_look_s = 0.0
    job._look()
    assert [target.pid for target in job.targets] == [
        *(process.pid for process in processes),
        rank.pid,
        *(worker.pid for worker in workers[-3:]),
    ]
    assert forgotten == [(worker.pid, 1) for worker in workers[:-3]]
    job.close()


class Looked:
    """What a job looks at its processes by; `times` are when it was asked to."""

    def __init__(self, clock: list[float]) -> None:
        self.clock, self.times = clock, list[float]()
        self.has_heard = False

    def refresh(self) -> list[Target]:
        self.times.append(self.clock[0])
        return []

    def heard(self) -> bool:
        heard, self.has_heard = self.has_heard, False
        return heard

    def training(self) -> bool:
        return False

    def launchers(self) -> list[Target]:
        return [Target(pid, 1) for pid in (7, 8, 9)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now_s = [0.5]
    monkeypatch.setattr(job_module, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    return now_s


@pytest.fixture
def looked(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> Looked:
    made = Looked(clock)
    monkeypatch.setattr(job_module, "_starts", object)
    monkeypatch.setattr(job_module, "Watch", lambda targets, starts, most: made)
    return made


TRAINS = Target(1, 1, frameworks=("torch",))


def test_while_nothing_trains_the_job_is_looked_at_seldom_though_nothing_was_told(
    clock: list[float], looked: Looked
) -> None:
    """A process that was there at the attach may load its framework minutes later, and start no other."""
    job = Job([Target(1, 1)])
    for at_s in (100.0, 100.7, 100.8, 101.5, 101.7):
        clock[0] = at_s
        job.changed()
    assert looked.times == [100.0, 100.8, 101.7]


@pytest.mark.parametrize("told", [True, False])
def test_for_a_minute_after_something_began_the_job_is_looked_at_again_and_again(
    told: bool, clock: list[float], looked: Looked
) -> None:
    job = Job([TRAINS], asks_kernel=told)
    job.changed()
    assert looked.times == ([] if told else [0.5]), "by itself only where the kernel does not tell"
    clock[0] = 10.0
    job.expect_changes()
    for at_s in (10.0, 10.2, 10.3, 69.9, 70.0, 70.1, 70.3, 71.0, 71.9):
        clock[0] = at_s
        job.changed()
    expected = [10.0, 10.3, 69.9] if told else [0.5, 10.0, 10.3, 69.9, 70.3, 71.9]
    assert looked.times == expected
    looked.times.clear()
    clock[0] = 100.0
    job.expect_changes()
    for at_s in (100.0, 160.0, 160.2, 160.25, 160.3):
        clock[0] = at_s
        job.changed()
    assert looked.times == [100.0, 160.0] + ([] if told else [160.25]), "a quarter of a second, to the last instant"


def test_what_the_kernel_tells_is_looked_at_at_once_and_so_is_what_comes_after(
    clock: list[float], looked: Looked
) -> None:
    job = Job([TRAINS])
    job.expect_changes()
    for at_s, heard in ((0.5, False), (0.6, True), (0.7, False), (60.6, False), (60.7, False)):
        clock[0], looked.has_heard = at_s, heard
        job.changed()
    assert looked.times == [0.5, 0.6, 60.6]


def test_while_a_launcher_is_waited_for_it_is_looked_at_and_named(clock: list[float], looked: Looked) -> None:
    job = Job([Target(1, 1, frameworks=("torch",))])
    for at_s in (1.0, 30.0, 60.9):
        clock[0] = at_s
        assert not job.over()
        job.changed()
        assert looked.times[-1] == at_s
    assert job.waiting == "every rank has ended; waiting up to 60 s for process 7 and 8 to start others"
    clock[0] = 61.0
    assert job.over()


def test_ranks_that_are_named_have_to_be_of_the_job() -> None:
    with pytest.raises(UsageError, match="99"):
        Job([Target(1, 1)], GivenRanks(None, ((99, 0),)), asks_kernel=False)
