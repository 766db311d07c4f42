"""The mark probe: points in the life of a training process, seen at its framework's functions.

The job is not touched: nothing is written to its memory but the kernel's breakpoints, which vanish with this process
however it ends. Returns are probed only of plain C, and only where nothing speaks against it (`returns`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from netprof.closing import all_or_nothing
from netprof.errors import NetprofError
from netprof.model import Losses, SkippedProbe, StartedProbe, Target
from netprof.probes.frameworks import FRAMEWORKS
from netprof.probes.frameworks.table import Framework
from netprof.probes.job.processes import is_same
from netprof.probes.job.tree import LoadedFrameworks
from netprof.probes.kernel.loader import BpfLink, BpfObject, RingBuffer, map_lookup, map_update, u32
from netprof.probes.kernel.targets import TargetMap
from netprof.probes.kernel.types import for_this_kernel
from netprof.probes.marks.costs import HitCosts
from netprof.probes.marks.mark_records import MAX_SPECS, RECORD, called_often, check_records, columns, pack_spec
from netprof.probes.marks.plan import count_functions, number_rows
from netprof.probes.marks.reading import LibraryReader, Read
from netprof.probes.marks.step_counter import StepCounter
from netprof.probes.marks.uprobes import (
    EVERY_PROCESS,
    FileOfProcess,
    ProbePlace,
    close_links,
    detach,
    load_for_uprobes,
    refusal,
)
from netprof.probes.probe import Columns, Description, Probe, Shared, Tables
from netprof.schema import MarkKind

RING_BYTES = 1 << 20
"""Room for 18,000 marks between two drains."""

MOST_CALLS = 20_000
"""Of a function in a process a second, as marks: more cost the job over 2 % of a CPU, and the report its memory."""

_FEWER_CALLS = "fewer and larger calls; what these marks would tell is unknown from there on"
_SAMPLED_STEPS = 20  # iterations for which every gradient is marked
_MANY_STEPS = 5 * _SAMPLED_STEPS


class MarkProbe(Probe):
    """Records marks of the processes it is attached to, until closed.

    `targets` is the map of the job's processes; without one to share the probe makes its own and keeps it up itself.
    `multi` chooses the way to attach (None: the best that the kernel has). Raises NotPermittedError or NetprofError
    when the program cannot be loaded; what is wrong with one process or one function is in `skipped` instead.
    """

    name = "marks"
    period_s = 0.4
    notices = frozenset({"marks"})

    def __init__(
        self,
        pids: Iterable[int] = (),
        *,
        targets: TargetMap | None = None,
        frameworks: Sequence[Framework] = FRAMEWORKS,
        ring_bytes: int = RING_BYTES,
        multi: bool | None = None,
    ) -> None:
        self._rows = number_rows(frameworks)
        if len(self._rows) > MAX_SPECS:
            raise ValueError(f"{len(self._rows)} marks; the program has room for {MAX_SPECS}")
        self._own_targets = targets is None
        self._steady: dict[FileOfProcess, list[BpfLink]] = {}
        self._sampled: dict[FileOfProcess, list[BpfLink]] = {}
        self._returns: dict[FileOfProcess, list[BpfLink]] = {}
        self._attached = (self._steady, self._sampled, self._returns)
        self._read: dict[FileOfProcess, Read] = {}  # what is attached came of
        self._dropped: set[int] = set()  # rows of functions that are called too often
        self._often: set[int] = set()  # rows of those that were, when last looked at
        self._frameworks: dict[int, dict[str, None]] = {}  # of each process, in the order found
        self._started: dict[StartedProbe, None] = {}
        self._skipped: dict[SkippedProbe, None] = {}
        self._warnings: dict[str, None] = {}
        self._rejected: Counter[int] = Counter()  # by row
        self._loaded = LoadedFrameworks(frameworks)
        self._followed: Sequence[Target] = ()
        self._training: set[Target] = set()
        self._asked: set[Target] = set()  # of which the libraries were read ahead
        self._helpers: set[Target] = set()  # that have a framework's library and do not train
        self._counter = StepCounter()
        self._steps_at_sampling: Counter[int] = Counter()
        with all_or_nothing() as opened:
            self.targets = targets or opened.enter_context(TargetMap())
            reuse, room = {"targets": self.targets.fd}, {"records": ring_bytes}
            self._object, self._attacher = load_for_uprobes(
                for_this_kernel("marks"), "mark", reuse=reuse, max_entries=room, multi=multi
            )
            opened.enter_context(self._object)
            self.costs = HitCosts(self._attacher)
            self._reader = opened.enter_context(LibraryReader(self._rows, self.costs.ns))
            opened.callback(detach, self._attached)
            for row in self._rows:
                map_update(self._object.map_fd("specs"), u32(row.number), pack_spec(row.mark))
            self._ring = opened.enter_context(RingBuffer(self._object, "records", RECORD))
            for pid in pids:
                self.attach(pid)

    @classmethod
    def open(cls, shared: Shared) -> MarkProbe:
        """Load the program, and have libraries read while other probes open. Raises NotPermittedError, NetprofError."""
        with all_or_nothing() as opened:
            probe = opened.enter_context(cls(targets=shared.targets))
            probe._asked = {target for target in shared.first if target.frameworks}
            for target in probe._asked:
                probe._ask(target.pid)
        return probe

    def follow(self, targets: Sequence[Target]) -> None:
        """Attach to the processes that train and have joined or loaded a framework since the last call.

        The first time what is attached is attached at the return; later as soon as the libraries are read.
        """
        begins, self._followed = not self._followed, targets
        training = {target for target in targets if target.frameworks}
        fresh = training - self._training
        for target in fresh - self._asked:
            self._ask(target.pid)
        self._asked.clear()
        if begins:
            self.settle()
        if fresh:
            self._steps_at_sampling = self._counter.steps
        self._training = training  # one that turns out to be a launcher leaves

    def notice(self, table: str, columns: Columns) -> None:
        """Forget processes that exit, and stop sampling once every process has had its share of steps."""
        self._counter.see(columns)
        for pid in columns["pid"][columns["kind"] == MarkKind.PROCESS_EXIT].tolist():
            self.detach(pid)
        if self.sampling and self._sampled_enough():
            self.drop_sampled()

    def attach(self, pid: int) -> tuple[str, ...]:
        """Record process `pid` from now on; returns the names of the frameworks whose library it has mapped.

        An empty result means that it has none (yet) or is gone: call again later, as often as you like. What is
        attached already stays as it is.
        """
        self.targets.add(pid)
        self._ask(pid)
        self.settle()
        return tuple(self._frameworks.get(pid, ()))

    def settle(self) -> None:
        """Attach to all that was asked for; what takes too long to read is attached to when it is read."""
        self._reader.wait()
        self._attach_what_is_read()

    @property
    def has_news(self) -> bool:
        """Whether libraries were read that are to be attached to."""
        return self._reader.has_results

    def detach(self, pid: int) -> None:
        """Forget a process that has ended, so that a later one with its pid is attached anew."""
        detach(self._attached, pid)
        self._frameworks.pop(pid, None)
        if self._own_targets:
            self.targets.discard(pid)

    def _drop(self, rows: set[int]) -> None:
        """Attach again without the functions of some rows, and say so."""
        self._dropped |= rows
        for row in (self._rows[number] for number in sorted(rows)):
            reason = f"{row.mark.symbol_prefix} is called more than {MOST_CALLS} times a second: its marks end"
            self._skipped[SkippedProbe(row.name, reason, _FEWER_CALLS)] = None
        for links, kind in zip(self._attached, ("steady", "sampled", "returns"), strict=True):
            for key in list(links):
                read = self._read[key]
                places: tuple[ProbePlace, ...] = getattr(read.plan, kind)
                if any(not rows.isdisjoint(place.rows) for place in places):
                    close_links(links[key])
                    links[key], _ = self._attach_kept(read, places)

    def _attach_kept(
        self, read: Read, places: Sequence[ProbePlace]
    ) -> tuple[list[BpfLink], dict[ProbePlace, NetprofError]]:
        """Attach to the places of a library, but for functions that are called too often."""
        kept = [place for place in places if self._dropped.isdisjoint(place.rows)]
        return self._attacher.attach(read.library.path, kept, read.pid)

    def drop_sampled(self) -> None:
        """Detach the marks that are sampled, in every process attached so far."""
        detach([self._sampled])

    @property
    def sampling(self) -> bool:
        """Say whether sampled marks are attached somewhere."""
        return any(self._sampled.values())

    def drain(self, *, final: bool = False) -> Tables:
        """Take the marks recorded since the last call: rows of table `marks`.

        Rows are in the order in which each CPU recorded them; two CPUs may be a few microseconds out of order.
        """
        if not final:
            self._attach_what_is_read()
        records = self._ring.drain()
        good, rejected = check_records(records, [row.mark for row in self._rows])
        self._rejected += rejected
        often = called_often(records, MOST_CALLS, self.period_s)
        if fresh := (often & self._often) - self._dropped:  # twice in a row, so no burst
            self._drop(fresh)
        self._often = often
        return {"marks": columns(good)}

    def describe(self) -> Description:
        """Return what is attached where, what not and why, and how many marks were lost."""
        losses = Losses(lost_marks=self.lost())
        return Description(tuple(self.started), tuple(self.skipped), tuple(self.warnings), losses)

    def lost(self) -> int:
        """Return how many marks found the ring full and are not in the recording."""
        value = map_lookup(self._object.map_fd("lost"), u32(0), 8)
        return int.from_bytes(value or b"", "little")

    @property
    def method(self) -> str:
        """The kernel interface in use: `uprobe_multi` or `perf events`."""
        return self._attacher.method

    @property
    def objects(self) -> Sequence[BpfObject]:
        """The loaded BPF object."""
        return (self._object,)

    @property
    def started(self) -> list[StartedProbe]:
        """What was attached where."""
        return list(self._started)

    @property
    def skipped(self) -> list[SkippedProbe]:
        """What was not attached or not believed, why, and what would help."""
        skipped = list(self._skipped)
        if self._followed and not self._started and not skipped:
            remedy = "attach to the processes that train; flows need no framework"
            skipped.append(SkippedProbe(self.name, self._why_nothing(), remedy))
        if unread := self._reader.unread:
            reason = f"the libraries of process {', '.join(map(str, unread))} are not read yet"
            skipped.append(SkippedProbe(self.name, reason, "record for longer, or see why its disk does not answer"))
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
        detach(self._attached)
        self._reader.close()
        self._ring.close()
        self._object.close()
        if self._own_targets:
            self.targets.close()

    def _why_nothing(self) -> str:
        """Say why nothing is attached, though nothing went wrong."""
        patterns = ", ".join(sorted({row.framework.library for row in self._rows}))
        if self._training:
            return f"the processes that train ended, or only read their framework's file ({patterns})"
        self._helpers.update(target for target in self._followed if self._loaded.of(target.pid))
        if self._helpers:
            pids = ", ".join(str(target.pid) for target in sorted(self._helpers, key=lambda target: target.pid))
            return f"only a launcher or a helper of the job ({pids}) has the library of a known framework ({patterns})"
        return f"no process of the job has the library of a known framework ({patterns})"

    def _sampled_enough(self) -> bool:
        """Say whether every process that trains has had its share of steps with every gradient marked.

        One that takes none while others take many, as a parameter server, is not waited for.
        """
        steps = self._counter.steps - self._steps_at_sampling
        if max(steps.values(), default=0) >= _MANY_STEPS:
            return True
        return not any(steps[target.pid] < _SAMPLED_STEPS and is_same(target) for target in self._training)

    def _ask(self, pid: int) -> None:
        """Have the libraries of a process read, but for those that are attached to already."""
        if self._own_targets:  # those of a recording are kept by it
            self.targets.add(pid)
        self._reader.ask(pid, {file for holder, file in self._returns if holder == pid})

    def _attach_what_is_read(self) -> None:
        for read in self._reader.take():
            if isinstance(read, SkippedProbe):
                self._skipped[read] = None
            else:
                self._attach_library(read)

    def _attach_library(self, read: Read) -> None:
        key, returns = (read.pid if self._attacher.multi else EVERY_PROCESS, read.file), (read.pid, read.file)
        refused: dict[ProbePlace, NetprofError] = {}
        if returns not in self._returns:
            self._read[returns] = read
            self._returns[returns], refused = self._attach_returns(read)
        if key not in self._steady:
            self._read[key] = read
            self._steady[key], refused_steady = self._attach_kept(read, read.plan.steady)
            self._sampled[key], refused_sampled = self._attach_kept(read, read.plan.sampled)
            refused |= refused_steady | refused_sampled
        if refused and not Path(f"/proc/{read.pid}").exists():  # it ended meanwhile
            self.detach(read.pid)
            return
        self._note(read, refused)
        self._frameworks.setdefault(read.pid, {}).update(dict.fromkeys(row.framework.name for row in read.rows))

    def _attach_returns(self, read: Read) -> tuple[list[BpfLink], dict[ProbePlace, NetprofError]]:
        """Attach what is at returns, unless that is dangerous to the process."""
        if read.danger is not None:
            self._skipped[read.danger] = None
            return [], {}
        return self._attach_kept(read, read.plan.returns)

    def _note(self, read: Read, refused: dict[ProbePlace, NetprofError]) -> None:
        """Keep for `started`, `skipped` and `warnings` what came of a library."""
        library, plan, rows = read.library, read.plan, read.rows
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
                self._started[StartedProbe(f"marks:{name}", detail)] = None
