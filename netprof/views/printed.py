"""Where a report is printed: on a terminal as wide as that is; into a file or a pipe with no line broken."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from typing import TextIO, cast

from rich.console import Console

from netprof.views.safe import safe_text

_UNBROKEN = 100_000  # cells: wider than any line
_PADDING = re.compile(r" +$", re.MULTILINE)


def standard_output() -> Console:
    """Return a console for standard output. COLUMNS, where it is set, is a wish for that width."""
    return _console(sys.stdout)


def standard_error() -> Console:
    """Return a console for standard error, likewise."""
    return _console(sys.stderr)


def say(console: Console, text: str) -> None:
    """Print a sentence, which may hold anything, in one piece; if nobody can hear it, nothing is lost."""
    with suppress(OSError):
        console.print(safe_text(text), markup=False, highlight=False, soft_wrap=True)


def _console(file: TextIO) -> Console:
    if file.isatty() or os.environ.get("COLUMNS", "").strip("0").isdigit():
        return _Console(file=file)
    return _Console(file=cast(TextIO, Unpadded(file)), width=_UNBROKEN)


class _Console(Console):
    """A console that raises when its reader leaves: rich would end the program."""

    def on_broken_pipe(self) -> None:
        raise


class Unpadded:
    """A text file without blanks at the end of a line: a table fills its last column with them."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._blanks = ""  # written so far, which may come to stand at the end of a line
        self.encoding = file.encoding

    def write(self, text: str) -> int:
        """Write text; blanks at its end wait until it is known what follows them."""
        whole = self._blanks + text
        shown = whole.rstrip(" ")
        self._blanks = whole[len(shown) :]
        self._file.write(_PADDING.sub("", shown))
        return len(text)

    def flush(self) -> None:
        """Flush the file."""
        self._file.flush()

    def isatty(self) -> bool:
        """Say that this is no terminal."""
        return False
