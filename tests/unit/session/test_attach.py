"""From a process to a recording: what happens between the job's being found and the first tick."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from netprof.errors import NetprofError, NotPermittedError
from netprof.model import Target
from netprof.session import attach as attach_module
from netprof.session.attach import Rights, StopRequest, attach
from netprof.session.options import RecordingOptions

REFUSED = NotPermittedError("no programs here")
TARGETS = [Target(11, 1), Target(12, 1), Target(13, 1)]


class Begun:
    """A recorder that does `at_start` when it is started."""

    def __init__(self, at_start: Callable[[], None]) -> None:
        self.start = at_start
        self.abandoned = False

    def abandon(self) -> None:
        self.abandoned = True


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Attach to processes 11 and 13 of three; returns the recorder, who was checked, and what was refused."""

    def begun(at_start: Callable[[], None] = lambda: None, gone: bool = False) -> Any:
        recorder, checked, told, requests = Begun(at_start), list[int](), list[NotPermittedError](), list[StopRequest]()

        def check(targets: Any) -> None:
            checked.extend(target.pid for target in targets)
            if gone:
                raise NetprofError("process 11 has ended")

        monkeypatch.setattr(Rights, "here", classmethod(lambda cls: Rights(REFUSED)))
        monkeypatch.setattr(Rights, "recorder", lambda self, *given: recorder)
        monkeypatch.setattr(attach_module, "find_job", lambda pids: TARGETS)
        monkeypatch.setattr(attach_module, "check_same", check)
        monkeypatch.setattr(attach_module, "record", lambda recorder, request, watcher: requests.append(request))
        try:
            attach([11, 13], RecordingOptions(Path("t")), ["netprof"], lambda recorder: None, told.append)
        finally:
            begun.seen = (recorder.abandoned, checked, told, requests)  # type: ignore[attr-defined]
        return begun.seen  # type: ignore[attr-defined]

    return begun


def test_the_person_is_told_what_is_refused_and_the_named_processes_are_looked_at_again(begin: Any) -> None:
    abandoned, checked, told, (request,) = begin()
    assert (abandoned, checked, told) == (False, [11, 13], [REFUSED])
    assert not request.at_once


def test_a_named_process_that_ended_meanwhile(begin: Any) -> None:
    with pytest.raises(NetprofError, match="has ended"):
        begin(gone=True)
    assert begin.seen[0], "nothing stays of it"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_recording_begins_is_heeded_at_once(begin: Any, number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt):
        begin(lambda: os.kill(os.getpid(), number))
    assert begin.seen[1:] == ([], [REFUSED], [])
