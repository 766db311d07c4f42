"""Which container a process is in and what that is called, and which job of Slurm: by its cgroup and its environment.

A cgroup is the kernel's and cannot be made up by the process; what it is called is told by the files of the container
engine, which only root may read, and by the process's environment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netprof.errors import TraceError
from netprof.probes.job import procfs
from netprof.trace.files import read_all

SLURM_JOB = "SLURM_JOB_ID"
VARIABLES = ("HOSTNAME", "APPTAINER_NAME", "SINGULARITY_NAME", SLURM_JOB)
"""Variables that are looked at; HOSTNAME is a pod's name in Kubernetes, and only believed in a container."""

_IMAGES = ("APPTAINER_NAME", "SINGULARITY_NAME")  # engines that make no cgroup
_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_NAMED = re.compile(r"/(?:lxc(?:\.payload)?[/.]|machine-)([^/ ]+?)(?:\.scope)?(?=[/ ]|$)")
_SLURM = re.compile(r"/job_([0-9]+)(?=[/ ]|$)")
_MOST_BYTES = 4 << 20
_DESCRIPTIONS: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...] = (
    ("/var/lib/docker/containers/{id}/config.v2.json", (("Name",),)),
    (
        "/run/containerd/io.containerd.runtime.v2.task/k8s.io/{id}/config.json",
        (("annotations", "io.kubernetes.cri.sandbox-name"), ("annotations", "io.kubernetes.cri.container-name")),
    ),
)
"""Files in which engines describe a container, and where in them names are."""


@dataclass(frozen=True)
class Container:
    """A container by its id (64 hexadecimal digits, or "") and its names, the one to show first; of none: neither."""

    id: str = ""
    names: tuple[str, ...] = ()

    def goes_by(self, text: str) -> bool:
        """Tell whether that is one of its names, or the beginning of its id."""
        return bool(text) and (text in self.names or self.id.startswith(text.lower()))

    @property
    def label(self) -> str:
        """What to call it; "" for none."""
        return next(iter(self.names), self.id[:12])


def container_of(pid: int, environment: Mapping[str, str]) -> Container:
    """Return the container of a process, as far as this process, or `environment`, tells."""
    path = procfs.cgroup(pid)
    ids, named = _ID.findall(path), _NAMED.findall(path)
    own = ids[-1] if ids else ""
    names = [*_names(own), *named[-1:], *(environment.get(name, "") for name in _IMAGES)]
    if own or named:
        names.append(environment.get("HOSTNAME", ""))
    return Container(own, tuple(dict.fromkeys(name for name in names if name)))


def slurm_job_of(pid: int, environment: Mapping[str, str]) -> str:
    """Return the number of the Slurm job that a process is of; "" where it is of none."""
    found = _SLURM.findall(procfs.cgroup(pid))
    named = environment.get(SLURM_JOB, "")
    return found[0] if found else named if named.isascii() and named.isdigit() else ""


def _names(identity: str) -> Iterator[str]:
    """Yield what the engine calls a container."""
    for place, entries in _DESCRIPTIONS if identity else ():
        document = _described(Path(place.format(id=identity)))
        for entry in entries:
            value = document
            for name in entry:
                value = value.get(name) if isinstance(value, dict) else None
            if isinstance(value, str):
                yield procfs.printable(value.removeprefix("/").encode("utf-8", "replace"))


def _described(path: Path) -> Any:
    try:
        return json.loads(read_all(path, _MOST_BYTES, "the description of a container"))
    except (TraceError, ValueError, RecursionError):
        return None
