"""Where reports go: a file that appears whole or not at all, a folder, or standard output."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from netprof.errors import NetprofError, UsageError
from netprof.trace.meta import give_to_user
from netprof.views.reporter import Report, Reporter

STDOUT = Path("-")


def check(reporter: Reporter, target: Path, force: bool) -> None:
    """Raise UsageError or NetprofError before any work is done where the target cannot serve."""
    if reporter.folder:
        if target == STDOUT:
            raise UsageError(f"--{reporter.name} writes several files: standard output holds one", "name a folder")
        if target.is_dir() and any(target.iterdir()) and not force:
            raise NetprofError(f"{target} is not empty", "choose another folder, or replace its files with --force")
        if target.exists() and not target.is_dir():
            raise NetprofError(f"{target} is not a folder", "choose another one")
    elif target != STDOUT and (target.is_symlink() or target.exists()) and (not force or target.is_dir()):
        raise NetprofError(f"{target} exists already", "choose another name, or replace it with --force")


def write(reporter: Reporter, report: Report, target: Path) -> None:
    """Write a report. Raises NetprofError when the target cannot be written."""
    try:
        if reporter.folder:
            if not target.exists():
                target.mkdir(parents=True)
                give_to_user(target)
            reporter.fill(report, target)
        else:
            with _standard_output() if target == STDOUT else replaced(target) as out:
                reporter.write(report, out)
    except BrokenPipeError:
        raise
    except OSError as error:
        where = "standard output" if target == STDOUT else str(target)
        raise NetprofError(f"cannot write {where}: {error.strerror}", "choose another place") from error


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file that takes the place of `path` when the block ends well. Raises OSError.

    It is made under a name that nobody can foresee and renamed, so a link put in its place is replaced, not followed.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:40]}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        partial = Path(name)
        partial.chmod(0o644)
        give_to_user(partial)
        partial.replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _standard_output() -> Iterator[IO[bytes]]:
    sys.stdout.flush()
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()
