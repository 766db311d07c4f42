"""Whether a file system may keep the kernel waiting for ever: one whose server is a program of a user's.

Who waits there cannot be ended, not even by SIGKILL. Users mount such file systems where they like, and others on top
of them in namespaces of their own. So only those are trusted that root has mounted where this process looks.
"""

from __future__ import annotations

import os
from pathlib import Path

_SERVED = "fuse"
_LAYERED = "overlay"


def may_hang(pid: int, device: int) -> bool:
    """Say whether a file on a device, as process `pid` has it mapped, may lie on a file system that never answers.

    The device is a file system's, as /proc/PID/maps and mountinfo name it. A user who is not root records jobs of
    their own, and is held up by nobody else.
    """
    if os.geteuid() != 0:
        return False
    for table in ("self", "1"):
        if (known := _mounts(table).get(device)) is not None:
            kind, options = known
            return kind.startswith(_SERVED) and "user_id=0" not in options
    kind, _ = _mounts(str(pid)).get(device, ("", []))
    if not kind:
        return os.major(device) == 0  # of no disk, and mounted nowhere any more
    return kind.startswith(_SERVED) or (kind == _LAYERED and not _same_user_namespace(pid))


def _mounts(process: str) -> dict[int, tuple[str, list[str]]]:
    """Return the kind and the options of every file system that a process sees, by its device."""
    try:
        lines = Path(f"/proc/{process}/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        before, _, after = line.partition(" - ")
        major, _, minor = before.split()[2].partition(":")
        kind, _, options = after.split()[:3] if len(after.split()) >= 3 else (after.split()[0], "", "")
        found[os.makedev(int(major), int(minor))] = kind, options.split(",")
    return found


def _same_user_namespace(pid: int) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/ns/user") == os.readlink("/proc/self/ns/user")  # noqa: PTH115
    except OSError:
        return False
