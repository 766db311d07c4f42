"""What an exporter leaves in its folder: the rings of jobs that ended, and what was saved of them."""

from __future__ import annotations

import re
import stat
import threading
from collections.abc import Callable
from pathlib import Path

from netprof.errors import NetprofError
from netprof.files import Directory, status_of
from netprof.trace.ring import is_ring
from netprof.trace.writer import remove_trace

MOST_ENDED = 64
"""Rings of ended jobs that are kept: there may be thousands of jobs a day."""
_NAMED = re.compile(r".+-\d{8}-\d{6}-\d+\.netprof")  # as exporters name both


class Rings:
    """Removes the oldest rings of ended jobs, those of earlier exporters too. `say` gets a line if it cannot."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        traces = [folder / name for name in _names(folder)]
        self._ended = sorted(filter(is_ring, traces), key=_changed_s)
        self.saved = [path for path in traces if not is_ring(path)]
        """Traces that were saved by earlier exporters."""
        self._say, self._lock = say, threading.Lock()

    def ended(self, ring: Path) -> None:
        """Take note of one more, and remove those that are too many; one that is being recorded stays."""
        with self._lock:
            self._ended.append(ring)
            while len(self._ended) > MOST_ENDED:
                oldest = self._ended.pop(0)
                try:
                    remove_trace(oldest)
                except (OSError, NetprofError) as error:
                    self._say(f"{oldest} stays: {error}")


def _names(folder: Path) -> list[str]:
    """Return what an exporter has named in a folder, which need not be there."""
    try:
        held = Directory(folder)
    except OSError:
        return []
    return [name for name in held.names() if _NAMED.fullmatch(name) and held.kind(name) != stat.S_IFLNK]


def _changed_s(path: Path) -> float:
    status = status_of(path)
    return 0.0 if status is None else status.st_mtime
