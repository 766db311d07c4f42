"""What this kernel, this machine and this user allow, found out by looking and by trying. Facts only; no advice."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

OLDEST_KERNEL = (5, 15)
KERNEL_BTF = Path("/sys/kernel/btf/vmlinux")

_SYS_ADMIN = "CAP_SYS_ADMIN"
_INITIAL_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO
_SYSCALL_BPF = {"x86_64": 321, "aarch64": 280}
_BPF_PROG_LOAD = 5
_RETURN_ZERO = bytes.fromhex("b7000000000000009500000000000000")  # r0 = 0; exit
_ATTRIBUTE_BYTES = 128


@dataclass(frozen=True)
class Capability:
    """A right of a process: its name, its number, what netprof uses it for, and whether recording needs it."""

    name: str
    bit: int
    purpose: str
    needed: bool


CAPABILITIES = (
    Capability("CAP_BPF", 39, "load BPF programs and maps", True),
    Capability("CAP_PERFMON", 38, "let them observe the kernel's network stack and the job's functions", True),
    Capability("CAP_SYS_PTRACE", 19, "look into processes of other users and of containers", False),
    Capability(_SYS_ADMIN, 21, "find line rates in other network namespaces, and measure the programs' cost", False),
)


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


def effective_capabilities() -> frozenset[str]:
    """Return those of CAPABILITIES that this process has, by name; CAP_SYS_ADMIN has the first two in it."""
    bits = int(_status().get("CapEff", "0"), 16)
    held = {capability.name for capability in CAPABILITIES if bits >> capability.bit & 1}
    return frozenset(held | {"CAP_BPF", "CAP_PERFMON"} if _SYS_ADMIN in held else held)


def missing_capabilities() -> tuple[str, ...]:
    """Return the names of the capabilities that recording needs and this process does not have."""
    held = effective_capabilities()
    return tuple(capability.name for capability in CAPABILITIES if capability.needed and capability.name not in held)


def kernel_version() -> tuple[int, int]:
    """Return the running kernel's (major, minor)."""
    match = re.match(r"(\d+)\.(\d+)", platform.release())
    return (int(match[1]), int(match[2])) if match else (0, 0)


def in_initial_pid_namespace() -> bool:
    """Tell whether pids mean here what they mean in the kernel, whose programs report the host's."""
    return Path("/proc/self/ns/pid").stat().st_ino == _INITIAL_PID_NAMESPACE


def in_initial_user_namespace() -> bool:
    """Tell whether this process's capabilities count for the whole machine (not so in a rootless container)."""
    return _text("/proc/self/uid_map").split() == ["0", "0", "4294967295"]


def seccomp_filtered() -> bool:
    """Tell whether system calls of this process pass a filter, as in a container."""
    return _status().get("Seccomp", "0") == "2"


def lockdown() -> str:
    """Return the kernel's lockdown mode: none, integrity or confidentiality ("none" where it has no lockdown)."""
    match = re.search(r"\[(\w+)\]", _text("/sys/kernel/security/lockdown"))
    return match[1] if match else "none"


def sysctl(name: str) -> int | None:
    """Return a numeric sysctl such as `kernel.perf_event_paranoid`, None where it cannot be read."""
    text = _text("/proc/sys/" + name.replace(".", "/")).strip()
    return int(text) if re.fullmatch(r"-?\d+", text) else None


def container() -> str:
    """Return the kind of container that this process seems to run in, "" if none."""
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "kubernetes"
    if Path("/run/.containerenv").exists():
        return "podman"
    if Path("/.dockerenv").exists():
        return "docker"
    match = re.search(r"kubepods|docker|containerd|lxc", _text("/proc/1/cgroup"))
    return match[0] if match else ""


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


def _status() -> dict[str, str]:
    lines = (line.partition(":") for line in _text("/proc/thread-self/status").splitlines())
    return {name: value.strip() for name, _, value in lines}


def _text(path: str) -> str:
    """Read a small file; "" where it does not exist or may not be read."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
