"""What the kernel says that each process did with its time: series of table `counters`, by process."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.tables.columns import Float64, Int64
from netprof.analysis.tables.counters import CounterSamples
from netprof.analysis.tables.intervals import Intervals, merge
from netprof.model import Host, Series
from netprof.schema import PROCESS_SERIES

ON_CPU, CPU_WAIT, STOPPED, WRITTEN = "on_cpu", "cpu_wait", "stopped", "written"
THROTTLED, THREADS_ON_CPU, THREADS_CPU_WAIT = "throttled", "threads_on_cpu", "threads_cpu_wait"
QUOTA_PERIODS, THROTTLED_PERIODS = "quota_periods", "throttled_periods"
STEAL = "steal"
SENT_BEFORE, RECEIVED_BEFORE, UNACKED, UNREAD = "sent_before", "received_before", "unacked", "unread"
_SUBJECT = re.compile(r"pid (\d{1,10})(?: of (.*))?", re.DOTALL)


@dataclass(frozen=True, eq=False)
class ProcessCounts:
    """Samples by process and quantity: times in ns, ascending, and values; without any, it is not known."""

    series: Mapping[tuple[int, str], tuple[Int64, Int64]]

    def __len__(self) -> int:
        return len(self.series)

    def until(self, pid: int, name: str, at_ns: Int64) -> Float64:
        """Return what was counted of a process by some instants; NaN where nothing says it.

        Between two looks it grew evenly.
        """
        time_ns, value = self.series.get((pid, name), (np.zeros(0, np.int64),) * 2)
        return _until(time_ns, value, at_ns)

    def first(self, pid: int, name: str) -> tuple[int, int] | None:
        """Return the first sample of a process, its time and its value; None where there is none."""
        time_ns, value = self.series.get((pid, name), (np.zeros(0, np.int64),) * 2)
        return (int(time_ns[0]), int(value[0])) if len(value) else None

    def share(self, pid: int, name: str) -> float:
        """Return for what share of the time a process was counted in us, between its looks; NaN where nothing says."""
        time_ns, value = self.series.get((pid, name), (np.zeros(0, np.int64),) * 2)
        if len(time_ns) < 2:
            return float("nan")
        return float((value[-1] - value[0]) * 1e3 / (time_ns[-1] - time_ns[0]))

    def stopped(self) -> dict[int, Intervals]:
        """Return when each process was seen stopped, of those that ever were."""
        stopped = {}
        for (pid, name), (time_ns, value) in self.series.items():
            if name == STOPPED and (value > 0).any():
                until = np.append(time_ns[1:], time_ns[-1:] + 1)
                stopped[pid] = merge(time_ns[value > 0], until[value > 0])
        return stopped

    def stopped_last(self) -> dict[int, int]:
        """Return the processes that were stopped when last looked at, and since when, by pid."""
        since_ns = {}
        for (pid, name), (time_ns, value) in self.series.items():
            if name == STOPPED and len(value) and value[-1] > 0:
                ran = np.flatnonzero(value == 0)
                since_ns[pid] = int(time_ns[ran[-1] + 1 if len(ran) else 0])
        return since_ns


def process_counts(samples: CounterSamples, series: Sequence[Series], hosts: Sequence[Host]) -> ProcessCounts:
    """Return the samples whose subject is a process; `samples` come by series and time."""
    job_pids = {host.name: {pid: job for job, pid in host.pids.items()} for host in hosts}
    by_process = {}
    for each in series:
        match = _SUBJECT.fullmatch(each.subject) if each.source == PROCESS_SERIES else None
        if match is None:
            continue
        pid = job_pids.get(match[2] or "", {}).get(int(match[1]), int(match[1]))
        first, last = np.searchsorted(samples.series, (each.id, each.id + 1))
        by_process[pid, each.name] = samples.time_ns[first:last], samples.value[first:last]
    return ProcessCounts(by_process)


def cpus(series: Sequence[Series], host: str) -> int:
    """Return how many CPUs of a host were online; 0 where nothing says it. `host` is as of `stolen_until`."""
    whose = f" of {host}" if host else ""
    return len({each.subject for each in series if re.fullmatch(rf"cpu\d+{re.escape(whose)}", each.subject)})


def stolen_until(samples: CounterSamples, series: Sequence[Series], host: str, at_ns: Int64) -> Float64:
    """Return what the hypervisor took from all CPUs of a host by some instants, us; NaN where nothing says it.

    `host` is its name, where several hosts recorded the job.
    """
    subject = f"all CPUs of {host}" if host else "all CPUs"
    number = next((each.id for each in series if (each.name, each.subject) == (STEAL, subject)), None)
    rows = np.arange(*np.searchsorted(samples.series, (number, number + 1))) if number is not None else np.arange(0)
    return _until(samples.time_ns[rows], samples.value[rows], at_ns)


def _until(time_ns: Int64, value: Int64, at_ns: Int64) -> Float64:
    """Return a count by some instants; before the first sample it is not known, after the last it stands still."""
    if len(time_ns) == 0:
        return np.full(np.shape(at_ns), np.nan)
    known_ns, known = _looks(time_ns, value) if len(time_ns) > 1 else (time_ns, value)
    return np.interp(at_ns, known_ns, known, left=np.nan)


def _looks(time_ns: Int64, value: Int64) -> tuple[Int64, Int64]:
    """Return the samples and the looks between them that found nothing new, as far as those matter.

    No row is written for them: what grew after a long time without a row grew since the last look.
    """
    step = int(np.median(np.diff(time_ns)))
    late = np.flatnonzero(np.diff(time_ns) > 2 * step)
    times = np.concatenate((time_ns, time_ns[late + 1] - step))
    values = np.concatenate((value, value[late]))
    order = np.argsort(times, kind="stable")
    return times[order], values[order]
