"""The BPF programs that a process holds, and whether the kernel still has them: to see that nothing of ours stays."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
from pathlib import Path

_BPF = {"x86_64": 321, "aarch64": 280}[platform.machine()]
_PROG_GET_FD_BY_ID = 13
_libc = ctypes.CDLL(None, use_errno=True)


def kernel_release() -> tuple[int, int]:
    """Return the kernel's version, as (6, 10)."""
    major, minor = re.findall(r"\d+", platform.release())[:2]
    return int(major), int(minor)


def programs_of(pid: int) -> set[int]:
    """Return the ids of the BPF programs that a process has loaded or linked."""
    found = set()
    for path in Path(f"/proc/{pid}/fdinfo").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile, as the one that lists this folder
            found.update(re.findall(r"^prog_id:\s*(\d+)$", path.read_text(), re.MULTILINE))
    return {int(number) for number in found}


def still_loaded(programs: set[int]) -> set[int]:
    """Return those of the programs that the kernel has not unloaded."""
    return {program for program in programs if _exists(program)}


def _exists(program: int) -> bool:
    attribute = ctypes.create_string_buffer(program.to_bytes(4, "little"), 128)
    descriptor = int(_libc.syscall(_BPF, _PROG_GET_FD_BY_ID, attribute, len(attribute)))
    if descriptor >= 0:
        os.close(descriptor)
    return descriptor >= 0
