"""What an exporter leaves in its folder: the rings of jobs that ended, and what was saved of them."""

from __future__ import annotations

import re
import stat
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from netprof.errors import NetprofError
from netprof.files import Directory, status_of
from netprof.trace.keep import Keep
from netprof.trace.ring import is_ring
from netprof.trace.writer import remove_trace

MOST_ENDED = 64
"""Rings of ended jobs that are kept: there may be thousands of jobs a day."""
MOST_ENDED_BYTES = 8 << 30
MOST_RING_BYTES = 512 << 20
"""Of a ring that is asked for by time."""
_EARLIER = -1
"""Whose rings of earlier exporters are taken to be: nobody knows."""
_NAMED = re.compile(r".+-\d{8}-\d{6}-\d+\.netprof")  # as exporters name both


@dataclass(frozen=True)
class _Ring:
    path: Path
    user: int
    size_bytes: int


def bounded(keep: Keep) -> Keep:
    """Return how much of a job an exporter keeps: what is asked for, but not ever more of a job that moves much."""
    return keep if keep.size_bytes is not None else replace(keep, size_bytes=MOST_RING_BYTES)


class Rings:
    """Removes rings of ended jobs, those of earlier exporters too, while there are too many or they are too large.

    The oldest one of the user who has most goes first. `say` gets a line if it cannot be removed.
    """

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        traces = [folder / name for name in _names(folder) if _NAMED.fullmatch(name)]
        rings = sorted(filter(is_ring, traces), key=_changed_s)
        self._ended = [_Ring(path, _EARLIER, _size_bytes(path)) for path in rings]
        self.saved = [path for path in traces if not is_ring(path)]
        """Traces that were saved by earlier exporters."""
        self._say, self._lock = say, threading.Lock()

    def ended(self, ring: Path, user: int = _EARLIER) -> None:
        """Take note of one more, and remove those that are too many; one that is being recorded stays."""
        with self._lock:
            self._ended.append(_Ring(ring, user, _size_bytes(ring)))
            while len(self._ended) > MOST_ENDED or sum(each.size_bytes for each in self._ended) > MOST_ENDED_BYTES:
                gone = self._of_most()
                self._ended.remove(gone)
                try:
                    remove_trace(gone.path)
                except (OSError, NetprofError) as error:
                    self._say(f"{gone.path} stays: {error}")

    def _of_most(self) -> _Ring:
        """Return the oldest ring of the user who has most: rings, or bytes where those are too many."""
        has = Counter[int]()
        by_number = len(self._ended) > MOST_ENDED
        for each in self._ended:
            has[each.user] += 1 if by_number else each.size_bytes
        most = max(has, key=has.__getitem__)
        return next(each for each in self._ended if each.user == most)


def _names(folder: Path) -> list[str]:
    """Return what is in a folder, which need not be there; no links."""
    try:
        held = Directory(folder)
        return [name for name in held.names() if held.kind(name) != stat.S_IFLNK]
    except OSError:
        return []


def _changed_s(path: Path) -> float:
    status = status_of(path)
    return 0.0 if status is None else status.st_mtime


def _size_bytes(ring: Path) -> int:
    """Return how large the files of a ring are."""
    total = 0
    for path in (ring / name for name in _names(ring)):
        status = status_of(path)
        if status is not None:  # it may just be removed
            total += _size_bytes(path) if stat.S_ISDIR(status.st_mode) else status.st_size
    return total
