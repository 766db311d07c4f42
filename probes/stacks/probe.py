"""The stacks probe: what the rank executes that the others wait for, while it holds them up.

Nothing is run in the job, and it is not stopped: py-spy reads the Python stack in the memory of the one process that is
named (`--nonblocking`), and a BPF program takes native and kernel frames while the thread that trains is on a CPU, for
two seconds at a time, as often as that takes a hundredth of a CPU, and for no more than a part of the recording.
Without marks for a while and no known waiter the job may hang: then each process is sampled in turn.
"""

from __future__ import annotations

import contextlib
import resource
import subprocess
import sysconfig
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from netprof.errors import NetprofError
from netprof.files import TemporaryFolder
from netprof.model import SkippedProbe, StartedProbe, Target
from netprof.probes.job.processes import is_same
from netprof.probes.kernel.loader import BpfObject
from netprof.probes.probe import Columns, Description, Probe, Shared, Tables
from netprof.probes.stacks.chrome_trace import stacks_of
from netprof.probes.stacks.late import LateRank
from netprof.probes.stacks.native import NativeStacks
from netprof.schema import MarkKind

RATE_HZ = 50
_WINDOW_S = 2
_MOST_WINDOWS = 60
_MOST_CPUS = 0.01
"""Of one CPU, what sampling a late rank may take: the next window waits until the last one's cost is so much."""
_SILENT_S = 1.5
_PAUSES = 2.0
"""Without marks for so long, and for so many times as long as ever before, a job may hang."""
_KILLED_S = 2.0
_LARGEST_BYTES = 64 << 20


def py_spy() -> Path | None:
    """Return the program, as its wheel installs it beside this interpreter; no other one is run as root."""
    program = Path(sysconfig.get_path("scripts")) / "py-spy"
    return program if program.is_file() else None


@dataclass(frozen=True)
class _Window:
    """Of which thread stacks are sampled since when, until when; py-spy, if it does its part."""

    target: Target
    tid: int
    begin_ns: int
    until_s: float
    py_spy: subprocess.Popen[bytes] | None


