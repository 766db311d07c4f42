"""Which file tells how a process is throttled: the CPU controller's, of the nearest cgroup that has a quota."""

from __future__ import annotations

from pathlib import Path

from netprof.probes.kernel.procfile import ProcFile, text_of

_MOUNT = Path("/sys/fs/cgroup")
_MOST_LEVELS = 32


def quota_of(pid: int) -> ProcFile | None:
    """Return cpu.stat of the cgroup whose quota holds process `pid`; None where it has none, or none can be read.

    A quota that is set later is not seen.
    """
    lines = text_of(f"/proc/{pid}/cgroup").splitlines()
    for _, controllers, path in sorted(line.split(":", 2) for line in lines if line.count(":") >= 2):
        if ".." in Path(path).parts:
            continue
        if not controllers:
            roots = [_MOUNT, _MOUNT / "unified"]
        elif "cpu" in controllers.split(","):
            roots = [_MOUNT / controllers, _MOUNT / "cpu"]
        else:
            continue
        for root in roots:
            if (nearest := _nearest(root, path)) is not None:
                return nearest
    return None


def _nearest(root: Path, path: str) -> ProcFile | None:
    place = root / path.lstrip("/")
    for _ in range(_MOST_LEVELS):
        if _has_quota(place):
            try:
                return ProcFile(str(place / "cpu.stat"))
            except OSError:
                return None
        if place == root:
            return None
        place = place.parent
    return None


def _has_quota(place: Path) -> bool:
    """Tell whether a cgroup limits CPU time: cpu.max of version 2, cpu.cfs_quota_us of version 1."""
    for name, unlimited in (("cpu.max", "max"), ("cpu.cfs_quota_us", "-1")):
        try:
            return not (place / name).read_text().startswith(unlimited)
        except OSError:
            continue
    return False
