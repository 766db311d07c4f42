"""Which container, Kubernetes pod and Slurm job a process is of: its cgroup's path says so.

What makes containers puts each into a cgroup that is called like it (`docker-ID.scope`, `libpod-ID.scope`), below one
that is called like the pod; slurmstepd does so with jobs and steps. Docker, Kubernetes and Slurm document the names for
nobody, but every tool that attributes processes goes by them. Names of containers and pods are mostly no part of a
path: files of the host tell them (`containers.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from netprof.model import Cgroup
from netprof.probes.job import containers, procfs

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
_NAME = r"[\w.@+:\\-]{1,128}"
_CALLED = {
    "lxc": re.compile(rf"lxc\.payload\.({_NAME})", re.ASCII),
    "systemd": re.compile(rf"machine-(?!libpod)({_NAME})\.scope", re.ASCII),
}
"""Engines without ids: a container's cgroup is called by its name."""

_SLURM = re.compile(r"slurm[^/]*/(?:[^/]+/)*?job_([0-9]{1,20})(?:/step_([\w+.-]{1,40}))?(?=/|$)", re.ASCII)
_SLURM_VARIABLES = ("SLURM_JOB_ID", "SLURM_STEP_ID")
_IMAGES = {"APPTAINER_NAME": "apptainer", "SINGULARITY_NAME": "singularity"}
VARIABLES = (*_SLURM_VARIABLES, *_IMAGES)
"""What is looked at of a process's environment: what Slurm says too, and containers that have no cgroup."""

_IMAGE = re.compile(_NAME, re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,20}", re.ASCII)


def cgroup_of(pid: int, environment: Mapping[str, str]) -> Cgroup:
    """Return what process `pid` is of; what its cgroup does not tell, as far as its environment does.

    From inside a container that has a cgroup namespace of its own, nothing is seen of it.
    """
    cgroup = with_names(parse_cgroups(procfs.cgroups(pid)))
    job, step = (environment.get(name, "") for name in _SLURM_VARIABLES)
    if not cgroup.slurm_job and _NUMBER.fullmatch(job):
        cgroup = replace(cgroup, slurm_job=job, slurm_step=step if _NUMBER.fullmatch(step) else "")
    if cgroup.in_container:
        return cgroup
    for name, engine in _IMAGES.items():
        if _IMAGE.fullmatch(image := environment.get(name, "")):
            return replace(cgroup, runtime=engine, container_name=image)
    return cgroup


@lru_cache(maxsize=1024)
def parse_cgroups(text: str) -> Cgroup:
    """Return what /proc/PID/cgroup tells: of cgroups v1 there is a path for each controller."""
    cgroup = Cgroup()
    for line in text.splitlines():
        path = line.split(":", 2)[-1]
        names = path.split("/")
        if not cgroup.in_container:
            cgroup = replace(cgroup, **_container(names))
        if not cgroup.pod_uid:
            cgroup = replace(cgroup, pod_uid=_pod_uid(names))
        slurm = _SLURM.search(path)
        if slurm is not None and not cgroup.slurm_job:
            cgroup = replace(cgroup, slurm_job=slurm[1], slurm_step=slurm[2] or "")
    return cgroup


def with_names(cgroup: Cgroup, roots: tuple[Path, ...] = containers.ROOTS) -> Cgroup:
    """Return the same with the names of its container and pod, where the host's files tell them."""
    if cgroup.container:
        cgroup = replace(cgroup, container_name=containers.name_of(cgroup.container, roots))
    if cgroup.pod_uid:
        pod_namespace, pod = containers.pod_of(cgroup.pod_uid, roots)
        cgroup = replace(cgroup, pod=pod, pod_namespace=pod_namespace)
    return cgroup


def _container(names: list[str]) -> dict[str, str]:
    """Return the innermost container among the names of nested cgroups."""
    for place in range(len(names) - 1, -1, -1):
        if match := _CONTAINER.fullmatch(names[place]):
            above = names[place - 1] if place else ""
            return {"container": match[2], "runtime": _RUNTIMES.get(match[1] or above, "")}
        for engine, called in _CALLED.items():
            if match := called.fullmatch(names[place]):
                return {"container_name": match[1], "runtime": engine}
    return {}


def _pod_uid(names: list[str]) -> str:
    """Return the uid of the innermost pod; systemd's names have underscores in it."""
    matches = (_POD.search(name) for name in reversed(names))
    return next((match[1].replace("_", "-") for match in matches if match is not None), "")
