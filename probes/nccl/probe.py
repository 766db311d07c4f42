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

from netprof.closing import Closing, all_or_nothing
from netprof.errors import NetprofError
from netprof.model import Losses, SkippedProbe, StartedProbe, Target
from netprof.probes.frameworks.nccl import NCCL_TABLES, uses_nccl
from netprof.probes.kernel.loader import BpfLink, BpfObject, RingBuffer, map_array, map_update, u32
from netprof.probes.kernel.types import for_this_kernel
from netprof.probes.marks.costs import DEAR_NS, HitCosts
from netprof.probes.marks.instructions import examine_entry
from netprof.probes.marks.symbols import AARCH64, X86_64
from netprof.probes.marks.uprobes import EVERY_PROCESS, FileOfProcess, ProbePlace, detach, load_for_uprobes, refusal
from netprof.probes.nccl.net_functions import NetFunction
from netprof.probes.nccl.net_libraries import NetFunctionFinder, NetLibrary
from netprof.probes.nccl.posted_rows import CONNECTION, RECORD, PostedRows
from netprof.probes.probe import Columns, Description, Probe, Shared, Tables
from netprof.schema import NCCL_NETWORK_PROBE, TRANSMIT, MarkKind

_MOST_FUNCTIONS = 256
_LOADED_AFTER_S = (0.5, 2.0, 10.0)  # of a communicator being made, a plugin is
_NOT_COUNTED = {"uncounted": "too many connections", "unread": "their sizes could not be read"}
_MACHINES = {"x86_64": X86_64, "aarch64": AARCH64}


class _Program(Closing):
    """The loaded program, and its memory. Raises NotPermittedError or NetprofError."""

    def __init__(self, shared: Shared, multi: bool | None) -> None:
        reuse, rodata = {"targets": shared.targets.fd}, {"bin_ns": shared.bin_ns}
        self.object, self.attacher = load_for_uprobes(
            for_this_kernel("nccl"), "post", reuse=reuse, rodata=rodata, multi=multi
        )
        with all_or_nothing() as opened:
            opened.enter_context(self.object)
            slots = self.object.max_entries("connections")
            live = map_array(self.object.map_fd("connections"), CONNECTION.itemsize, slots)
            self._connections = live.view(CONNECTION).reshape(-1)
            self._rows = PostedRows(shared.bin_ns, slots)
            self.costs = HitCosts(self.attacher)
            self._ring = opened.enter_context(RingBuffer(self.object, "records", RECORD))

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
        self._links: dict[FileOfProcess, list[BpfLink]] = {}
        self._numbers: dict[NetFunction, int] = {}  # places in the program's table
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
            detach([self._links], pid)  # a later one with its pid is attached anew

    @property
    def has_news(self) -> bool:
        """Whether functions were found that are to be attached to."""
        return self._finder.has_results

    def drain(self, *, final: bool = False) -> Tables:
        """Return the rows of table `nccl_posted` since the last call."""
        if not final:
            now_s = time.monotonic()
            for pid in {pid for at_s, pid in self._looks if at_s <= now_s}:
                self._finder.ask(pid)
            self._looks = [(at_s, pid) for at_s, pid in self._looks if at_s > now_s]
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
        detach([self._links])
        self._finder.close()
        program, self._program = self._program, None
        if program is not None:
            program.close()

    def _attach_what_is_found(self) -> None:
        for library in self._finder.take():
            if isinstance(library, SkippedProbe):
                self._skipped[library] = None
            else:
                self._attach(library)

    def _attach(self, mapped: NetLibrary) -> None:
        program = self._program = self._program or self._load()
        key = (mapped.pid if program.attacher.multi else EVERY_PROCESS, mapped.library.identity)
        if key in self._links:
            return
        functions = {
            place: function for function in mapped.functions if (place := self._place(program, mapped, function))
        }
        self._links[key], refused = program.attacher.attach(mapped.library.path, list(functions), mapped.pid)
        if refused and not Path(f"/proc/{mapped.pid}").exists():
            return
        attached = [function for place, function in functions.items() if place not in refused]
        self._note(mapped, attached, program.attacher.method)
        for place, error in refused.items():
            self._skip(mapped, functions[place], refusal(error), error.hint)

    def _place(self, program: _Program, mapped: NetLibrary, function: NetFunction) -> ProbePlace | None:
        """Return where to probe a function; None where that would cost the job much, which is noted."""
        entry = examine_entry(function.code, _MACHINES.get(platform.machine(), 0))
        cost_ns = None if entry.emulated else program.costs.ns(entry.like)
        if not entry.emulated and (cost_ns is None or cost_ns > DEAR_NS):
            cost = "an unknown time" if cost_ns is None else f"{cost_ns / 1000:.1f} µs"
            self._skip(mapped, function, f"a call would take {cost} longer", "nothing: it is left out")
            return None
        return ProbePlace(function.offset + entry.skip_bytes, (self._number(program, function),))

    def _number(self, program: _Program, function: NetFunction) -> int:
        """Return the function's place in the program's table. Raises NetprofError where that is full."""
        if function not in self._numbers:
            number = len(self._numbers)
            if number >= _MOST_FUNCTIONS:
                raise NetprofError("the job has too many libraries with network functions of NCCL")
            packed = function.call.pack(function.network)
            map_update(program.object.map_fd("functions"), u32(number), packed)
            self._numbers[function] = number
        return self._numbers[function]

    def _note(self, mapped: NetLibrary, attached: Sequence[NetFunction], method: str) -> None:
        for name in dict.fromkeys(function.name for function in attached):
            ways = [function.found_by for function in attached if function.name == name]
            detail = f"network {name} of {mapped.library.name}, {len(ways)} functions found {ways[0]}"
            self._started[StartedProbe(self.name, f"{detail} ({method})")] = None

    def _skip(self, mapped: NetLibrary, function: NetFunction, why: str, remedy: str) -> None:
        what = "sent" if function.call.direction == TRANSMIT else "received"
        reason = f"what is {what} by network {function.name} of {mapped.library.name}: {why}"
        self._skipped[SkippedProbe(self.name, reason, remedy)] = None
