"""Which lane of the wire a flow's bytes belong to: the device that carries them then, and what is on the path below."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from netprof.analysis.tables.columns import UNKNOWN, Int64, int64_column, text_column
from netprof.analysis.tables.flow_table import Flows, LaneKey, LinkKey, Passage
from netprof.analysis.tables.path_table import PathTable
from netprof.schema import RECEIVE, TRANSMIT, HopKind

_ALWAYS = np.iinfo(np.int64).min


@dataclass(frozen=True, eq=False)
class FlowLanes:
    """Lanes, each with its direction, and which of them (a place in `keys`) holds a flow's bytes from when on.

    `first` is by the flow's row, twice, plus the direction; what changes later is in `later` by the same number: since
    when, and which lane.
    """

    keys: tuple[tuple[LaneKey, int], ...]
    first: Int64
    later: Mapping[int, tuple[Int64, Int64]]

    def of(self, flow: Int64, direction: Int64, time_ns: Int64) -> Int64:
        """Return the lane of what flows (by row) moved at some times."""
        slot = flow * 2 + direction
        lane: Int64 = self.first[slot]
        if self.later:
            slots, since_ns, lanes = self._changes
            rows = np.flatnonzero(np.isin(slot, slots))
            instants = np.unique(since_ns)
            key, changes = (
                each * (len(instants) + 1) + np.searchsorted(instants, at_ns, "right")
                for each, at_ns in ((slot[rows], time_ns[rows]), (slots, since_ns))
            )
            place = np.searchsorted(changes, key, "right") - 1
            lane[rows] = np.where((place >= 0) & (slots[place] == slot[rows]), lanes[place], lane[rows])
        return lane

    @cached_property
    def _changes(self) -> tuple[Int64, Int64, Int64]:
        """Later changes, row by row: the number, the time and the new lane; by number, then by time."""
        later = sorted(self.later.items())
        slots = np.repeat(np.array([slot for slot, _ in later], np.int64), [len(lanes) for _, (_, lanes) in later])
        since_ns, lanes = (np.concatenate([change[column] for _, change in later]) for column in (0, 1))
        return slots, since_ns, lanes

    def last(self, flow: int, direction: int) -> int:
        """Return the lane that a flow goes by at last."""
        slot = 2 * flow + direction
        return int(self.later[slot][1][-1]) if slot in self.later else int(self.first[slot])


def passed(lanes: FlowLanes, peers: Int64, flow: int) -> Iterator[tuple[int, LinkKey, Passage]]:
    """Yield the devices that a flow's packets pass at last, from the sender's own on.

    Each with the row of the flow of whose end it is, and that end's own device.
    """
    for row, way in ((flow, TRANSMIT), (int(peers[flow]), RECEIVE)):
        if row != UNKNOWN:
            key, _ = lanes.keys[lanes.last(row, way)]
            for passage in (Passage(key.link, way, HopKind.FLOW), *key.below):
                yield row, key.link, passage


def read_flow_lanes(
    flows: Flows,
    devices: Any = None,
    paths: PathTable | None = None,
    known_as: Mapping[LinkKey, str] = MappingProxyType({}),
) -> FlowLanes:
    """Return the lanes of flows, by the `flow_devices` table (Arrow, DataFrame or mapping) and the paths.

    Where nothing says by which device a flow is received (older traces), it is the one that it is sent by. A device on
    the path that is found from both ends of a connection belongs to the sender's.
    """
    devices_of = _devices_over_time(flows, devices, known_as)
    names = (flows.local_addr, flows.local_port, flows.remote_addr, flows.remote_port)
    ends = list(zip(*(each.tolist() for each in names), strict=True))
    of_sender: dict[tuple[str, int, str, int], set[tuple[LinkKey, int]]] = {}
    numbers: dict[tuple[LaneKey, int], int] = {}
    first, later = np.zeros(2 * len(flows), np.int64), {}
    of_flow = list(
        zip(*(each.tolist() for each in (flows.netns, flows.device, flows.pid, flows.remote_addr)), strict=True)
    )
    for way in (TRANSMIT, RECEIVE):
        for row, (netns, device, pid, remote) in enumerate(of_flow):
            over_time = _below(devices_of.get((row, way), [(_ALWAYS, device)]), netns, way, remote, paths)
            if way == TRANSMIT:
                of_sender[ends[row]] = {(each.link, each.direction) for _, _, below in over_time for each in below}
            elif there := of_sender.get((*ends[row][2:], *ends[row][:2])):
                over_time = [(since_ns, link, _without(below, there)) for since_ns, link, below in over_time]
            lanes = [numbers.setdefault((LaneKey(link, pid, below), way), len(numbers)) for _, link, below in over_time]
            first[2 * row + way] = lanes[0]
            if len(lanes) > 1:
                since_ns = np.array([since for since, _, _ in over_time[1:]], np.int64)
                later[2 * row + way] = since_ns, np.array(lanes[1:], np.int64)
    return FlowLanes(tuple(numbers), first, later)


def _without(below: tuple[Passage, ...], others: set[tuple[LinkKey, int]]) -> tuple[Passage, ...]:
    return tuple(each for each in below if (each.link, each.direction) not in others)


def _devices_over_time(
    flows: Flows, table: Any, known_as: Mapping[LinkKey, str]
) -> dict[tuple[int, int], list[tuple[int, str]]]:
    """Return by which devices each flow goes each way, from when on; the first for ever ago."""
    devices_of: dict[tuple[int, int], list[tuple[int, str]]] = {}
    if table is None:
        return devices_of
    row = flows.positions(int64_column(table, "flow_id"))
    columns = [int64_column(table, name).tolist() for name in ("direction", "since_ns")]
    for place, way, since_ns, device in zip(row.tolist(), *columns, text_column(table, "device"), strict=True):
        if place >= 0:
            name = known_as.get(LinkKey(int(flows.netns[place]), device), device)
            devices_of.setdefault((place, way), []).append((since_ns, name))
    for each in devices_of.values():
        each.sort()
        each[0] = (_ALWAYS, each[0][1])
    return devices_of


def _below(
    devices: Sequence[tuple[int, str]], netns: int, way: int, remote: str, paths: PathTable | None
) -> list[tuple[int, LinkKey, tuple[Passage, ...]]]:
    """Return device and what is below it over time, of a flow that goes by some devices over time."""
    below_over_time: list[tuple[int, LinkKey, tuple[Passage, ...]]] = []
    for number, (since_ns, device) in enumerate(devices):
        until_ns = devices[number + 1][0] if number + 1 < len(devices) else np.iinfo(np.int64).max
        link = LinkKey(netns, device)
        path = None if paths is None else paths.of(link, way, remote)
        if path is None:
            below_over_time.append((since_ns, link, ()))
            continue
        starts = [_ALWAYS, *path.since_ns[1:]]
        for place, (begin_ns, below) in enumerate(zip(starts, path.below, strict=True)):
            end_ns = starts[place + 1] if place + 1 < len(starts) else until_ns
            if begin_ns < until_ns and end_ns > since_ns:
                below_over_time.append((max(since_ns, begin_ns), link, below))
    return below_over_time
