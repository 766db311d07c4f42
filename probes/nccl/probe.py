"""The probe of NCCL's transport: what is posted to its networks, by connection, added up in the kernel.

The job is not touched but for the kernel's breakpoints at the functions that post; those that are polled have none.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from netprof.errors import NetprofError
from netprof.model import Losses, SkippedProbe, StartedProbe, Target
from netprof.probes.frameworks.nccl import NCCL_TABLES, uses_nccl
from netprof.probes.kernel.loader import BpfLink, BpfObject, RingBuffer, map_array, map_update, u32
from netprof.probes.kernel.types import for_this_kernel
from netprof.probes.marks.costs import DEAR_NS, HitCosts
from netprof.probes.marks.instructions import examine_entry
from netprof.probes.marks.symbols import AARCH64, X86_64
from netprof.probes.marks.uprobes import Place, close_links, load_for_uprobes, refusal
from netprof.probes.nccl.finding import Found, NetFunctionFinder
from netprof.probes.nccl.functions import NetFunction
from netprof.probes.nccl.rows import CONNECTION, RECORD, PostedRows
from netprof.probes.probe import Columns, Description, Probe, Shared, Tables
from netprof.schema import NCCL_NETWORK_PROBE, TRANSMIT, MarkKind

_MOST_FUNCTIONS = 256
_EVERY_PROCESS = 0
_LOADED_AFTER_S = (0.5, 2.0, 10.0)  # of a communicator being made, a plugin is
_NOT_COUNTED = {"uncounted": "too many connections", "unread": "their sizes could not be read"}
_MACHINES = {"x86_64": X86_64, "aarch64": AARCH64}

_Key = tuple[int, tuple[int, int]]  # a process, and a library of it


class _Program:
    """The loaded program, and its memory. Raises NotPermittedError or NetprofError."""

    def __init__(self, shared: Shared, multi: bool | None) -> None:
        self.object, self.attacher = load_for_uprobes(
            for_this_kernel("nccl"),
            "post",
            reuse={"targets": shared.targets.fd},
            rodata={"bin_ns": shared.bin_ns},
            multi=multi,
        )
        try:
            slots = self.object.max_entries("connections")
            live = map_array(self.object.map_fd("connections"), CONNECTION.itemsize, slots)
            self._connections = live.view(CONNECTION).reshape(-1)
            self._rows = PostedRows(shared.bin_ns, slots)
            self.costs = HitCosts(self.attacher)
            self._ring = RingBuffer(self.object, "records", RECORD)
        except BaseException:
            self.object.close()
            raise

    def drain(self, *, final: bool) -> Columns:
        """Return the rows of table `nccl_posted` since the last call."""
        silent = self._rows.silent(self._connections, time.monotonic_ns(), final=final)
        return self._rows.columns(self._connections, self._ring.drain(), silent)

    def not_counted(self) -> dict[str, int]:
        """Return how many posts were not counted, by the reason why."""
        counts = self.object.counters(*_NOT_COUNTED)
        return {why: counts[name] for name, why in _NOT_COUNTED.items() if counts[name]}

    def close(self) -> None:
        """Unload."""
        self._ring.close()
        self.object.close()


class NcclNetworkProbe(Probe):
    """Adds up what the job's processes post to NCCL's networks, from when they have loaded NCCL until closed.

    A job without NCCL costs nothing: the program is loaded when the first functions are found.
    """

    name = NCCL_NETWORK_PROBE
    period_s = 0.4
    notices = NCCL_TABLES

    def __init__(self, shared: Shared, *, multi: bool | None = None) -> None:
        self._load = partial(_Program, shared, multi)
        self._program: _Program | None = None
        self._finder = NetFunctionFinder()
        self._links: dict[_Key, list[BpfLink]] = {}
        self._functions: list[NetFunction] = []
        self._asked: set[Target] = set()
        self._looks: list[tuple[float, int]] = []  # when to look at a process again, time.monotonic
        self._started: dict[StartedProbe, None] = {}
        self._skipped: dict[SkippedProbe, None] = {}
        self._is_used = False  # by the job: else nobody misses what is skipped

    @classmethod
    def open(cls, shared: Shared) -> NcclNetworkProbe:
        """Make one; it loads nothing yet."""
        return cls(shared)

    def follow(self, targets: Sequence[Target]) -> None:
        """Look for the functions in processes that have loaded NCCL since the last call.

        At first they are attached to at the return, later as soon as they are found.
        """
        begins = not self._asked
        fresh = {target for target in targets if "nccl" in target.frameworks} - self._asked
        self._asked |= fresh
        for target in fresh:
            self._finder.ask(target.pid)
        if begins and fresh:
            self._finder.wait()
            self._attach_what_is_found()

    def notice(self, table: str, columns: Columns) -> None:
        """Look at a process again once it has made a communicator: plugins are loaded with the first one."""
        self._is_used = self._is_used or uses_nccl(table, columns)
        if table != "marks":
            return
        kinds, pids, now_s = np.asarray(columns["kind"]), np.asarray(columns["pid"]), time.monotonic()
        for pid in np.unique(pids[kinds == MarkKind.NCCL_COMM_INIT]).tolist():
            self._looks += [(now_s + later_s, pid) for later_s in _LOADED_AFTER_S]
        for pid in pids[kinds == MarkKind.PROCESS_EXIT].tolist():
            self._detach(pid)

    @property
    def has_news(self) -> bool:
        """Whether functions were found that are to be attached to."""
        return self._finder.found_any

    def drain(self, *, final: bool = False) -> Tables:
        """Return the rows of table `nccl_posted` since the last call."""
        if not final:
            self._look_again()
            self._attach_what_is_found()
        return {"nccl_posted": self._program.drain(final=final)} if self._program is not None else {}

    def describe(self) -> Description:
        """Return which networks are seen and how they were found, what not, and what was lost."""
        lost = self._program.not_counted() if self._program is not None else {}
        warnings = tuple(f"{number} posts to NCCL's network are not counted: {why}" for why, number in lost.items())
        losses = Losses(lost_marks=sum(lost.values()))
        skipped = tuple(self._skipped) if self._is_used else ()
        return Description(tuple(self._started), skipped, warnings, losses)

    @property
    def objects(self) -> Sequence[BpfObject]:
        """The program, where it was needed."""
        return (self._program.object,) if self._program is not None else ()

    def close(self) -> None:
        """Detach and unload. May be called twice."""
        close_links([link for links in self._links.values() for link in links])
        self._links.clear()
        self._finder.close()
        program, self._program = self._program, None
        if program is not None:
            program.close()

    def _look_again(self) -> None:
        due = [each for each in self._looks if each[0] <= time.monotonic()]
        for each in due:
            self._looks.remove(each)
        for pid in {pid for _, pid in due}:
            self._finder.ask(pid)

    def _detach(self, pid: int) -> None:
        """Forget a process that has ended, so that a later one with its pid is attached anew."""
        gone = [key for key in self._links if key[0] == pid]
        close_links([link for key in gone for link in self._links.pop(key)])

    def _attach_what_is_found(self) -> None:
        for found in self._finder.take():
            if isinstance(found, SkippedProbe):
                self._skipped[found] = None
            else:
                self._attach(found)

    def _attach(self, found: Found) -> None:
        program = self._program = self._program or self._load()
        key = (found.pid if program.attacher.multi else _EVERY_PROCESS, found.library.identity)
        if key in self._links:
            return
        functions = {place: each for each in found.functions if (place := self._place(program, found, each))}
        self._links[key], refused = program.attacher.attach(found.library.path, list(functions), found.pid)
        if refused and not Path(f"/proc/{found.pid}").exists():
            return
        attached = [each for place, each in functions.items() if place not in refused]
        self._note(found, attached, program.attacher.method)
        for place, error in refused.items():
            self._skip(found, functions[place], refusal(error), error.hint)

    def _place(self, program: _Program, found: Found, function: NetFunction) -> Place | None:
        """Return where to probe a function; None where that would cost the job much, which is noted."""
        entry = examine_entry(function.code, _machine())
        cost_ns = None if entry.emulated else program.costs.ns(entry.like)
        if not entry.emulated and (cost_ns is None or cost_ns > DEAR_NS):
            said = "an unknown time" if cost_ns is None else f"{cost_ns / 1000:.1f} µs"
            self._skip(found, function, f"a call would take {said} longer", "nothing: it is left out")
            return None
        return Place(function.offset + entry.skip_bytes, (self._number(program, function),))

    def _number(self, program: _Program, function: NetFunction) -> int:
        """Return the function's place in the program's table. Raises NetprofError where that is full."""
        if function not in self._functions:
            number = len(self._functions)
            if number >= _MOST_FUNCTIONS:
                raise NetprofError("the job has too many libraries with network functions of NCCL")
            packed = function.call.pack(function.network)
            map_update(program.object.map_fd("functions"), u32(number), packed)
            self._functions.append(function)
        return self._functions.index(function)

    def _note(self, found: Found, attached: Sequence[NetFunction], method: str) -> None:
        for name in dict.fromkeys(each.name for each in attached):
            own = [each for each in attached if each.name == name]
            detail = f"network {name} of {found.library.name}, {len(own)} functions found {own[0].found}"
            self._started[StartedProbe(self.name, f"{detail} ({method})")] = None

    def _skip(self, found: Found, function: NetFunction, why: str, remedy: str) -> None:
        what = "sent" if function.call.direction == TRANSMIT else "received"
        reason = f"what is {what} by network {function.name} of {found.library.name}: {why}"
        self._skipped[SkippedProbe(self.name, reason, remedy)] = None


def _machine() -> int:
    return _MACHINES.get(platform.machine(), 0)
