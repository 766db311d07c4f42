"""Real containers to run jobs and netprof in: crun's, whose root file system is made of this machine's own folders.

Each is bound read-only: whatever a container does, only its folder `shared` can be written. Nothing is left behind: the
runtime's own state is kept in a folder of the test, and a container's cgroup goes with it.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import netprof

RUNTIME = "crun"
OWN = ("pid", "mount", "network", "ipc", "uts")
CAPABILITIES = ("CAP_NET_ADMIN", "CAP_KILL")
FOR_NETPROF = (*CAPABILITIES, "CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH", "CAP_SYS_ADMIN")
_LINKS = ("bin", "lib", "lib64", "sbin")  # of a system with merged /usr
_CHECKOUT = Path(__file__).parents[2]
_HYBRID = "/sys/fs/cgroup/unified"
_ENTER = f'echo $$ > "$0/cgroup.procs"; [ ! -d {_HYBRID} ] || umount {_HYBRID}; exec "$@"'
"""Goes into a cgroup, and hides that there are two kinds of them (in a mount namespace): crun refuses that."""


def missing() -> str:
    """Return why no container can be made here; "" where one can."""
    if os.geteuid() != 0:
        return "a container needs root"
    return "" if shutil.which(RUNTIME) else f"there is no container runtime: apt-get install {RUNTIME}"


@dataclass
class Container:
    """A container that runs, by the pid of its first process; `id` is what its cgroup is called by."""

    id: str
    state: Path
    shared: Path
    process: subprocess.Popen[str]
    pid: int = 0
    errors: Path = Path("/dev/null")
    lines: list[str] = field(default_factory=list)

    def line(self) -> str:
        """Return the next line that the container prints."""
        assert self.process.stdout is not None
        self.lines.append(self.process.stdout.readline())
        return self.lines[-1]


@contextmanager
def container(
    folder: Path,
    argv: Sequence[str],
    *,
    capabilities: Sequence[str] = CAPABILITIES,
    namespaces: Mapping[str, str | None] | None = None,
    environment: Mapping[str, str] | None = None,
    shared: Path | None = None,
) -> Iterator[Container]:
    """Run a program in a container for the block. `folder` is the test's; what both may write lies in `shared`.

    `namespaces` are its own ones (None), or those of others, by their paths; what is not named is this machine's.
    """
    name = secrets.token_hex(32)
    bundle, state = folder / f"bundle-{name[:8]}", folder / "state"
    shared = shared or folder / "shared"
    for each in (bundle / "rootfs", state, shared):
        each.mkdir(parents=True, exist_ok=True)
    spaces = dict.fromkeys(OWN) if namespaces is None else namespaces
    config = _config(argv, capabilities, spaces, environment or {}, [shared])
    _make_root(bundle / "rootfs", [each["destination"] for each in config["mounts"]])
    (bundle / "config.json").write_text(json.dumps(config))
    command = [RUNTIME, f"--root={state}", "--cgroup-manager=disabled"]
    cgroup = _cgroup(name)
    enter = ["unshare", "--mount", "sh", "-c", _ENTER, str(cgroup)]
    process = subprocess.Popen(
        [*enter, *command, "run", f"--bundle={bundle}", f"--pid-file={bundle / 'pid'}", name],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=(bundle / "stderr").open("w"),
        text=True,
    )
    try:
        running = Container(name, state, shared, process, errors=bundle / "stderr")
        running.line()  # something is said when all is ready
        assert running.lines[0], running.errors.read_text()
        running.pid = _pid(bundle / "pid")
        yield running
    finally:
        with suppress(OSError, ValueError):
            os.kill(int((bundle / "pid").read_text()), signal.SIGKILL)  # and all in its PID namespace
        process.kill()
        process.wait()
        _remove(cgroup)


def _pid(file: Path) -> int:
    """Read the first process's pid from the runtime's file: which it may write after that process has spoken."""
    until_s = time.monotonic() + 10
    while not (file.exists() and file.read_text()) and time.monotonic() < until_s:
        time.sleep(0.01)
    return int(file.read_text())


def _cgroup(name: str) -> Path:
    """Make a cgroup that is called as podman calls a container's; not every version of the runtime can, everywhere."""
    lines = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    place = Path(next(words[1] for words in lines if words[2] == "cgroup2"), f"libpod-{name}")
    place.mkdir()
    return place


def _remove(cgroup: Path) -> None:
    """Remove a cgroup, once the last process is gone from it."""
    until_s = time.monotonic() + 10
    while cgroup.exists() and time.monotonic() < until_s:
        with suppress(OSError):
            cgroup.rmdir()
        time.sleep(0.02)


def _make_root(root: Path, places: Sequence[str]) -> None:
    """Make what is mounted on, so that the runtime need not write into a root that is read-only."""
    for place in places:
        (root / place.removeprefix("/")).mkdir(parents=True, exist_ok=True)
    for name in _LINKS:
        if Path("/", name).is_symlink():
            (root / name).symlink_to(Path("/", name).readlink())


def _config(
    argv: Sequence[str],
    capabilities: Sequence[str],
    namespaces: Mapping[str, str | None],
    environment: Mapping[str, str],
    writable: Sequence[Path],
) -> dict[str, Any]:
    """Return a container's description (the OCI runtime specification)."""
    held = list(capabilities)
    mounts = [_mount("/proc", "proc"), _mount("/dev", "tmpfs", "mode=755"), _mount("/dev/shm", "tmpfs", "mode=1777")]
    mounts += [_mount("/sys", "sysfs" if "network" in namespaces else "bind", "ro"), _mount("/tmp", "tmpfs")]
    mounts += [_mount(str(place), "bind", "ro", "nosuid") for place in _places()]
    mounts += [_mount(str(place), "bind", "rw", "nosuid") for place in writable]
    variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"}
    variables |= {"PYTHONPATH": str(Path(netprof.__file__).absolute().parent.parent), **environment}
    spaces = [{"type": kind} | ({"path": path} if path else {}) for kind, path in namespaces.items()]
    return {
        "ociVersion": "1.0.2",
        **({"hostname": "inside"} if "uts" in namespaces else {}),
        "root": {"path": "rootfs", "readonly": True},
        "mounts": mounts,
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": list(argv),
            "env": [f"{key}={value}" for key, value in variables.items()],
            "cwd": "/tmp",
            "noNewPrivileges": True,
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), held),
        },
        "linux": {"namespaces": spaces},
    }


def _mount(place: str, kind: str, *options: str) -> dict[str, Any]:
    bound = kind == "bind"
    return {
        "destination": place,
        "type": kind,
        "source": place if bound else kind,
        "options": [*(["bind"] if bound else ["nosuid", "noexec"]), *options],
    }


def _places() -> list[Path]:
    """Return the folders that Python, torch and the tests need, none of them within another."""
    wanted = [Path("/usr"), Path("/etc"), _CHECKOUT, Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()]
    wanted += [Path(sys.executable).resolve().parent, Path(netprof.__file__).absolute().parent.parent]
    wanted += [Path("/", name) for name in _LINKS if Path("/", name).is_dir() and not Path("/", name).is_symlink()]
    wanted += [Path(each) for each in sys.path if "-packages" in each]
    found: list[Path] = []
    for place in sorted(set(wanted), key=lambda each: len(each.parts)):
        if place.is_dir() and not any(place.is_relative_to(other) for other in found):
            found.append(place)
    return found
