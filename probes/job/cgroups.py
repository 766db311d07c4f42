"""Which container, Kubernetes pod and Slurm job a process is of: its cgroup's path says so.

What makes containers puts each into a cgroup that is called like it (`docker-ID.scope`, `libpod-ID.scope`), below one
that is called like the pod; slurmstepd does so with jobs and steps. Docker, Kubernetes and Slurm document the names for
nobody, but every tool that attributes processes goes by them. Names of pods are no part of a path: on the host, the
folder of a pod's logs says which pod has the uid.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from netprof.model import Cgroup
from netprof.probes.job import procfs

POD_LOGS = Path("/var/log/pods")
"""Where the kubelet keeps a folder NAMESPACE_POD_UID for each pod."""

_RUNTIMES = {
    "docker": "docker",
    "cri-containerd": "containerd",
    "nerdctl": "containerd",
    "crio": "cri-o",
    "libpod": "podman",
}
"""By what begins the name of a container's cgroup, or is the one above it."""

_CONTAINER = re.compile(rf"(?:(?:.*:)?({'|'.join(_RUNTIMES)})[-:]|.*:)?([0-9a-f]{{64}})(?:\.scope)?")
_POD = re.compile(r"(?:^|-)pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice|:|$)")
_POD_FOLDER = re.compile(r"([a-z0-9-]{1,63})_([a-z0-9.-]{1,253})_([0-9a-f-]{32,36})")
_SLURM = re.compile(r"slurm[^/]*/(?:[^/]+/)*?job_([0-9]{1,20})(?:/step_([\w+.-]{1,40}))?(?=/|$)", re.ASCII)
_SLURM_VARIABLES = ("SLURM_JOB_ID", "SLURM_STEP_ID")
_NUMBER = re.compile(r"[0-9]{1,20}", re.ASCII)


def cgroup_of(pid: int, environment: Mapping[str, str]) -> Cgroup:
    """Return what process `pid` is of; Slurm's job also where only the environment that it was started with names it.

    From inside a container that has a cgroup namespace of its own, nothing is seen of it.
    """
    found = with_names(parse_cgroups(procfs.cgroups(pid)))
    job, step = (environment.get(name, "") for name in _SLURM_VARIABLES)
    if found.slurm_job or not _NUMBER.fullmatch(job):
        return found
    return replace(found, slurm_job=job, slurm_step=step if _NUMBER.fullmatch(step) else "")


@lru_cache(maxsize=1024)
def parse_cgroups(text: str) -> Cgroup:
    """Return what /proc/PID/cgroup tells: of cgroups v1 there is a path for each controller."""
    found = Cgroup()
    for line in text.splitlines():
        path = line.split(":", 2)[-1]
        names = path.split("/")
        if not found.container:
            found = replace(found, **_container(names))
        if not found.pod_uid:
            found = replace(found, pod_uid=_pod_uid(names))
        slurm = _SLURM.search(path)
        if slurm is not None and not found.slurm_job:
            found = replace(found, slurm_job=slurm[1], slurm_step=slurm[2] or "")
    return found


def with_names(found: Cgroup, logs: Path = POD_LOGS) -> Cgroup:
    """Return the same with the names of its pod, where `logs` tells them."""
    if not found.pod_uid:
        return found
    pod_namespace, pod = _pod_names(found.pod_uid, logs)
    return replace(found, pod=pod, pod_namespace=pod_namespace)


def _container(names: list[str]) -> dict[str, str]:
    """Return the innermost container among the names of nested cgroups."""
    for place in range(len(names) - 1, -1, -1):
        match = _CONTAINER.fullmatch(names[place])
        if match is not None:
            above = names[place - 1] if place else ""
            return {"container": match[2], "runtime": _RUNTIMES.get(match[1] or above, "")}
    return {}


def _pod_uid(names: list[str]) -> str:
    """Return the uid of the innermost pod; systemd's names have underscores in it."""
    matches = (_POD.search(name) for name in reversed(names))
    return next((match[1].replace("_", "-") for match in matches if match is not None), "")


@lru_cache(maxsize=256)
def _pod_names(uid: str, logs: Path) -> tuple[str, str]:
    """Return namespace and name of a pod; "" where nothing says them."""
    try:
        with os.scandir(logs) as folders:
            matches = (_POD_FOLDER.fullmatch(folder.name) for folder in folders)
            return next(((match[1], match[2]) for match in matches if match and match[3] == uid), ("", ""))
    except OSError:
        return "", ""
