"""Reading the libraries of processes, in a thread of its own: a recording never waits for it.

The libraries are the job's: as large as it likes, on a disk that may not answer. So are its memory maps. The thread
reads, as long as `ReadingTime` allows, and plans; to attach is for who has asked, when there is something to `take`.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from netprof.closing import Closing
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

Result = TypeVar("Result")
Made = TypeVar("Made")


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


class LibraryThread(Closing, ABC, Generic[Result, Made]):
    """Looks through the libraries of processes whose names fit one of `patterns`, in the order asked, until closed.

    `name` is the probe's, for what cannot be read. What is `Made` of a file is made once, for all processes that map
    it. The files stay open: while they are, no other one can get their inode.
    """

    tells_refusal = True
    """Whether processes that may not be looked at are reported."""

    def __init__(self, name: str, patterns: Collection[str], nothing: Made) -> None:
        self.name, self._patterns, self._nothing = name, patterns, nothing
        self._time = ReadingTime()
        self._libraries: dict[File, tuple[Library, Made]] = {}
        self._changed = threading.Condition()  # guards what follows
        self._asked: list[tuple[int, Collection[File]]] = []  # the first is being read
        self._results: list[Result | SkippedProbe] = []
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=f"netprof-{name}-libraries", daemon=True)

    @abstractmethod
    def look(self, pid: int, mapping: Mapping, mapped: Sequence[Mapping]) -> Iterator[Result | SkippedProbe]:
        """Yield what is found in a library, one of those that process `pid` has `mapped`. Raises NetprofError."""

    def unreadable(self, mapping: Mapping, error: NetprofError) -> str:
        """Return what to say of a library that cannot be read."""
        return error.message

    def ask(self, pid: int, known: Collection[File] = ()) -> None:
        """Have the libraries of process `pid` read, but for those that are known."""
        with self._changed:
            self._asked.append((pid, known))
            self._changed.notify_all()
        if self._thread.ident is None:
            self._thread.start()

    def take(self) -> list[Result | SkippedProbe]:
        """Return what was read since the last call, and what could not be."""
        with self._changed:
            results, self._results = self._results, []
            return results

    def wait(self) -> None:
        """Wait until all that was asked for is read, for as long as that may take."""
        with self._changed:
            self._changed.wait_for(lambda: not self._asked, ALL_S)

    @property
    def has_results(self) -> bool:
        """Whether there is something to take."""
        return bool(self._results)

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
        if self._thread.ident is not None:
            self._thread.join(_ENDS_WITHIN_S)

    def made(self, pid: int, mapping: Mapping, make: Callable[[Library, float], Made]) -> tuple[Library, Made]:
        """Open a library, and return what is made of it, until a time (time.monotonic), or was. Raises NetprofError."""
        library = open_library(pid, mapping)
        known = self._libraries.get(library.identity)
        if known is not None:
            library.close()
            return known
        if len(self._libraries) >= MAX_LIBRARIES:
            library.close()
            message = f"the job has more than {MAX_LIBRARIES} libraries of known frameworks"
            raise NetprofError(message, "attach to fewer")
        self._libraries[library.identity] = library, self._nothing  # one that fails is not read again
        with self._time.for_one() as until_s:
            self._libraries[library.identity] = library, make(library, until_s)
        return self._libraries[library.identity]

    def _run(self) -> None:
        try:
            while (asked := self._next()) is not None:
                for result in self._of(*asked):
                    with self._changed:
                        self._results.append(result)
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

    def _of(self, pid: int, known: Collection[File]) -> Iterator[Result | SkippedProbe]:
        """Yield what is in the libraries of a process; an error in one is reported, and the others are read."""
        try:
            mappings = executable_mappings(pid)
        except NetprofError as error:  # it ended, or may not be looked at
            if isinstance(error, NotPermittedError) and self.tells_refusal:
                yield SkippedProbe(self.name, error.message, error.hint)
            return
        for mapping in mappings:
            is_known = (mapping.device, mapping.inode) in known
            if self._ended or is_known or not any(matches(mapping, pattern) for pattern in self._patterns):
                continue
            try:
                yield from self.look(pid, mapping, mappings)
            except NetprofError as error:
                yield SkippedProbe(self.name, self.unreadable(mapping, error), error.hint)
            except Exception as error:
                reason = f"reading {mapping.basename} failed: {type(error).__name__}: {error}"
                yield SkippedProbe(self.name, reason, "report this as a bug of netprof")


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


class LibraryReader(LibraryThread[Read, Plan]):
    """Reads the libraries that the tables' `rows` are meant for. `cost_ns` is asked in the thread."""

    def __init__(self, rows: Sequence[Row], cost_ns: Cost) -> None:
        super().__init__("marks", {row.framework.library for row in rows}, Plan())
        self._rows, self._cost_ns = rows, cost_ns
        self._measuring = threading.Lock()

    def look(self, pid: int, mapping: Mapping, mapped: Sequence[Mapping]) -> Iterator[Read | SkippedProbe]:
        """Yield the library with what is to be attached there. Raises NetprofError."""
        named = {pattern for pattern in self._patterns if matches(mapping, pattern)}
        rows = tuple(row for row in self._rows if row.framework.library in named)
        library, plan = self.made(pid, mapping, lambda opened, until_s: plan_library(opened, rows, self._cost, until_s))
        returns = _danger_of_returns(pid, plan, rows, mapped)
        yield Read(pid, (mapping.device, mapping.inode), rows, library, plan, returns)

    def close(self) -> None:
        """End the thread, and what it measures by a program that is unloaded after this."""
        self._ended = True
        with self._measuring:
            pass
        super().close()

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
