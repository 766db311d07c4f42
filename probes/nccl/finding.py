"""Looking through the libraries of processes for NCCL's network functions, in a thread of its own.

The libraries are the job's: as large as it likes, on a disk that may not answer. A recording never waits for them.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from netprof.errors import NetprofError
from netprof.model import SkippedProbe
from netprof.probes.marks.libraries import Library, Mapping, executable_mappings, matches, open_library
from netprof.probes.marks.reading import ALL_S, MAX_LIBRARIES, ReadingTime
from netprof.probes.nccl.functions import NetFunction, find_net_functions
from netprof.schema import NCCL_NETWORK_PROBE

LIBRARIES = "libnccl*.so*"
"""The files that are looked through: NCCL itself, and its plugins (libnccl-net.so, libnccl-net-NAME.so)."""

_ENDS_WITHIN_S = 0.5  # unless a disk does not answer


@dataclass(frozen=True)
class Found:
    """A library of process `pid` that has network functions. It stays open for as long as the finder."""

    pid: int
    library: Library
    functions: tuple[NetFunction, ...]


class NetFunctionFinder:
    """Looks through the libraries of processes, in the order asked, until closed."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._found: queue.SimpleQueue[Found | SkippedProbe] = queue.SimpleQueue()
        self._known: dict[tuple[int, int], tuple[Library, tuple[NetFunction, ...]]] = {}
        self._time = ReadingTime()
        self._left, self._idle = 0, threading.Condition()
        self._thread = threading.Thread(target=self._run, name="netprof-nccl", daemon=True)

    def ask(self, pid: int) -> None:
        """Have the libraries of a process looked through."""
        with self._idle:
            self._left += 1
        self._asked.put(pid)
        if self._thread.ident is None:
            self._thread.start()

    def take(self) -> Iterator[Found | SkippedProbe]:
        """Yield what was found since the last call, and what could not be looked at."""
        while not self._found.empty():
            yield self._found.get()

    @property
    def found_any(self) -> bool:
        """Whether there is something to take."""
        return not self._found.empty()

    def wait(self) -> None:
        """Wait until all that was asked for is looked through, for as long as that may take."""
        with self._idle:
            self._idle.wait_for(lambda: not self._left, ALL_S)

    def close(self) -> None:
        """End the thread, which closes the libraries; one that a disk holds up ends when that answers."""
        self._asked.put(None)
        if self._thread.ident is not None:
            self._thread.join(_ENDS_WITHIN_S)

    def _run(self) -> None:
        try:
            while (pid := self._asked.get()) is not None:
                for found in self._of(pid):
                    self._found.put(found)
                with self._idle:
                    self._left -= 1
                    self._idle.notify_all()
        finally:
            for library, _ in self._known.values():
                library.close()

    def _of(self, pid: int) -> Iterator[Found | SkippedProbe]:
        try:
            mappings = [mapping for mapping in executable_mappings(pid) if matches(mapping, LIBRARIES)]
        except NetprofError:  # it ended, or the marks' probe says why not
            return
        for mapping in mappings:
            try:
                library, functions = self._looked_through(pid, mapping)
            except NetprofError as error:
                yield SkippedProbe(
                    NCCL_NETWORK_PROBE, f"{mapping.basename} cannot be read: {error.message}", error.hint
                )
            except Exception as error:
                reason = f"reading {mapping.basename} failed: {type(error).__name__}: {error}"
                yield SkippedProbe(NCCL_NETWORK_PROBE, reason, "report this as a bug of netprof")
            else:
                if functions:
                    yield Found(pid, library, functions)
                elif mapping.basename.startswith("libnccl.so"):
                    reason = f"{mapping.basename} has no network functions that netprof can tell"
                    yield SkippedProbe(NCCL_NETWORK_PROBE, reason, "report the library's version")

    def _looked_through(self, pid: int, mapping: Mapping) -> tuple[Library, tuple[NetFunction, ...]]:
        library = open_library(pid, mapping)
        known = self._known.get(library.identity)
        if known is not None:
            library.close()
            return known
        if len(self._known) >= MAX_LIBRARIES:
            library.close()
            raise NetprofError(f"the job has more than {MAX_LIBRARIES} of them", "attach to fewer processes")
        self._known[library.identity] = library, ()
        with self._time.for_one() as until_s:
            functions = tuple(find_net_functions(library, until_s))
        self._known[library.identity] = library, functions
        return library, functions
