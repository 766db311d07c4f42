"""Reading the libraries of processes, in a thread of its own: a recording never waits for it.

The libraries are the job's: as large as it likes, on a disk that may not answer. So are its memory maps. The thread
reads, as long as `ReadingTime` allows, and plans; to attach is for who has asked, when there is something to `take`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from netprof.errors import NetprofError, NotPermittedError
from netprof.model import SkippedProbe
from netprof.probes.marks.libraries import Library, Mapping, executable_mappings, matches, open_library
from netprof.probes.marks.plan import Cost, Plan, Row, plan_library
from netprof.probes.marks.returns import danger

ONE_S, ALL_S = 2.0, 10.0
"""How long the symbols of one library are read, and of all: libtorch_cpu.so takes 0.05 s, a hostile file its time."""

MAX_LIBRARIES = 64
"""Different library files of all processes together; each stays open, and a process can map any number."""

_ENDS_WITHIN_S = 0.5  # unless a disk does not answer
_NO_RETURNS = "nothing: its calls are seen to begin and not to end, so what the job waits for is unknown"

File = tuple[int, int]
"""Device and inode of a mapped file, as a memory map names them."""


class ReadingTime:
    """What is left of the time for reading libraries."""

    def __init__(self) -> None:
        self._left_s = ALL_S

    @contextmanager
    def for_one(self) -> Iterator[float]:
        """Read one library inside the block, until the time that it is given (time.monotonic)."""
        begin_s = time.monotonic()
        try:
            yield begin_s + min(ONE_S, self._left_s)
        finally:
            self._left_s -= time.monotonic() - begin_s


@dataclass(frozen=True)
class Read:
    """A library of process `pid` with the rows of the tables that are meant for it, and what is to be attached there.

    With `danger` nothing is attached to its returns.
    """

    pid: int
    file: File
    rows: tuple[Row, ...]
    library: Library
    plan: Plan
    danger: SkippedProbe | None


class LibraryReader:
    """Reads the libraries of processes that the tables' `rows` are meant for, in the order asked, until closed.

    `cost_ns` is asked in the thread. Planned libraries stay open: while they are, no other file can get their inode.
    """

    def __init__(self, rows: Sequence[Row], cost_ns: Cost) -> None:
        self._rows, self._cost_ns = rows, cost_ns
        self._patterns = {row.framework.library for row in rows}
        self._time = ReadingTime()
        self._libraries: dict[tuple[int, int], tuple[Library, Plan]] = {}
        self._changed = threading.Condition()  # guards what follows
        self._asked: list[tuple[int, Collection[File]]] = []  # the first is being read
        self._found: list[Read | SkippedProbe] = []
        self._ended = False
        self._measuring = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="netprof-libraries", daemon=True)
        self._thread.start()

    def ask(self, pid: int, known: Collection[File] = ()) -> None:
        """Have the libraries of process `pid` read, but for those that are known."""
        with self._changed:
            self._asked.append((pid, known))
            self._changed.notify_all()

    def take(self) -> list[Read | SkippedProbe]:
        """Return what was read since the last call, and what could not be."""
        with self._changed:
            found, self._found = self._found, []
            return found

    def wait(self, timeout_s: float) -> None:
        """Wait until all that was asked for is read, at most so long."""
        with self._changed:
            self._changed.wait_for(lambda: not self._asked, timeout_s)

    @property
    def found_any(self) -> bool:
        """Whether there is something to take."""
        return bool(self._found)

    @property
    def unread(self) -> tuple[int, ...]:
        """The processes whose libraries are still to be read."""
        with self._changed:
            return tuple(dict.fromkeys(pid for pid, _ in self._asked))

    def close(self) -> None:
        """End the thread, which closes the libraries; one that a disk holds up ends when that answers."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        with self._measuring:  # with a program that is unloaded after this
            pass
        self._thread.join(_ENDS_WITHIN_S)

    def _run(self) -> None:
        try:
            while (asked := self._next()) is not None:
                for read in self._of(*asked):
                    with self._changed:
                        self._found.append(read)
                with self._changed:
                    self._asked.pop(0)
                    self._changed.notify_all()
        finally:
            for library, _ in self._libraries.values():
                library.close()

    def _next(self) -> tuple[int, Collection[File]] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._asked or self._ended)
            return None if self._ended else self._asked[0]

    def _of(self, pid: int, known: Collection[File]) -> Iterator[Read | SkippedProbe]:
        """Yield the libraries of a process; whatever goes wrong with one is told, and the others are read."""
        try:
            mappings = executable_mappings(pid)
        except NotPermittedError as error:
            yield SkippedProbe("marks", error.message, error.hint)
            return
        except NetprofError:  # it ended
            return
        for mapping in mappings:
            named = {pattern for pattern in self._patterns if matches(mapping, pattern)}
            if self._ended or not named or (mapping.device, mapping.inode) in known:
                continue
            rows = tuple(row for row in self._rows if row.framework.library in named)
            try:
                yield self._read(pid, mapping, rows, mappings)
            except NetprofError as error:
                yield SkippedProbe("marks", error.message, error.hint)
            except Exception as error:
                reason = f"reading {mapping.basename} failed: {type(error).__name__}: {error}"
                yield SkippedProbe("marks", reason, "report this as a bug of netprof")

    def _read(self, pid: int, mapping: Mapping, rows: tuple[Row, ...], mapped: Sequence[Mapping]) -> Read:
        library, plan = self._planned(pid, mapping, rows)
        returns = _danger_of_returns(pid, plan, rows, mapped)
        return Read(pid, (mapping.device, mapping.inode), rows, library, plan, returns)

    def _planned(self, pid: int, mapping: Mapping, rows: Sequence[Row]) -> tuple[Library, Plan]:
        """Open the library and plan it, or return the plan made for another process that maps the same file."""
        library = open_library(pid, mapping)
        known = self._libraries.get(library.identity)
        if known is not None:
            library.close()
            return known
        if len(self._libraries) >= MAX_LIBRARIES:
            library.close()
            raise NetprofError(
                f"the job has more than {MAX_LIBRARIES} libraries of known frameworks", "attach to fewer"
            )
        with self._time.for_one() as until_s:
            plan = plan_library(library, rows, self._cost, until_s)
        self._libraries[library.identity] = (library, plan)
        return library, plan

    def _cost(self, like: str) -> float | None:
        with self._measuring:
            return None if self._ended else self._cost_ns(like)


def _danger_of_returns(pid: int, plan: Plan, rows: Sequence[Row], mapped: Sequence[Mapping]) -> SkippedProbe | None:
    """Say why nothing is attached to returns in a process, None where nothing speaks against it."""
    numbers = {place.rows[0] for place in plan.returns}
    for framework in dict.fromkeys(row.framework for row in rows if row.number in numbers):
        reason = danger(pid, mapped, framework.throwing, time.monotonic() + ONE_S)
        if reason is not None:
            return SkippedProbe(f"marks:{framework.name}:returns", f"process {pid}: {reason}", _NO_RETURNS)
    return None
