"""The exporter's loop: what cannot be recorded is tried again, but not at once, and the others go on."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from netprof.errors import NetprofError
from netprof.metrics import exporter as module
from netprof.metrics.accountant import Accountant
from netprof.metrics.board import Board
from netprof.metrics.exporter import Exporter, Task
from netprof.model import Target
from netprof.probes.job.jobs import Found, LocalJob
from netprof.session.attach import Outcome, Rights

JOB = LocalJob((Target(4711, 1, command="train.py", frameworks=("ddp",)),), "a user")
FULL = NetprofError("the recording stopped early: no space left", "make room")


class Exporting:
    """An exporter whose recordings all end at once, with some failure."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failure: NetprofError | None) -> None:
        self.begun = 0
        self.said: list[str] = []
        rights = SimpleNamespace(refused=None, recorder=self.recorder)
        monkeypatch.setattr(Rights, "here", lambda: rights)
        monkeypatch.setattr(module, "find_jobs", lambda known: Found([JOB], {}))
        outcome = Outcome(cast(Any, SimpleNamespace(stop_reason="the job ended")), False, failure)
        monkeypatch.setattr(module, "record", lambda recorder, stop, watch: outcome)
        self.board = Board()
        self.exporter = Exporter(self.board, self.task, self.said.append)

    def recorder(self, targets: Any, options: Any, command: Any) -> Any:
        self.begun += 1
        return SimpleNamespace(start=lambda: None, job=SimpleNamespace(targets=targets, followed=len(targets)))

    def task(self, job: LocalJob) -> Task:
        return Task(cast(Any, None), Accountant(), lambda recorder: None, lambda: None)

    def look_once(self) -> None:
        """Look, and begin all that may be."""
        self.exporter._look()
        for _ in range(len(self.exporter._waiting)):
            self.exporter._credit_s = 1.0
            self.exporter._begin_next()

    def look(self) -> None:
        self.look_once()
        for each in self.exporter._recordings:
            each.thread.join()


def test_a_recording_that_failed_is_not_begun_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    exporting = Exporting(monkeypatch, FULL)
    for _ in range(3):
        exporting.look()
    assert exporting.begun == 1
    assert exporting.board.attach_failures == 1
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 1e12, process_time=lambda: 0.0))
    exporting.look()
    assert exporting.begun == 2


def test_a_recording_that_ended_well_is_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    exporting = Exporting(monkeypatch, None)
    for _ in range(3):
        exporting.look()
    assert (exporting.begun, exporting.board.attach_failures) == (3, 0)


def test_where_no_thread_can_be_started_the_exporter_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    exporting = Exporting(monkeypatch, None)
    monkeypatch.setattr(threading.Thread, "start", no_more)
    exporting.look()
    assert exporting.board.attach_failures == 1
    assert exporting.said[1].startswith("cannot record train.py")


def test_a_job_that_got_the_pid_of_a_process_that_ended_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    exporting, over = Exporting(monkeypatch, None), threading.Event()

    def recorded(recorder: Any, stop: Any, watch: Any) -> Outcome:
        over.wait(60)
        return Outcome(cast(Any, SimpleNamespace(stop_reason="the job ended")), False, None)

    monkeypatch.setattr(module, "record", recorded)
    exporting.look_once()
    exporting.look_once()
    later = LocalJob((replace(JOB.targets[0], start_ticks=2),), "a user")
    monkeypatch.setattr(module, "find_jobs", lambda known: Found([JOB, later], {}))
    exporting.look_once()
    over.set()
    for each in exporting.exporter._recordings:
        each.thread.join()
    assert exporting.begun == 2


def test_a_look_that_fails_ends_no_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(known: object) -> Found:
        raise ValueError("half of a line")

    exporting = Exporting(monkeypatch, None)
    monkeypatch.setattr(module, "find_jobs", fails)
    exporting.look()
    assert exporting.said[1:] == ["jobs cannot be looked for: half of a line"]


A, B = 70_007, 70_008
"""Users without a name."""


def job_of(owner: int, pid: int, processes: int = 1) -> LocalJob:
    targets = [
        Target(pid * 10_000 + number, 1, command="false.py", frameworks=("nccl",)) for number in range(processes)
    ]
    return LocalJob(tuple(targets), str(owner), owner=owner)


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[Exporting]:
    """Recordings that go on until they are to stop."""
    exporting = Exporting(monkeypatch, None)
    monkeypatch.setattr(module, "is_same", lambda target: True)
    exporting.exporter._budget.files, exporting.exporter._budget.size_bytes = 50_000, 20 << 30
    ended = threading.Event()

    def recorded(recorder: Any, stop: Any, watch: Any) -> Outcome:
        while not stop.reason() and not ended.wait(0.01):
            pass
        return Outcome(cast(Any, SimpleNamespace(stop_reason=stop.reason())), False, None)

    monkeypatch.setattr(module, "record", recorded)
    yield exporting
    ended.set()
    for each in exporting.exporter._recordings:
        each.thread.join()


def owners_of(exporting: Exporting) -> Counter[int]:
    return Counter(each.job.owner for each in exporting.exporter._recordings if each.thread.is_alive())


