"""Signals that end a process: netprof removes its temporary files first, and then ends by the same signal."""

from __future__ import annotations

import os
import signal
from typing import Any

from netprof.files.temporary import remove_all

_NOT_OURS = {
    *(signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),
    *(signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH),  # which end nothing
    *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS),  # after a fault
}


class Ended(BaseException):
    """A signal has come that ends this process."""

    def __init__(self, number: int) -> None:
        self.number = number


def end_orderly() -> None:
    """Raise Ended from now on, in the main thread, for every signal that would end this process at once."""
    for number in signal.valid_signals() - _NOT_OURS:
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _end)


def end_by(ended: Ended) -> None:
    """Remove what is temporary, and end by the signal."""
    remove_all()
    signal.signal(ended.number, signal.SIG_DFL)
    os.kill(os.getpid(), ended.number)


def _end(number: int, frame: object) -> None:
    _set_all(signal.SIG_IGN)  # timeout(1) sends its signal twice
    raise Ended(number)


def _set_all(handler: Any) -> None:
    for number in signal.valid_signals() - _NOT_OURS:
        if signal.getsignal(number) is _end:
            signal.signal(number, handler)
