"""What recording costs: the recorder's own CPU time and memory, and the BPF programs' run time."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path

from netprof.errors import NetprofError
from netprof.model import Cost, ProbeCost, ProgramCost
from netprof.probes.kernel.loader import BpfObject, program_statistics, run_time_statistics

_SAMPLE_S, _PERIOD_S = 0.2, 5.0


class BpfCostSampler:
    """Lets the kernel time our BPF programs for a fifth of a second every five seconds.

    Timing every run would double the cost of the programs that it times. Others, another recording say, may have all
    programs of this machine timed meanwhile: what was counted then is left out. `objects` are those that are loaded.
    """

    def __init__(self, objects: Callable[[], Iterable[BpfObject]]) -> None:
        self._objects = objects
        self._programs: dict[tuple[str, str], ProgramCost] = {}  # by object and name
        self._before: dict[tuple[str, str], tuple[int, int]] = {}  # what was counted when this sample began
        self._timing = ExitStack()
        self._sampling_since: float | None = None
        self._next_s = time.monotonic()
        self._sampled_s = 0.0

    def tick(self) -> None:
        """Begin or end a sample when it is time; called from the recording loop."""
        now = time.monotonic()
        if self._sampling_since is None and now >= self._next_s:
            with suppress(NetprofError):  # without statistics the cost is unknown, the recording is not
                self._before = self._counted()
                self._timing.enter_context(run_time_statistics())
                self._sampling_since = now
            self._next_s = now + _PERIOD_S
        elif self._sampling_since is not None and now - self._sampling_since >= _SAMPLE_S:
            self._end_sample(now)

    def result(self) -> tuple[float, tuple[ProgramCost, ...]]:
        """Return the seconds sampled and each program's runs and run time within them, also of those that are gone."""
        if self._sampling_since is not None:
            self._end_sample(time.monotonic())
        return self._sampled_s, tuple(self._programs.values())

    def _end_sample(self, now: float) -> None:
        for program, (run_time_ns, runs) in self._counted().items():
            before_ns, before = self._before.get(program, (0, 0))
            more_ns, more = max(0, run_time_ns - before_ns), max(0, runs - before)  # one may have been loaded anew
            known = self._programs.get(program, ProgramCost(program[1], 0, 0))
            self._programs[program] = ProgramCost(known.name, known.runs + more, known.run_time_ns + more_ns)
        self._timing.close()
        self._sampled_s += now - (self._sampling_since or now)
        self._sampling_since = None

    def _counted(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Return what the kernel has counted of each program so far: its run time in ns and its runs."""
        return {
            (bpf.name, name): program_statistics(bpf.program_fd(name))
            for bpf in self._objects()
            for name in bpf.programs()
        }


class RecorderCost:
    """The recorder's CPU time and wall time since it began."""

    def __init__(self) -> None:
        self._wall = time.monotonic()
        self._cpu = time.process_time()
        self._start_s = self._start_cpu_s = 0.0

    def started(self) -> None:
        """Note that all so far was to get the recording going."""
        self._start_s, self._start_cpu_s = time.monotonic() - self._wall, time.process_time() - self._cpu

    def result(self, trace_bytes: int, probes: Iterable[ProbeCost], bpf: tuple[float, tuple[ProgramCost, ...]]) -> Cost:
        """Return the cost so far; peak memory is the whole process's, from its start."""
        sampled_s, programs = bpf
        return Cost(
            wall_s=time.monotonic() - self._wall,
            cpu_s=time.process_time() - self._cpu,
            peak_memory_bytes=_peak_memory_bytes(),
            trace_bytes=trace_bytes,
            bpf_sampled_s=sampled_s,
            programs=programs,
            probes=tuple(probes),
            start_s=self._start_s,
            start_cpu_s=self._start_cpu_s,
        )


def _peak_memory_bytes() -> int:
    """Peak resident memory of this process; `ru_maxrss` would include the program that started us."""
    with suppress(OSError):  # no file can be opened any more
        for line in Path(f"/proc/{os.getpid()}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
