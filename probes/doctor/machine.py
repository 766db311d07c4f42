"""What this kernel, this machine and this user allow, found out by looking and by trying.

What the kernel must be able to do is tried with small programs: release numbers say little. Distributions carry
features back to older releases (RHEL 9's 5.14 has those of 6.x), and configurations leave them out.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from netprof.errors import NetprofError, NotPermittedError
from netprof.probes.kernel.libbpf import libbpf
from netprof.probes.kernel.loader import BpfObject, KernelMemoryError
from netprof.probes.kernel.procfile import text_of
from netprof.probes.kernel.types import described_by_kernel

_RETURN_ZERO = bytes.fromhex("b7000000000000009500000000000000")  # r0 = 0; exit


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
    match = re.search(r"\[(\w+)\]", text_of("/sys/kernel/security/lockdown"))
    return match[1] if match else "none"


def sysctl(name: str) -> int | None:
    """Return a numeric sysctl such as `kernel.perf_event_paranoid`, None where it cannot be read."""
    text = text_of("/proc/sys/" + name.replace(".", "/")).strip()
    return int(text) if re.fullmatch(r"-?\d+", text) else None


def try_program(kind: ProgramKind) -> int:
    """Load a program of two instructions and unload it; return 0, or the kernel's errno.

    A tracing program also has to name what it traces, which this one does not: EINVAL comes after the check of
    permissions and counts as allowed.
    """
    descriptor = libbpf().bpf_prog_load(kind.number, None, b"GPL", _RETURN_ZERO, len(_RETURN_ZERO) // 8, None)
    if descriptor >= 0:
        os.close(descriptor)
        return 0
    number = ctypes.get_errno()
    return 0 if kind.name == "tracing" and number == errno.EINVAL else number


REMEDY = (
    "boot a kernel that has it: Linux has had all that netprof needs since 5.15, some distributions' kernels before"
)


@dataclass(frozen=True)
class Feature:
    """Something a kernel can do: its name, the program of doctor.bpf.c that needs it, what netprof does with it.

    Without one that is `needed` there is no recording; without another there are no marks.
    """

    name: str
    program: str
    purpose: str
    needed: bool = True


FEATURES = (
    Feature("typed tracepoints", "typed_tracepoints", "see TCP's packets"),
    Feature("socket storage in tracing programs", "socket_storage", "tell the job's sockets from others"),
    Feature("atomic operations with a result", "atomic_results", "count on several CPUs at once"),
    Feature("an iterator over open files", "iterator_of_files", "find the sockets of processes that run already"),
    Feature("an iterator that locks TCP sockets", "iterator_of_locked_sockets", "count on from what they had moved"),
    Feature("cookies of uprobes", "attach_cookies", "record marks", needed=False),
)


def missing_features(features: Sequence[Feature] = FEATURES, name: str = "doctor") -> tuple[Feature, ...]:
    """Return those that the kernel does not have. `name` is the object with their programs.

    Without type information none can be tried, and none is asked for: other programs do without (flow/untyped.bpf.c).
    Raises NotPermittedError or NetprofError where it is not for a feature's sake that nothing loads.
    """
    if not described_by_kernel() or _loads(features, features, name):
        return ()
    BpfObject(name, autoload=dict.fromkeys((feature.program for feature in features), False)).close()
    return tuple(feature for feature in features if not _loads([feature], features, name))


def _loads(wanted: Sequence[Feature], features: Sequence[Feature], name: str) -> bool:
    programs = {feature.program: feature in wanted for feature in features}
    try:
        BpfObject(name, autoload=programs).close()
    except (NotPermittedError, KernelMemoryError):
        raise
    except NetprofError:
        return False
    return True
