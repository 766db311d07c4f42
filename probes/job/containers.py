"""What a container and a pod are called: files of the engines and the kubelet say so, mostly for root alone to read.

Where netprof itself is in a container with the host's pids, they are reached through the root of the host's process 1.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from netprof.errors import TraceError
from netprof.files import read_all
from netprof.probes.job import procfs

ROOTS = (Path("/proc/1/root"), Path("/"))
"""Where the host's files are looked for."""

_DOCKER = "var/lib/docker/containers/{id}/config.v2.json"
_CONTAINERD = "run/containerd/io.containerd.runtime.v2.task/k8s.io/{id}/config.json"
_PODMAN = "var/lib/containers/storage"
_POD_LOGS = "var/log/pods"
"""Where the kubelet keeps a folder NAMESPACE_POD_UID for each pod."""

_POD_FOLDER = re.compile(r"([a-z0-9-]{1,63})_([a-z0-9.-]{1,253})_([0-9a-f-]{32,36})")
_MOST_BYTES = 4 << 20
_MOST_CHARACTERS = 128


@lru_cache(maxsize=1024)
def name_of(container: str, roots: tuple[Path, ...]) -> str:
    """Return what its engine calls the container with an id; "" where nothing says it."""
    for root in roots:
        for name in _names(container, root):
            if isinstance(name, str) and name.strip("/"):
                return procfs.printable(name.removeprefix("/").encode("utf-8", "replace"))[:_MOST_CHARACTERS]
    return ""


@lru_cache(maxsize=1024)
def pod_of(uid: str, roots: tuple[Path, ...]) -> tuple[str, str]:
    """Return namespace and name of the pod with a uid; "" where nothing says them."""
    for root in roots:
        with suppress(OSError), os.scandir(root / _POD_LOGS) as folders:
            for match in (_POD_FOLDER.fullmatch(folder.name) for folder in folders):
                if match is not None and match[3] == uid:
                    return match[1], match[2]
    return "", ""


def _names(container: str, root: Path) -> Iterator[Any]:
    """Yield the names that the engines' files have for a container: Docker's, containerd's, podman's."""
    yield _entry(_described(root / _DOCKER.format(id=container)), "Name")
    annotations = _entry(_described(root / _CONTAINERD.format(id=container)), "annotations")
    yield _entry(annotations, "io.kubernetes.cri.container-name")
    for place in _podman_stores(root):
        described = _described(place)
        for each in described if isinstance(described, list) else ():
            if _entry(each, "id") == container and isinstance(names := _entry(each, "names"), list):
                yield from names[:1]


def _podman_stores(root: Path) -> list[Path]:
    """Return podman's lists of containers: one for each kind of storage."""
    with suppress(OSError):
        return sorted((root / _PODMAN).glob("*-containers/containers.json"))
    return []


def _entry(document: Any, name: str) -> Any:
    return document.get(name) if isinstance(document, dict) else None


def _described(path: Path) -> Any:
    try:
        return json.loads(read_all(path, _MOST_BYTES, "the description of a container"))
    except (TraceError, ValueError, RecursionError):
        return None
