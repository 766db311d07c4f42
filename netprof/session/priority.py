"""The recorder's place on the machine: for a CPU it waits behind the job, which may wait for no one; memory and files.

Memory that is freed and wanted again a moment later stays with the recorder: the system clears each page anew.
"""

from __future__ import annotations

import ctypes
import os
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

NICENESS = 5
"""A quarter of a CPU's time beside one busy thread (weights 335 and 1024): what the recorder needs is a fiftieth."""


class SharedContext:
    """A context that several threads are in, as those of an exporter's recordings: the last one leaves it for all."""

    def __init__(self, context: Callable[[], AbstractContextManager[None]]) -> None:
        self._context, self._entered = context, ExitStack()
        self._users, self._lock = 0, threading.Lock()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Be in it inside the block."""
        with self._lock:
            if self._users == 0:
                self._entered.enter_context(self._context())
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._entered.close()


@SharedContext
@contextmanager
def behind_the_job() -> Iterator[None]:
    """Let this process interrupt nobody inside the block: it waits until a CPU is free, or for its share of one.

    A batch task that wakes does not push aside the one that runs (sched(7)). A rank that is pushed aside is late, and
    all others wait for it. What runs at another policy, or at lower priority already, is left as it is.
    """
    policy, nice = os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)
    if policy != os.SCHED_OTHER:
        yield
        return
    _place(os.SCHED_BATCH, max(nice, NICENESS))
    try:
        yield
    finally:
        _place(policy, nice)


def _place(policy: int, nice: int) -> None:
    """Set policy and priority of every thread, as far as that is allowed."""
    for thread in _threads():
        with suppress(OSError):  # it ended, or nobody but root may
            os.sched_setscheduler(thread, policy, os.sched_param(0))
            os.setpriority(os.PRIO_PROCESS, thread, nice)


def _threads() -> list[int]:
    try:
        return [int(task.name) for task in Path("/proc/self/task").iterdir()]
    except OSError:  # no file can be opened any more: of this thread it is known that it is there
        return [threading.get_native_id()]


@SharedContext
@contextmanager
def many_files() -> Iterator[None]:
    """Let this process open as many files as it may inside the block: a rank takes up to 20, and 1,024 is usual."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # the system allows fewer by now
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_KEPT_BYTES, _LARGEST_BYTES = 64 << 20, 32 << 20  # no more for the latter: mallopt(3)
_DEFAULT_BYTES = 128 << 10  # of both


@SharedContext
@contextmanager
def kept_memory() -> Iterator[None]:
    """Give back what is free, and let the C library keep up to 64 MiB of it in the block; without glibc, do nothing.

    With 64 flows that are busy in every millisecond (examples/benchmarks/recorder_cost.py) the recorder takes a fifth
    less CPU time with it.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    _set(_KEPT_BYTES, _LARGEST_BYTES)
    try:
        yield
    finally:
        _set(_DEFAULT_BYTES, _DEFAULT_BYTES)


def _set(kept_bytes: int, largest_bytes: int) -> None:
    """Give back what is free beyond `kept_bytes`, and at once what is larger than `largest_bytes`."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, kept_bytes)
        mallopt(_M_MMAP_THRESHOLD, largest_bytes)
