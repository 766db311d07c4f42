"""What recording costs: the recorder's own CPU time and memory, and the BPF programs' run time."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path

from netprof.errors import NetprofError
from netprof.model import Cost, ProbeCost, ProgramCost
from netprof.probes.kernel.loader import BpfObject, program_statistics, run_time_statistics

_SAMPLE_S, _PERIOD_S = 0.2, 5.0


class BpfCostSampler:
    """Lets the kernel time our BPF programs for a fifth of a second every five seconds.

    Timing every run would double the cost of the programs that it times.
    """

    def __init__(self) -> None:
        self._programs: dict[tuple[str, str], ProgramCost] = {}  # by object and name, as last read
        self._timing = ExitStack()
        self._sampling_since: float | None = None
        self._next_s = time.monotonic()
        self._sampled_s = 0.0

    def tick(self) -> None:
        """Begin or end a sample when it is time; called from the recording loop."""
        now = time.monotonic()
        if self._sampling_since is None and now >= self._next_s:
            with suppress(NetprofError):  # without statistics the cost is unknown, the recording is not
                self._timing.enter_context(run_time_statistics())
                self._sampling_since = now
            self._next_s = now + _PERIOD_S
        elif self._sampling_since is not None and now - self._sampling_since >= _SAMPLE_S:
            self._end_sample(now)

    def result(self, objects: Iterable[BpfObject]) -> tuple[float, tuple[ProgramCost, ...]]:
        """Return the seconds sampled and each program's runs and run time within them.

        `objects` are those that are loaded; what is known of one that was there before stays.
        """
        if self._sampling_since is not None:
            self._end_sample(time.monotonic())
        for bpf_object in objects:
            for name in bpf_object.programs():
                run_time_ns, runs = program_statistics(bpf_object.program_fd(name))
                self._programs[bpf_object.name, name] = ProgramCost(name, runs, run_time_ns)
        return self._sampled_s, tuple(self._programs.values())

    def _end_sample(self, now: float) -> None:
        self._timing.close()
        self._sampled_s += now - (self._sampling_since or now)
        self._sampling_since = None


class RecorderCost:
    """The recorder's CPU time and wall time since it began."""

    def __init__(self) -> None:
        self._wall = time.monotonic()
        self._cpu = _cpu_s()
        self._start_s = self._start_cpu_s = 0.0

    def started(self) -> None:
        """Note that all so far was to get the recording going."""
        self._start_s, self._start_cpu_s = time.monotonic() - self._wall, _cpu_s() - self._cpu

    def result(self, trace_bytes: int, probes: Iterable[ProbeCost], bpf: tuple[float, tuple[ProgramCost, ...]]) -> Cost:
        """Return the cost so far; peak memory is the whole process's, from its start."""
        sampled_s, programs = bpf
        return Cost(
            wall_s=time.monotonic() - self._wall,
            cpu_s=_cpu_s() - self._cpu,
            peak_memory_bytes=_peak_memory_bytes(),
            trace_bytes=trace_bytes,
            bpf_sampled_s=sampled_s,
            programs=programs,
            probes=tuple(probes),
            start_s=self._start_s,
            start_cpu_s=self._start_cpu_s,
        )


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _peak_memory_bytes() -> int:
    """Peak resident memory of this process; `ru_maxrss` would include the program that started us."""
    with suppress(OSError):  # no file can be opened any more
        for line in Path(f"/proc/{os.getpid()}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
