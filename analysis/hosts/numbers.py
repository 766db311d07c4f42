"""What two hosts may number alike (processes, namespaces, flows, GPUs, counters), numbered once in the job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from netprof.analysis.tables.columns import Int64, int64_column
from netprof.errors import TraceError
from netprof.model import Meta
from netprof.trace import TraceSource

MOST_PIDS = 1 << 22
"""What the kernel numbers processes and threads below (PID_MAX_LIMIT)."""
MOST_PROCESSES = 1 << 31
"""What the processes and threads of a job are numbered below, all hosts together: what a trace's columns hold."""
_MOST_HOSTS = MOST_PROCESSES // MOST_PIDS
_NAMESPACES = 1 << 40
_LEAST_FLOWS = 1 << 20
_COLUMNS = {"flow_id": 32, "gpu": 16, "series": 32}
"""The bits that a table has for each of these."""


@dataclass(frozen=True, eq=False)
class Numbers:
    """How one host's numbers are turned into the job's.

    Of the processes and threads `seen`, those in `kept` stay, and so does what is not above 0. Others, and all flows,
    GPUs and series, are moved by a distance that no other host has. `netns` holds the network namespaces that are
    known; others are moved by `namespaces`.
    """

    seen: Int64
    kept: Int64
    pids: int = 0
    netns: Mapping[int, int] = field(default_factory=dict)
    flow_id: int = 0
    gpu: int = 0
    series: int = 0
    namespaces: int = 0

    def of(self, name: str, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the job's numbers for a column of that name."""
        if name in ("pid", "tid"):
            moved = (values > 0) & ~np.isin(values, self.kept) if self.pids else np.zeros(len(values), bool)
            return np.where(moved, values + self.pids, values)
        if name == "netns":
            return np.array([self.namespace(value) for value in values.tolist()], np.int64)
        return values + int(getattr(self, name))

    def pid(self, pid: int) -> int:
        """Return the job's number of one process."""
        return int(self.of("pid", np.array([pid], np.int64))[0])

    def namespace(self, netns: int) -> int:
        """Return the job's number of one network namespace."""
        return self.netns.get(netns, _moved(netns, self.namespaces))

    @property
    def pid_names(self) -> dict[int, int]:
        """The host's own number of each process and thread, by the job's."""
        return dict(zip(self.of("pid", self.seen).tolist(), self.seen.tolist(), strict=True))

    @property
    def netns_names(self) -> dict[int, int]:
        """The host's own number of each network namespace, by the job's; of all of them."""
        return {job: host_number for host_number, job in self.netns.items()}

    def gpu_names(self, meta: Meta) -> dict[int, int]:
        """Return the host's own number of each GPU, by the job's."""
        return {gpu.index + self.gpu: gpu.index for gpu in meta.gpus}


def number_hosts(readers: Sequence[TraceSource]) -> list[Numbers]:
    """Return each host's numbers; the first one's stay as they are, and so does what only one host has.

    Raises TraceError for more hosts, or flows, than can be told apart.
    """
    if len(readers) > _MOST_HOSTS:
        raise TraceError(f"{len(readers)} traces are more than can be read as one", f"give {_MOST_HOSTS} at most")
    pids = [_pids(reader) for reader in readers]
    every, count = np.unique(np.concatenate(pids), return_counts=True)
    shared = every[count > 1]
    netns = _namespaces(readers)
    flow, gpu, series = (_distance(readers, name) for name in _COLUMNS)
    return [
        Numbers(
            seen=host_pids,
            kept=host_pids if host == 0 else np.setdiff1d(host_pids, shared),
            pids=host * MOST_PIDS,
            netns=netns[host],
            flow_id=host * flow,
            gpu=host * gpu,
            series=host * series,
        )
        for host, host_pids in enumerate(pids)
    ]


def _pids(reader: TraceSource) -> Int64:
    """Return the processes and threads of a trace."""
    meta, flows = reader.meta, int64_column(reader.table("flows"), "pid")
    parts = [np.unique(flows), _processes(meta)]
    for _, batch in reader.places("marks", ["pid", "tid"]):
        parts += [np.unique(int64_column(batch, name)) for name in ("pid", "tid")]
    return np.unique(np.concatenate(parts))


def _namespaces(readers: Sequence[TraceSource]) -> list[dict[int, int]]:
    """Return the job's numbers of the namespaces of each host: another one where another host has the same.

    What two recorders on one host see is one namespace.
    """
    owner: dict[int, str] = {}
    numbered = []
    for host, reader in enumerate(readers):
        meta, moved = reader.meta, {}
        flows = int64_column(reader.table("flows"), "netns").tolist()
        seen = {*flows, *_described(meta)} - {0}
        for netns in sorted(seen):
            alone = owner.setdefault(netns, meta.boot_id) == meta.boot_id
            moved[netns] = netns if alone else _moved(netns, host * _NAMESPACES)
        numbered.append(moved)
    return numbered


def _distance(readers: Sequence[TraceSource], name: str) -> int:
    """Return how far the numbers of two hosts lie apart: beyond the largest that any of them has."""
    if name == "flow_id":
        largest = [int(int64_column(reader.table("flows"), name).max(initial=0)) for reader in readers]
        least = _LEAST_FLOWS
    elif name == "gpu":
        largest, least = [max((gpu.index for gpu in r.meta.gpus), default=0) for r in readers], 1
    else:
        largest, least = [max((series.id for series in r.meta.series), default=0) for r in readers], 1
    distance = 1 << max(least - 1, *largest).bit_length()
    if len(readers) * distance > 1 << _COLUMNS[name]:
        raise TraceError(f"the traces hold more values of {name} than can be told apart", "give fewer of them")
    return distance


def number_growing_hosts(metas: Sequence[Meta]) -> list[Numbers]:
    """Return numbers of hosts whose traces still grow: what is yet to come changes none of them.

    So all that is another host's is moved, whether or not the first one has the same. Raises TraceError.
    """
    if len(metas) > _MOST_HOSTS:
        raise TraceError(f"{len(metas)} traces are more than can be followed as one", f"give {_MOST_HOSTS} at most")
    boots = [meta.boot_id for meta in metas]
    bits = (len(metas) - 1).bit_length()
    return [
        Numbers(
            seen=_processes(meta),
            kept=np.zeros(0, np.int64),
            pids=host * MOST_PIDS,
            netns={netns: _moved(netns, boots.index(meta.boot_id) * _NAMESPACES) for netns in _described(meta)},
            namespaces=boots.index(meta.boot_id) * _NAMESPACES,
            **{name: host << (width - bits) for name, width in _COLUMNS.items()},
        )
        for host, meta in enumerate(metas)
    ]


def _described(meta: Meta) -> set[int]:
    """Return the network namespaces that the description of a trace names."""
    return {*(target.netns for target in meta.targets), *(device.netns for device in meta.devices)} - {0}


def _processes(meta: Meta) -> Int64:
    """Return the processes that the description of a trace names."""
    described = [target.pid for target in meta.targets] + [pid for gpu in meta.gpus for pid in gpu.pids]
    return np.unique(np.array(described, np.int64))


def _moved(netns: int, distance: int) -> int:
    return distance + netns % _NAMESPACES if distance and netns else netns
