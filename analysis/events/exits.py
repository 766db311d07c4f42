"""Processes of the job that ended: when, and by which signal or with which exit code."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from netprof.analysis.tables.columns import Int64
from netprof.analysis.tables.marks import Marks
from netprof.model import Meta
from netprof.schema import MarkKind

_KNOWN = 1 << 32
_ASKED = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
"""Signals by which a person or a scheduler ends a job in order."""
_SHELLS = 128
"""What a shell adds to the signal that ended a program, for its own exit code."""
_ASKED_CODES = frozenset(_SHELLS + number for number in _ASKED)
_AHEAD = 4
"""Steps that a host launches, at most, that its GPU cannot do since another rank is gone."""


@dataclass(frozen=True)
class Exit:
    """The end of a process; `signal` or `code` is None where it ended by the other one, both where that is unknown."""

    pid: int
    time_ns: int
    signal: int | None
    code: int | None

    @property
    def has_failed(self) -> bool:
        """Whether it ended by a signal or an exit code that is no orderly way to end a job."""
        if self.signal is not None:
            return self.signal not in _ASKED
        return bool(self.code) and self.code not in _ASKED_CODES

    @property
    def is_memory_killers(self) -> bool:
        """Whether it may be the kernel that killed it since memory was short; a code above 128 is a shell's word."""
        return self.signal == signal.SIGKILL or self.code == _SHELLS + signal.SIGKILL

    @property
    def ending(self) -> str:
        """How it ended, for a person."""
        if self.signal is not None:
            return f"was killed ({signal_name(self.signal)})"
        return "has exited" if self.code is None else f"exited with code {self.code}"


def signal_name(number: int) -> str:
    """Return a signal as people write it: SIGKILL."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def find_exits(marks: Marks) -> Mapping[int, Exit]:
    """Return the processes that ended, by pid, the first one first."""
    ended = marks.of(MarkKind.PROCESS_EXIT)
    rows = sorted(zip(ended.time_ns.tolist(), ended.pid.tolist(), ended.arg0.tolist(), strict=True))
    return {pid: _exit(pid, time_ns, status) for time_ns, pid, status in rows}


def _exit(pid: int, time_ns: int, status: int) -> Exit:
    if not status & _KNOWN:
        return Exit(pid, time_ns, None, None)
    number, code = status & 0x7F, status >> 8 & 0xFF
    return Exit(pid, time_ns, number, None) if number else Exit(pid, time_ns, None, code)


def went_on(since_ns: int, pid: Int64, step_ns: Int64) -> bool:
    """Tell whether a job went on after a process ended: one trains only since then, or does more than a few steps.

    `step_ns` are when steps were, of the processes `pid`.
    """
    later = step_ns > since_ns
    pids, steps = np.unique(pid[later], return_counts=True)
    return bool((~np.isin(pids, pid[~later]) | (steps > _AHEAD)).any())


def still_missed(marks: Marks, pids: Sequence[int], done_pid: Int64, done_ns: Int64) -> dict[int, Exit]:
    """Return which of the processes `pids` ended, by pid, but for those that the others went on without.

    `marks` are of training, and the exits. `done_pid` and `done_ns` are whose steps were done when.
    """
    ends = {pid: end for pid, end in find_exits(marks).items() if pid in pids}
    trains = marks.where((marks.kind < MarkKind.PROCESS_FORK) & np.isin(marks.pid, [p for p in pids if p not in ends]))
    left, first = np.unique(trains.pid, return_index=True)
    known = np.isin(done_pid, left)
    pid, step_ns = np.append(done_pid[known], left), np.append(done_ns[known], trains.time_ns[first])
    return {ended_pid: end for ended_pid, end in ends.items() if not went_on(end.time_ns, pid, step_ns)}


def clock_time(meta: Meta, time_ns: int) -> str:
    """Return the time of day of an instant of the recording, on this machine's wall clock: 14:02:11."""
    seconds = (meta.clock.realtime_ns + time_ns - meta.clock.monotonic_ns) / 1e9
    try:
        return datetime.fromtimestamp(seconds).strftime("%H:%M:%S")
    except (ValueError, OverflowError, OSError):  # of a damaged description
        return "unknown"
