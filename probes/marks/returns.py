"""Whether the returns of functions may be probed in a process.

The kernel puts the address of a trampoline in the place of the return address when the function is entered. Leaving the
function by longjmp, by the end of its thread, or after the probe is gone, is all right. But the process ends where an
exception unwinds past the trampoline, where calls return in another order than that of their stack (threads that a
library of its own switches), where the processor keeps a second stack of return addresses that the kernel does not
mend, and where a filter of system calls does not let the trampoline's own through. So all of these are looked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

from netprof.errors import NetprofError
from netprof.probes.kernel.elf import TooLongError
from netprof.probes.kernel.libbpf import libbpf
from netprof.probes.kernel.pids import status
from netprof.probes.kernel.types import described_by_kernel, has_function
from netprof.probes.marks import libraries
from netprof.probes.marks.symbols import names_any

_THROW = "__cxa_throw"
_SWITCHERS = ("libabt.so*", "libqthread.so*")  # Argobots and Qthreads: MPICH can be built with either
_SHADOW_STACK = "shstk"
_RETURN_CALL = "__x64_sys_uretprobe"  # of the kernels that leave a trampoline by a system call of its own
_RETURN_CALL_NUMBER = 335


def danger(
    pid: int, mapped: Iterable[libraries.Mapping], throwing: Sequence[str], until_s: float = math.inf
) -> str | None:
    """Say why no return may be probed in process `pid`, None where nothing speaks against it.

    `mapped` are its files. One of them that names a function of `throwing` and throws C++ exceptions may let one
    pass; so may what is not read by `until_s` (time.monotonic).
    """
    for mapping in mapped:
        if any(fnmatchcase(mapping.basename, pattern) for pattern in _SWITCHERS):
            return f"{mapping.basename} switches stacks in the middle of a call, which a probed return does not survive"
        if throwing and _throws(pid, mapping, throwing, until_s):
            return f"{mapping.basename} may let a C++ exception pass, which a probed return turns into an abort"
    try:
        return danger_of(status(pid), trampoline_of_this_kernel())
    except OSError:
        return "its status cannot be read"


@dataclass(frozen=True)
class Trampoline:
    """How the kernel's trampoline goes back: `calls` by a system call, which `is_filtered` where calls are."""

    calls: bool
    is_filtered: bool


@lru_cache(maxsize=1)
def trampoline_of_this_kernel() -> Trampoline:
    """Look for the system call among the kernel's functions, and try whether a filter would stop it."""
    calls = has_function(_RETURN_CALL)
    unknown = not described_by_kernel()  # it may call, then
    return Trampoline(calls, (calls or unknown) and is_filtered(_RETURN_CALL_NUMBER))


def is_filtered(number: int) -> bool:
    """Tell whether a filter of system calls applies to this one; True where that cannot be tried."""
    return bool(libbpf().netprof_call_is_filtered(number))


def danger_of(process: Mapping[str, str], trampoline: Trampoline) -> str | None:
    """Say what in /proc/PID/status speaks against it on a kernel with this trampoline."""
    # The change that gave the trampoline its system call (6.11) also made it mend the shadow stack.
    if _SHADOW_STACK in process.get("x86_Thread_features", "") and not trampoline.calls:
        return "it has a shadow stack, which this kernel does not mend when a return is probed"
    if process.get("Seccomp", "0") != "0" and trampoline.is_filtered:
        return "its system calls are filtered, and this kernel adds one of its own where a return is probed"
    return None


def _throws(pid: int, mapping: libraries.Mapping, throwing: Sequence[str], until_s: float) -> bool:
    """Tell whether a file of the process can throw through the library; one that cannot be opened is taken for one."""
    try:
        library = libraries.open_library(pid, mapping)
    except NetprofError:
        return True
    with library:
        try:
            return all(names_any(library.descriptor, names, until_s) for names in (throwing, (_THROW,)))
        except TooLongError:
            return True
        except NetprofError:  # no ELF file: code that was made at run time
            return False
