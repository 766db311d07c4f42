"""GPU activity through NVML: the GPUs that the job uses, sampled on threads of their own.

Two threads, so that no call delays what should not wait: a fast one polls (up to 50 Hz), a slow one opens NVML, finds
the job's GPUs once a second and makes the calls that take long or return many samples at once. The recorder only takes
the rows that lie ready: however long NVML takes, recording goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from netprof.errors import NetprofError
from netprof.model import Gpu, SkippedProbe, StartedProbe, Target
from netprof.probes.gpu.nvml import OpenGpu, open_gpus, open_nvml
from netprof.probes.gpu.of_job import GpuUse, gpus_of_job
from netprof.probes.gpu.readers import Reading
from netprof.probes.gpu.sampled import Missing, SampledGpu
from netprof.probes.probe import Description, Probe, Shared, Tables

POLL_S = 0.02
"""The fast thread's period: 50 Hz, the most that is asked of NVML."""

_SLOW_S = 0.1
_LOOK_S = 1.0
_STUCK_S = 2.0  # a call that takes longer is reported
_COLUMNS = ("gpu", "pid", "metric", "time_ns", "period_ns", "value")

Row = tuple[int, int, int, int, int, float]


class GpuProbe(Probe):
    """Samples the GPUs that the job's processes use, from the first `follow` until `close`.

    Nothing here raises, blocks for long or waits for NVML: what does not work is in its description.
    """

    name = "gpu"
    period_s = 0.2

    def __init__(self, poll_s: float = POLL_S) -> None:
        self._poll_s = poll_s
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._rows: list[Row] = []
        self._pids: set[int] = set()  # of the job, which only grow: asked from both threads
        self._sampled: dict[int, SampledGpu] = {}
        self._uses: dict[int, GpuUse] = {}
        self._problems: dict[str, SkippedProbe] = {}
        self._busy_since: dict[str, float] = {}
        self._machine_gpus: Sequence[OpenGpu] = ()
        self._ready = False
        self._fast = threading.Thread(target=self._guarded, args=(self._poll,), name="netprof-gpu-poll", daemon=True)
        self._slow = threading.Thread(target=self._guarded, args=(self._serve,), name="netprof-gpu", daemon=True)

    @classmethod
    def open(cls, shared: Shared) -> GpuProbe:
        """Make one; NVML is opened by its thread."""
        return cls()

    def follow(self, targets: Sequence[Target]) -> None:
        """Set the job's processes: GPUs that they use are found within a second. Begins at the first that there are."""
        self._pids.update(target.pid for target in targets)
        if self._pids and self._slow.ident is None:
            self._slow.start()

    def drain(self, *, final: bool = False) -> Tables:
        """Return the rows since the last call, of table `gpu`; with `final` the sampling ends first."""
        if final:
            self.close()
        with self._lock:
            rows, self._rows = self._rows, []
        columns = zip(*rows, strict=True) if rows else ((),) * len(_COLUMNS)
        return {"gpu": {name: list(column) for name, column in zip(_COLUMNS, columns, strict=True)}}

    def describe(self) -> Description:
        """Return the GPUs that are or were sampled, and what could not be sampled of them and why."""
        sampled = dict(sorted(self._sampled.copy().items()))
        uses = self._uses  # read after: a GPU that is sampled has its use there
        rate = f"polled at up to {1 / self._poll_s:.0f} Hz, utilization as NVML samples it"
        started = (StartedProbe("gpu", f"GPU {', '.join(map(str, sampled))}: {rate}"),) if sampled else ()
        gpus = tuple(_described(gpu, uses[index]) for index, gpu in sampled.items())
        return Description(started, (*self._problems_now(bool(sampled)), *_missing(sampled)), gpus=gpus)

    def close(self) -> None:
        """End the sampling; a thread that NVML does not let go of within two seconds is left behind."""
        self._stop.set()
        until_s = time.monotonic() + _STUCK_S
        for thread in (self._slow, self._fast):
            if thread.ident is not None:
                thread.join(max(0.0, until_s - time.monotonic()))

    def _problems_now(self, samples: bool) -> list[SkippedProbe]:
        problems = list(self._problems.copy().values())
        for name, since_s in self._busy_since.copy().items():
            if (waited_s := time.monotonic() - since_s) > _STUCK_S:
                reason = f"NVML has not answered the {name} for {waited_s:.0f} s"
                problems.append(SkippedProbe("gpu", reason, "see whether nvidia-smi answers, and dmesg for NVRM lines"))
        if self._ready and not samples and not problems:
            reason = f"none of the {len(self._machine_gpus)} GPUs of this machine is used by the job"
            problems.append(SkippedProbe("gpu", reason))
        return problems

    def _guarded(self, work: Any) -> None:
        """Run a thread's work; an error of ours ends the sampling, never the recording."""
        try:
            work()
        except NetprofError as error:
            self._problems.setdefault("start", SkippedProbe("gpu", error.message, error.hint))
        except Exception as error:  # whatever it is, the job's recording must not end
            reason = f"sampling stopped: {type(error).__name__}: {error}"
            self._problems.setdefault("error", SkippedProbe("gpu", reason, "report this as a bug of netprof"))

    def _serve(self) -> None:
        """The slow thread: open NVML, find the job's GPUs, and take what NVML gathered."""
        with self._busy("start of NVML"):
            nvml = open_nvml()
        try:
            with self._busy("opening of the GPUs"):
                self._machine_gpus, failed = open_gpus(nvml)
            for sentence in failed:
                self._problems[sentence] = SkippedProbe("gpu", sentence, "see dmesg for the driver's Xid messages")
            self._look(nvml)
            self._ready = True
            self._fast.start()
            self._take(nvml)
        finally:
            self._end(nvml)

    @contextmanager
    def _busy(self, name: str) -> Iterator[None]:
        """Note that NVML is being asked, for as long as it has not answered."""
        self._busy_since[name] = time.monotonic()
        try:
            yield
        finally:
            self._busy_since.pop(name, None)

    def _take(self, nvml: Any) -> None:
        next_look_s = time.monotonic() + _LOOK_S
        while not self._stop.wait(_SLOW_S):
            if time.monotonic() >= next_look_s:
                next_look_s += _LOOK_S
                self._look(nvml)
            self._read(slow=True)
        self._read(slow=True)  # what NVML gathered since

    def _poll(self) -> None:
        """The fast thread; a tick that comes too late is left out rather than made up for."""
        next_s = time.monotonic()
        while not self._stop.wait(max(0.0, next_s - time.monotonic())):
            self._read(slow=False)
            late = max(0.0, time.monotonic() - next_s)
            next_s += self._poll_s * (1 + int(late / self._poll_s))

    def _read(self, *, slow: bool) -> None:
        for index, sampled in self._sampled.copy().items():
            with self._busy(f"{'slow' if slow else 'fast'} readings of GPU {index}"):
                rows = [_row(index, reading) for reading in sampled.read(slow=slow)]
            if rows:
                with self._lock:
                    self._rows.extend(rows)
            if sampled.lost:
                self._lose(index, sampled.lost)

    def _look(self, nvml: Any) -> None:
        """Take up the GPUs that processes of the job have begun to use."""
        with self._busy("list of processes"):
            used_now = gpus_of_job(nvml, self._machine_gpus, frozenset(self._pids))
        uses = self._uses.copy()
        for index, use in used_now.items():
            known = uses[index].pids if index in uses else ()
            uses[index] = GpuUse(tuple(sorted({*known, *use.pids})), use.found_by)
        self._uses = uses
        for gpu in self._machine_gpus:
            if gpu.index in used_now and gpu.index not in self._sampled:
                self._sampled[gpu.index] = SampledGpu(nvml, gpu, self._pids)

    def _lose(self, index: int, why: str) -> None:
        name = f"gpu:{index}"
        if name not in self._problems:
            reason = f"GPU {index} gives no more samples: {why}"
            self._problems[name] = SkippedProbe(name, reason, "see dmesg for the driver's Xid messages")

    def _end(self, nvml: Any) -> None:
        """Shut NVML down, unless a call of the fast thread still hangs in it."""
        self._stop.set()
        if self._fast.ident is not None:
            self._fast.join(_STUCK_S)
        if not self._fast.is_alive():
            for sampled in self._sampled.values():
                sampled.close()
            nvml.nvmlShutdown()


def _row(index: int, reading: Reading) -> Row:
    return index, reading.pid, int(reading.metric), reading.time_ns, reading.period_ns, reading.value


def _described(sampled: SampledGpu, use: GpuUse) -> Gpu:
    gpu = sampled.gpu
    return Gpu(gpu.index, gpu.name, gpu.uuid, gpu.memory_bytes, use.pids, use.found_by, sampled.sources)


def _missing(sampled: dict[int, SampledGpu]) -> list[SkippedProbe]:
    """Return a line for each set of GPUs and reason: the metrics that they lack for it."""
    gpus: dict[Missing, list[int]] = {}
    for index, gpu in sampled.items():
        for missing in gpu.missing.copy():
            gpus.setdefault(missing, []).append(index)
    lines: dict[tuple[tuple[int, ...], str, str], list[str]] = {}
    for missing, indices in gpus.items():
        lines.setdefault((tuple(indices), missing.reason, missing.remedy), []).append(missing.what)
    return [
        SkippedProbe("gpu:metrics", f"GPU {', '.join(map(str, indices))}: no {', '.join(what)}: {reason}", remedy)
        for (indices, reason, remedy), what in lines.items()
    ]
