"""How a process ends: what it prints to may be closed, full or a terminal that is gone, and signals may end it."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

import typer

from netprof.copies import as_named
from netprof.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_UNUSABLE, NetprofError
from netprof.files.drop import while_reading
from netprof.files.temporary import remove_all
from netprof.views.safe import safe_text


def open_missing_streams() -> None:
    """Open /dev/null in place of each standard stream that is closed, or a file of ours would get its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free; no program that is run inherits it
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # what a terminal without UTF-8 cannot show
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - stays open
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def of_system(error: OSError) -> NetprofError:
    """Return what to say of an error that nobody else has put into words: most are of standard output."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return NetprofError(f"cannot go on: {error.strerror}", "allow more open files with 'ulimit -n 65536'")
    if error.filename is not None:
        return NetprofError(f"cannot use {error.filename}: {error.strerror}")
    return NetprofError(f"cannot write standard output: {error.strerror}")


def exit_code_of(work: Callable[[], object], verbose: Callable[[], bool] = lambda: False) -> int:
    """Do something, print what goes wrong, and return the exit code: 0 where a reader leaves early (`| head`)."""
    code: object = EXIT_DONE
    try:
        code = work()
        sys.stdout.flush()
    except NetprofError as error:
        print_error(error, verbose=verbose())
        code = error.exit_code
    except EndedBySignal as ended:
        end_by(ended)
        code = EXIT_INTERRUPTED
    except (KeyboardInterrupt, typer.Abort):
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        code = EXIT_DONE
    except SystemExit as error:  # of the command line library, where a pipe breaks
        code = EXIT_DONE if isinstance(error.__context__, BrokenPipeError) else error.code
    except OSError as error:
        print_error(of_system(error))
        code = EXIT_UNUSABLE
    except Exception as error:
        if not hasattr(error, "show"):  # a usage error of the command line library shows itself
            raise
        with suppress(OSError):
            error.show()
        code = getattr(error, "exit_code", EXIT_UNUSABLE)
    return code if isinstance(code, int) else EXIT_DONE


def print_error(error: NetprofError, *, verbose: bool = False) -> None:
    """Say what went wrong, if anybody can hear it."""
    lines = [f"netprof: {safe_text(as_named(error.message))}"]
    lines += [f"  {safe_text(as_named(each))}" for each in error.choices]
    lines += [f"  {safe_text(as_named(error.hint))}"] if error.hint else []
    lines += [safe_text(line.expandtabs(), len(line) * 8) for line in error.detail.splitlines() if verbose]
    with suppress(OSError):
        print(*lines, sep="\n", file=sys.stderr, flush=True)


def drop_unwritable() -> None:
    """Let go of what cannot be written to a standard stream; Python would try again at its end, and complain."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


_NOT_OURS = {
    *(signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),
    *(signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH),  # which end nothing
    *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS),  # after a fault
}


RAISE_AGAIN_S = 5.0
"""How long after a signal `EndedBySignal` is raised once more, should the process still be there."""
_SOON_S = 0.001
"""The same where Python says that it was dropped."""


class EndedBySignal(BaseException):
    """A signal has come that ends this process."""

    def __init__(self, number: int) -> None:
        self.number = number


def end_orderly() -> None:
    """Raise EndedBySignal from now on, in the main thread, for every signal that would end this process at once."""
    for number in signal.valid_signals() - _NOT_OURS:
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _end)


def end_by(ended: EndedBySignal) -> None:
    """Remove what is temporary, and end by the signal."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    remove_all()
    signal.signal(ended.number, signal.SIG_DFL)
    os.kill(os.getpid(), ended.number)


def _end(number: int, frame: object) -> None:
    for each in signal.valid_signals() - _NOT_OURS:
        if signal.getsignal(each) is _end:
            signal.signal(each, signal.SIG_IGN)  # timeout(1) sends its signal twice

    def again(*_: object) -> None:
        raise EndedBySignal(number)

    def dropped(lost: sys.UnraisableHookArgs) -> None:
        if lost.exc_type is EndedBySignal:
            signal.setitimer(signal.ITIMER_REAL, _SOON_S, RAISE_AGAIN_S)
        else:
            tells_others(lost)

    tells_others, sys.unraisablehook = sys.unraisablehook, dropped
    signal.signal(signal.SIGALRM, again)  # Python drops an exception raised inside a finalizer or an import's callback
    signal.setitimer(signal.ITIMER_REAL, RAISE_AGAIN_S, RAISE_AGAIN_S)
    raise EndedBySignal(number)


def apart(work: Callable[[], object]) -> int:
    """Do something with the rights of a command that only reads and writes files, and return its exit code.

    For root that is a child. What is raised here meanwhile ends it.
    """
    if os.geteuid() != 0:
        work()
        return 0
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _child(work)
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except BaseException:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
        raise


def _child(work: Callable[[], object]) -> NoReturn:
    code = 1
    try:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        end_orderly()
        while_reading()
        code = exit_code_of(work)
        drop_unwritable()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        remove_all()
        os._exit(code)
