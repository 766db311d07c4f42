"""A job that netprof starts itself: recorded from its first moment, and ended as it would have been without."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netprof.errors import NetprofError, NotPermittedError, UsageError
from netprof.session import run as run_module
from netprof.session.attach import Rights, further_signals, stop_on_signals
from netprof.session.job_processes import Job
from netprof.session.options import RecordingOptions
from netprof.session.run import KilledBefore, run
from netprof.trace.keep import Keep

REFUSED = NotPermittedError("BPF programs cannot be loaded", "run as root")


def children() -> set[str]:
    return {pid for thread in Path("/proc/self/task").iterdir() for pid in (thread / "children").read_text().split()}


@pytest.fixture
def without_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rights, "here", classmethod(lambda cls: Rights(REFUSED)))


def test_a_job_is_run_and_recorded(without_rights: None, tmp_path: Path) -> None:
    told: list[NotPermittedError] = []
    outcome, code = run(["sh", "-c", "sleep 0.3; exit 4"], RecordingOptions(tmp_path / "t"), ["netprof"], told.append)
    assert (code, told, outcome.failure) == (4, [REFUSED], None)
    assert outcome.meta.stop_reason == "the job ended"
    assert 0 < outcome.meta.started_ns < (outcome.meta.stopped_ns or 0)
    assert not outcome.interrupted
    assert 0 < outcome.meta.cost.start_s < outcome.meta.cost.wall_s, "to attach took some time"


@pytest.mark.slow
def test_the_job_outlives_a_recording_that_is_over(without_rights: None, tmp_path: Path) -> None:
    script = f"sleep 1; touch {tmp_path}/done; exit 4"
    options = RecordingOptions(tmp_path / "t", duration_ns=200_000_000)
    outcome, code = run(["sh", "-c", script], options, ["netprof"], lambda refused: None)
    assert (code, outcome.meta.stop_reason) == (4, "the duration was reached")
    assert (tmp_path / "done").exists()


@pytest.fixture
def not_under_nohup() -> Iterator[None]:
    """Where SIGHUP is ignored, it is so in what is run, too."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("number", "passed"),
    [
        *((signal.SIGTERM, True), (signal.SIGHUP, True), (signal.SIGUSR1, False)),
        pytest.param(signal.SIGUSR2, False, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, False, marks=pytest.mark.slow),
        pytest.param(signal.SIGQUIT, False, marks=pytest.mark.slow),
    ],
)
def test_what_netprof_is_told_the_job_is_told(
    without_rights: None, not_under_nohup: None, tmp_path: Path, number: signal.Signals, passed: bool
) -> None:
    """But for what a terminal sends, or a scheduler when time is nearly up: that reaches both, and ends neither."""
    name = number.name.removeprefix("SIG")
    script = f"trap 'exit 5' {name}; kill -{name} {os.getpid()}; for i in 1 2 3 4 5 6 7 8; do sleep 0.1; done; exit 6"
    _, code = run(["sh", "-c", script], RecordingOptions(tmp_path / "t"), ["netprof"], lambda refused: None)
    assert code == (5 if passed else 6)


def test_what_saves_a_ring_stops_no_recording() -> None:
    told: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: told.append(number))
    try:
        with stop_on_signals(*further_signals(RecordingOptions(Path("t"), keep=Keep(ns=10**10)))) as request:
            signal.raise_signal(signal.SIGUSR1)
            assert (told, request.signal_number) == ([signal.SIGUSR1], 0)
            signal.raise_signal(signal.SIGUSR2)
            assert request.signal_number == signal.SIGUSR2
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.slow
def test_so_it_is_told_when_the_recording_is_over(without_rights: None, tmp_path: Path) -> None:
    script = f"trap 'exit 5' TERM; sleep 1; kill -TERM {os.getpid()}; for i in 1 2 3 4 5 6; do sleep 0.1; done; exit 6"
    options = RecordingOptions(tmp_path / "t", duration_ns=100_000_000)
    outcome, code = run(["sh", "-c", script], options, ["netprof"], lambda refused: None)
    assert (code, outcome.meta.stop_reason) == (5, "the duration was reached")


@pytest.mark.slow
def test_the_job_is_told_once(without_rights: None, not_under_nohup: None, tmp_path: Path) -> None:
    traps = "".join(f"trap 'echo {name} >> {tmp_path}/told' {name}; " for name in ("TERM", "HUP"))
    script = f"{traps} kill -TERM {os.getpid()}; for i in 1 2 3 4 5 6 7 8; do sleep 0.1; done; exit 6"
    _, code = run(["sh", "-c", script], RecordingOptions(tmp_path / "t"), ["netprof"], lambda refused: None)
    assert (code, (tmp_path / "told").read_text()) == (6, "TERM\n")


def test_a_job_whose_recording_cannot_begin_is_not_begun(without_rights: None, tmp_path: Path) -> None:
    options = RecordingOptions(tmp_path / "t", devices=("no-such-device",))
    before = children()
    with pytest.raises(UsageError):
        run(["touch", str(tmp_path / "began")], options, ["netprof"], lambda refused: None)
    assert not (tmp_path / "began").exists()
    assert children() == before, "nobody waits to begin any more"


def test_what_the_job_starts_is_looked_out_for_from_the_beginning(
    without_rights: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected: list[Job] = []
    monkeypatch.setattr(Job, "expect_changes", lambda job, for_s: expected.append(job))
    run(["true"], RecordingOptions(tmp_path / "t"), ["netprof"], lambda refused: None)
    assert expected


@pytest.fixture
def no_child_left() -> Iterator[None]:
    before = children()
    yield
    assert children() == before


def test_a_job_that_is_killed_before_it_begins_ends_as_it_would_have(
    without_rights: None, no_child_left: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(pids: list[int]) -> Any:
        os.kill(pids[0], signal.SIGKILL)  # which takes a moment
        raise NetprofError("there is no such process")

    monkeypatch.setattr(run_module, "find_job", killed)
    with pytest.raises(KilledBefore) as caught:
        run(["touch", str(tmp_path / "began")], RecordingOptions(tmp_path / "t"), ["netprof"], lambda refused: None)
    assert caught.value.exit_code == 137
    assert not (tmp_path / "began").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_while_it_is_attached_a_signal_ends_netprof_and_nothing_is_begun(
    number: signal.Signals,
    without_rights: None,
    no_child_left: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(pids: list[int]) -> Any:
        os.kill(os.getpid(), number)
        time.sleep(5)

    monkeypatch.setattr(run_module, "find_job", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(["touch", str(tmp_path / "began")], RecordingOptions(tmp_path / "t"), ["netprof"], lambda refused: None)
    assert not (tmp_path / "began").exists()
