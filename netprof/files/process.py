"""A process that has what rights the invoking user has, for good: for what opens files by itself, as libraries do."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from netprof.errors import NetprofError, NotPermittedError, TraceError, UsageError
from netprof.files import kernel
from netprof.files.user import User, caller

_MOST_BYTES = 1 << 20
_ERRORS: dict[str, type[NetprofError]] = {
    each.__name__: each for each in (NetprofError, NotPermittedError, TraceError, UsageError)
}


def by_the_caller(prepare: Callable[[], None], work: Callable[[], list[str]]) -> list[str]:
    """Return the texts that come of work which opens what it likes: done by who called sudo.

    Root that nobody called does it without capabilities, whoever else in this process. Before, with the rights that
    there are, `prepare` imports what that user may not read, and opens nothing that a person named. Raises NetprofError
    as the work does, and where it came to no end.
    """
    if os.geteuid() != 0:
        prepare()
        return work()
    reader, writer = os.pipe()
    mask, pid = signal.pthread_sigmask(signal.SIG_BLOCK, ()), 0
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # what a handler raises within a fork is lost
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            _work(writer, mask, caller(), prepare, work)
        os.close(writer)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        with open(reader, "rb") as answers:
            return _understood(answers.read(_MOST_BYTES + 1))
    finally:
        if pid:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # it has answered, or is not waited for any more
            os.waitpid(pid, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _understood(answer: bytes) -> list[str]:
    """Return what the process says, whoever wrote that; or raise it."""
    try:
        kind, *texts = json.loads(answer) if len(answer) <= _MOST_BYTES else []
        if not all(isinstance(each, str) for each in (kind, *texts)):
            raise ValueError(answer)
        error = _ERRORS[kind](*texts) if kind else None
    except (ValueError, TypeError, KeyError) as wrong:
        raise NetprofError("what reads URLs ended before it was done", "is there enough memory?") from wrong
    if error is not None:
        raise error
    return texts


def _work(
    writer: int,
    mask: set[int | signal.Signals],
    person: User | None,
    prepare: Callable[[], None],
    work: Callable[[], list[str]],
) -> NoReturn:
    """Do it, and answer; never returns."""
    try:
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        answer = _answer(person, prepare, work)
        with open(writer, "wb") as out:
            out.write(json.dumps(answer, allow_nan=False).encode())
    finally:
        os._exit(0)


def _answer(person: User | None, prepare: Callable[[], None], work: Callable[[], list[str]]) -> list[str]:
    try:
        prepare()
        if person is None:
            kernel.give_up_capabilities()
        else:
            environment = person.environment()
            person.become()
            os.environ.clear()
            os.environ.update(environment)
        kernel.end_with_parent()
        return ["", *work()]
    except NetprofError as error:
        kinds = (name for kind in type(error).__mro__ for name in _ERRORS if _ERRORS[name] is kind)
        return [next(kinds), error.message, error.hint]
    except OSError as error:
        return ["NotPermittedError", f"root cannot be given up for {person}: {error.strerror}", "run without sudo"]
