"""`netprof run -- CMD`: start a job and record it from its first iteration."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence

from netprof.errors import NetprofError
from netprof.files import User
from netprof.probes.job.processes import find_job
from netprof.session.attach import (
    AfterTheJob,
    Outcome,
    Refusal,
    Rights,
    StopRequest,
    Watcher,
    further_signals,
    record,
    stop_on_signals,
)
from netprof.session.child import Child
from netprof.session.options import RecordingOptions

_WAIT_S = 0.05


def run(
    argv: Sequence[str],
    options: RecordingOptions,
    command: Sequence[str],
    on_refusal: Refusal,
    then: AfterTheJob | None = None,
    watcher: Watcher = lambda recorder: None,
    user: User | None = None,
) -> tuple[Outcome, int]:
    """Run `argv` under the probes; returns the recording and the job's exit code. Raises NetprofError before it starts.

    The terminal's ctrl-C reaches the job by itself, and so do SIGUSR1 and SIGUSR2, which schedulers send to every
    process of a job: a handler that saves it must not run twice. A SIGTERM or SIGHUP sent to netprof is passed on to
    it. With a `user` it is that one's. After the job signals do what `then` does. The `watcher` is called as by
    `attach`.
    """
    rights = Rights.here()
    if rights.refused is not None:
        on_refusal(rights.refused)
    child = Child(argv, user)  # before our signal handlers: what it inherits is what netprof was started with
    with stop_on_signals(*further_signals(options), at_once=True, then=then) as request:
        try:
            recorder = rights.recorder(find_job([child.pid]), options, command)
            recorder.start()
            request.at_once = False
        except BaseException as error:
            code = child.abandon()
            if code is not None and isinstance(error, NetprofError):
                raise KilledBefore(code) from error
            raise
        child.release()
        outcome = record(recorder, _ForChild(child, request), watcher)
        while (code := child.exit_code()) is None:  # the recording may end before the job
            _pass_on(child, request)
            time.sleep(_WAIT_S)
        return outcome, code


class KilledBefore(NetprofError):
    """The job was killed before it began; netprof exits as it did."""

    def __init__(self, exit_code: int) -> None:
        super().__init__("the command was killed before it began", "nothing was recorded")
        self.exit_code = exit_code


class _ForChild(StopRequest):
    """Asks the recording to stop when the child has ended, and passes signals on to it until then."""

    def __init__(self, child: Child, request: StopRequest) -> None:
        super().__init__()
        self._child = child
        self._request = request

    def reason(self) -> str:
        """Return why to stop, or nothing."""
        _pass_on(self._child, self._request)
        return "the job ended" if self._child.exit_code() is not None else ""


def _pass_on(child: Child, request: StopRequest) -> None:
    if request.signal_number in (signal.SIGTERM, signal.SIGHUP):
        child.send(request.signal_number)
    request.signal_number = 0
