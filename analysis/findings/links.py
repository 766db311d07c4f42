"""How busy each link was, and how long it was idle and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from netprof.analysis.account.idle import IdleTime, States, idle_time, link_states
from netprof.analysis.events.iterations import Iterations
from netprof.analysis.findings.nic import NicTotals
from netprof.analysis.tables.flow_table import LaneKey, LinkKey
from netprof.analysis.tables.intervals import NOTHING, Intervals
from netprof.analysis.wire.bins import Bins, combine
from netprof.model import Device, LineRate
from netprof.schema import RECEIVE, TRANSMIT

UNKNOWN_RATE = LineRate(None, "unknown")


@dataclass(frozen=True)
class LinkSummary:
    """One device over the window: the time in iterations of its ranks, or the recording where none is known.

    Utilizations (`definitions.UTILIZATION`) are None without a line rate, and those while a bucket is outstanding
    also without iterations. `idle` is both directions at once. Byte counts are the job's, over the window.
    """

    netns: int
    device: str
    ranks: tuple[int, ...]
    pids: tuple[int, ...]
    line_rate_bps: float | None
    line_rate_source: str
    window: str  # "iterations" or "recording"
    window_ns: int
    outstanding_ns: int | None
    tx_bytes: float
    rx_bytes: float
    tx_bytes_outstanding: float | None
    rx_bytes_outstanding: float | None
    utilization_tx: float | None
    utilization_rx: float | None
    utilization_outstanding_tx: float | None
    utilization_outstanding_rx: float | None
    idle: IdleTime
    idle_tx: IdleTime
    idle_rx: IdleTime
    nic: NicTotals | None

    @property
    def idle_basis(self) -> str:
        """What counts as idle here."""
        return "utilization below 1 %" if self.line_rate_bps else "bins without a packet"


@dataclass(frozen=True)
class Timeline:
    """What links are judged against: the iterations, what was outstanding, who is who, and when was recorded."""

    iterations: Iterations
    outstanding: Mapping[int, Intervals]
    ranks: Mapping[int, int]  # pid to rank
    recording: Intervals
    bin_ns: int


def summarize_links(
    lanes: Mapping[tuple[LaneKey, int], Bins],
    devices: Sequence[Device],
    job: Timeline,
    nics: Mapping[LinkKey, NicTotals],
) -> tuple[LinkSummary, ...]:
    """Summarise every device that the recording watched or that carried a byte of the job."""
    rates = {LinkKey(device.netns, device.device): device.line_rate for device in devices}
    keys = list(dict.fromkeys([*rates, *(lane.link for lane, _ in lanes)]))
    return tuple(_summarize(key, rates.get(key, UNKNOWN_RATE), lanes, job, nics.get(key)) for key in keys)


def utilization(wire_bytes: float | None, line_rate_bps: float | None, window_ns: int | None) -> float | None:
    """Return wire bytes * 8 / (window * line rate) (`definitions.UTILIZATION`), None if any of them is unknown."""
    if wire_bytes is None or not line_rate_bps or not window_ns:
        return None
    return wire_bytes * 8e9 / (window_ns * line_rate_bps)


def _summarize(
    key: LinkKey, rate: LineRate, lanes: Mapping[tuple[LaneKey, int], Bins], job: Timeline, nic: NicTotals | None
) -> LinkSummary:
    mine = {lane: bins for lane, bins in lanes.items() if lane[0].link == key}
    pids = tuple(dict.fromkeys(lane.pid for lane, _ in mine))
    states, window = _window(job, pids)
    tx = combine([bins for (_, direction), bins in mine.items() if direction == TRANSMIT])
    rx = combine([bins for (_, direction), bins in mine.items() if direction == RECEIVE])
    waiting = states.gradients_waiting if states else None
    tx_bytes, rx_bytes = _bytes(tx, window), _bytes(rx, window)
    tx_waiting, rx_waiting = (_bytes(tx, waiting), _bytes(rx, waiting)) if waiting is not None else (None, None)
    waiting_ns = waiting.total_ns if waiting is not None else None
    bps = rate.bps
    return LinkSummary(
        netns=key.netns,
        device=key.device,
        ranks=tuple(sorted({job.ranks[pid] for pid in pids if pid in job.ranks})),
        pids=pids,
        line_rate_bps=bps,
        line_rate_source=rate.source,
        window="iterations" if states else "recording",
        window_ns=window.total_ns,
        outstanding_ns=waiting_ns,
        tx_bytes=tx_bytes,
        rx_bytes=rx_bytes,
        tx_bytes_outstanding=tx_waiting,
        rx_bytes_outstanding=rx_waiting,
        utilization_tx=utilization(tx_bytes, bps, window.total_ns),
        utilization_rx=utilization(rx_bytes, bps, window.total_ns),
        utilization_outstanding_tx=utilization(tx_waiting, bps, waiting_ns),
        utilization_outstanding_rx=utilization(rx_waiting, bps, waiting_ns),
        idle=idle_time([tx, rx], bps, job.bin_ns, window, states),
        idle_tx=idle_time([tx], bps, job.bin_ns, window, states),
        idle_rx=idle_time([rx], bps, job.bin_ns, window, states),
        nic=nic,
    )


def _window(job: Timeline, pids: Sequence[int]) -> tuple[States | None, Intervals]:
    """Return what the link's ranks did and when, or no states and the whole recording if no iteration is known."""
    states = link_states(job.iterations, job.outstanding, pids)
    window = states.window
    return (states, window) if len(window) else (None, job.recording)


def _bytes(bins: Bins | None, window: Intervals | None) -> float:
    return bins.wire_bytes_in(window or NOTHING) if bins is not None else 0.0
