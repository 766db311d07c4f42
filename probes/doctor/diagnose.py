"""`netprof doctor`: what this machine, this user and this target allow, line by line, and how to allow the rest.

Checks are data; a view draws them. Where something can be tried, it is tried rather than looked up.
"""

from __future__ import annotations

import getpass
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from netprof.errors import NetprofError
from netprof.probes.doctor import capabilities, machine
from netprof.probes.doctor.machine import CAPABILITIES, KERNEL_BTF, OLDEST_KERNEL, PROGRAM_KINDS

_TRIAL_BIN_NS = 1_000_000
_TRIAL_FLOWS = 64


class Status(str, Enum):
    """How a check came out."""

    OK = "ok"
    LIMITED = "limited"  # recording works, with less or at a higher cost
    BLOCKED = "blocked"  # recording does not work
    INFO = "info"


@dataclass(frozen=True)
class Check:
    """One line of the diagnosis. `area` is machine, user or target; `remedy` says how to allow what is not allowed."""

    area: str
    name: str
    status: Status
    detail: str
    remedy: str = ""

    @property
    def prevents(self) -> bool:
        """Tell whether this alone keeps a recording from working."""
        return self.status is Status.BLOCKED


def examine(pid: int | None = None) -> list[Check]:
    """Check this machine and this user, and the process `pid` where one is given. Raises nothing foreseeable."""
    from netprof.probes.doctor.gpus import check_gpus

    checks = [*_machine(), *check_gpus(), *_user(), *_trials()]
    if pid is not None:
        from netprof.probes.doctor.target import check_target

        checks += check_target(pid)
    return checks


def can_record(checks: Sequence[Check]) -> bool:
    """Tell whether nothing among the checks keeps a recording from working."""
    return not any(check.prevents for check in checks)


def verdict(allowed: bool, area: str, name: str, detail: str, remedy: str, otherwise: Status = Status.BLOCKED) -> Check:
    """Return a check that is fine, or has the status `otherwise` and a remedy."""
    return Check(area, name, Status.OK if allowed else otherwise, detail, "" if allowed else remedy)


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
        yield _try_flows()
        yield _try_marks()


def _try_flows() -> Check:
    """Start the flow probe on no process at all, and stop it."""
    from netprof.probes.flow.probe import FlowProbe

    try:
        with FlowProbe(_TRIAL_BIN_NS, max_flows=_TRIAL_FLOWS) as probe:
            probe.follow(())
    except NetprofError as error:
        return Check("user", "flow probe", Status.BLOCKED, error.message, error.hint)
    return Check("user", "flow probe", Status.OK, "starts")


def _try_marks() -> Check:
    """Load the mark probe's program, in the fast way if the kernel has it."""
    from netprof.probes.kernel.loader import BpfObject
    from netprof.probes.marks.uprobes import TRACE_UPROBE_MULTI, supports_multi

    try:
        with BpfObject("marks"):
            pass
    except NetprofError as error:
        remedy = error.hint or "flows and the NIC are recorded without it"
        return Check("user", "mark probe", Status.LIMITED, error.message, remedy)
    try:
        with BpfObject("marks", expected_attach_type={"mark": TRACE_UPROBE_MULTI}) as loaded:
            multi = supports_multi(loaded.program_fd("mark"))
    except NetprofError:
        multi = False
    detail = "loads; all functions attach at once (uprobe_multi)" if multi else "loads; functions attach one by one"
    remedy = "a kernel of 6.10 or later starts and stops faster"
    return verdict(multi, "user", "mark probe", detail, remedy, Status.LIMITED)


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "no name"
