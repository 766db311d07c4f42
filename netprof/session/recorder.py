"""Recording: probes in, trace out. Everything that must happen between attach and detach, and in which order."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from netprof.errors import NetprofError, NotPermittedError
from netprof.model import Clock, Meta, SkippedProbe, Target
from netprof.probes.job.processes import is_same
from netprof.probes.kernel.targets import NoTargets, TargetMap
from netprof.probes.measurements import PROBES
from netprof.probes.nic.probe import require_devices
from netprof.probes.probe import Columns, Description, Probe, Shared
from netprof.redact import without_secrets
from netprof.schema import LASTING
from netprof.session import this_host
from netprof.session.cost import BpfCostSampler, RecorderCost
from netprof.session.job_processes import Job
from netprof.session.options import RecordingOptions
from netprof.session.priority import kept_memory, many_files
from netprof.session.progress import OutsideTotals, Progress
from netprof.session.running import RunningProbe
from netprof.version import __version__

TICK_S = min(probe.sample_s or probe.period_s for probe in PROBES)
_FLUSH_S = 0.8
_AT_ONCE = 2  # probes that are opened side by side
_WHEN = {
    "marks": ("time_ns", "time_ns"),
    "wire": ("first_ns", "last_ns"),
    "nccl_posted": ("first_ns", "last_ns"),
}  # from when to when a row is
_META_S = 2.0
_STARTING_S = 2.0
_LONGEST_WORD = 1000  # characters of the command line


class Recorder:
    """Records a job to a trace from `start` to `stop`; `tick` must be called every TICK_S in between.

    `refused` says why no BPF program may be loaded: then the `probes` are those that need none.
    Raises NotPermittedError without the rights for it, UsageError for a device that the job does not have, NetprofError
    when a required probe or the trace cannot be set up.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        options: RecordingOptions,
        command: Sequence[str],
        probes: Sequence[type[Probe]] = PROBES,
        *,
        refused: NotPermittedError | None = None,
    ) -> None:
        self.options = options
        self._refused = refused
        self.progress = Progress()
        self.collected_ns = 0  # everything that happened until then (CLOCK_MONOTONIC) was handed over
        self._cost = RecorderCost()
        self._resources = ExitStack()
        self._warnings: dict[str, None] = {}  # each once, in the order in which they came
        try:
            self._open(targets, command, probes)
        except BaseException:
            self._resources.close()
            raise

    def _open(self, targets: Sequence[Target], command: Sequence[str], probes: Sequence[type[Probe]]) -> None:
        if self.options.devices:
            require_devices(self.options.devices, targets)
        self._resources.enter_context(many_files())
        most = self.options.most_processes
        self.job = Job(targets, self.options.given, asks_kernel=self._refused is None, most=most)
        self._resources.callback(self.job.close)
        self._bpf_cost = BpfCostSampler(lambda: (each for probe in self._probes for each in probe.objects))
        self._outside = OutsideTotals()
        self._targets = self._resources.enter_context(TargetMap() if self._refused is None else NoTargets())
        self._probes = self._opened(probes)
        noticed = {table for kind in probes for table in kind.notices}
        self._learners = {table: [probe for probe in self._probes if probe.notices(table)] for table in noticed}
        self._next_flush_s = self._next_meta_s = 0.0
        self._meta = _first_meta(self.options, command)
        from netprof.session.buffers import TableBuffers, writer_of

        self._buffers = TableBuffers()
        self._writer = writer_of(self.options, self._meta)

    def _opened(self, kinds: Sequence[type[Probe]]) -> list[RunningProbe]:
        """Open the probes side by side: the kernel checks the programs of some while others read and import."""
        opening: list[Future[RunningProbe]] = []
        options = self.options
        shared = Shared(
            self._targets,
            self.job.rank_of,
            options.bin_ns,
            options.line_rate_bps,
            options.devices,
            options.ras,
            options.kineto_iterations,
            options.stacks,
            self.job.targets,
            options.max_flows,
        )
        try:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                opening += (pool.submit(RunningProbe, kind, shared) for kind in kinds)
                import_module("netprof.session.buffers")  # and with it pyarrow, which takes 30 ms
        finally:
            for each in opening:
                if each.done() and each.exception() is None:
                    self._resources.callback(each.result().close)
        return [each.result() for each in opening]

    def start(self) -> None:
        """Attach to the job. Raises NetprofError; the trace that was begun is then removed again."""
        try:
            self._follow(self.job.targets)
        except BaseException:
            self.abandon()
            raise
        self._resources.enter_context(kept_memory())  # from here on: what attaching took is given back
        self._meta = replace(self._meta, started_ns=time.monotonic_ns())
        self.job.expect_changes(_STARTING_S)  # what it forked since it was looked at was told to no one
        self._cost.started()

    def abandon(self) -> None:
        """Detach and remove the trace: nothing was recorded."""
        self._resources.close()
        self._writer.discard()

    def observe(self, observer: Callable[[str, Mapping[str, Any]], None]) -> None:
        """From now on also give every batch of rows, with its table's name, to `observer`; it must be quick."""
        self._buffers.observers.append(observer)

    @property
    def meta(self) -> Meta:
        """The trace's description as of the last time it was written."""
        return self._meta

    @property
    def started_ns(self) -> int:
        """When the last probe was attached (CLOCK_MONOTONIC)."""
        return self._meta.started_ns

    def tick(self) -> None:
        """Take what the probes have for us. Raises TraceError when the trace cannot be written any more."""
        now_s = time.monotonic()
        self._bpf_cost.tick()
        self._collect(now_s, everything=now_s >= self._next_flush_s)  # so that no table of the trace is behind another
        self._follow(self._changed())
        try:
            self._write(now_s)
        except OSError as error:
            from netprof.trace.writer import cannot_write

            raise cannot_write(self.options.out, error) from error

    def _write(self, now_s: float) -> None:
        """Write what it is time for. Raises OSError."""
        if now_s >= self._next_flush_s:
            self._next_flush_s = now_s + _FLUSH_S
            self._buffers.flush(self._writer)
        if now_s >= self._next_meta_s:
            self._next_meta_s = now_s + _META_S
            self._meta = self._described()
            self._writer.update_meta(self._meta)

    def stop(self, reason: str) -> Meta:
        """Detach, write what is left, and return the trace's final description; a full disk is a warning in it."""
        try:
            meta = self._last(reason)
        finally:
            self._resources.close()
        with suppress(OSError, NetprofError):  # a full disk, say: what was flushed stays, described as of before
            self._writer.close(meta)
        return meta

    def _last(self, reason: str) -> Meta:
        """Write what is left, and describe it."""
        stopped_ns = time.monotonic_ns()
        self._meta = replace(self._meta, stopped_ns=stopped_ns)
        self._collect(time.monotonic(), everything=True, final=True)
        if self._outside:
            self._buffers.add("outside", self._outside.columns(stopped_ns))
        self._changed()
        try:
            self._buffers.flush(self._writer)
        except OSError as error:
            self._warnings[f"the last part could not be written: {error.strerror}"] = None
        return replace(self._described(), stop_reason=reason)

    def _changed(self) -> Sequence[Target]:
        """Return the processes that joined or changed; none where that cannot be seen now, which is noted."""
        try:
            changed = self.job.changed()
        except (NetprofError, OSError) as error:
            self._warnings[f"processes that joined the job may be missing: {error}"] = None
            return ()
        if self.job.left_out:
            most = self.options.most_processes
            self._warnings[f"processes of the job are missing: no more than {most} are followed"] = None
        return changed

    def _follow(self, changed: Sequence[Target]) -> None:
        """Let every probe know of processes that joined or loaded a framework."""
        for target in changed:
            try:
                self._targets.add(target.pid)
            except NetprofError as error:
                self._warnings[f"processes of the job may be missing: {error.message}"] = None
            if not is_same(target):  # it ended meanwhile, which was not seen, or is overwritten now
                self._targets.discard(target.pid)
        for probe in self._probes if changed else ():
            probe.follow(self.job.targets)

    def _collect(self, now_s: float, *, everything: bool, final: bool = False) -> None:
        """Move what the probes that are due have to the buffers, or what all have."""
        for probe in self._probes:
            if everything or probe.is_due(now_s, TICK_S / 2):
                for table, columns in probe.drain(now_s, final=final).items():
                    self._take(table, columns)
            else:
                probe.sample(now_s, TICK_S / 2)
        self.collected_ns = min((probe.drained_ns for probe in self._probes if probe.is_open), default=0)

    def _take(self, table: str, columns: Columns) -> None:
        """Keep a batch of rows, and show it to everybody who learns from others' rows."""
        if not _length(columns):
            return
        self.job.notice(table, columns)
        for probe in self._learners.get(table, ()):
            probe.notice(table, columns)
        kept = self._recorded(table, columns)
        if _length(kept):
            self._buffers.add(table, kept)
            self.progress.see(table, kept)

    def _recorded(self, table: str, columns: Columns) -> Columns:
        """Leave out what is from before the last probe was attached or after the stop: only some probes have that.

        What lasts, as a communicator, is kept: it is created once.
        """
        if table not in _WHEN:
            return columns
        first, last = (np.asarray(columns[name]) for name in _WHEN[table])
        until_ns = self._meta.stopped_ns or time.monotonic_ns()
        lasts = np.isin(columns["kind"], LASTING) if table == "marks" else False
        inside = ((last >= self._meta.started_ns) | lasts) & (first <= until_ns)
        if inside.all():
            return columns
        if table == "wire":
            self._outside.add(columns, ~inside)
        return {name: column[inside] for name, column in columns.items()}

    def _described(self) -> Meta:
        """Return the trace's description as of now."""
        of_probes = sum((probe.describe() for probe in self._probes), Description())
        bpf = self._bpf_cost.result()
        costs = [probe.cost for probe in self._probes]
        targets = self.job.targets
        if not self.options.command_lines:
            targets = tuple(replace(target, command="") for target in targets)
        return replace(
            self._meta,
            targets=targets,
            devices=of_probes.devices,
            gpus=of_probes.gpus,
            series=of_probes.series,
            probes_started=of_probes.started,
            probes_skipped=(*self._left_out(), *of_probes.skipped),
            warnings=(*of_probes.warnings, *self._warnings),
            losses=of_probes.losses,
            cost=self._cost.result(self._writer.size_bytes(), costs, bpf),
        )

    def _left_out(self) -> tuple[SkippedProbe, ...]:
        """Return what is not measured since no program may be loaded."""
        if (refused := self._refused) is None:
            return ()
        return (
            SkippedProbe("flows", f"{refused.message}: bytes are sampled, not counted packet by packet", refused.hint),
            SkippedProbe("marks", f"{refused.message}: iterations can only be inferred", refused.hint),
        )


def _length(columns: Columns) -> int:
    return len(next(iter(columns.values())))


def _first_meta(options: RecordingOptions, command: Sequence[str]) -> Meta:
    return Meta(
        netprof_version=__version__,
        host=platform.node(),
        boot_id=this_host.boot_id(),
        kernel=os.uname().release,
        clock=Clock.now(),
        command=tuple(word[:_LONGEST_WORD] for word in without_secrets(command)) if options.command_lines else (),
        bin_ns=options.bin_ns,
        only_devices=options.devices,
        started_ns=time.monotonic_ns(),
    )
