"""Recording: probes in, trace out. Everything that must happen between attach and detach, and in which order."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from netprof import __version__
from netprof.errors import NetprofError, NotPermittedError
from netprof.model import Clock, Losses, Meta, Probe, SkippedProbe, Target
from netprof.probes.flow.probe import FlowProbe
from netprof.probes.gpu.probe import GpuProbe
from netprof.probes.marks.probe import MarkProbe
from netprof.probes.nic.devices import Devices
from netprof.schema import MarkKind
from netprof.session.buffers import TableBuffers
from netprof.session.cost import BpfCostSampler, RecorderCost
from netprof.session.job import Job
from netprof.session.options import RecordingOptions
from netprof.session.progress import Progress
from netprof.trace import TraceWriter

TICK_S = 0.1  # how often the NIC is sampled
_COLLECT_S = 0.2
_FLUSH_S = 0.8
_META_S = 2.0
_SAMPLED_STEPS = 20  # iterations for which every gradient is marked


class Recorder:
    """Records a job to a trace from `start` to `stop`; `tick` must be called every TICK_S in between.

    Raises NotPermittedError without the rights for it, NetprofError when a probe or the trace cannot be set up.
    """

    def __init__(self, targets: Sequence[Target], options: RecordingOptions, command: Sequence[str]) -> None:
        self.options = options
        self.progress = Progress()
        self.collected_ns = 0  # everything that happened until then (CLOCK_MONOTONIC) was handed over
        self._cost = RecorderCost()
        self._resources = ExitStack()
        try:
            self._open(targets, command)
        except BaseException:
            self._resources.close()
            raise

    def _open(self, targets: Sequence[Target], command: Sequence[str]) -> None:
        self.job = Job(targets)
        self._resources.callback(self.job.close)
        self._devices = Devices(self.options.line_rate_bps)
        self._resources.callback(self._devices.close)
        self._bpf_cost = BpfCostSampler()
        self._buffers = TableBuffers()
        self._ignored_flows: set[int] = set()
        self._skipped: list[SkippedProbe] = []
        self._flows = self._resources.enter_context(FlowProbe(self.options.bin_ns))
        self._bpf_cost.watch(self._flows.object)
        self._marks = self._open_marks()
        self._gpus = self._resources.enter_context(GpuProbe())
        self._steps_at_sampling: Mapping[int, int] = {}
        self._next_collect_s = self._next_flush_s = self._next_meta_s = 0.0
        self._meta = _first_meta(self.options, command)
        self._writer = TraceWriter(self.options.out, self._meta, force=self.options.force)

    def _open_marks(self) -> MarkProbe | None:
        try:
            marks = MarkProbe(targets_fd=self._flows.object.map_fd("targets"))
        except NotPermittedError:
            raise
        except NetprofError as error:
            self._skipped.append(SkippedProbe("marks", error.message, error.hint))
            return None
        self._bpf_cost.watch(marks.object)
        return self._resources.enter_context(marks)

    def start(self) -> None:
        """Attach to the job. Raises NetprofError; the trace that was begun is then removed again."""
        try:
            for target in self.job.targets:
                self._flows.add_target(target.pid)
            self._flows.start()
            self._attach_marks(self.job.targets)
            self._gpus.follow([target.pid for target in self.job.targets])
            self._gpus.start()
        except BaseException:
            self.abandon()
            raise
        self._meta = replace(self._meta, started_ns=time.monotonic_ns())

    def abandon(self) -> None:
        """Detach and remove the trace: nothing was recorded."""
        self._resources.close()
        self._writer.discard()

    def observe(self, observer: Callable[[str, Mapping[str, Any]], None]) -> None:
        """From now on also give every batch of rows, with its table's name, to `observer`; it must be quick."""
        self._buffers.observer = observer

    @property
    def meta(self) -> Meta:
        """The trace's description as of the last time it was written."""
        return self._meta

    @property
    def started_ns(self) -> int:
        """When the last probe was attached (CLOCK_MONOTONIC)."""
        return self._meta.started_ns

    def tick(self) -> None:
        """Take what the kernel has for us. Raises OSError when the trace cannot be written any more."""
        now_s = time.monotonic()
        self._bpf_cost.tick()
        self._buffers.add("nic", self._devices.sample())
        if now_s >= self._next_collect_s:
            self._next_collect_s = now_s + _COLLECT_S - TICK_S / 2
            self._follow_job()
            self._collect(final=False)
            self.collected_ns = round(now_s * 1e9)
        if now_s >= self._next_flush_s:
            self._next_flush_s = now_s + _FLUSH_S
            self._flows.recycle()
            self._buffers.flush(self._writer)
        if now_s >= self._next_meta_s:
            self._next_meta_s = now_s + _META_S
            self._meta = self._described()
            self._writer.update_meta(self._meta)

    def stop(self, reason: str) -> Meta:
        """Detach, write what is left, and return the trace's final description; a full disk is a warning in it."""
        self._meta = replace(self._meta, stopped_ns=time.monotonic_ns())
        self._buffers.add("nic", self._devices.sample())
        self._follow_job()
        self._collect(final=True)
        warnings: tuple[str, ...] = ()
        try:
            self._buffers.flush(self._writer)
        except OSError as error:
            warnings = (f"the last part could not be written: {error.strerror}",)
        meta = replace(self._described(), stop_reason=reason)
        meta = replace(meta, warnings=meta.warnings + warnings)
        self._resources.close()
        with suppress(OSError):  # the disk is full: what was flushed stays, described as of the last update
            self._writer.close(meta)
        return meta

    def _follow_job(self) -> None:
        lives = self._flows.drain_lives()
        if len(lives["time_ns"]):
            self._buffers.add("marks", lives)
            if (lives["kind"] != MarkKind.PROCESS_EXIT).any():
                self.job.expect_changes()
            self._forget(lives["pid"][lives["kind"] == MarkKind.PROCESS_EXIT].tolist())
        changed = self.job.changed()
        for target in changed:
            self._flows.add_target(target.pid)
        self._attach_marks(changed)
        if changed:
            self._gpus.follow([target.pid for target in self.job.targets])

    def _attach_marks(self, targets: Sequence[Target]) -> None:
        training = [target for target in targets if target.frameworks]
        if self._marks is None or not training:
            return
        for target in training:
            self._marks.attach(target.pid)
        self._steps_at_sampling = dict(self.progress.steps)

    def _forget(self, pids: Sequence[int]) -> None:
        for pid in pids:
            if self._marks is not None:
                self._marks.detach(pid)

    def _collect(self, *, final: bool) -> None:
        """Move everything from the probes to the buffers, a flow's row before its bytes."""
        wire = self._flows.drain(final=final)
        flows = self._flows.new_flows(final=final)
        for flow in flows:
            self._take_up(flow)
        self._buffers.add_rows("flows", [flow for flow in flows if flow["flow_id"] not in self._ignored_flows])
        self._add_wire(wire)
        self._buffers.add("tcp", self._wanted(self._flows.tcp_samples()))
        if self._marks is not None:
            self._add_marks(self._marks)
        if final:
            self._gpus.stop()
        self._buffers.add("gpu", self._gpus.drain())

    def _take_up(self, flow: dict[str, Any]) -> None:
        flow["rank"] = self.job.rank_of(flow["pid"])
        if self.options.device and flow["device"] != self.options.device:
            self._ignored_flows.add(flow["flow_id"])
        else:
            self._devices.add(flow)

    def _add_wire(self, wire: dict[str, Any]) -> None:
        wire = self._recorded(self._wanted(wire), "first_ns", "last_ns")
        self.progress.see_wire(wire)
        self._buffers.add("wire", wire)

    def _wanted(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Leave out the flows of devices that the person did not ask for."""
        if not self._ignored_flows:
            return columns
        wanted = ~np.isin(columns["flow_id"], list(self._ignored_flows))
        return {name: column[wanted] for name, column in columns.items()}

    def _add_marks(self, marks: MarkProbe) -> None:
        columns = self._recorded(marks.drain(), "time_ns", "time_ns")
        self.progress.see_marks(columns)
        self._buffers.add("marks", columns)
        if marks.sampling and self._sampled_enough():
            marks.drop_sampled()

    def _recorded(self, columns: dict[str, Any], first: str, last: str) -> dict[str, Any]:
        """Leave out what is from before the last probe was attached or after the stop: only some probes have that."""
        until_ns = self._meta.stopped_ns or time.monotonic_ns()
        inside = (columns[last] >= self._meta.started_ns) & (columns[first] <= until_ns)
        return columns if inside.all() else {name: column[inside] for name, column in columns.items()}

    def _sampled_enough(self) -> bool:
        """Say whether every process that trains has had its share of steps with every gradient marked."""
        steps, before = self.progress.steps, self._steps_at_sampling
        training = [target.pid for target in self.job.training()]
        return all(steps[pid] - before.get(pid, 0) >= _SAMPLED_STEPS for pid in training)

    def _described(self) -> Meta:
        """Return the trace's description as of now."""
        counters = self._flows.counters()
        marks = self._marks
        started = [Probe("flows", f"{self.options.bin_ns} ns bins"), Probe("nic", f"every {TICK_S * 1e3:.0f} ms")]
        return replace(
            self._meta,
            targets=self.job.targets,
            devices=self._devices.devices,
            gpus=self._gpus.gpus,
            probes_started=tuple(started + self._gpus.started + (marks.started if marks else [])),
            probes_skipped=tuple(
                self._skipped + self._devices.skipped + self._gpus.skipped + (marks.skipped if marks else [])
            ),
            warnings=tuple(marks.warnings if marks else []),
            losses=Losses(
                merged_bins=counters["merged_bins"],
                lost_marks=(marks.lost() if marks else 0) + counters["lost_events"],
                untracked_flows=counters["untracked_flows"],
                healed_bytes=counters["healed_bytes"],
            ),
            cost=self._cost.result(self._writer.size_bytes(), self._bpf_cost),
        )


def _first_meta(options: RecordingOptions, command: Sequence[str]) -> Meta:
    return Meta(
        netprof_version=__version__,
        host=platform.node(),
        boot_id=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        kernel=os.uname().release,
        clock=Clock(time.monotonic_ns(), time.time_ns()),
        command=tuple(command),
        bin_ns=options.bin_ns,
        started_ns=time.monotonic_ns(),
    )
