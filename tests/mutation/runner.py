"""Runs tests of a copy in processes forked from one that has imported what is not netprof's: each saves a second."""

from __future__ import annotations

import importlib
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import pytest

from mutation.watched import OPTIONS

_IMPORTED = (
    *("numpy", "numpy.lib.recfunctions", "pandas", "pyarrow", "pyarrow.compute", "pyarrow.ipc", "pyarrow.parquet"),
    *("hypothesis", "hypothesis.strategies", "rich.console", "rich.live", "rich.table", "typer", "typer.testing"),
    *("jinja2", "pytest", "pytest_timeout", "scapy.all", "markdown_it"),
)
_MOST_BYTES = 3 << 30
_FILE_BYTES = 512 << 20


def import_all() -> None:
    """Import what tests import, but for netprof; what is not there is not missed."""
    for name in _IMPORTED:
        with suppress(ImportError):
            importlib.import_module(name)


def start(copy: Path, call: Callable[[], int], *, compiles: bool = False) -> int:
    """Call something in a process of its own that imports netprof from the copy; returns the pid.

    Its exit code is what is returned. Unless it `compiles`, Python writes down nothing compiled.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _become(copy, call, compiles)
    return pid


def _become(copy: Path, call: Callable[[], int], compiles: bool) -> NoReturn:
    code = 70
    try:
        os.setsid()
        for descriptor in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
        os.chdir(copy)
        sys.path.insert(0, str(copy))
        os.environ |= {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "" if compiles else "1"}
        sys.dont_write_bytecode = not compiles
        resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, _MOST_BYTES))
        resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_BYTES, _FILE_BYTES))
        code = call()
    finally:
        os._exit(code)


def ended(pid: int) -> int | None:
    """Return the exit code of a process (or minus its signal), None while it runs."""
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def end(pid: int) -> None:
    """End a process and all that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


def wait(pid: int, timeout_s: float) -> int | None:
    """Return the exit code of a process, None where it took too long and was ended."""
    until_s = time.monotonic() + timeout_s
    while time.monotonic() < until_s:
        code = ended(pid)
        if code is not None:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # what it left behind
            return code
        time.sleep(0.02)
    end(pid)
    return None


class _Failed:
    """A plugin of pytest: the test that failed."""

    name = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.name = report.nodeid


def run_tests(names: Sequence[str]) -> int:
    """Run tests until one fails, and fails alone, too: else it is the order in which they are run that it cannot bear.

    Returns the exit code of pytest.
    """
    left = list(names)
    while left:
        failed = _Failed()
        code = int(pytest.main([*OPTIONS, "-x", *left], plugins=[failed]))
        if failed.name not in left or pytest.main([*OPTIONS, failed.name]) != 0:
            return code
        left = left[left.index(failed.name) + 1 :]
    return 0


def collect(names: Sequence[str]) -> int:
    """Tell whether tests can be run by their names, as an exit code."""
    return int(pytest.main([*OPTIONS, "--collect-only", *names]))
