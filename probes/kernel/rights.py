"""The rights that netprof uses: which this process has, what is missing for something, and how to get it here."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from netprof.errors import NotPermittedError
from netprof.probes.kernel.pids import status
from netprof.probes.kernel.procfile import text_of

USER_NAMESPACE_REMEDY = "run netprof on the host as root: in a rootless container its rights do not count there"
_OTHER_REMEDY = "a security module refuses it: see the kernel's log ('dmesg', 'ausearch -m avc')"

BPF, PERFMON, SYS_PTRACE = "CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE"
DAC_READ_SEARCH, SYS_ADMIN = "CAP_DAC_READ_SEARCH", "CAP_SYS_ADMIN"


@dataclass(frozen=True)
class Capability:
    """A right of a process: its name, its number, what netprof uses it for, and whether programs need it in the kernel.

    `otherwise` says what a recording is like without it.
    """

    name: str
    bit: int
    purpose: str
    needed: bool
    otherwise: str


_SAMPLED = "bytes are sampled instead of counted, and there are no marks"
_OWN = "only the jobs of one's own user can be recorded"

CAPABILITIES = (
    Capability(BPF, 39, "load BPF programs and maps", True, _SAMPLED),
    Capability(PERFMON, 38, "let them observe the kernel's network stack and the job's functions", True, _SAMPLED),
    Capability(SYS_PTRACE, 19, "look into processes of other users and of containers", False, _OWN),
    Capability(
        DAC_READ_SEARCH, 2, "read the environment, files and libraries of processes of other users", False, _OWN
    ),
    Capability(
        SYS_ADMIN,
        21,
        "find line rates in other network namespaces, and measure the programs' cost",
        False,
        "line rates in other network namespaces, and what the programs cost, are unknown",
    ),
)
"""In the order in which they are told of; CAP_SYS_ADMIN has the first two in it."""


def effective_capabilities() -> frozenset[str]:
    """Return those of CAPABILITIES that this process has, by name."""
    bits = int(_status().get("CapEff", "0"), 16)
    held = {capability.name for capability in CAPABILITIES if bits >> capability.bit & 1}
    return frozenset(held | {BPF, PERFMON} if SYS_ADMIN in held else held)


def missing_capabilities() -> tuple[str, ...]:
    """Return the names of the capabilities that BPF programs need and this process does not have."""
    held = effective_capabilities()
    return tuple(capability.name for capability in CAPABILITIES if capability.needed and capability.name not in held)


def in_initial_user_namespace() -> bool:
    """Tell whether this process's capabilities count for the whole machine (not so in a rootless container)."""
    return text_of("/proc/self/uid_map").split() == ["0", "0", "4294967295"]


def seccomp_filtered() -> bool:
    """Tell whether system calls of this process pass a filter, as in a container."""
    return _status().get("Seccomp", "0") == "2"


def container() -> str:
    """Return the kind of container that this process seems to run in, "" if none."""
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "kubernetes"
    if Path("/run/.containerenv").exists():
        return "podman"
    if Path("/.dockerenv").exists():
        return "docker"
    match = re.search(r"kubepods|docker|containerd|lxc", text_of("/proc/1/cgroup"))
    return match[0] if match else ""


def not_permitted(what: str, *needed: str) -> NotPermittedError:
    """Return an error: what is not permitted, which of the `needed` capabilities are missing, and the remedy."""
    missing = tuple(name for name in needed if name not in effective_capabilities())
    if missing:
        return NotPermittedError(f"not permitted to {what}: {_listed(missing)} missing", remedy_for_rights(missing))
    if not in_initial_user_namespace():
        return NotPermittedError(f"not permitted to {what} from a user namespace", USER_NAMESPACE_REMEDY)
    return NotPermittedError(f"not permitted to {what}, although this user has {_listed(needed)}", _OTHER_REMEDY)


def remedy_for_rights(missing: tuple[str, ...]) -> str:
    """Return how to get the capabilities named, here: with sudo, or with flags of the container."""
    kind = container()
    if os.geteuid() != 0 and not kind:
        return (
            f"give it {_listed(missing)} too, or run it with sudo" if effective_capabilities() else "run it with sudo"
        )
    if kind == "kubernetes":
        short = ", ".join(name.removeprefix("CAP_") for name in missing)
        return f"add securityContext.capabilities.add: [{short}] to the pod, or securityContext.privileged: true"
    if kind:
        flags = " ".join(f"--cap-add={name.removeprefix('CAP_')}" for name in missing)
        user = "" if os.geteuid() == 0 else "run as root; "
        return f"{user}start the container with {flags}, or --privileged"
    return f"this root was started without {', '.join(missing)}: run it from a full root shell"


def _listed(names: tuple[str, ...]) -> str:
    return " and ".join(names)


def _status() -> dict[str, str]:
    try:
        return status("thread-self")
    except OSError:
        return {}
