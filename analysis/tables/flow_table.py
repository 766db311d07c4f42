"""The flows table, and what names a link, and a process's share of one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from netprof.analysis.tables.columns import Columns, Int64, closes, int64_column, text_column
from netprof.schema import UNKNOWN_RANK, HopKind

_ENDS = ("local", "remote")
_QUEUE_PAIRS = ("local_queue_pair", "remote_queue_pair")


LOOPBACK = "lo"
"""The device of what stays on a host: the kernel calls it so in every network namespace."""


class LinkKey(NamedTuple):
    """A device; its name alone is not enough, each network namespace has its own."""

    netns: int
    device: str


class Passage(NamedTuple):
    """A device below a flow's own that its packets pass, which way, and how that is known; see table `flow_paths`."""

    link: LinkKey
    direction: int
    kind: HopKind
    header_bytes: int = 0


class LaneKey(NamedTuple):
    """One process's share of a device, over one path below it."""

    link: LinkKey
    pid: int
    below: tuple[Passage, ...] = ()


def endpoint(family: int, address: str, port: int) -> str:
    """Return address and port as one writes them: 10.0.0.1:80, [fe80::1]:80."""
    return f"[{address}]:{port}" if family == 6 else f"{address}:{port}"


@dataclass(frozen=True, eq=False)
class Flows(Columns):
    """The flow table: a row per flow, by flow id; `device` is what it was first sent by."""

    flow_id: Int64
    family: Int64
    local_addr: npt.NDArray[Any]
    local_port: Int64
    remote_addr: npt.NDArray[Any]
    remote_port: Int64
    protocol: Int64
    netns: Int64
    device: npt.NDArray[Any]
    pid: Int64
    rank: Int64
    local_queue_pair: Int64
    remote_queue_pair: Int64
    congestion_control: npt.NDArray[Any]

    def name(self, row: int) -> str:
        """Return how a flow is called: its two ends."""
        ends = ((getattr(self, f"{end}_addr")[row], getattr(self, f"{end}_port")[row]) for end in _ENDS)
        return " → ".join(endpoint(int(self.family[row]), *end) for end in ends)

    def positions(self, flow_id: npt.NDArray[Any]) -> Int64:
        """Return the row of each flow id, -1 where the table has none."""
        if len(self) == 0:
            return np.full(len(flow_id), -1)
        index = np.minimum(np.searchsorted(self.flow_id, flow_id), len(self) - 1)
        return np.where(self.flow_id[index] == flow_id, index, -1)


def read_flows(
    table: Any,
    ranks: dict[int, int],
    workers: Collection[int] = frozenset(),
    known_as: Mapping[LinkKey, str] = MappingProxyType({}),
) -> Flows:
    """Return the `flows` table (Arrow, DataFrame or mapping) by flow id; a later row of the same id replaces it.

    `ranks` maps pids to ranks, for the flows whose row does not say. `workers` are the pids that train: a flow of
    another process of the same rank (a child that it forked) is counted to the worker, unless the rank has had
    several (a job that was restarted). `known_as` is what devices that got a new name go by.
    """
    numbers = ("flow_id", "family", "local_port", "remote_port", "protocol", "netns", "pid", "rank", *_QUEUE_PAIRS)
    columns: dict[str, Any] = {name: int64_column(table, name) for name in numbers}
    columns |= {
        name: np.array(text_column(table, name), dtype=object)
        for name in ("local_addr", "remote_addr", "device", "congestion_control")
    }
    order = np.argsort(columns["flow_id"], kind="stable")
    order = order[closes(columns["flow_id"][order])]
    columns = {name: values[order] for name, values in columns.items()}
    if known_as:
        links = zip(columns["netns"].tolist(), columns["device"].tolist(), strict=True)
        columns["device"] = np.array([known_as.get(LinkKey(*link), link[1]) for link in links], dtype=object)
    stated = columns["rank"].tolist()
    known = [
        rank if rank != UNKNOWN_RANK else ranks.get(pid, rank)
        for rank, pid in zip(stated, columns["pid"].tolist(), strict=True)
    ]
    owner = _owners(columns["pid"].tolist(), known, ranks, workers)
    columns["rank"], columns["pid"] = np.array(known, np.int64), np.array(owner, np.int64)
    return Flows(**columns)


def _owners(pids: list[int], flow_ranks: list[int], ranks: dict[int, int], workers: Collection[int]) -> list[int]:
    """Return the process that each flow is counted to: its own, or the one worker of its rank."""
    of_rank: dict[int, list[int]] = {}
    for pid in workers:
        of_rank.setdefault(ranks.get(pid, UNKNOWN_RANK), []).append(pid)
    alone = {rank: pids_of[0] for rank, pids_of in of_rank.items() if rank != UNKNOWN_RANK and len(pids_of) == 1}
    return [pid if pid in workers else alone.get(rank, pid) for pid, rank in zip(pids, flow_ranks, strict=True)]
