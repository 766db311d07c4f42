"""When a recording stops, and what is said of it: whatever happens, it is stopped once, and nothing is raised."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from netprof.errors import NetprofError, NotPermittedError, TraceError
from netprof.model import Clock, Meta, Target
from netprof.probes.measurements import PROBES, WITHOUT_PROGRAMS
from netprof.probes.sampled.probe import BIN_NS
from netprof.session import attach as attach_module
from netprof.session.attach import (
    INTERRUPTED,
    AfterTheJob,
    BrokenOff,
    Rights,
    StopRequest,
    further_signals,
    record,
    stop_on_signals,
)
from netprof.session.options import RecordingOptions
from netprof.session.recorder import TICK_S, Recorder

META = Meta("0", "h", "b", "k", Clock(0, 0), (), 1, 0)


class FakeRecorder:
    """Ticks until it is told to stop; `on_tick` is what happens then."""

    def __init__(self, **options: Any) -> None:
        self.options = RecordingOptions(Path("t"), **options)
        self.ticks, self.lasts = 0, 50
        self.waited_s: list[float] = []
        self.job = SimpleNamespace(over=lambda: self.ticks >= self.lasts, wait=self.waited_s.append)
        self.progress = SimpleNamespace(iterations=0)
        self.meta = META
        self.started_ns = 1000
        self.reasons: list[str] = []
        self.fails: dict[int, Exception] = {}
        self.fails_to_stop: Exception | None = None

    def tick(self) -> None:
        self.ticks += 1
        self.progress.iterations = self.ticks
        if self.ticks in self.fails:
            raise self.fails[self.ticks]

    def stop(self, reason: str) -> Meta:
        self.reasons.append(reason)
        if self.fails_to_stop is not None:
            raise self.fails_to_stop
        return META


@pytest.fixture(autouse=True)
def ordinary_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attach_module, "behind_the_job", nullcontext)


def go(recorder: FakeRecorder, request: StopRequest | None = None, watcher: Any = lambda recorder: None) -> Any:
    return record(cast(Recorder, recorder), request or StopRequest(), watcher)


def test_it_ends_with_the_job() -> None:
    recorder = FakeRecorder()
    outcome = go(recorder)
    assert (recorder.ticks, recorder.reasons) == (50, ["the job ended"])
    assert (outcome.meta, outcome.interrupted, outcome.failure) == (META, False, None)
    assert recorder.waited_s == [TICK_S] * 50, "it keeps no CPU busy"


@pytest.mark.parametrize(("duration_ns", "ticks"), [(100, 9), (101, 10), (10**9, 50)])
def test_it_ends_when_its_time_is_over(duration_ns: int, ticks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = FakeRecorder(duration_ns=duration_ns)
    clock = SimpleNamespace(monotonic_ns=lambda: 1010 + 10 * recorder.ticks)
    monkeypatch.setattr(attach_module, "time", clock)
    go(recorder)
    assert recorder.ticks == ticks
    assert recorder.reasons == ["the duration was reached" if ticks < 50 else "the job ended"]


def test_it_ends_after_so_many_iterations() -> None:
    recorder = FakeRecorder(iterations=7)
    go(recorder)
    assert (recorder.ticks, recorder.reasons) == (7, ["the number of iterations was reached"])


def test_it_ends_when_it_is_asked_to() -> None:
    request, recorder = StopRequest(), FakeRecorder()
    request(signal.SIGTERM, None)
    outcome = go(recorder, request)
    assert (recorder.ticks, recorder.reasons, outcome.interrupted) == (0, [INTERRUPTED], True)


def test_who_looks_on_may_end_it_and_is_asked_before_every_tick() -> None:
    recorder = FakeRecorder()
    outcome = go(recorder, watcher=lambda recorder: "enough" if recorder.ticks == 3 else None)
    assert (recorder.ticks, recorder.reasons, outcome.interrupted) == (3, ["enough"], False)


def test_who_looks_on_and_fails_is_not_asked_again_and_ends_nothing() -> None:
    asked: list[int] = []

    def watcher(recorder: FakeRecorder) -> str | None:
        asked.append(recorder.ticks)
        if recorder.ticks == 2:
            raise OSError("the terminal is gone")
        return None

    recorder = FakeRecorder()
    outcome = go(recorder, watcher=watcher)
    assert (asked, recorder.ticks, outcome.failure) == ([0, 1, 2], 50, None)


def test_what_cannot_be_written_ends_it_with_the_reason_and_the_remedy() -> None:
    recorder = FakeRecorder()
    recorder.fails = {4: TraceError("the disk is full", "make room")}
    outcome = go(recorder)
    assert recorder.reasons == ["the disk is full"]
    assert outcome.failure.message == "the recording stopped early: the disk is full"
    assert outcome.failure.hint == "make room; what is there is whole"


@pytest.mark.parametrize("when", ["tick", "stop"])
def test_an_error_of_netprof_s_own_is_said_and_raised_to_nobody(when: str) -> None:
    recorder, error = FakeRecorder(), ZeroDivisionError("division by zero")
    recorder.fails = {4: error} if when == "tick" else {}
    recorder.fails_to_stop = error if when == "stop" else None
    outcome = go(recorder)
    assert recorder.reasons == ["an error in netprof" if when == "tick" else "the job ended"]
    assert outcome.failure.message.endswith("an error in netprof: ZeroDivisionError: division by zero")
    assert "bug" in outcome.failure.hint
    assert outcome.meta is META


def test_the_first_of_two_failures_is_told() -> None:
    recorder = FakeRecorder()
    recorder.fails, recorder.fails_to_stop = {1: NetprofError("first")}, OSError("second")
    assert "first" in go(recorder).failure.message


NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
FURTHER = further_signals(RecordingOptions(Path("t")))


@pytest.fixture
def restored() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in NUMBERS}
    for number in NUMBERS[2:]:
        signal.signal(number, signal.SIG_DFL)  # these tests may run under nohup, or in the background
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def handlers(restored: None) -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in NUMBERS}
    yield
    assert {number: signal.getsignal(number) for number in NUMBERS} == before


@pytest.mark.parametrize("number", NUMBERS)
def test_signals_ask_to_stop(number: signal.Signals, handlers: None) -> None:
    with stop_on_signals(*FURTHER) as request:
        assert request.reason() == ""
        os.kill(os.getpid(), number)
        assert (request.signal_number, request.reason()) == (number, INTERRUPTED)


def test_signals_interrupt_what_is_done_until_that_is_over(handlers: None) -> None:
    with stop_on_signals(at_once=True) as request:
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        request.at_once = False
        os.kill(os.getpid(), signal.SIGTERM)


def test_after_the_job_a_signal_breaks_off_what_is_done_once_and_never_ends_netprof(restored: None) -> None:
    after, done = AfterTheJob(), []
    with stop_on_signals(then=after):
        pass
    os.kill(os.getpid(), signal.SIGTERM)  # before it begins there is nothing to break off
    with after:
        done.append("begun")
        os.kill(os.getpid(), signal.SIGINT)
        done.append("went on")
    assert done == ["begun"]
    for number in NUMBERS:
        assert signal.getsignal(number) == signal.SIG_IGN
        os.kill(os.getpid(), number)


def test_a_signal_in_a_finalizer_breaks_off_what_comes_after_it(
    restored: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python drops what is raised there, and says so on stderr."""
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: told.append(lost.exc_type))
    hook, after, done = sys.unraisablehook, AfterTheJob(), []

    class Finalized:
        def __init__(self, does: Callable[[], object]) -> None:
            self.does = does

        def __del__(self) -> None:
            self.does()

    with stop_on_signals(then=after):
        pass
    with after:
        Finalized(lambda: int("nothing"))
        Finalized(lambda: signal.raise_signal(signal.SIGHUP))
        done.append("went on")
        until_s = time.monotonic() + 10
        while time.monotonic() < until_s:
            pass
        done.append("to its end")
    assert (done, told) == (["went on"], [ValueError])
    assert sys.unraisablehook is hook
    signal.raise_signal(signal.SIGALRM)


