"""Files of /proc and /sys: small ones, and those that are kept open and read again and again."""

from __future__ import annotations

import os
from pathlib import Path

from netprof.closing import Closing

_PIECE_BYTES = 1 << 16


class ProcFile(Closing):
    """An open file whose text the kernel writes anew at every reading. Raises OSError where it cannot be opened.

    It stays what it was when opened: the file of a process that has ended, of a namespace that nobody lives in.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> bytes:
        """Return the whole text as of now; b"" when the kernel gives nothing. Raises OSError."""
        parts: list[bytes] = []
        position = 0
        while part := os.pread(self._descriptor, _PIECE_BYTES, position):
            parts.append(part)
            position += len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Close the file. May be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


def text_of(path: str | Path) -> str:
    """Return a small file of the kernel's; "" where it does not exist, or may not be read."""
    try:
        return Path(path).read_text(errors="backslashreplace")
    except OSError:
        return ""
