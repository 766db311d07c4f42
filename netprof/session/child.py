"""A job that netprof starts itself: held before its first instruction until the probes are ready."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from netprof.errors import UsageError
from netprof.files import User

EXIT_NOT_FOUND, EXIT_NOT_EXECUTABLE = 127, 126
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class Child:
    """A forked process that waits for `release` and then becomes `argv`. Its output, input and environment are ours.

    With a `user` it is that one's: it has no right of root's left before it looks for the program, and no descriptor
    but the standard ones.
    """

    def __init__(self, argv: Sequence[str], user: User | None = None) -> None:
        if not argv:
            raise UsageError("there is no command to run", "netprof run -- COMMAND [ARGUMENT ...]")
        reader, self._gate = os.pipe()
        self.pid = os.fork()
        self._status: int | None = None
        if self.pid == 0:
            os.close(self._gate)
            _become(argv, reader, user)
        os.close(reader)

    def release(self) -> None:
        """Let the process begin, unless somebody has ended it: its exit code says so then."""
        with suppress(BrokenPipeError):
            os.write(self._gate, b"!")
        os.close(self._gate)

    def abandon(self) -> int | None:
        """End a process that was never released; returns its exit code if somebody has killed it before, else None."""
        os.close(self._gate)  # it reads the end of the pipe and exits
        code = self._wait(0)
        return None if code == EXIT_NOT_EXECUTABLE else code

    def exit_code(self) -> int | None:
        """Return the exit code as a shell would (128 + signal for a killed one), None while it runs."""
        return self._wait(os.WNOHANG)

    def _wait(self, options: int) -> int | None:
        if self._status is None:
            ended, status = os.waitpid(self.pid, options)
            if ended:
                self._status = os.waitstatus_to_exitcode(status)
        if self._status is None:
            return None
        return self._status if self._status >= 0 else 128 - self._status

    def send(self, signal_number: int) -> None:
        """Pass a signal on, unless the process has ended."""
        if self.exit_code() is None:
            os.kill(self.pid, signal_number)


def _become(argv: Sequence[str], gate: int, user: User | None) -> NoReturn:
    """Wait for the gate to open, then execute `argv`; never returns."""
    try:
        environment = _given_to(user, gate)
    except OSError as error:
        _fail(argv[0], f"root cannot be given up for {user}: {error.strerror}", False)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)) and number != signal.SIGINT:  # of netprof, in whose place it is not
            signal.signal(number, signal.SIG_DFL)
    for number in _IGNORED_BY_PYTHON:  # anything else stays as netprof was given it, under nohup for example
        signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it would be raised in a second netprof
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if os.read(gate, 1) != b"!":
        os._exit(EXIT_NOT_EXECUTABLE)
    try:
        os.execvpe(argv[0], list(argv), environment)  # noqa: S606 - running the person's command is what 'netprof run' is for
    except OSError as error:
        _fail(argv[0], error.strerror or "", error.errno == errno.ENOENT)
    except ValueError:
        _fail(argv[0], "it has no name", True)


def _given_to(user: User | None, gate: int) -> dict[str, str]:
    """Make this process the user's, where there is one, and return its environment. Raises OSError."""
    if user is None:
        return dict(os.environ)
    for first, last in ((3, gate), (gate + 1, os.sysconf("SC_OPEN_MAX"))):
        os.closerange(first, last)
    environment = user.environment()
    user.become()
    return environment


def _fail(name: str, why: str, is_missing: bool) -> NoReturn:
    os.write(2, f"netprof: cannot run {name if name.isprintable() else ascii(name)}: {why}\n".encode(errors="replace"))
    os._exit(EXIT_NOT_FOUND if is_missing else EXIT_NOT_EXECUTABLE)
