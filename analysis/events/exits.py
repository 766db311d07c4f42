"""Processes of the job that ended: when, and by which signal or with which exit code."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from netprof.analysis.tables.marks import Marks
from netprof.model import Meta
from netprof.schema import MarkKind

_KNOWN = 1 << 32
_ASKED = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
"""Signals by which a person or a scheduler ends a job in order."""


@dataclass(frozen=True)
class Exit:
    """The end of a process; `signal` or `code` is None where it ended by the other one, both where that is unknown."""

    pid: int
    time_ns: int
    signal: int | None
    code: int | None

    @property
    def is_crash(self) -> bool:
        """Whether it was killed by what is no orderly way to end a job."""
        return self.signal is not None and self.signal not in _ASKED

    @property
    def said(self) -> str:
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


def clock_time(meta: Meta, time_ns: int) -> str:
    """Return the time of day of an instant of the recording, on this machine's wall clock: 14:02:11."""
    seconds = (meta.clock.realtime_ns + time_ns - meta.clock.monotonic_ns) / 1e9
    try:
        return datetime.fromtimestamp(seconds).strftime("%H:%M:%S")
    except (ValueError, OverflowError, OSError):  # of a damaged description
        return "unknown"
