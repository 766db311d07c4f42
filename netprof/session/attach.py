"""`netprof attach`: record a running job until it ends, the person stops it, or enough is seen."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from netprof.errors import NetprofError
from netprof.model import Meta
from netprof.probes.doctor.capabilities import require_recording
from netprof.probes.job.processes import check_same, find_job
from netprof.session.options import RecordingOptions
from netprof.session.recorder import TICK_S, Recorder

INTERRUPTED = "interrupted"

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequest:
    """Set once the person (or the system) asks to stop."""

    def __init__(self) -> None:
        self.signal_number = 0

    def __call__(self, number: int, frame: object) -> None:
        """Handle a signal: remember it."""
        self.signal_number = number

    def reason(self) -> str:
        """Return why to stop, or nothing."""
        return INTERRUPTED if self.signal_number else ""


@dataclass(frozen=True)
class Outcome:
    """A finished recording: its description, whether a person cut it short, and what went wrong if something did."""

    meta: Meta
    interrupted: bool
    failure: NetprofError | None


Watcher = Callable[[Recorder], str | None]
"""Called before the first tick and after every one; returns why to stop, if the person asked for that."""


def attach(pids: Sequence[int], options: RecordingOptions, command: Sequence[str], watcher: Watcher) -> Outcome:
    """Record the job of `pids` to a trace. Raises NetprofError when it cannot begin; after that it always ends well."""
    require_recording()
    targets = find_job(pids)
    with stop_on_signals() as request:
        recorder = Recorder(targets, options, command)
        recorder.start()
        try:
            check_same(target for target in targets if target.pid in pids)
        except NetprofError:
            recorder.abandon()
            raise
        return record(recorder, request, watcher)


def record(recorder: Recorder, request: StopRequest, watcher: Watcher) -> Outcome:
    """Tick until there is a reason to stop; whatever happens, the trace is finished."""
    reason, failure = "an error in netprof", None
    try:
        while not (found := watcher(recorder) or _reason_to_stop(recorder, request)):
            recorder.job.wait(TICK_S)
            recorder.tick()
        reason = found
    except OSError as error:
        reason = f"the trace cannot be written: {error.strerror}"
        failure = NetprofError(
            f"the recording stopped early: {reason}",
            "make room or choose another place with --out; what is there is whole",
        )
    finally:
        meta = recorder.stop(reason)
    return Outcome(meta, reason == INTERRUPTED, failure)


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Turn SIGINT, SIGTERM and SIGHUP into a request to stop, inside the block."""
    request = StopRequest()
    before = {number: signal.signal(number, request) for number in _STOP_SIGNALS if not _kept_from_us(number)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _kept_from_us(number: signal.Signals) -> bool:
    """Say whether a hang-up is to be ignored, as nohup wants it."""
    return number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN


def _reason_to_stop(recorder: Recorder, request: StopRequest) -> str:
    options = recorder.options
    if reason := request.reason():
        return reason
    if recorder.job.over():
        return "the job ended"
    if options.duration_ns is not None and time.monotonic_ns() - recorder.started_ns >= options.duration_ns:
        return "the duration was reached"
    if options.iterations is not None and recorder.progress.iterations >= options.iterations:
        return "the number of iterations was reached"
    return ""
