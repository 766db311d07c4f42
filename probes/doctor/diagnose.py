"""`netprof doctor`: what this machine, this user and this target allow, line by line, and how to allow the rest.

Checks are data; a view draws them. Where something can be tried, it is tried rather than looked up.
"""

from __future__ import annotations

import getpass
import os
import platform
from collections.abc import Iterator

from netprof.errors import NetprofError
from netprof.probes.doctor import capabilities, machine
from netprof.probes.doctor.check import DoctorCheck, Status, verdict
from netprof.probes.doctor.gpus import check_gpus
from netprof.probes.doctor.machine import PROGRAM_KINDS
from netprof.probes.doctor.marks import check_attaching
from netprof.probes.doctor.target import check_target
from netprof.probes.flow.untyped import UNTYPED, WITHOUT_TYPES
from netprof.probes.kernel import headers, pids, rights
from netprof.probes.kernel.headers import described_by_headers
from netprof.probes.kernel.loader import object_path
from netprof.probes.kernel.rights import CAPABILITIES
from netprof.probes.kernel.targets import TargetMap
from netprof.probes.kernel.types import KERNEL_BTF, described_by_kernel
from netprof.probes.measurements import PROBES
from netprof.probes.probe import Probe, Shared
from netprof.schema import UNKNOWN_RANK


def examine(pid: int | None = None) -> list[DoctorCheck]:
    """Check this machine and this user, and the process `pid` where one is given. Raises nothing foreseeable."""
    checks = [*_machine(), *check_gpus(), *_user(), *_trials()]
    if pid is not None:
        checks += check_target(pid)
    return checks


def _machine() -> Iterator[DoctorCheck]:
    area = "machine"
    yield DoctorCheck(area, "kernel", Status.INFO, f"{platform.release()}, {platform.machine()}")
    yield _type_information()
    mode = machine.lockdown()
    yield verdict(mode != "confidentiality", area, "lockdown", mode, capabilities.LOCKDOWN_REMEDY)
    compiled = machine.sysctl("net.core.bpf_jit_enable") != 0
    detail = "on" if compiled else "off: programs are interpreted, at several times the cost a packet"
    yield verdict(compiled, area, "BPF compiler", detail, "sysctl net.core.bpf_jit_enable=1", Status.LIMITED)
    yield DoctorCheck(area, "container", Status.INFO, rights.container() or "none seen")
    for name in ("kernel.unprivileged_bpf_disabled", "kernel.perf_event_paranoid"):
        value = machine.sysctl(name)
        shown = "not readable" if value is None else str(value)
        yield DoctorCheck(area, name, Status.INFO, f"{shown} (without effect for a user with CAP_BPF and CAP_PERFMON)")


def _user() -> Iterator[DoctorCheck]:
    area = "user"
    yield DoctorCheck(area, "user", Status.INFO, f"{_user_name()} (uid {os.geteuid()})")
    held = rights.effective_capabilities()
    for capability in CAPABILITIES:
        otherwise = Status.BLOCKED if capability.needed else Status.LIMITED
        remedy = rights.remedy_for_rights((capability.name,))
        allowed = capability.name in held
        yield verdict(allowed, area, capability.name, f"to {capability.purpose}", remedy, otherwise)
    initial = rights.in_initial_user_namespace()
    detail = "the machine's" if initial else "one of its own: its capabilities do not count for BPF"
    yield verdict(initial, area, "user namespace", detail, rights.USER_NAMESPACE_REMEDY)
    yield _pid_namespace()
    filtered = rights.seccomp_filtered()
    detail = "system calls pass a filter; whether it lets bpf() through is tried below" if filtered else "no filter"
    yield DoctorCheck(area, "seccomp", Status.INFO, detail)


def _pid_namespace() -> DoctorCheck:
    name = "PID namespace"
    if not pids.proc_is_of_own_namespace():
        detail = "/proc shows the pids of another one"
        return DoctorCheck("user", name, Status.BLOCKED, detail, capabilities.PROC_REMEDY)
    if pids.in_initial_namespace():
        return DoctorCheck("user", name, Status.OK, "the machine's")
    detail = "one of its own: jobs in it can be recorded, and all pids are those of this namespace"
    return verdict(described_by_kernel(), "user", name, detail, capabilities.PID_NAMESPACE_REMEDY)


def _trials() -> Iterator[DoctorCheck]:
    """Load small programs, those that need a feature of the kernel, then netprof's own."""
    area = "user"
    allowed = True
    for kind in PROGRAM_KINDS:
        error = machine.try_program(kind)
        allowed = allowed and not error
        detail = f"{kind.purpose}: {'the kernel loads it' if not error else os.strerror(error)}"
        remedy = capabilities.remedy_for_refusal(kind, error) if error else ""
        yield verdict(not error, area, f"{kind.name} program", detail, remedy)
    if allowed:
        yield from _features()
        yield from try_probes()
        yield from check_attaching()


def _type_information() -> DoctorCheck:
    name = "kernel BTF"
    if described_by_kernel():
        return DoctorCheck("machine", name, Status.OK, f"{KERNEL_BTF} found")
    try:
        with described_by_headers(object_path(UNTYPED)):
            detail = f"{KERNEL_BTF} missing; bcc reads the kernel's headers instead. {WITHOUT_TYPES}"
            return DoctorCheck("machine", name, Status.LIMITED, detail, headers.REMEDY)
    except NetprofError as error:
        return DoctorCheck("machine", name, Status.BLOCKED, error.message, error.hint)


def _features() -> Iterator[DoctorCheck]:
    """Say which features the kernel has; without type information it is not known."""
    if not described_by_kernel():
        return
    missing = machine.missing_features()
    for feature in machine.FEATURES:
        otherwise = Status.BLOCKED if feature.needed else Status.LIMITED
        detail = f"to {feature.purpose}{': this kernel lacks it' if feature in missing else ''}"
        yield verdict(feature not in missing, "machine", feature.name, detail, machine.REMEDY, otherwise)


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "no name"


_BIN_NS = 1_000_000


def try_probes() -> Iterator[DoctorCheck]:
    """Start every probe on no process at all, and close it; say which load programs, and what they cannot measure."""
    try:
        with TargetMap() as targets:
            shared = Shared(targets, lambda pid: UNKNOWN_RANK, _BIN_NS)
            for kind in PROBES:
                yield from _try(kind, shared)
    except NetprofError as error:
        yield DoctorCheck("user", "BPF maps", Status.BLOCKED, error.message, error.hint)


def _try(kind: type[Probe], shared: Shared) -> Iterator[DoctorCheck]:
    name = f"probe {kind.name}"
    try:
        with kind.open(shared) as probe:
            probe.follow(())
            loads, description = bool(probe.objects), probe.describe()
    except NetprofError as error:
        status = Status.BLOCKED if kind.required else Status.LIMITED
        yield DoctorCheck("user", name, status, error.message, error.hint or "the others record without it")
        return
    if loads:
        yield DoctorCheck("user", name, Status.OK, "starts")
    for skipped in description.skipped:
        yield DoctorCheck("user", f"probe {skipped.name}", Status.INFO, skipped.reason, skipped.remedy)
