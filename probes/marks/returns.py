"""Whether the returns of functions may be probed in a process.

The kernel puts the address of a trampoline in the place of the return address when the function is entered. Leaving the
function by longjmp, by the end of its thread, or after the probe is gone, is all right. But the process ends where an
exception unwinds past the trampoline, where calls return in another order than that of their stack (threads that a
library of its own switches), where the processor keeps a second stack of return addresses that the kernel does not
mend, and where a filter of system calls does not let the trampoline's own through. So all of these are looked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from netprof.errors import NetprofError
from netprof.probes.marks import libraries
from netprof.probes.marks.symbols import names_any

_THROW = "__cxa_throw"
_SWITCHERS = ("libabt.so*", "libqthread.so*")  # Argobots and Qthreads: MPICH can be built with either
_SHADOW_STACK = "shstk"
_MENDS_SHADOW_STACK = (6, 11, 0)  # "x86/shstk: Make return uprobe work with shadow stack"
# From "uprobe: Add uretprobe syscall to speed up return probe" to "seccomp: passthrough uretprobe systemcall without
# filtering" (cf6cb56ef244), which 6.14 has and the stable kernels got.
_CALL_IS_FILTERED = (((6, 11, 0), (6, 12, 14)), ((6, 13, 0), (6, 13, 3)))


def danger(pid: int, mapped: Iterable[libraries.Mapping], throwing: Sequence[str]) -> str | None:
    """Say why no return may be probed in process `pid`, None where nothing speaks against it.

    `mapped` are its files. One of them that names a function of `throwing` and throws C++ exceptions may let one pass.
    """
    for mapping in mapped:
        if any(fnmatchcase(mapping.basename, pattern) for pattern in _SWITCHERS):
            return f"{mapping.basename} switches stacks in the middle of a call, which a probed return does not survive"
        if throwing and _throws(pid, mapping, throwing):
            return f"{mapping.basename} may let a C++ exception pass, which a probed return turns into an abort"
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return "its status cannot be read"
    status = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return danger_of(status, os.uname().release)


def danger_of(status: Mapping[str, str], release: str) -> str | None:
    """Say what in /proc/PID/status speaks against it on a kernel of this release (as uname gives it)."""
    kernel = _version(release)
    if _SHADOW_STACK in status.get("x86_Thread_features", "") and kernel < _MENDS_SHADOW_STACK:
        return f"it has a shadow stack, which Linux {release} does not mend when a return is probed"
    if status.get("Seccomp", "0") != "0" and any(since <= kernel < until for since, until in _CALL_IS_FILTERED):
        return f"its system calls are filtered, and Linux {release} adds one of its own where a return is probed"
    return None


def _throws(pid: int, mapping: libraries.Mapping, throwing: Sequence[str]) -> bool:
    """Tell whether a file of the process can throw through the library; one that cannot be opened is taken for one."""
    try:
        library = libraries.open_library(pid, mapping)
    except NetprofError:
        return True
    try:
        return names_any(library.descriptor, throwing) and names_any(library.descriptor, (_THROW,))
    except NetprofError:  # no ELF file: code that was made at run time
        return False
    finally:
        library.close()


def _version(release: str) -> tuple[int, int, int]:
    numbers = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", release)
    return (int(numbers[1]), int(numbers[2]), int(numbers[3] or 0)) if numbers else (0, 0, 0)
