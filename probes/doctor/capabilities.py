"""What recording needs, checked before anything is started: one line that names what is missing, and its remedy."""

from __future__ import annotations

import errno
import os
import platform

from netprof.errors import NotPermittedError
from netprof.probes.doctor import machine
from netprof.probes.doctor.machine import KERNEL_BTF, OLDEST_KERNEL, PROGRAM_KINDS, ProgramKind

KERNEL_REMEDY = "boot a kernel of 5.15 or later"
BTF_REMEDY = "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y, as distributions' kernels are"
PID_NAMESPACE_REMEDY = "run netprof on the host, or start its container with --pid=host (Kubernetes: hostPID: true)"
USER_NAMESPACE_REMEDY = "run netprof on the host as root: in a rootless container its rights do not count there"
LOCKDOWN_REMEDY = "boot with lockdown=integrity or without lockdown: confidentiality forbids all tracing"
SECCOMP_REMEDY = "start the container with --security-opt seccomp=unconfined, or --privileged"


def require_recording() -> None:
    """Check that this kernel and this user allow recording at all. Raises NotPermittedError naming what is missing."""
    _require_kernel()
    missing = machine.missing_capabilities()
    if missing:
        raise NotPermittedError(f"not permitted to record: {' and '.join(missing)} missing", remedy_for_rights(missing))
    if not machine.in_initial_user_namespace():
        raise NotPermittedError("not permitted to record from a user namespace", USER_NAMESPACE_REMEDY)
    if not machine.in_initial_pid_namespace():
        raise NotPermittedError(
            "cannot record from a PID namespace: the kernel reports the host's pids", PID_NAMESPACE_REMEDY
        )
    for kind in PROGRAM_KINDS:
        error = machine.try_program(kind)
        if error:
            raise NotPermittedError(
                f"this kernel does not load BPF programs of type {kind.name}: {os.strerror(error)}",
                remedy_for_refusal(kind, error),
            )


def remedy_for_rights(missing: tuple[str, ...]) -> str:
    """Return how to get the capabilities named, here: with sudo, or with flags of the container."""
    kind = machine.container()
    if os.geteuid() != 0 and not kind:
        return "run it with sudo"
    if kind == "kubernetes":
        short = ", ".join(name.removeprefix("CAP_") for name in missing)
        return f"add securityContext.capabilities.add: [{short}] to the pod, or securityContext.privileged: true"
    if kind:
        flags = " ".join(f"--cap-add={name.removeprefix('CAP_')}" for name in missing)
        user = "" if os.geteuid() == 0 else "run as root; "
        return f"{user}start the container with {flags}, or --privileged"
    return f"this root was started without {', '.join(missing)}: run it from a full root shell"


def remedy_for_refusal(kind: ProgramKind, error: int) -> str:
    """Return what would make the kernel load a program it refused with `error`, as far as one can tell."""
    if error not in (errno.EPERM, errno.EACCES):
        return f"boot a kernel with BPF programs of type {kind.name} (CONFIG_BPF_SYSCALL, CONFIG_BPF_EVENTS)"
    if machine.lockdown() == "confidentiality":
        return LOCKDOWN_REMEDY
    if machine.seccomp_filtered():
        return SECCOMP_REMEDY
    wanted = ("CAP_BPF",) if kind.name == "socket_filter" else ("CAP_BPF", "CAP_PERFMON")
    missing = tuple(name for name in wanted if name not in machine.effective_capabilities())
    if missing:
        return remedy_for_rights(missing)
    return "a security module refuses it: see the kernel's log ('dmesg', 'ausearch -m avc')"


def _require_kernel() -> None:
    if platform.system() != "Linux":
        raise NotPermittedError(f"netprof records on Linux, not on {platform.system()}", "run it on the training host")
    if machine.kernel_version() < OLDEST_KERNEL:
        raise NotPermittedError(f"kernel {platform.release()} is too old: 5.15 or later is needed", KERNEL_REMEDY)
    if not KERNEL_BTF.exists():
        raise NotPermittedError(f"this kernel has no type information ({KERNEL_BTF})", BTF_REMEDY)
