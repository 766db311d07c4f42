"""The stacks probe: what the rank executes that the others wait for, by py-spy, while it holds them up.

Nothing is run in the job, and it is not stopped (`--nonblocking`): py-spy reads the memory of the one process that is
named, for two seconds at a time, and for no more than a part of the recording. Where no process waits that marks tell
of, and no mark comes either, the job may stand: then each process is looked at in turn.
"""

from __future__ import annotations

import contextlib
import subprocess
import sysconfig
import time
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from netprof.errors import NetprofError
from netprof.files import TemporaryFolder, read_all
from netprof.model import SkippedProbe, StartedProbe, Target
from netprof.probes.job.processes import is_same
from netprof.probes.probe import Columns, Description, Probe, Shared, Tables
from netprof.probes.stacks.chrome_trace import stacks_of
from netprof.schema import MarkKind

RATE_HZ = 50
_WINDOW_S = 2
_MOST_WINDOWS = 60
_SILENT_S = 1.5
_LARGEST_BYTES = 64 << 20


def py_spy() -> Path | None:
    """Return the program, as its wheel installs it beside this interpreter; no other one is run as root."""
    found = Path(sysconfig.get_path("scripts")) / "py-spy"
    return found if found.is_file() else None


class StacksProbe(Probe):
    """Samples the Python stack of the rank that the others wait for."""

    name = "stacks"
    period_s = 0.2
    notices = frozenset({"marks"})

    def __init__(self, wanted: bool) -> None:
        self._program = py_spy() if wanted else None
        self._wanted = wanted
        self._late = LateRank()
        self._targets: list[Target] = []
        self._folder: TemporaryFolder | None = None
        self._running: tuple[subprocess.Popen[bytes], int, int] | None = None  # it, whose stacks, since when
        self._windows: dict[int, int] = {}
        self._marked_s = time.monotonic()
        self._failed = ""

    @classmethod
    def open(cls, shared: Shared) -> StacksProbe:
        """Make one; it samples nothing unless a person asked for stacks."""
        return cls(shared.stacks)

    def follow(self, targets: Sequence[Target]) -> None:
        """Take note of the processes that train."""
        self._targets = [target for target in targets if target.frameworks]

    def notice(self, table: str, columns: Columns) -> None:
        """Learn who waits, if stacks are wanted of them."""
        if self._program is None:
            return
        self._late.see(columns)
        self._marked_s = time.monotonic()

    def drain(self, *, final: bool = False) -> Tables:
        """Return the stacks of a window that is over, and begin the next one."""
        if self._program is None:
            return {}
        rows = self._finished(final=final)
        if self._running is None and not final and sum(self._windows.values()) < _MOST_WINDOWS and not self._failed:
            target = self._next()
            if target is not None and is_same(target):
                self._begin(target.pid)
        return {"stacks": rows} if rows else {}

    def describe(self) -> Description:
        """Return whose stacks were sampled, or why none were."""
        if not self._wanted:
            return Description()
        if self._program is None:
            hint = "pip install 'netprof-ebpf[stacks]', for the interpreter that netprof runs in"
            return Description(skipped=(SkippedProbe(self.name, "py-spy is not installed", hint),))
        skipped = (SkippedProbe(self.name, self._failed, "py-spy dump --pid PID says more"),) if self._failed else ()
        if not self._windows:
            return Description(skipped=skipped)
        parts = [f"process {pid} for {_WINDOW_S * count} s" for pid, count in self._windows.items()]
        detail = f"py-spy, {RATE_HZ} times a second: {', '.join(parts)}"
        return Description((StartedProbe(self.name, detail),), skipped)

    def close(self) -> None:
        """End py-spy, if it runs. May be called twice."""
        if self._running is not None:
            self._running[0].kill()
            self._running[0].wait()
            self._running = None
        if self._folder is not None:
            self._folder.close()

    def _next(self) -> Target | None:
        """Return whose stacks are wanted now."""
        pids = {target.pid: target for target in self._targets}
        named = self._late.named(time.monotonic_ns(), pids.keys())
        if named is not None:
            return pids[named]
        if time.monotonic() - self._marked_s < _SILENT_S or not pids:
            return None
        return pids[min(pids, key=lambda pid: (self._windows.get(pid, 0), pid))]

    def _begin(self, pid: int) -> None:
        if self._folder is None:
            self._folder = TemporaryFolder()
        out = self._folder.path / "stacks.json"
        options = ["--nonblocking", "--idle", "--rate", str(RATE_HZ), "--duration", str(_WINDOW_S)]
        command = [str(self._program), "record", "--pid", str(pid), *options, "--format", "chrometrace", "-o", str(out)]
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
        self._running = process, pid, time.monotonic_ns()
        self._windows[pid] = self._windows.get(pid, 0) + 1

    def _finished(self, *, final: bool) -> Columns:
        """Return the rows of the window that has ended, if one has; at the end it is waited for."""
        if self._running is None or self._folder is None:
            return {}
        process, pid, begin_ns = self._running
        if final:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_WINDOW_S + 1)
        if process.poll() is None:
            return {}
        self._running = None
        if process.returncode:
            self._failed = f"py-spy cannot read process {pid}"
            return {}
        try:
            stacks = stacks_of(read_all(self._folder.path / "stacks.json", _LARGEST_BYTES, "what py-spy wrote"))
        except NetprofError:
            return {}
        return {
            "time_ns": [begin_ns + each.end_us * 1000 for each in stacks],
            "period_ns": [(each.end_us - each.begin_us) * 1000 for each in stacks],
            "pid": [pid] * len(stacks),
            "frames": [each.frames for each in stacks],
        }


