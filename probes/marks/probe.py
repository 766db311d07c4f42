"""The mark probe: points in the life of a training process, seen at its framework's functions.

The job is not touched: nothing is written to its memory but the kernel's breakpoints, which vanish with this process
however it ends. Returns are probed only of plain C, and only where nothing speaks against it (`returns`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from netprof.errors import NetprofError, NotPermittedError
from netprof.model import Losses, SkippedProbe, StartedProbe, Target
from netprof.probes.frameworks import FRAMEWORKS, Framework
from netprof.probes.job.loaded import LoadedFrameworks
from netprof.probes.job.processes import is_same
from netprof.probes.kernel.loader import BpfLink, BpfObject, RingBuffer, map_lookup, map_update
from netprof.probes.kernel.targets import TargetMap
from netprof.probes.marks.libraries import Library, Mapping, executable_mappings, matches, open_library
from netprof.probes.marks.plan import Plan, Row, count_functions, number_rows, plan_library
from netprof.probes.marks.records import MAX_SPECS, RECORD, check_records, columns, pack_spec
from netprof.probes.marks.returns import danger
from netprof.probes.marks.steps import StepCounter
from netprof.probes.marks.uprobes import TRACE_UPROBE_MULTI, Attacher, Place, close_links, refusal, supports_multi
from netprof.probes.probe import Columns, Description, Probe, Shared, Tables
from netprof.schema import MarkKind

RING_BYTES = 1 << 20
"""Room for 18,000 marks between two drains."""

MAX_LIBRARIES = 64
"""Different library files of all processes together; each stays open, and a process can map any number."""

_SAMPLED_STEPS = 20  # iterations for which every gradient is marked
_EVERY_PROCESS = 0
_Key = tuple[int, int, int]  # process, device and inode of a library


class MarkProbe(Probe):
    """Records marks of the processes it is attached to, until closed.

    `targets` is the map of the job's processes; without one to share the probe makes its own and keeps it up itself.
    `multi` chooses the way to attach (None: the best that the kernel has). Raises NotPermittedError or NetprofError
    when the program cannot be loaded; what is wrong with one process or one function is in `skipped` instead.
    """

    name = "marks"
    period_s = 0.2

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
        self.targets = targets or TargetMap()
        self._libraries: dict[tuple[int, int], tuple[Library, Plan]] = {}
        self._steady: dict[_Key, list[BpfLink]] = {}
        self._sampled: dict[_Key, list[BpfLink]] = {}
        self._returns: dict[_Key, list[BpfLink]] = {}
        self._frameworks: dict[int, dict[str, None]] = {}  # of each process, in the order found
        self._started: dict[StartedProbe, None] = {}
        self._skipped: dict[SkippedProbe, None] = {}
        self._warnings: dict[str, None] = {}
        self._rejected: Counter[int] = Counter()  # by row
        self._files = {framework.library for framework in frameworks}
        self._loaded = LoadedFrameworks(frameworks)
        self._followed: Sequence[Target] = ()
        self._training: set[Target] = set()
        self._helpers: set[Target] = set()  # that have a framework's library and do not train
        self._counter = StepCounter()
        self._steps_at_sampling: Counter[int] = Counter()
        self._object, self._attacher = _load(self.targets.fd, ring_bytes, multi)
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

    @classmethod
    def open(cls, shared: Shared) -> MarkProbe:
        """Load the program. Raises NotPermittedError or NetprofError."""
        return cls(targets=shared.targets)

    def follow(self, targets: Sequence[Target]) -> None:
        """Attach to the processes that train and have joined or loaded a framework since the last call."""
        self._followed = targets
        training = {target for target in targets if target.frameworks}
        fresh = training - self._training
        for target in fresh:
            self.attach(target.pid)
        if fresh:
            self._steps_at_sampling = self._counter.steps
        self._training = training  # one that turns out to be a launcher leaves

    def notice(self, table: str, columns: Columns) -> None:
        """Forget processes that exit, and stop sampling once every process has had its share of steps."""
        if table != "marks":
            return
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
        try:
            mappings = executable_mappings(pid)
        except NotPermittedError as error:
            self._skipped[SkippedProbe("marks", error.message, error.hint)] = None
            return ()
        except NetprofError:  # it ended
            return ()
        for mapping in mappings:
            named = {library for library in self._files if matches(mapping, library)}
            if named:
                rows = [row for row in self._rows if row.framework.library in named]
                self._attach_library(pid, mapping, rows, mappings)
        return tuple(self._frameworks.get(pid, ()))

    def detach(self, pid: int) -> None:
        """Forget a process that has ended, so that a later one with its pid is attached anew."""
        every = (self._steady, self._sampled, self._returns)
        close_links([link for links in every for key in list(links) if key[0] == pid for link in links.pop(key)])
        self._frameworks.pop(pid, None)
        if self._own_targets:
            self.targets.discard(pid)

    def drop_sampled(self) -> None:
        """Detach the marks that are sampled, in every process attached so far."""
        close_links([link for links in self._sampled.values() for link in links])
        self._sampled.clear()

    @property
    def sampling(self) -> bool:
        """Say whether sampled marks are attached somewhere."""
        return any(self._sampled.values())

    def drain(self, *, final: bool = False) -> Tables:
        """Take the marks recorded since the last call: rows of table `marks`.

        Rows are in the order in which each CPU recorded them; two CPUs may be a few microseconds out of order.
        """
        records = self._ring.drain().copy().view(RECORD).reshape(-1)
        good, rejected = check_records(records, [row.mark for row in self._rows])
        self._rejected += rejected
        return {"marks": columns(good)}

    def describe(self) -> Description:
        """Return what is attached where, what not and why, and how many marks were lost."""
        return Description(
            started=tuple(self.started),
            skipped=tuple(self.skipped),
            warnings=tuple(self.warnings),
            losses=Losses(lost_marks=self.lost()),
        )

    def lost(self) -> int:
        """Return how many marks found the ring full and are not in the recording."""
        value = map_lookup(self._object.map_fd("lost"), _u32(0), 8)
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
        """Say whether every process that trains has had its share of steps with every gradient marked."""
        steps = self._counter.steps - self._steps_at_sampling
        return not any(steps[target.pid] < _SAMPLED_STEPS and is_same(target) for target in self._training)

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
                self._started[StartedProbe(f"marks:{name}", detail)] = None


_NO_RETURNS = "nothing: its calls are seen to begin and not to end, so what the job waits for is unknown"


def _load(targets_fd: int, ring_bytes: int, multi: bool | None) -> tuple[BpfObject, Attacher]:
    """Load the program for uprobe_multi where the kernel can do that, else for perf events."""
    reuse, size = {"targets": targets_fd}, {"records": ring_bytes}
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
