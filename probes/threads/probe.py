"""The thread probe: what the threads that train wait for, whether or not a mark tells.

Time in which a trainer is neither on a CPU nor in a wait that a framework's mark shows is spent somewhere: in a socket,
a lock, a timer, a file. The kernel's scheduler tells when, and the system call what for.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from netprof.closing import all_or_nothing
from netprof.model import StartedProbe, Target
from netprof.probes.job.procfs import parse_stat, threads_of
from netprof.probes.job.roles import may_train
from netprof.probes.kernel.btf import layout
from netprof.probes.kernel.loader import BpfObject, RingBuffer, map_delete, map_keys, map_lookup, map_update, u32
from netprof.probes.probe import Columns, Description, Probe, Shared, Tables
from netprof.probes.threads.calls import as_called, kinds_of, type_by_name
from netprof.schema import TRAINING, MarkKind

RECORD = layout("threads", "blocked")
"""The layout of `struct blocked` (threads.h)."""

LEAST_NS = 200_000
"""What is shorter is left out."""

_MOST_THREADS = 32  # of a process: mostly one trains, or two; torch.distributed.rpc serves in 16
_PART_NS = 500_000_000  # what goes on for longer is recorded in parts
_LOOK_S = 2.0  # how often threads that began since are looked for


class ThreadProbe(Probe):
    """Records when the main threads of processes that train, and all their threads that do, are off their CPUs.

    Where no process of the job has a framework, all threads of each: which of them trains is not known.
    """

    name = "threads"
    period_s = 0.4
    notices = frozenset({"marks"})

    def __init__(self) -> None:
        self._watched: dict[int, set[int]] = {}  # threads by process
        self._written_ns: dict[int, int] = {}  # by thread: until when its present wait is in rows
        self._with_all: set[int] = set()  # processes that are watched with all their threads
        self._look_s = 0.0
        with all_or_nothing() as opened:
            self._object = opened.enter_context(BpfObject("threads", rodata={"least_ns": LEAST_NS}))
            self._ring = opened.enter_context(RingBuffer(self._object, "records", RECORD))
            self._object.attach("switches")

    @classmethod
    def open(cls, shared: Shared) -> ThreadProbe:
        """Load the program. Raises NotPermittedError or NetprofError."""
        return cls()

    def follow(self, targets: Sequence[Target]) -> None:
        """Watch the main threads of the processes that have a framework; where none has, all threads."""
        training = may_train(targets)
        self._with_all = {target.pid for target in training if not target.frameworks}
        for target in training:
            self._watch(target.pid, target.pid)
        self._look_for_threads()

    def notice(self, table: str, columns: Columns) -> None:
        """Watch the threads whose marks are a trainer's; let go of processes that ended."""
        kind, pid, tid = (np.asarray(columns[name], np.int64) for name in ("kind", "pid", "tid"))
        for both in np.unique((pid << 32 | tid)[np.isin(kind, TRAINING)]).tolist():
            if both >> 32 in self._watched:
                self._watch(both >> 32, both & 0xFFFFFFFF)
        for ended in pid[kind == MarkKind.PROCESS_EXIT].tolist():
            for thread in self._watched.pop(ended, set()):
                self._let_go(thread)

    def drain(self, *, final: bool = False) -> Tables:
        """Return what was recorded since the last call, and of what still goes on a part."""
        if time.monotonic() >= self._look_s:
            self._look_for_threads()
        records = np.concatenate((self._ring.drain(), self._going_on(_PART_NS if not final else 0)))
        return {
            "blocked": {
                "time_ns": records["until_ns"].astype(np.int64),
                "period_ns": (records["until_ns"] - records["since_ns"]).astype(np.int64),
                "pid": records["pid"].astype(np.int32),
                "tid": records["tid"].astype(np.int32),
                "kind": kinds_of(records["call"], records["file_type"], records["runnable"]),
            }
        }

    def describe(self) -> Description:
        """Return how many threads are watched, and what was lost."""
        count = sum(map(len, self._watched.values()))
        detail = f"{count} threads that train, by the kernel's scheduler"
        started = (StartedProbe(self.name, detail),) if count else ()
        missed = self._object.counters("missed")["missed"]
        lost = f"{self.name}: {missed} waits found the ring full and were not recorded: their time counts as running"
        return Description(started, warnings=(lost,) if missed else ())

    @property
    def objects(self) -> Sequence[BpfObject]:
        """The loaded BPF object."""
        return (self._object,)

    def close(self) -> None:
        """Detach and unload. May be called twice."""
        self._ring.close()
        self._object.close()

    def _look_for_threads(self) -> None:
        """Watch the threads that began, and let go of those that ended, where all of a process are watched."""
        self._look_s = time.monotonic() + _LOOK_S
        for pid in self._with_all & set(self._watched):
            alive = threads_of(pid)
            for tid in self._watched[pid] - alive:
                self._watched[pid].discard(tid)
                self._let_go(tid)
            for tid in sorted(alive):
                self._watch(pid, tid)

    def _let_go(self, tid: int) -> None:
        self._written_ns.pop(tid, None)
        map_delete(self._object.map_fd("threads"), u32(tid))

    def _watch(self, pid: int, tid: int) -> None:
        watched = self._watched.setdefault(pid, set())
        if tid in watched or len(watched) >= _MOST_THREADS:
            return
        watched.add(tid)
        map_update(self._object.map_fd("threads"), u32(tid), _state_now(pid, tid).tobytes())

    def _going_on(self, least_ns: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        """Return each thread's last wait, if it has gone on for so long since it began, or was told of.

        The kernel hands over a wait when the thread's next one begins: one that is over may be told of twice.
        """
        now_ns, rows = time.monotonic_ns(), []
        for key in map_keys(self._object.map_fd("threads"), 4):
            value = map_lookup(self._object.map_fd("threads"), key, RECORD.itemsize)
            if value is None:
                continue
            row = np.frombuffer(value, RECORD).copy()
            tid, since_ns, until_ns = int(row["tid"][0]), int(row["since_ns"][0]), int(row["until_ns"][0]) or now_ns
            begin_ns = max(since_ns, self._written_ns.get(tid, 0))
            if since_ns and until_ns - begin_ns >= max(least_ns, LEAST_NS):
                row["since_ns"], row["until_ns"] = begin_ns, until_ns
                self._written_ns[tid] = until_ns
                rows.append(row)
        return np.concatenate(rows) if rows else np.zeros(0, RECORD)


def _state_now(pid: int, tid: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """Return the thread as a value of the map: blocked since now in what /proc says, or not blocked."""
    row = np.zeros(1, RECORD)
    row["pid"], row["tid"], row["call"] = pid, tid, -1
    folder = Path(f"/proc/{pid}/task/{tid}")
    with contextlib.suppress(OSError, ValueError, IndexError):
        if parse_stat((folder / "stat").read_bytes()).state not in ("S", "D"):
            return row
        words = (folder / "syscall").read_bytes().split()
        row["call"] = as_called(int(words[0]), int(words[1], 16))
        row["since_ns"] = row["last_ns"] = time.monotonic_ns()
        row["file_type"] = type_by_name(str((folder / "fd" / str(int(words[1], 16))).readlink()))
    return row
