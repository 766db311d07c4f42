"""What recorders have changed of this machine for a while: noted where every recorder looks, before it is changed.

Who holds a thing changed is noted with it. The last one to let go of it undoes the change; for recorders that were
killed the next one that starts does.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netprof.errors import TraceError
from netprof.files import Directory, Place, made_whole
from netprof.probes.job.procfs import read_stat

_LONGEST_NOTE = 4 << 20

Holder = tuple[int, int]
"""A process: its pid, and when it started."""


@dataclass
class Held:
    """What a thing was before anybody changed it, and who wants it changed."""

    before: int
    holders: list[Holder] = field(default_factory=list)


@dataclass(frozen=True)
class Notes:
    """The notes in a file. `is_one` says whether a name and a value can be a recorder's, `undo` changes a thing back.

    `undo` is given the names and what they were; it raises nothing.
    """

    path: Path
    is_one: Callable[[str, int], bool]
    undo: Callable[[dict[str, int]], None]

    @contextmanager
    def opened(self) -> Iterator[dict[str, Held]]:
        """Hold the notes alone, and undo afterwards what nobody holds. Raises OSError."""
        folder = Place(self.path.parent, follow=True, own=True).made(0o700)
        lock = folder.keep(f"{self.path.stem}.lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            held = self._read(folder)
            for each in held.values():
                each.holders = [holder for holder in each.holders if _lives(holder)]
            yield held
            free = {name: held.pop(name).before for name in list(held) if not held[name].holders}
            if free:
                self.undo(free)
            self.write(held, folder)
        finally:
            os.close(lock)

    def write(self, held: dict[str, Held], folder: Directory | None = None) -> None:
        """Note what is held as of now: before it is changed, so that the next recorder undoes it if we are killed."""
        folder = folder or Place(self.path.parent, follow=True, own=True).made(0o700)
        document = {name: {"before": each.before, "holders": each.holders} for name, each in held.items()}
        with (
            made_whole(folder, self.path.name, f"{self.path.stem}.partial", 0o600) as descriptor,
            open(descriptor, "w", encoding="utf-8", closefd=False) as file,
        ):
            json.dump(document, file, allow_nan=False)

    def let_go(self) -> None:
        """Let go of everything that this process holds."""
        with suppress(OSError), self.opened() as held:
            for each in held.values():
                each.holders = [holder for holder in each.holders if holder != own()]

    def mend(self) -> None:
        """Undo what recorders that were killed have left."""
        with suppress(OSError):  # not ours to read: then neither was what was changed ours to change
            if self.path.exists():
                with self.opened():
                    pass

    def _read(self, folder: Directory) -> dict[str, Held]:
        """Read the notes; what is no note of a recorder is left out."""
        try:
            with open(folder.open(self.path.name), "rb") as file:
                document = json.loads(file.read(_LONGEST_NOTE))
        except (OSError, ValueError, RecursionError, TraceError):
            return {}
        entries = document.items() if isinstance(document, dict) else ()
        return {name: held for name, entry in entries if (held := self._believed(name, entry)) is not None}

    def _believed(self, name: str, entry: Any) -> Held | None:
        try:
            before, holders = int(entry["before"]), [(int(pid), int(start)) for pid, start in entry["holders"]]
        except (KeyError, TypeError, ValueError):
            return None
        return Held(before, holders) if self.is_one(name, before) else None


def own() -> Holder:
    """Return this process as a holder."""
    stat = read_stat(os.getpid())
    return os.getpid(), stat.start_ticks if stat is not None else 0


def _lives(holder: Holder) -> bool:
    stat = read_stat(holder[0])
    return stat is not None and not stat.ended and stat.start_ticks == holder[1]
