"""The mark probe: points in the life of a training process, seen at its framework's functions.

The job is not touched: nothing is written to its memory but the kernel's breakpoints, which vanish with this process
however it ends. Returns are probed only of plain C, and only where nothing speaks against it (`returns`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from netprof.errors import NetprofError, NotPermittedError
from netprof.model import Probe, SkippedProbe
from netprof.probes.frameworks import FRAMEWORKS, Framework
from netprof.probes.kernel.loader import BpfLink, BpfObject, RingBuffer, map_delete, map_lookup, map_update
from netprof.probes.marks.libraries import Library, Mapping, executable_mappings, matches, open_library
from netprof.probes.marks.plan import Plan, Row, count_functions, number_rows, plan_library
from netprof.probes.marks.records import MAX_SPECS, RECORD, check_records, columns, pack_spec
from netprof.probes.marks.returns import danger
from netprof.probes.marks.uprobes import TRACE_UPROBE_MULTI, Attacher, Place, close_links, refusal, supports_multi

RING_BYTES = 1 << 20
"""Room for 18,000 marks between two drains."""

MAX_LIBRARIES = 64
"""Different library files of all processes together; each stays open, and a process can map any number."""

_EVERY_PROCESS = 0
_Key = tuple[int, int, int]  # process, device and inode of a library


class MarkProbe:
    """Records marks of the processes it is attached to, until closed.

    `targets_fd` shares the map of the job's processes with other programs; without it the probe has its own.
    `multi` chooses the way to attach (None: the best that the kernel has). Raises NotPermittedError or NetprofError
    when the program cannot be loaded; what is wrong with one process or one function is in `skipped` instead.
    """

    def __init__(
        self,
        pids: Iterable[int] = (),
        *,
        targets_fd: int | None = None,
        frameworks: Sequence[Framework] = FRAMEWORKS,
        ring_bytes: int = RING_BYTES,
        multi: bool | None = None,
    ) -> None:
        self._rows = number_rows(frameworks)
        if len(self._rows) > MAX_SPECS:
            raise ValueError(f"{len(self._rows)} marks; the program has room for {MAX_SPECS}")
        self._shared_targets = targets_fd is not None
        self._libraries: dict[tuple[int, int], tuple[Library, Plan]] = {}
        self._steady: dict[_Key, list[BpfLink]] = {}
        self._sampled: dict[_Key, list[BpfLink]] = {}
        self._returns: dict[_Key, list[BpfLink]] = {}
        self._frameworks: dict[int, dict[str, None]] = {}  # of each process, in the order found
        self._started: dict[Probe, None] = {}
        self._skipped: dict[SkippedProbe, None] = {}
        self._warnings: dict[str, None] = {}
        self._rejected: Counter[int] = Counter()  # by row
        self._object, self._attacher = _load(targets_fd, ring_bytes, multi)
        try:
            for row in self._rows:
                map_update(self._object.map_fd("specs"), _u32(row.number), pack_spec(row.mark))
            ring_fd, size = self._object.map_fd("records"), self._object.max_entries("records")
            self._ring = RingBuffer(ring_fd, size, RECORD.itemsize)
            for pid in pids:
                self.attach(pid)
        except BaseException:
            self.close()
            raise

    def attach(self, pid: int) -> tuple[str, ...]:
        """Record process `pid` from now on; returns the names of the frameworks whose library it has mapped.

        An empty result means that it has none (yet) or is gone: call again later, as often as you like. What is
        attached already stays as it is.
        """
        map_update(self._object.map_fd("targets"), _u32(pid), _u32(1))
        try:
            mappings = executable_mappings(pid)
        except NotPermittedError as error:
            self._skipped[SkippedProbe("marks", error.message, error.hint)] = None
            return ()
        except NetprofError:  # it ended
            return ()
        for mapping in mappings:
            rows = [row for row in self._rows if matches(mapping, row.framework.library)]
            if rows:
                self._attach_library(pid, mapping, rows, mappings)
        return tuple(self._frameworks.get(pid, ()))

    def detach(self, pid: int) -> None:
        """Forget a process that has ended, so that a later one with its pid is attached anew."""
        every = (self._steady, self._sampled, self._returns)
        close_links([link for links in every for key in list(links) if key[0] == pid for link in links.pop(key)])
        self._frameworks.pop(pid, None)
        if not self._shared_targets:
            map_delete(self._object.map_fd("targets"), _u32(pid))

    def drop_sampled(self) -> None:
        """Detach the marks that are sampled, in every process attached so far."""
        close_links([link for links in self._sampled.values() for link in links])
        self._sampled.clear()

    @property
    def sampling(self) -> bool:
        """Say whether sampled marks are attached somewhere."""
        return any(self._sampled.values())

    def drain(self) -> dict[str, npt.NDArray[np.generic]]:
        """Take the marks recorded since the last call: the columns of the trace's `marks` table.

        Rows are in the order in which each CPU recorded them; two CPUs may be a few microseconds out of order.
        """
        records = self._ring.drain().copy().view(RECORD).reshape(-1)
        good, rejected = check_records(records, [row.mark for row in self._rows])
        self._rejected += rejected
        return columns(good)

    def lost(self) -> int:
        """Return how many marks found the ring full and are not in the recording."""
        value = map_lookup(self._object.map_fd("lost"), _u32(0), 8)
        return int.from_bytes(value or b"", "little")

    @property
    def method(self) -> str:
        """The kernel interface in use: `uprobe_multi` or `perf events`."""
        return self._attacher.method

    @property
    def object(self) -> BpfObject:
        """The loaded BPF object, for its programs' run time."""
        return self._object

    @property
    def started(self) -> list[Probe]:
        """What was attached where."""
        return list(self._started)

    @property
    def skipped(self) -> list[SkippedProbe]:
        """What was not attached or not believed, why, and what would help."""
        skipped = list(self._skipped)
        if not self._started and not skipped:
            patterns = ", ".join(sorted({row.framework.library for row in self._rows}))
            reason = f"no process of the job has the library of a known framework ({patterns})"
            skipped.append(SkippedProbe("marks", reason, "attach to the processes that train; flows need no framework"))
        for cookie, count in self._rejected.items():
            row = self._rows[cookie]
            reason = (
                f"{count} records of {row.mark.symbol_prefix} hold values that cannot be: this version of the library "
                "lays out its data otherwise"
            )
            skipped.append(SkippedProbe(row.name, reason, "tell netprof's authors the version of the library"))
        return skipped

    @property
    def warnings(self) -> list[str]:
        """What was attached although it costs the job more than usual."""
        return list(self._warnings)

    def close(self) -> None:
        """Detach from everything and unload. May be called twice."""
        every = (self._steady, self._sampled, self._returns)
        close_links([link for links in every for each in links.values() for link in each])
        for links in every:
            links.clear()
        for library, _ in self._libraries.values():
            library.close()
        self._libraries.clear()
        if hasattr(self, "_ring"):
            self._ring.close()
        self._object.close()

    def __enter__(self) -> MarkProbe:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _attach_library(self, pid: int, mapping: Mapping, rows: Sequence[Row], mapped: Sequence[Mapping]) -> None:
        holder = pid if self._attacher.multi else _EVERY_PROCESS
        key, own = (holder, mapping.device, mapping.inode), (pid, mapping.device, mapping.inode)
        if key not in self._steady or own not in self._returns:
            try:
                library, plan = self._library(pid, mapping, rows)
            except NetprofError as error:
                self._skipped[SkippedProbe("marks", error.message, error.hint)] = None
                return
            refused: dict[Place, NetprofError] = {}
            if own not in self._returns:
                self._returns[own], refused = self._attach_returns(library, plan, pid, mapped)
            if key not in self._steady:
                self._steady[key], refused_steady = self._attacher.attach(library.path, plan.steady, pid)
                self._sampled[key], refused_sampled = self._attacher.attach(library.path, plan.sampled, pid)
                refused |= refused_steady | refused_sampled
            if refused and not Path(f"/proc/{pid}").exists():  # it ended meanwhile
                self.detach(pid)
                return
            self._note(library, plan, rows, refused)
        self._frameworks.setdefault(pid, {}).update(dict.fromkeys(row.framework.name for row in rows))

    def _library(self, pid: int, mapping: Mapping, rows: Sequence[Row]) -> tuple[Library, Plan]:
        """Open the library and plan it, or return the plan made for another process that maps the same file.

        Planned libraries stay open: while they are, no other file can get their inode.
        """
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
        self._libraries[library.identity] = (library, plan_library(library, rows))
        return self._libraries[library.identity]

    def _attach_returns(
        self, library: Library, plan: Plan, pid: int, mapped: Sequence[Mapping]
    ) -> tuple[list[BpfLink], dict[Place, NetprofError]]:
        """Attach what is at returns, unless that is dangerous to the process."""
        for framework in {self._rows[place.rows[0]].framework for place in plan.returns}:
            reason = danger(pid, mapped, framework.throwing)
            if reason is not None:
                name = f"marks:{framework.name}:returns"
                self._skipped[SkippedProbe(name, f"process {pid}: {reason}", _NO_RETURNS)] = None
                return [], {}
        return self._attacher.attach(library.path, plan.returns, pid)

    def _note(self, library: Library, plan: Plan, rows: Sequence[Row], refused: dict[Place, NetprofError]) -> None:
        """Keep for `started`, `skipped` and `warnings` what came of a library."""
        self._skipped.update(dict.fromkeys(plan.skipped))
        self._warnings.update(dict.fromkeys(plan.warnings))
        for place, error in refused.items():
            row = self._rows[place.rows[0]]
            reason = f"no probe on {row.mark.symbol_prefix} of {library.name}: {refusal(error)}"
            self._skipped[SkippedProbe(row.name, reason, error.hint)] = None
        attached = [place for place in plan.places if place not in refused]
        for name in dict.fromkeys(row.framework.name for row in rows):
            there, wanted = count_functions([row for row in rows if row.framework.name == name], attached)
            if there:
                detail = f"{there} of {wanted} functions of {library.name} ({self._attacher.method})"
                self._started[Probe(f"marks:{name}", detail)] = None


_NO_RETURNS = "nothing: its calls are seen to begin and not to end, so what the job waits for is unknown"


def _load(targets_fd: int | None, ring_bytes: int, multi: bool | None) -> tuple[BpfObject, Attacher]:
    """Load the program for uprobe_multi where the kernel can do that, else for perf events."""
    reuse = {} if targets_fd is None else {"targets": targets_fd}
    size = {"records": ring_bytes}
    if multi is not False:
        try:
            loaded = BpfObject(
                "marks", max_entries=size, reuse=reuse, expected_attach_type={"mark": TRACE_UPROBE_MULTI}
            )
        except NotPermittedError:
            raise
        except NetprofError:
            if multi:
                raise
        else:
            if multi or supports_multi(loaded.program_fd("mark")):
                return loaded, Attacher(loaded, "mark", multi=True)
            loaded.close()
    loaded = BpfObject("marks", max_entries=size, reuse=reuse)
    return loaded, Attacher(loaded, "mark", multi=False)


def _u32(number: int) -> bytes:
    return number.to_bytes(4, "little")
