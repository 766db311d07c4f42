"""What BPF programs need, checked before anything is started: one line names what is missing, and its remedy."""

from __future__ import annotations

import errno
import os
import platform

from netprof.errors import NotPermittedError
from netprof.probes.doctor import machine
from netprof.probes.doctor.machine import PROGRAM_KINDS, ProgramKind
from netprof.probes.kernel import pids, rights
from netprof.probes.kernel.rights import USER_NAMESPACE_REMEDY, remedy_for_rights
from netprof.probes.kernel.types import described_by_kernel

PID_NAMESPACE_REMEDY = "run netprof on the host, or start its container with --pid=host (Kubernetes: hostPID: true)"
PROC_REMEDY = "mount -t proc proc /proc in this PID namespace (unshare does with --mount-proc)"
LOCKDOWN_REMEDY = "boot with lockdown=integrity or without lockdown: confidentiality forbids all tracing"
SECCOMP_REMEDY = "start the container with --security-opt seccomp=unconfined, or --privileged"


def require_recording() -> None:
    """Check that this kernel and this user allow what a whole recording needs. Raises NotPermittedError."""
    if platform.system() != "Linux":
        raise NotPermittedError(f"netprof records on Linux, not on {platform.system()}", "run it on the training host")
    missing = rights.missing_capabilities()
    if missing:
        raise NotPermittedError(
            f"not permitted to load BPF programs: {' and '.join(missing)} missing", remedy_for_rights(missing)
        )
    if not rights.in_initial_user_namespace():
        raise NotPermittedError("not permitted to load BPF programs from a user namespace", USER_NAMESPACE_REMEDY)
    _require_pids()
    for kind in PROGRAM_KINDS:
        error = machine.try_program(kind)
        if error:
            raise NotPermittedError(
                f"this kernel does not load BPF programs of type {kind.name}: {os.strerror(error)}",
                remedy_for_refusal(kind, error),
            )
    lacking = [feature.name for feature in machine.missing_features() if feature.needed]
    if lacking:
        raise NotPermittedError(
            f"this kernel ({platform.release()}) cannot record: it lacks {', '.join(lacking)}", machine.REMEDY
        )


def remedy_for_refusal(kind: ProgramKind, error: int) -> str:
    """Return what would make the kernel load a program it refused with `error`, as far as one can tell."""
    if error not in (errno.EPERM, errno.EACCES):
        return f"boot a kernel with BPF programs of type {kind.name} (CONFIG_BPF_SYSCALL, CONFIG_BPF_EVENTS)"
    if machine.lockdown() == "confidentiality":
        return LOCKDOWN_REMEDY
    if rights.seccomp_filtered():
        return SECCOMP_REMEDY
    wanted = ("CAP_BPF",) if kind.name == "socket_filter" else ("CAP_BPF", "CAP_PERFMON")
    missing = tuple(name for name in wanted if name not in rights.effective_capabilities())
    if missing:
        return remedy_for_rights(missing)
    return "a security module refuses it: see the kernel's log ('dmesg', 'ausearch -m avc')"


def _require_pids() -> None:
    """Check that what the kernel's programs see is known by the same pids as here."""
    if not pids.proc_is_of_own_namespace():
        raise NotPermittedError("/proc shows other pids than this PID namespace has", PROC_REMEDY)
    if not pids.in_initial_namespace() and not described_by_kernel():
        raise NotPermittedError(
            "in a PID namespace, BPF programs are of use only on a kernel with BTF (/sys/kernel/btf/vmlinux)",
            PID_NAMESPACE_REMEDY,
        )
