"""Pid namespaces: netprof's own, which its pids are of, and by what numbers other ones know a process.

The kernel's programs turn their pids into those of netprof's own namespace (process_ids.h), which are also those of its
/proc and of its system calls: so there is one kind of pid in all of netprof, wherever that runs.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from pathlib import Path

OWN_PID_NAMESPACE = "own_pid_namespace"
"""The variable of the programs that says which namespace netprof's own is."""

_INITIAL = 0xEFFFFFFC  # PROC_PID_INIT_INO


def in_initial_namespace() -> bool:
    """Tell whether pids mean here what they mean in the kernel."""
    return Path("/proc/self/ns/pid").stat().st_ino == _INITIAL


def own_namespace() -> int:
    """Return the inode of netprof's pid namespace, 0 for the initial one."""
    return 0 if in_initial_namespace() else Path("/proc/self/ns/pid").stat().st_ino


def proc_is_of_own_namespace() -> bool:
    """Tell whether /proc knows this process by the number that it has itself, and by no other."""
    try:
        return len(namespace_pids("self")) <= 1
    except OSError:
        return False


def status(pid: int | str) -> dict[str, str]:
    """Return what /proc/PID/status says, by its names. Raises OSError where there is no such process."""
    lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def namespace_pids(pid: int | str) -> tuple[int, ...]:
    """Return the numbers of a process, from the namespace of /proc down to its own.

    () on kernels that do not say. Raises OSError where there is no such process.
    """
    return tuple(int(number) for number in status(pid).get("NSpid", "").split())


@lru_cache(maxsize=4096)
def numbers_inside(pid: int, start_ticks: int) -> tuple[int, int]:
    """Return the number of a process in its own pid namespace, and the inode of that; 0 for what is not known.

    Neither changes while it lives, which `start_ticks` tells.
    """
    namespace = inner = 0
    with suppress(OSError):
        inner = (namespace_pids(pid) or (0,))[-1]
        namespace = Path(f"/proc/{pid}/ns/pid").stat().st_ino
    return inner, namespace
