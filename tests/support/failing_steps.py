"""A process that opens a part of netprof again and again, each time with another step that fails, and tells what stays.

PYTHONPATH=tests python -m support.failing_steps PART PID: PID has libnccl.so.2 mapped. Prints a line for each way of
failing that left something open, and at the end how many failed and how many did not.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import mmap
import os
import resource
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from netprof.model import Target
from netprof.probes.job.processes import find_job
from netprof.probes.job.watch import Starts, Watch
from netprof.probes.kernel.libbpf import libbpf
from netprof.probes.kernel.targets import TargetMap
from netprof.probes.measurements import PROBES, WITHOUT_PROGRAMS
from netprof.probes.probe import Shared
from netprof.probes.stacks.native import NativeStacks
from netprof.session.job_processes import Job
from netprof.session.options import RecordingOptions
from netprof.session.recorder import Recorder

_FAILURES = {
    "bpf_object__open_mem": None,
    "bpf_object__load": "negative",
    "bpf_map__set_max_entries": "negative",
    "bpf_map__reuse_fd": "negative",
    "bpf_map_create": -1,
    "bpf_map_update_elem": -1,
    "bpf_program__attach": None,
    "bpf_program__attach_iter": None,
    "bpf_program__attach_uprobe_opts": None,
    "bpf_program__attach_perf_event": None,
    "bpf_iter_create": -1,
    "netprof_ring_open": None,
    "netprof_uprobe_multi": -1,
}
"""What each function returns where it fails; "negative" is the error itself."""

_MOST_STEPS, _ENOUGH = 120, 5
_SYSTEM = ((os, "open"), (os, "pidfd_open"), (mmap, "mmap"))


@contextmanager
def failing(step: int, error: int) -> Iterator[list[str]]:
    """Let the call number `step` of all that can fail do so; gives the names of those that were made."""
    calls: list[str] = []

    def fails(name: str) -> bool:
        calls.append(name)
        return len(calls) == step

    def of_library(name: str, real: Any, value: int | str | None) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if not fails(name):
                return real(*arguments)
            ctypes.set_errno(error)
            return -error if value == "negative" else value

        return call

    def of_system(name: str, real: Any) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if fails(name):
                raise OSError(error, os.strerror(error))
            return real(*arguments, **named)

        return call

    library = libbpf()
    with ExitStack() as stack:
        for name, value in _FAILURES.items():
            real = getattr(library, name)
            setattr(library, name, of_library(name, real, value))
            stack.callback(setattr, library, name, real)
        for module, name in _SYSTEM:
            real = getattr(module, name)
            setattr(module, name, of_system(name, real))
            stack.callback(setattr, module, name, real)
        yield calls


@contextmanager
def few_files(more: int) -> Iterator[None]:
    """Let `more` files be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken, limit = {int(each.name) for each in Path("/proc/self/fd").iterdir()}, 0
    while more >= 0:
        more -= limit not in taken
        limit += 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit - 1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def standing() -> Counter[str]:
    """What this process has open: files, memory of BPF maps, threads."""
    gc.collect()
    found = Counter[str]()
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found[each.readlink().name.partition(":")[0]] += 1
    found["mapped"] = Path("/proc/self/maps").read_text().count("bpf-map")
    found["threads"] = threading.active_count()
    return found


def opened(part: str, targets: Sequence[Target]) -> None:
    """Open the part, have it follow the job, take what it has, and close it."""
    if part == "watch":
        Watch(targets, Starts()).close()
    elif part == "job":
        Job(targets).close()
    elif part == "native":
        with NativeStacks(50) as native:
            native.begin(targets[0].pid, targets[0].pid)
    elif part == "recorder":
        recorder = Recorder(targets, RecordingOptions(Path("none"), keeps_trace=False), ["netprof"])
        recorder.start()
        recorder.stop("over")
    else:
        kind = next(kind for kind in (*PROBES, *WITHOUT_PROGRAMS) if kind.__name__ == part)
        with ExitStack() as stack:
            shared = Shared(stack.enter_context(TargetMap()), lambda pid: 0, 1_000_000, first=targets)
            for target in targets:
                shared.targets.add(target.pid)
            probe = stack.enter_context(kind.open(shared))
            probe.follow(targets)
            probe.drain()
            probe.describe()


def tried(part: str, targets: Sequence[Target]) -> bool:
    """Open the part; tell whether it failed. What it raised is let go of."""
    try:
        opened(part, targets)
    except Exception:
        return True
    return False


def of_each(calls: Sequence[str]) -> list[tuple[int, int]]:
    """Return the steps at which each call is made for the first, the second and the last time, with an error each."""
    places: dict[str, list[int]] = {}
    for step, name in enumerate(calls, 1):
        places.setdefault(name, []).append(step)
    errors = (errno.EMFILE, errno.ENOMEM, errno.EPERM)
    thrice = ((each[0], each[min(1, len(each) - 1)], each[-1]) for each in places.values())
    return [pair for each in thrice for pair in zip(each, errors, strict=True)]


def main(part: str, pid: int) -> None:
    """Let each step fail in each way."""
    targets = find_job([pid])
    opened(part, targets)
    opened(part, targets)  # what is made once is there from here on
    before, failed, held = standing(), 0, 0

    def look(how: str) -> None:
        if (now := standing()) != before:
            print(f"{part}: {how} leaves {dict(now - before)}, lacks {dict(before - now)}")
            raise SystemExit(1)

    with failing(0, 0) as all_calls:
        opened(part, targets)
    for step, error in of_each(all_calls):
        with failing(step, error) as calls:
            failed_now = tried(part, targets)
        failed, held = failed + failed_now, held + (not failed_now)
        look(f"{os.strerror(error)} at step {step}, {all_calls[step - 1]}, of {' '.join(calls[:step])}")
    enough = 0
    for more in range(_MOST_STEPS):
        with few_files(more):
            failed_now = tried(part, targets)
        failed, held = failed + failed_now, held + (not failed_now)
        look(f"room for {more} files")
        enough = 0 if failed_now else enough + 1
        if enough > _ENOUGH:
            break
    print(f"{failed} failed, {held} did not")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
