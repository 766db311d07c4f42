"""`netprof attach`: record a running job until it ends, the person stops it, or enough is seen."""

from __future__ import annotations

import platform
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from netprof.errors import NetprofError, NotPermittedError
from netprof.model import Meta, Target
from netprof.probes.doctor.capabilities import require_recording
from netprof.probes.job.processes import check_same, find_job
from netprof.probes.measurements import PROBES, WITHOUT_PROGRAMS
from netprof.probes.sampled.probe import BIN_NS
from netprof.session.options import RecordingOptions
from netprof.session.priority import behind_the_job
from netprof.session.recorder import TICK_S, Recorder

INTERRUPTED = "interrupted"

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
OTHER_SIGNALS = (signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""They would end netprof at once, and leave a trace without an end and a job without who waits for it."""
_AGAIN_S = 0.001


class StopRequest:
    """Set once the person (or the system) asks to stop. As long as `at_once` is set, that interrupts what is done."""

    def __init__(self, *, at_once: bool = False) -> None:
        self.signal_number = 0
        self.at_once = at_once

    def __call__(self, number: int, frame: object) -> None:
        """Handle a signal: remember it."""
        self.signal_number = number
        if self.at_once:
            raise KeyboardInterrupt

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


Refusal = Callable[[NotPermittedError], None]
"""Told why only a part can be recorded, before it begins."""


def attach(
    pids: Sequence[int],
    options: RecordingOptions,
    command: Sequence[str],
    watcher: Watcher,
    on_refusal: Refusal,
    tell: Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Record the job of `pids` to a trace. Raises NetprofError when it cannot begin; after that it always ends well."""
    rights, targets = Rights.here(), find_job(pids)
    if rights.refused is not None:
        on_refusal(rights.refused)
    if not any(target.frameworks for target in targets):
        named = ", ".join(map(str, pids))
        tell(
            f"netprof: no training process at pid {named} (no framework is loaded): recording its traffic, waiting for "
            "one; netprof attach --job finds the job of this host, --job --name TEXT one of several"
        )
    with stop_on_signals(*further_signals(options), at_once=True) as request:
        recorder = rights.recorder(targets, options, command)
        recorder.start()
        try:
            check_same(target for target in targets if target.pid in pids)
            request.at_once = False
        except BaseException:
            recorder.abandon()
            raise
        return record(recorder, request, watcher)


def record(recorder: Recorder, request: StopRequest, watcher: Watcher) -> Outcome:
    """Tick until there is a reason to stop; whatever happens, the trace is finished, and nothing is raised."""
    failure, watcher = None, heeded(watcher)
    try:
        with behind_the_job():
            while not (reason := watcher(recorder) or _reason_to_stop(recorder, request)):
                recorder.job.wait(TICK_S)
                recorder.tick()
    except NetprofError as error:
        reason = error.message
        failure = NetprofError(f"the recording stopped early: {reason}", f"{error.hint}; what is there is whole")
    except Exception as error:
        reason, failure = "an error in netprof", _fault(error)
    try:
        meta = recorder.stop(reason)
    except Exception as error:
        meta, failure = recorder.meta, failure or _fault(error)
    return Outcome(meta, reason == INTERRUPTED, failure)


def _fault(error: Exception) -> NetprofError:
    message = f"the recording stopped early: an error in netprof: {type(error).__name__}: {error}"
    return NetprofError(message, "report this as a bug of netprof; what was recorded until then is whole")


def heeded(watcher: Watcher) -> Watcher:
    """Return a watcher that is asked until it fails: a terminal that is gone ends no recording."""
    fails = False

    def ask(recorder: Recorder) -> str | None:
        nonlocal fails
        try:
            return None if fails else watcher(recorder)
        except Exception:  # whatever it is, the recording goes on
            fails = True
            return None

    return ask


def further_signals(options: RecordingOptions) -> Sequence[signal.Signals]:
    """Return which other signals than a person's stop a recording; of a ring SIGUSR1 saves what it holds."""
    return [each for each in OTHER_SIGNALS if each != signal.SIGUSR1 or options.keep is None]


@contextmanager
def stop_on_signals(
    *further: signal.Signals, at_once: bool = False, then: AfterTheJob | None = None
) -> Iterator[StopRequest]:
    """Turn SIGINT, SIGTERM, SIGHUP and `further` signals into a request to stop, inside the block.

    `at_once` they raise, until unset. After the block they do what they did before, or what `then` does.
    """
    request = StopRequest(at_once=at_once)
    wanted = [number for number in (*_STOP_SIGNALS, *further) if not _kept_from_us(number)]
    before = {number: signal.signal(number, request) for number in wanted}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if then is None else then)


class BrokenOff(BaseException):
    """A signal has come after the job. A KeyboardInterrupt, even if caught, may have Python end by SIGINT."""


class AfterTheJob:
    """What signals do once the job is over: they break off what is done in the block, and never end netprof by then.

    The exit code is the job's, whoever closes the terminal or ends the job's allocation meanwhile.
    """

    def __init__(self) -> None:
        self._breaks_off = False
        self._tells_others = sys.unraisablehook

    def __call__(self, number: int, frame: object) -> None:
        """Take a signal."""
        if self._breaks_off:
            self._breaks_off = False
            raise BrokenOff

    def __enter__(self) -> None:
        signal.signal(signal.SIGALRM, self._break_off)
        self._tells_others, sys.unraisablehook = sys.unraisablehook, self._not_raised
        self._breaks_off = True

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self._breaks_off = False
        for number in (*_STOP_SIGNALS, *OTHER_SIGNALS, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)  # until Python is done: it goes back to the default before
        sys.unraisablehook = self._tells_others
        return kind is BrokenOff

    def _not_raised(self, lost: sys.UnraisableHookArgs) -> None:
        """Take what was raised where nobody can catch it, as in a finalizer: what breaks off is raised once more."""
        if lost.exc_type is BrokenOff:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        else:
            self._tells_others(lost)

    def _break_off(self, number: int, frame: object) -> None:
        raise BrokenOff


def _kept_from_us(number: signal.Signals) -> bool:
    """Say whether a signal is to be ignored: a hang-up, as nohup wants it, or what a shell's background job ignores."""
    return number in (signal.SIGHUP, *OTHER_SIGNALS) and signal.getsignal(number) == signal.SIG_IGN


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


@dataclass(frozen=True)
class Rights:
    """`refused` says why no program may be loaded, and what to do about it; None where they may."""

    refused: NotPermittedError | None

    @classmethod
    def here(cls) -> Rights:
        """Find out what is allowed, by trying. Raises NotPermittedError where nothing is: this is not Linux."""
        try:
            require_recording()
        except NotPermittedError as error:
            if platform.system() != "Linux":
                raise
            return cls(error)
        return cls(None)

    def recorder(self, targets: Sequence[Target], options: RecordingOptions, command: Sequence[str]) -> Recorder:
        """Return a recorder that does what is allowed. Raises what it raises."""
        if self.refused is None:
            return Recorder(targets, options, command, PROBES)
        coarse = replace(options, bin_ns=max(options.bin_ns, BIN_NS))
        return Recorder(targets, coarse, command, WITHOUT_PROGRAMS, refused=self.refused)
