"""Why a transport does not fill its link, by TCP's own clocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.account.waiting import Waiting
from netprof.analysis.evidence import Evidence
from netprof.analysis.tables.columns import UNKNOWN, Bool, Float64, Int64, int64_column
from netprof.analysis.tables.flow_table import LOOPBACK
from netprof.analysis.tables.intervals import Intervals, covered_until, merge
from netprof.schema import TRANSMIT

_CLOCKS = ("busy_us", "rwnd_limited_us", "sndbuf_limited_us")
_MAIN_FLOW = 0.1
"""Share of the largest flow's bytes from which on another one's clocks count too."""
_BUFFER_MATTERS = 0.05
"""Share of the time from which on a buffer's clock is the reason: it runs only while the buffer is all that is missing,
so not while acknowledgements of what the buffer let through are awaited."""
_WRITABLE = 2 / 3
"""Share of a send buffer up to which TCP lets the program write again (sk_stream_is_writeable)."""
_MOSTLY = 0.5


@dataclass(frozen=True)
class Reason:
    """What the senders wait for while a transport does not fill its link, and what helps.

    `of_port` says that it is an RDMA port's, which reports itself whether anything is lost.
    """

    name: str
    happened: str
    advice: str
    of_port: bool = False


NO_LINE_RATE = Reason(
    "line_rate_unknown",
    "the line rate is unknown, so whether a link is full cannot be said",
    "give the line rate with --line-rate",
)
ON_ONE_HOST = Reason(
    "loopback",
    "the bytes stay on this host: its CPUs copy them, and no line limits them",
    "fewer bytes, more CPU for the communication threads, or a transport through shared memory",
)
NO_CLOCKS = Reason(
    "unknown",
    "why, the recording does not say (it has no samples of TCP's clocks)",
    "look at round-trip times, socket buffers and the sizes of messages",
)
SMALL = Reason(
    "small_messages",
    "most collectives are smaller than what the link moves in a round trip: it is the latency of many small messages",
    "fuse them: larger buckets, fewer collectives",
)
RECEIVER = Reason(
    "receive_window",
    "the senders wait for room at the receiver (its window is full)",
    "larger receive buffers (net.ipv4.tcp_rmem), or a receiver that reads faster",
)
SENDER = Reason(
    "send_buffer",
    "the send buffers are too small for the round trip",
    "larger send buffers (net.ipv4.tcp_wmem, SO_SNDBUF)",
)
CONGESTION = Reason(
    "congestion_window",
    "the senders have data but may not send it: the congestion window, for the round trip or for something narrow "
    "farther on",
    "look at the path: its round trip, a slower hop, shaping or policing; a larger initial window or another "
    "congestion control",
)
APPLICATION = Reason(
    "application",
    "the senders have nothing to send for most of it: the hosts copy, reduce or hand over between steps",
    "more CPU for the communication threads, larger messages, more connections",
)


def transport_reason(evidence: Evidence, stretches: Waiting) -> Reason:
    """Return what the senders wait for in stretches of `transport`."""
    times = merge(stretches.begin_ns, stretches.end_ns)
    groups = np.unique(stretches.group).tolist()
    pids = np.unique(evidence.collectives.pid[np.isin(evidence.members.group, groups)])
    main = _main_flows(evidence, pids)
    on_one_host = bool(main.any()) and bool((evidence.fold.flows.device[main] == LOOPBACK).all())
    known = any(set(evidence.lanes.pids_of(side.link)) & set(pids.tolist()) for side in evidence.link_sides)
    if not known and not on_one_host:
        return NO_LINE_RATE
    samples = _samples(evidence, main)
    if samples is None:
        return ON_ONE_HOST if on_one_host else NO_CLOCKS
    busy, receiver, sender, held_back, full, whole = _clocks(samples, times)
    if max(receiver, sender) >= _BUFFER_MATTERS * whole:
        return RECEIVER if receiver >= sender else SENDER
    if on_one_host:
        return ON_ONE_HOST
    if _are_small(evidence, groups):
        return SMALL
    if busy > 0 and held_back < _MOSTLY * busy:
        return SENDER if full >= _MOSTLY * busy else APPLICATION
    return CONGESTION if busy - receiver - sender >= whole - busy else APPLICATION


@dataclass(frozen=True, eq=False)
class _Samples:
    """What went by between two samples of a flow's clocks; us.

    `clocks` (clocks + 2, intervals) end with when data waited to be sent, and when none did and the buffer had no room.
    """

    begin_ns: Int64
    end_ns: Int64
    clocks: Float64


def _main_flows(evidence: Evidence, pids: Int64) -> Bool:
    """Return which flows send most of what some processes do."""
    sent = evidence.fold.totals(TRANSMIT).wire_bytes * np.isin(evidence.fold.flows.pid, pids)
    return np.asarray((sent > 0) & (sent >= _MAIN_FLOW * sent.max(initial=0)))


def _samples(evidence: Evidence, main: Bool) -> _Samples | None:
    """Return the clocks of some flows, None where the recording has none."""
    table, flows = evidence.table("tcp"), evidence.fold.flows
    row, time_ns = flows.positions(int64_column(table, "flow_id")), int64_column(table, "time_ns")
    clocks = np.stack([int64_column(table, name) for name in _CLOCKS])
    kept = (row >= 0) & main[np.maximum(row, 0)] & (clocks[0] != UNKNOWN) if len(row) else np.zeros(0, bool)
    order = np.flatnonzero(kept)[np.lexsort((time_ns[kept], row[kept]))]
    row, time_ns, clocks = row[order], time_ns[order], clocks[:, order]
    pairs = np.flatnonzero(row[1:] == row[:-1])
    if len(pairs) == 0:
        return None
    ran = np.diff(clocks, axis=1)[:, pairs].astype(np.float64)
    at_end = order[pairs + 1]
    waited = int64_column(table, "notsent_bytes")[at_end] > 0
    room, used = (int64_column(table, f"send_{name}_bytes")[at_end] for name in ("buffer", "queued"))
    full = ~waited & (room > 0) & (used > _WRITABLE * room)
    return _Samples(time_ns[pairs], time_ns[pairs + 1], np.vstack((ran, ran[0] * waited, ran[0] * full)))


def _clocks(samples: _Samples, times: Intervals) -> tuple[float, ...]:
    """Return for how long each clock ran in `times`, spread evenly between samples, and how long there were any; us."""
    inside = covered_until(times, samples.end_ns) - covered_until(times, samples.begin_ns)
    share = inside / np.maximum(samples.end_ns - samples.begin_ns, 1)
    return (*(float((clock * share).sum()) for clock in samples.clocks), float(inside.sum()) / 1e3)


def _are_small(evidence: Evidence, groups: list[int]) -> bool:
    """Return whether the median collective of some groups takes the link less than a round trip."""
    sizes = evidence.collectives.bytes[np.isin(evidence.members.group, groups)]
    sizes = sizes[sizes != UNKNOWN]
    trips = evidence.round_trips_ns[evidence.round_trips_ns > 0]
    rates = [side.line_rate_bps for side in evidence.link_sides]
    if not (len(sizes) and len(trips) and rates):
        return False
    return float(np.median(sizes)) * 8e9 / min(rates) < float(np.median(trips))
