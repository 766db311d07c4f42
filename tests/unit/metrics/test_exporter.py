"""The exporter's loop: what cannot be recorded is tried again, but not at once, and the others go on."""

from __future__ import annotations

import threading
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
from netprof.probes.job.jobs import LocalJob
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
        monkeypatch.setattr(module, "find_jobs", lambda: [JOB])
        outcome = Outcome(cast(Any, SimpleNamespace(stop_reason="the job ended")), False, failure)
        monkeypatch.setattr(module, "record", lambda recorder, stop, watch: outcome)
        self.board = Board()
        self.exporter = Exporter(self.board, self.task, self.said.append)

    def recorder(self, targets: Any, options: Any, command: Any) -> Any:
        self.begun += 1
        return SimpleNamespace(start=lambda: None, job=SimpleNamespace(targets=targets))

    def task(self, job: LocalJob) -> Task:
        return Task(cast(Any, None), Accountant(), lambda recorder: None, lambda: None)

    def look(self) -> None:
        self.exporter._look()
        for each in self.exporter._recordings:
            each.thread.join()


def test_a_recording_that_failed_is_not_begun_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    exporting = Exporting(monkeypatch, FULL)
    for _ in range(3):
        exporting.look()
    assert exporting.begun == 1
    assert exporting.board.attach_failures == 1
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 1e12))
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
    assert exporting.said[0].startswith("cannot record train.py")


def test_a_job_that_got_the_pid_of_a_process_that_ended_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    exporting, over = Exporting(monkeypatch, None), threading.Event()

    def recorded(recorder: Any, stop: Any, watch: Any) -> Outcome:
        over.wait(60)
        return Outcome(cast(Any, SimpleNamespace(stop_reason="the job ended")), False, None)

    monkeypatch.setattr(module, "record", recorded)
    exporting.exporter._look()
    exporting.exporter._look()
    later = LocalJob((replace(JOB.targets[0], start_ticks=2),), "a user")
    monkeypatch.setattr(module, "find_jobs", lambda: [JOB, later])
    exporting.exporter._look()
    over.set()
    for each in exporting.exporter._recordings:
        each.thread.join()
    assert exporting.begun == 2


def test_a_look_that_fails_ends_no_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> list[LocalJob]:
        raise ValueError("half of a line")

    exporting = Exporting(monkeypatch, None)
    monkeypatch.setattr(module, "find_jobs", fails)
    exporting.look()
    assert exporting.said == ["jobs cannot be looked for: half of a line"]
