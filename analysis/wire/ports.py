"""RDMA ports as lanes: what their counters moved between two readings, spread evenly over the time between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from netprof.analysis.tables.columns import Int64
from netprof.analysis.tables.flow_table import Flows, LaneKey, LinkKey
from netprof.analysis.wire.bins import Bins
from netprof.analysis.wire.by_bin import Amounts, ByBin
from netprof.analysis.wire.parts import fair_parts
from netprof.model import Device
from netprof.schema import RECEIVE, TRANSMIT

MOST_BINS = 1 << 19
"""Into how many bins the readings of all ports of a recording, or of a piece of one, are spread each way."""
_MOST_BYTES_A_NS = 1e6  # 8 Pbit/s

Counted = Mapping[LinkKey, tuple[Int64, Int64, Int64]]
"""Of each device: times, bytes sent and bytes received until then."""


@dataclass(frozen=True)
class PortUse:
    """An RDMA port: the processes of the job that use it, and how often its bytes are seen at best.

    Who of several that use it moved what is unknown: each is taken to have moved as much as the others.
    """

    period_ns: int
    pids: tuple[int, ...]


def port_uses(devices: Iterable[Device], flows: Flows) -> dict[LinkKey, PortUse]:
    """Return the RDMA ports among devices, by what names them."""
    uses = {}
    for device in devices:
        if device.period_ns > 0:
            link = LinkKey(device.netns, device.device)
            uses[link] = PortUse(device.period_ns, users_of(link, flows))
    return uses


def users_of(port: LinkKey, flows: Flows) -> tuple[int, ...]:
    """Return the processes of the job that use an RDMA port, by pid."""
    rows = (flows.netns == port.netns) & (flows.device == port.device)
    return tuple(np.unique(flows.pid[rows]).tolist())


def is_port(link: LinkKey) -> bool:
    """Tell whether a device is an RDMA port, by its name: no network device has a slash in its own."""
    return "/" in link.device


def bins_of_a_reading(devices: Iterable[Device], bin_ns: int) -> float:
    """Return into how many bins, both ways together, a reading of a device's counters is spread at most."""
    return 2 * max((device.period_ns for device in devices), default=0) / bin_ns


def port_lanes(ports: Mapping[LinkKey, PortUse], counted: Counted, bin_ns: int) -> dict[tuple[LaneKey, int], Bins]:
    """Return what each process moved over each port, both ways, in time bins of the recording's width."""
    lanes = {}
    for link, use in ports.items():
        times, *moved = counted.get(link, (np.zeros(0, np.int64),) * 3)
        for way in (TRANSMIT, RECEIVE):
            whole = spread_evenly(times, moved[way], bin_ns, MOST_BINS // len(ports))
            for place, pid in enumerate(use.pids if len(whole) else ()):
                lanes[LaneKey(link, pid), way] = _part(whole, place, len(use.pids))
    return lanes


def spread_evenly(time_ns: Int64, counted: Int64, bin_ns: int, most: int = MOST_BINS) -> Bins:
    """Return the bins of what a count grew between its samples; headers count as payload: they are not told apart.

    What a count lost, or more than any port moves, is damage. Where there are more than `most` bins, what
    grew in a very long time is spread over some of them only.
    """
    step, length = np.diff(counted), np.diff(time_ns)
    grew = np.flatnonzero((step > 0) & (length > 0) & (step < _MOST_BYTES_A_NS * length))
    begin, end, step = time_ns[grew], time_ns[grew + 1], step[grew]
    low, count = begin // bin_ns, (end - 1) // bin_ns - begin // bin_ns + 1
    parts = fair_parts(count, most)
    row = np.repeat(np.arange(len(grew)), parts)
    turn = np.arange(len(row)) - np.repeat(np.cumsum(parts) - parts, parts)
    number = low[row] + turn * (count // parts)[row]
    start = np.maximum(begin[row], number * bin_ns)
    is_last = turn == parts[row] - 1
    stop = np.where(is_last, end[row], np.append(start[1:], 0)[: len(row)])
    amount = _until(step[row], start - begin[row], (end - begin)[row], stop - begin[row])
    lead, last = (number + 1) * bin_ns - start, np.minimum(stop - number * bin_ns, bin_ns)
    rows = ByBin(number)
    sums = rows.sums(amount.astype(np.uint64))
    nothing = np.zeros(len(sums), np.uint8)
    edges = (rows.largest(each.astype(np.uint32)) for each in (lead, last))
    return Bins(bin_ns, rows.number, sums, sums, nothing, *edges)


def _until(step: Int64, start_ns: Int64, length_ns: Int64, stop_ns: Int64) -> Int64:
    """Return what of each step lies between two moments since its begin; the parts of a step add up to it."""
    before, through = (np.floor(step * (at_ns / length_ns)).astype(np.int64) for at_ns in (start_ns, stop_ns))
    return np.asarray(through - before, np.int64)


def _part(whole: Bins, place: int, parts: int) -> Bins:
    """Return one of several equal parts; they add up to the whole."""
    if parts == 1:
        return whole
    amount = _share(whole.wire_bytes, place, parts)
    return Bins(whole.bin_ns, whole.number, amount, amount, whole.resent_bytes, whole.lead_ns, whole.last_ns)


def _share(amounts: Amounts, place: int, parts: int) -> Amounts:
    wide = amounts.astype(np.uint64)
    share = wide * np.uint64(place + 1) // np.uint64(parts) - wide * np.uint64(place) // np.uint64(parts)
    return np.asarray(share, amounts.dtype)