def test_what_is_broken_off_is_so_once(restored: None) -> None:
    after, to_its_end = AfterTheJob(), False
    with after:
        with pytest.raises(BrokenOff):
            after(signal.SIGTERM, None)
        after(signal.SIGTERM, None)
        to_its_end = True
    assert to_its_end
    after(signal.SIGTERM, None)


def test_what_fails_after_the_job_fails(restored: None) -> None:
    with pytest.raises(ValueError, match="a report that fails"), AfterTheJob():
        raise ValueError("a report that fails")


def test_under_nohup_a_hang_up_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signals() as request:
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            os.kill(os.getpid(), signal.SIGHUP)
            assert request.reason() == ""
            os.kill(os.getpid(), signal.SIGTERM)
            assert request.reason() == INTERRUPTED
    finally:
        signal.signal(signal.SIGHUP, before)


REFUSED = NotPermittedError("no programs here")


@pytest.mark.parametrize("refused", [None, REFUSED])
@pytest.mark.parametrize("bin_ns", [BIN_NS - 1, BIN_NS, BIN_NS + 1])
def test_without_rights_other_probes_look_less_finely(
    refused: NotPermittedError | None, bin_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    monkeypatch.setattr(attach_module, "Recorder", lambda *given, **named: made.append((given, named)))
    options = RecordingOptions(Path("t"), bin_ns=bin_ns)
    Rights(refused).recorder([Target(1, 2)], options, ["netprof"])
    ((targets, used, command, probes), named) = made[0]
    assert (targets, command) == ([Target(1, 2)], ["netprof"])
    assert used.bin_ns == (bin_ns if refused is None else max(bin_ns, BIN_NS))
    assert probes == (PROBES if refused is None else WITHOUT_PROGRAMS)
    assert named == ({} if refused is None else {"refused": refused})


def test_rights_are_found_by_trying(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise REFUSED

    monkeypatch.setattr(attach_module, "require_recording", lambda: None)
    assert Rights.here() == Rights(None)
    monkeypatch.setattr(attach_module, "require_recording", refuse)
    assert Rights.here() == Rights(REFUSED)
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    with pytest.raises(NotPermittedError):
        Rights.here()
