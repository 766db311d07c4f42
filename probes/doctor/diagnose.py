"""`netprof doctor`: what this machine, this user and this target allow, line by line, and how to allow the rest.

Checks are data; a view draws them. Where something can be tried, it is tried rather than looked up.
"""

from __future__ import annotations

import getpass
import os
import platform
from collections.abc import Iterator

from netprof.probes.doctor import capabilities, machine
from netprof.probes.doctor.check import Check, Status, verdict
from netprof.probes.doctor.gpus import check_gpus
from netprof.probes.doctor.machine import CAPABILITIES, KERNEL_BTF, OLDEST_KERNEL, PROGRAM_KINDS
from netprof.probes.doctor.marks import check_attaching
from netprof.probes.doctor.probes import try_probes
from netprof.probes.doctor.target import check_target


def examine(pid: int | None = None) -> list[Check]:
    """Check this machine and this user, and the process `pid` where one is given. Raises nothing foreseeable."""
    checks = [*_machine(), *check_gpus(), *_user(), *_trials()]
    if pid is not None:
        checks += check_target(pid)
    return checks


def _machine() -> Iterator[Check]:
    area = "machine"
    recent = machine.kernel_version() >= OLDEST_KERNEL
    yield verdict(recent, area, "kernel", f"{platform.release()} (5.15 or later is needed)", capabilities.KERNEL_REMEDY)
    btf = KERNEL_BTF.exists()
    found = "found" if btf else "missing"
    yield verdict(btf, area, "type information", f"{KERNEL_BTF} {found}", capabilities.BTF_REMEDY)
    mode = machine.lockdown()
    yield verdict(mode != "confidentiality", area, "lockdown", mode, capabilities.LOCKDOWN_REMEDY)
    compiled = machine.sysctl("net.core.bpf_jit_enable") != 0
    yield verdict(
        compiled,
        area,
        "BPF compiler",
        "on" if compiled else "off: programs are interpreted, at several times the cost a packet",
        "sysctl net.core.bpf_jit_enable=1",
        Status.LIMITED,
    )
    yield Check(area, "container", Status.INFO, machine.container() or "none seen")
    for name in ("kernel.unprivileged_bpf_disabled", "kernel.perf_event_paranoid"):
        value = machine.sysctl(name)
        shown = "not readable" if value is None else str(value)
        yield Check(area, name, Status.INFO, f"{shown} (without effect for a user with CAP_BPF and CAP_PERFMON)")


def _user() -> Iterator[Check]:
    area = "user"
    yield Check(area, "user", Status.INFO, f"{_user_name()} (uid {os.geteuid()})")
    held = machine.effective_capabilities()
    for capability in CAPABILITIES:
        otherwise = Status.BLOCKED if capability.needed else Status.LIMITED
        remedy = capabilities.remedy_for_rights((capability.name,))
        yield verdict(
            capability.name in held, area, capability.name, f"to {capability.purpose}", remedy, otherwise=otherwise
        )
    initial = machine.in_initial_user_namespace()
    detail = "the machine's" if initial else "one of its own: its capabilities do not count for BPF"
    yield verdict(initial, area, "user namespace", detail, capabilities.USER_NAMESPACE_REMEDY)
    initial = machine.in_initial_pid_namespace()
    detail = "the machine's" if initial else "one of its own: the kernel reports the host's pids"
    yield verdict(initial, area, "PID namespace", detail, capabilities.PID_NAMESPACE_REMEDY)
    filtered = machine.seccomp_filtered()
    detail = "system calls pass a filter; whether it lets bpf() through is tried below" if filtered else "no filter"
    yield Check(area, "seccomp", Status.INFO, detail)


def _trials() -> Iterator[Check]:
    """Load small programs, then netprof's own."""
    area = "user"
    allowed = True
    for kind in PROGRAM_KINDS:
        error = machine.try_program(kind)
        allowed = allowed and not error
        detail = f"{kind.purpose}: {'the kernel loads it' if not error else os.strerror(error)}"
        yield verdict(
            not error,
            area,
            f"{kind.name} program",
            detail,
            capabilities.remedy_for_refusal(kind, error) if error else "",
        )
    if allowed:
        yield from try_probes()
        yield from check_attaching()


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "no name"