def begin_all(exporting: Exporting) -> None:
    exporting.exporter._look()
    while exporting.exporter._waiting:
        exporting.exporter._credit_s = 1.0
        exporting.exporter._begin_next()
        wait_until(lambda: all(each.recorder is not None for each in exporting.exporter._recordings))


def wait_until(holds: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 20
    while not holds() and time.monotonic() < until_s:
        time.sleep(0.01)
    assert holds()


def test_one_users_false_jobs_leave_room_for_anothers(running: Exporting, monkeypatch: pytest.MonkeyPatch) -> None:
    false_jobs = [job_of(A, pid) for pid in range(1, 501)]
    monkeypatch.setattr(module, "find_jobs", lambda known: Found(false_jobs, {A: 40}))
    begin_all(running)
    assert owners_of(running) == {A: 21}
    assert sum(running.board.left_out.values()) == 500 - 21 + 40
    assert {reason for _, reason in running.board.left_out} == {"recordings", "processes"}
    assert any("jobs left out: the share of recordings" in line for line in running.board.left_out_sentences)
    assert b'netprof_jobs_left_out{reason="recordings",user="70007"} 479.0' in running.board.text("")[0]
    monkeypatch.setattr(module, "find_jobs", lambda known: Found([*false_jobs, job_of(B, 900)], {}))
    begin_all(running)
    assert owners_of(running) == {A: 21, B: 1}


def test_the_user_with_fewest_recordings_is_next(running: Exporting, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [*(job_of(A, pid) for pid in range(1, 11)), job_of(B, 900)]
    monkeypatch.setattr(module, "find_jobs", lambda known: Found(jobs, {}))
    running.exporter._look()
    for _ in range(2):
        running.exporter._credit_s = 1.0
        running.exporter._begin_next()
        wait_until(lambda: all(each.recorder is not None for each in running.exporter._recordings))
    assert owners_of(running) == {A: 1, B: 1}
    running.exporter._credit_s, running.exporter._used_s = -5.0, time.process_time()
    running.exporter._begin_next()
    assert owners_of(running) == {A: 1, B: 1}, "nor is one begun while there is no CPU time for it"
    running.exporter._waiting.append(job_of(B + 1, 901))
    running.exporter._credit_s, running.exporter._used_s = -5.0, time.process_time()
    running.exporter._begin_next()
    wait_until(lambda: all(each.recorder is not None for each in running.exporter._recordings))
    assert owners_of(running) == {A: 1, B: 1, B + 1: 1}, "but the first one of a user is"


def test_a_job_of_thousands_of_processes_is_not_recorded(running: Exporting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_jobs", lambda known: Found([job_of(A, 1, 2500), job_of(B, 2)], {}))
    begin_all(running)
    assert owners_of(running) == {B: 1}
    assert running.board.left_out == {(str(A), "processes"): 1}


def test_a_recording_that_grows_beyond_its_share_ends(running: Exporting, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [job_of(A, 1), job_of(A, 2), job_of(B, 3)]
    monkeypatch.setattr(module, "find_jobs", lambda known: Found(jobs, {}))
    begin_all(running)
    grown = next(each for each in running.exporter._recordings if each.job is jobs[1])
    assert grown.recorder is not None
    grown.recorder.job = cast(Any, SimpleNamespace(targets=job_of(A, 2, 1000).targets, followed=1000))
    running.exporter._look()
    grown.thread.join(20)
    assert owners_of(running) == {A: 1, B: 1}
    assert running.board.left_out == {(str(A), "files"): 1}


def test_where_memory_is_short_the_largest_user_loses_a_recording(running: Exporting, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "find_jobs", lambda known: Found([job_of(A, 1), job_of(A, 2), job_of(B, 3)], {}))
    begin_all(running)
    monkeypatch.setattr(type(running.exporter._budget), "is_exceeded", property(lambda self: True))
    monkeypatch.setattr(module, "find_jobs", lambda known: Found([], {}))
    running.exporter._look()
    wait_until(lambda: owners_of(running) == {A: 1, B: 1})
    assert running.board.left_out == {(str(A), "memory"): 1}


def test_who_uses_most_cpu_time_is_slowed_down(running: Exporting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_jobs", lambda known: Found([job_of(A, 1), job_of(A, 2), job_of(B, 3)], {}))
    begin_all(running)
    first, other, second = running.exporter._recordings
    wait_until(lambda: all(each.pace is not None for each in running.exporter._recordings))
    assert first.pace is not None
    assert second.pace is not None
    assert other.pace is not None
    first.pace.used_s, second.pace.used_s, other.pace.used_s = 2.4, 2.4, 0.2
    with monkeypatch.context() as patched:
        patched.setattr(time, "monotonic", lambda: running.exporter._levelled_s + 5.0)
        patched.setattr(time, "process_time", lambda: running.exporter._levelled_used_s + 5.0)
        running.exporter._level()
    assert other.pace.cpus is None
    assert first.pace.cpus == second.pace.cpus
    assert 0 < (first.pace.cpus or 0) < 0.25
    before = first.pace.cpus or 0.0
    with monkeypatch.context() as patched:
        patched.setattr(time, "monotonic", lambda: running.exporter._levelled_s + 5.0)
        patched.setattr(time, "process_time", lambda: running.exporter._levelled_used_s + 0.1)
        running.exporter._level()
    assert before < (first.pace.cpus or 0.0) < 1.5 * before, "little by little: it would be too much again"