class StacksProbe(Probe):
    """Samples the stacks of the rank that the others wait for."""

    name = "stacks"
    period_s = 0.2
    notices = frozenset({"marks"})

    def __init__(self, wanted: bool) -> None:
        self._program = py_spy() if wanted else None
        self._wanted = wanted
        self._late = LateRank()
        self._targets: list[Target] = []
        self._folder: TemporaryFolder | None = None
        self._native: NativeStacks | None = None
        self._running: _Window | None = None
        self._windows: dict[int, int] = {}
        self._marked_s: float | None = None
        self._pause_s = 0.0  # the longest between batches of marks so far
        self._begun_s: float | None = None
        self._py_spy_s = 0.0
        self._failed = ""
        self._unreadable: set[int] = set()  # processes that py-spy cannot read: of no Python, as a program in C
        self._no_native: SkippedProbe | None = None
        if wanted:
            try:
                self._native = NativeStacks(RATE_HZ)
            except NetprofError as error:
                self._no_native = SkippedProbe(f"{self.name}: native", error.message, error.hint or "")

    @classmethod
    def open(cls, shared: Shared) -> StacksProbe:
        """Make one; it samples nothing unless a person asked for stacks."""
        return cls(shared.stacks)

    def follow(self, targets: Sequence[Target]) -> None:
        """Take note of the processes that train."""
        self._targets = [target for target in targets if target.frameworks]

    def notice(self, table: str, columns: Columns) -> None:
        """Learn who waits, if stacks are wanted of them."""
        if not self._samples:
            return
        self._late.see(columns)
        if (np.asarray(columns["kind"]) < MarkKind.PROCESS_FORK).any():  # also a job that hangs forks, and collects
            now_s = time.monotonic()
            if self._marked_s is not None:
                self._pause_s = max(self._pause_s, now_s - self._marked_s)
            self._marked_s = now_s

    def drain(self, *, final: bool = False) -> Tables:
        """Return the stacks of a window that is over, and begin the next one."""
        if not self._samples:
            return {}
        if self._marked_s is None:
            self._marked_s = time.monotonic()  # other probes may have taken long to be opened
        rows = [self._finished(final=final)]
        if self._native is not None:
            rows += self._native.rows(final=final)
        may_begin = self._running is None and not final and sum(self._windows.values()) < _MOST_WINDOWS
        if may_begin and (not self._failed or (self._unreadable and self._native is not None)):
            target = self._next()
            if target is not None and is_same(target):
                self._begin(target)
        return {"stacks": _in_one(rows)} if any(rows) else {}

    def describe(self) -> Description:
        """Return whose stacks were sampled, or why none were."""
        if not self._wanted:
            return Description()
        skipped = [] if self._no_native is None else [self._no_native]
        if self._program is None:
            hint = "pip install 'netprof-ebpf[stacks]', for the interpreter that netprof runs in"
            skipped.append(SkippedProbe(f"{self.name}: Python", "py-spy is not installed", hint))
        if self._failed:
            skipped.append(SkippedProbe(self.name, self._failed, "py-spy dump --pid PID says more"))
        if not self._windows:
            if self._targets and self._samples and not self._failed:
                reason = "no rank was waited for, as far as marks tell"
                skipped.append(SkippedProbe(self.name, reason, "what NCCL waits for has none: py-spy dump --pid PID"))
            return Description(skipped=tuple(skipped))
        parts = [f"process {pid} for {_WINDOW_S * count} s" for pid, count in self._windows.items()]
        native = ["a perf event of the thread that trains"] if self._native else []
        by = [*(["py-spy"] if self._program else []), *native]
        detail = f"{' and '.join(by)}, {RATE_HZ} times a second: {', '.join(parts)}"
        missed = self._native.missed if self._native else 0
        lost = f"{self.name}: {missed} native stacks found the ring full and were not recorded"
        return Description((StartedProbe(self.name, detail),), tuple(skipped), warnings=(lost,) if missed else ())

    @property
    def objects(self) -> Sequence[BpfObject]:
        """The loaded BPF object, if stacks are wanted."""
        return () if self._native is None else (self._native.object,)

    def close(self) -> None:
        """End py-spy, if it runs. May be called twice."""
        if self._running is not None and self._running.py_spy is not None:
            self._running.py_spy.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # it reads a file of a hung mount: then it ends later
                self._running.py_spy.wait(_KILLED_S)
        self._running = None
        if self._native is not None:
            self._native.close()
        if self._folder is not None:
            self._folder.close()

    def _next(self) -> Target | None:
        """Return whose stacks are wanted now."""
        pids = {target.pid: target for target in self._targets}
        named = self._late.named(time.monotonic_ns(), pids.keys())
        if named is not None:
            return pids[named] if self._is_cheap() else None
        silent_s = 0.0 if self._marked_s is None else time.monotonic() - self._marked_s
        if silent_s < max(_SILENT_S, _PAUSES * self._pause_s) or not pids:
            return None
        return pids[min(pids, key=lambda pid: (self._windows.get(pid, 0), pid))]

    def _is_cheap(self) -> bool:
        """Whether sampling has taken no more than it may since it began."""
        cost_s = self._py_spy_s + (self._native.naming_s if self._native else 0.0)
        return self._begun_s is None or cost_s <= _MOST_CPUS * (time.monotonic() - self._begun_s)

    @property
    def _samples(self) -> bool:
        return self._program is not None or self._native is not None

    def _begin(self, target: Target) -> None:
        pid, begin_ns, process = target.pid, time.monotonic_ns(), None
        tid = self._late.trainer_of(pid)
        tid = tid if Path(f"/proc/{pid}/task/{tid}").exists() else pid
        self._begun_s = self._begun_s or time.monotonic()
        if self._native is not None:
            try:
                self._native.begin(pid, tid)
            except NetprofError as error:
                self._fails(target, f"native stacks of process {pid}: {error.message}")
        if self._program is not None and pid not in self._unreadable:
            process = self._py_spy(pid)
        self._running = _Window(target, tid, begin_ns, time.monotonic() + _WINDOW_S, process)
        self._windows[pid] = self._windows.get(pid, 0) + 1

    def _fails(self, target: Target, how: str) -> None:
        """Take note of what cannot be sampled; that a process ended meanwhile is no failure."""
        if is_same(target):
            self._failed = how

    def _py_spy(self, pid: int) -> subprocess.Popen[bytes]:
        if self._folder is None:
            self._folder = TemporaryFolder()
        out = self._folder.path / "stacks.json"
        options = ["--nonblocking", "--idle", "--rate", str(RATE_HZ), "--duration", str(_WINDOW_S)]
        command = [str(self._program), "record", "--pid", str(pid), *options, "--format", "chrometrace", "-o", str(out)]
        quiet = subprocess.DEVNULL
        return subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)

    def _finished(self, *, final: bool) -> Columns:
        """Return what py-spy saw in the window that has ended, if one has; at the end it is waited for."""
        window = self._running
        if window is None:
            return {}
        ended_s = _ended_s()
        if final and window.py_spy is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                window.py_spy.wait(_WINDOW_S + 1)
        over = time.monotonic() >= window.until_s if window.py_spy is None else window.py_spy.poll() is not None
        self._py_spy_s += _ended_s() - ended_s
        if not over and not final:
            return {}
        if self._native is not None:
            self._native.end()
        if not over:
            return {}
        self._running = None
        return {} if window.py_spy is None else self._by_py_spy(window, window.py_spy.returncode)

    def _by_py_spy(self, window: _Window, code: int) -> Columns:
        if code or self._folder is None:
            self._unreadable.add(window.target.pid)
            self._fails(window.target, f"py-spy cannot read process {window.target.pid}")
            return {}
        try:
            with open(self._folder.directory.open("stacks.json"), "rb") as file:
                written = file.read(_LARGEST_BYTES + 1)
            stacks = stacks_of(written, by_main=window.tid == window.target.pid)
        except (NetprofError, OSError):
            return {}
        if len(written) > _LARGEST_BYTES:
            return {}
        return {
            "time_ns": [window.begin_ns + stack.end_us * 1000 for stack in stacks],
            "period_ns": [(stack.end_us - stack.begin_us) * 1000 for stack in stacks],
            "pid": [window.target.pid] * len(stacks),
            "frames": [stack.frames for stack in stacks],
        }


def _ended_s() -> float:
    """Return the CPU time of processes that were begun here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _in_one(parts: Sequence[Columns]) -> Columns:
    kept = [part for part in parts if part]
    return {name: [value for part in kept for value in part[name]] for name in kept[0]}
