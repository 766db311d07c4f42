"""What follows a recording is done by a process of its own, which is not root any more."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from netprof.cli.streams import drop_unwritable, end_orderly, exit_code_of
from netprof.files.drop import while_reading
from netprof.files.temporary import remove_all


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
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        end_orderly()
        while_reading()
        code = exit_code_of(work)
        drop_unwritable()
    finally:
        remove_all()
        os._exit(code)