_BEGINS = tuple(map(int, (MarkKind.DDP_WAIT, MarkKind.POSTED_WAIT, MarkKind.HOROVOD_WAIT)))
_ENDS = tuple(map(int, (MarkKind.DDP_STATS, MarkKind.DDP_FORWARD, MarkKind.POSTED_WAIT_OVER, MarkKind.OPTIMIZER_STEP)))
_MATTERS = 0.15
"""Share of the time by which one waits less than the others."""
_FORGET = 0.5
"""What was seen earlier counts so much of what was seen since."""


class LateRank:
    """Learns from marks for how long each process waits."""

    def __init__(self) -> None:
        self._since_ns: dict[int, int] = {}
        self._waited_ns: dict[int, float] = {}
        self._seen_ns = 0
        self._span_ns = 0.0

    def see(self, marks: Columns) -> None:
        """Take a batch of marks."""
        time_ns, pid, kind = (np.asarray(marks[name], np.int64) for name in ("time_ns", "pid", "kind"))
        rows = np.flatnonzero(np.isin(kind, (*_BEGINS, *_ENDS)))
        for row in rows[np.argsort(time_ns[rows], kind="stable")].tolist():
            own, at_ns = int(pid[row]), int(time_ns[row])
            self._waited_ns.setdefault(own, 0.0)
            if int(kind[row]) in _BEGINS:
                self._since_ns.setdefault(own, at_ns)
            elif (since_ns := self._since_ns.pop(own, None)) is not None:
                self._waited_ns[own] += at_ns - since_ns
        newest_ns = int(time_ns.max(initial=0))
        if self._seen_ns:
            self._span_ns += max(0, newest_ns - self._seen_ns)
        self._seen_ns = max(self._seen_ns, newest_ns)

    def named(self, now_ns: int, among: Collection[int]) -> int | None:
        """Return who is waited for, None where nobody is; what was seen so far is half forgotten then."""
        span_ns = self._span_ns + max(0, now_ns - self._seen_ns) * bool(self._seen_ns)
        waits = {pid: self._waited_ns.get(pid, 0.0) for pid in among}
        for pid, since_ns in self._since_ns.items():
            if pid in waits:
                waits[pid] += max(0, now_ns - max(since_ns, now_ns - int(span_ns)))
        for pid in self._waited_ns:
            self._waited_ns[pid] *= _FORGET
        self._span_ns *= _FORGET
        if len(waits) < 2 or span_ns <= 0:
            return None
        least, *others = sorted(waits, key=lambda pid: waits[pid])
        return least if waits[others[0]] - waits[least] >= _MATTERS * span_ns else None
