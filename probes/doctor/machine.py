"""What this kernel, this machine and this user allow, found out by looking and by trying. Facts only; no advice."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

_SYSCALL_BPF = {"x86_64": 321, "aarch64": 280}
_BPF_PROG_LOAD = 5
_RETURN_ZERO = bytes.fromhex("b7000000000000009500000000000000")  # r0 = 0; exit
_ATTRIBUTE_BYTES = 128


@dataclass(frozen=True)
class ProgramKind:
    """A kind of BPF program: its number in the kernel, and what netprof does with it."""

    name: str
    number: int
    purpose: str


PROGRAM_KINDS = (
    ProgramKind("socket_filter", 1, "BPF at all"),
    ProgramKind("kprobe", 2, "marks: the entries of the framework's functions"),
    ProgramKind("tracing", 26, "flows: the kernel's tracepoints with types, and iterators"),
)


def lockdown() -> str:
    """Return the kernel's lockdown mode: none, integrity or confidentiality ("none" where it has no lockdown)."""
    match = re.search(r"\[(\w+)\]", _text("/sys/kernel/security/lockdown"))
    return match[1] if match else "none"


def sysctl(name: str) -> int | None:
    """Return a numeric sysctl such as `kernel.perf_event_paranoid`, None where it cannot be read."""
    text = _text("/proc/sys/" + name.replace(".", "/")).strip()
    return int(text) if re.fullmatch(r"-?\d+", text) else None


def try_program(kind: ProgramKind) -> int:
    """Load a program of two instructions and unload it; return 0, or the kernel's errno.

    A tracing program also has to name what it traces, which this one does not: EINVAL comes after the check of
    permissions and counts as allowed.
    """
    code = ctypes.create_string_buffer(_RETURN_ZERO, len(_RETURN_ZERO))
    license_name = ctypes.create_string_buffer(b"GPL")
    attribute = ctypes.create_string_buffer(_ATTRIBUTE_BYTES)
    ctypes.c_uint32.from_buffer(attribute, 0).value = kind.number
    ctypes.c_uint32.from_buffer(attribute, 4).value = len(_RETURN_ZERO) // 8
    ctypes.c_uint64.from_buffer(attribute, 8).value = ctypes.addressof(code)
    ctypes.c_uint64.from_buffer(attribute, 16).value = ctypes.addressof(license_name)
    number = _bpf(_BPF_PROG_LOAD, attribute)
    return 0 if kind.name == "tracing" and number == errno.EINVAL else number


def _bpf(command: int, attribute: ctypes.Array[ctypes.c_char]) -> int:
    """Make the bpf system call, close what it made, and return 0 or its errno."""
    system_call = _SYSCALL_BPF.get(platform.machine())
    if system_call is None:
        return errno.ENOSYS
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    descriptor = libc.syscall(
        ctypes.c_long(system_call), ctypes.c_int(command), attribute, ctypes.c_uint(len(attribute))
    )
    if descriptor < 0:
        return ctypes.get_errno()
    os.close(descriptor)
    return 0


def _text(path: str) -> str:
    """Read a small file; "" where it does not exist or may not be read."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
