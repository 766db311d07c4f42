"""Why a transport does not fill its link: by TCP's own clocks, its round trips, and the pace that it keeps."""

from __future__ import annotations

import math
import shlex
from collections import Counter, defaultdict
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np

from netprof.analysis.account.wait_pieces import contains
from netprof.analysis.account.waiting import Waiting
from netprof.analysis.evidence import Evidence
from netprof.analysis.tables.columns import UNKNOWN, Bool, Float64, Int64, int64_column
from netprof.analysis.tables.flow_table import LOOPBACK, Flows, LinkKey
from netprof.analysis.tables.intervals import Intervals, merge, overlap, union
from netprof.schema import TRANSMIT
from netprof.units import duration, rate

_QUEUED = 4.0
_QUEUED_NS = 2_000_000
"""A round trip that is `_QUEUED` times as long as the least one, and `_QUEUED_NS` longer, was spent in a queue."""
_ROOM = 0.75
"""Share of the congestion window that is on its way, below which the window holds nothing back."""
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
class TcpFacts:
    """Round trips, the usual and the least one (0: unknown), and the rate that senders are paced at (0: they are not).

    `by_program` says that the program asked for that rate, `by_device` that the fq of a device holds each flow to it.
    """

    trip_ns: float = 0.0
    least_trip_ns: float = 0.0
    paced_bps: float = 0.0
    by_program: bool = False
    by_device: str = ""

    @property
    def is_queued(self) -> bool:
        """Whether bytes spend most of a round trip in a queue."""
        return 0 < _QUEUED * self.least_trip_ns <= self.trip_ns and self.trip_ns - self.least_trip_ns >= _QUEUED_NS


UNKNOWN_FACTS = TcpFacts()
"""What is known without samples of them."""


def tcp_facts(table: Any, flows: Flows, main: Bool, times: Intervals) -> TcpFacts:
    """Return the facts of the `main` flows in some time, of the `tcp` table (Arrow, DataFrame or mapping)."""
    row = flows.positions(int64_column(table, "flow_id"))
    known = (row >= 0) & main[np.maximum(row, 0)] if len(main) else np.zeros(len(row), bool)
    inside = known & contains(times, int64_column(table, "time_ns"))
    rows = np.flatnonzero(inside if inside.any() else known)
    trips = _above_0(int64_column(table, "rtt_us")[rows])
    least = _above_0(least_trips_us(table)[rows])
    paced_bps, by_program = _pacing(table, rows)
    return TcpFacts(
        float(np.median(trips)) * 1e3 if len(trips) else 0.0,
        float(np.median(least)) * 1e3 if len(least) else 0.0,
        paced_bps,
        by_program,
    )


def least_trips_us(table: Any) -> Int64:
    """Return the least round trip that TCP remembers in each row of the `tcp` table; what it was where it says none."""
    least, trip = int64_column(table, "min_rtt_us"), int64_column(table, "rtt_us")
    return np.where(least > 0, least, trip)


def _pacing(table: Any, rows: Int64) -> tuple[float, bool]:
    """Return at what rate flows are paced that have more to send and room for it, and whether the program wants it."""
    names = ("notsent_bytes", "unacked_bytes", "cwnd", "mss_bytes", "pacing_bytes_per_s", "pacing_limit_bytes_per_s")
    unsent, under_way, window, segment, pace, limit = (int64_column(table, name)[rows] for name in names)
    waits = (unsent > 0) & (pace > 0)
    if not len(rows) or not waits.any():
        return 0.0, False
    limited = waits & (limit > 0) & (pace >= limit)
    if limited.sum() >= _MOSTLY * waits.sum():
        return float(np.median(limit[limited])) * 8, True
    free = waits & (under_way >= 0) & (under_way + segment < _ROOM * window * segment)
    return (float(np.median(pace[free])) * 8, False) if free.sum() >= _MOSTLY * waits.sum() else (0.0, False)


def _above_0(values: Int64) -> Int64:
    return np.asarray(values[values > 0])


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
    "round trips take much of the time of most collectives, which are small: it is the latency of many small messages",
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
QUEUE = Reason(
    "queue",
    "a round trip takes {} where it could take {}: the bytes wait in a queue on the way, beyond what is known to be "
    "full",
    "find the queue: a shaper, a slower port or several senders to one at a switch (its counters of drops and marks), "
    "a receiver that is slow to take packets",
)
PACED = Reason(
    "pacing",
    "the senders have data and room for it, but are paced at {}: {}",
    "raise or remove that rate: {}",
)
APPLICATION = Reason(
    "application",
    "the senders have nothing to send for most of it: the hosts copy, reduce or hand over between steps",
    "more CPU for the communication threads, larger messages, more connections",
)


@dataclass(frozen=True)
class ClockSums:
    """For how long TCP's clocks of some flows ran in some time, and for how long these were watched; us.

    `held_back` is how much of `busy` data waited to be sent, and `full` how much none did and the buffer had no room.
    """

    busy: float = 0.0
    receiver: float = 0.0
    sender: float = 0.0
    held_back: float = 0.0
    full: float = 0.0
    whole: float = 0.0

    def __add__(self, other: ClockSums) -> ClockSums:
        """Return those of both."""
        return ClockSums(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


def transport_reason(evidence: Evidence, stretches: Waiting) -> Reason:
    """Return what the senders wait for in stretches of `transport`."""
    times = merge(stretches.begin_ns, stretches.end_ns)
    groups = np.unique(stretches.group).tolist()
    of_groups = np.isin(evidence.exchanges.members.group, groups)
    exchanges = evidence.exchanges.collectives.where(of_groups)
    members, pids = evidence.exchanges.members.where(of_groups), np.unique(exchanges.pid)
    main = _main_flows(evidence, pids)
    samples = _samples(evidence, main)
    facts = tcp_facts(evidence.table("tcp"), evidence.fold.flows, main, times)
    full = union([evidence.account.groups[each].link_full for each in groups if each in evidence.account.groups])
    if full.total_ns > times.total_ns:
        facts = replace(facts, trip_ns=0.0)  # the queue is that of the link that is full, before and after
    facts = facts if facts.paced_bps else _held_by_fq(evidence, main, facts, times)
    lanes, sides = evidence.links.lanes, evidence.links.sides
    rates = [side.line_rate_bps for side in sides]
    ranks = int(np.maximum(members.ranks, members.seen).max(initial=0))
    return reason_of(
        None if samples is None else samples.ran_in(times),
        knows_rate=any(set(lanes.pids_of(side.link)) & set(pids.tolist()) for side in sides),
        on_one_host=bool(main.any()) and bool((evidence.fold.flows.device[main] == LOOPBACK).all()),
        trips=trips_of(exchanges.bytes, facts.least_trip_ns, min(rates))
        if rates
        else trips_at_most(exchanges.end_ns - members.ready_ns, facts.least_trip_ns, ranks),
        ranks=ranks,
        facts=facts,
    )


def reason_of(
    ran: ClockSums | None,
    *,
    knows_rate: bool,
    on_one_host: bool,
    trips: float,
    ranks: int,
    facts: TcpFacts = UNKNOWN_FACTS,
) -> Reason:
    """Return what the senders wait for: `ran` are the clocks in that time, None if there are none.

    `knows_rate` says whether the line rate of any of their links is known; `trips` are what `trips_of` returns, and
    `ranks` how many exchange them. Around a ring of n ranks a collective is 2(n - 1) messages one after another, which
    travel for n - 1 round trips and take the link 2(n - 1)/n of the size (Thakur et al., 2005): up to n round trips'
    worth of it a third of the time or more is latency. Latency, windows, buffers and paces need no line rate.
    """
    small = trips < 1
    if facts.paced_bps and (facts.by_program or facts.by_device or not on_one_host):
        return _paced(facts)
    if facts.is_queued and not on_one_host and not small:
        usual, least = duration(facts.trip_ns / 1e9), duration(facts.least_trip_ns / 1e9)
        return replace(QUEUE, happened=QUEUE.happened.format(usual, least))
    if ran is None and not small:
        return ON_ONE_HOST if on_one_host else NO_CLOCKS if knows_rate else NO_LINE_RATE
    if ran is not None and max(ran.receiver, ran.sender) >= _BUFFER_MATTERS * ran.whole:
        return RECEIVER if ran.receiver >= ran.sender else SENDER
    if on_one_host:
        return ON_ONE_HOST
    if small or ran is None:
        return SMALL
    if not knows_rate and trips >= ranks:  # what is on its way may fill a link, and what waits may wait for that
        return NO_LINE_RATE
    nothing_to_send = SMALL if trips < ranks else APPLICATION
    if ran.busy > 0 and ran.held_back < _MOSTLY * ran.busy:
        return SENDER if ran.full >= _MOSTLY * ran.busy else nothing_to_send
    return CONGESTION if ran.busy - ran.receiver - ran.sender >= ran.whole - ran.busy else nothing_to_send


def _held_by_fq(evidence: Evidence, main: Bool, facts: TcpFacts, times: Intervals) -> TcpFacts:
    """Return the facts with the rate that an fq holds each of the main flows to, where they send about as fast."""
    flows, lanes = evidence.fold.flows, evidence.links.lanes
    rows = np.flatnonzero(main)
    ends = zip(flows.netns[rows].tolist(), flows.device[rows].tolist(), flows.pid[rows].tolist(), strict=True)
    several = Counter((LinkKey(netns, str(device)), pid) for netns, device, pid in ends)  # in the order of the flows
    limits_bps = {link: evidence.settings.number(link, "flow_rate_bps") for link, _ in several}
    sent_bps: defaultdict[tuple[LinkKey, int], float] = defaultdict(float)
    for link in (link for link, limit_bps in limits_bps.items() if limit_bps):
        for use in lanes.uses_of(link):
            if use.way == TRANSMIT and (link, use.lane.pid) in several:
                sent_bps[link, use.lane.pid] += use.bins.wire_bytes_in(times) * 8e9 / max(times.total_ns, 1)
    for (link, pid), count in several.items():
        if limits_bps[link] and sent_bps[link, pid] >= _MOSTLY * limits_bps[link] * count:
            return replace(facts, paced_bps=limits_bps[link], by_device=link.device)
    return facts


def _paced(facts: TcpFacts) -> Reason:
    who, where = "its congestion control does", "another congestion control (net.ipv4.tcp_congestion_control)"
    if facts.by_program:
        who = "the program asked for it (SO_MAX_PACING_RATE)"
        where = "SO_MAX_PACING_RATE of the sockets, or what sets it"
    if facts.by_device:
        who = f"the fq of {facts.by_device} does (maxrate)"
        where = f"tc qdisc change dev {shlex.quote(facts.by_device)} root fq maxrate"
    return replace(PACED, happened=PACED.happened.format(rate(facts.paced_bps), who), advice=PACED.advice.format(where))


def main_samples(evidence: Evidence) -> ClockSamples | None:
    """Return the clocks of the flows that send most of what the job does, None where the recording has none."""
    return _samples(evidence, _main_flows(evidence, np.unique(evidence.fold.flows.pid)))


@dataclass(frozen=True, eq=False)
class ClockSamples:
    """What went by between two samples of flows' clocks.

    `clocks` has the shape (5, intervals), as the fields of `ClockSums`; us. `watched_ns` is how long the intervals of
    all flows are that are put together in one.
    """

    begin_ns: Int64
    end_ns: Int64
    clocks: Float64
    watched_ns: Int64

    def ran_in(self, times: Intervals) -> ClockSums:
        """Return for how long each clock ran in some time, spread evenly between samples."""
        share = overlap(times, self.begin_ns, self.end_ns) / np.maximum(self.end_ns - self.begin_ns, 1)
        return ClockSums(*(float((each * share).sum()) for each in (*self.clocks, self.watched_ns / 1e3)))


def _main_flows(evidence: Evidence, pids: Int64) -> Bool:
    """Return which flows send most of what some processes do."""
    sent = evidence.fold.totals(TRANSMIT).wire_bytes * np.isin(evidence.fold.flows.pid, pids)
    return np.asarray((sent > 0) & (sent >= _MAIN_FLOW * sent.max(initial=0)))


def _samples(evidence: Evidence, main: Bool) -> ClockSamples | None:
    """Return the clocks of some flows, None where the recording has none."""
    table, flows = evidence.table("tcp"), evidence.fold.flows
    row, time_ns = flows.positions(int64_column(table, "flow_id")), int64_column(table, "time_ns")
    clocks = np.stack([int64_column(table, name) for name in _CLOCKS])
    known = (row >= 0) & (clocks[0] != UNKNOWN)
    kept = known & main[np.maximum(row, 0)] if known.any() else known
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
    begin_ns, end_ns = time_ns[pairs], time_ns[pairs + 1]
    return ClockSamples(begin_ns, end_ns, np.vstack((ran, ran[0] * waited, ran[0] * full)), end_ns - begin_ns)


def trips_at_most(took_ns: Int64, trip_ns: float, ranks: int) -> float:
    """Return how many round trips the link takes at most for the median of some collectives; infinity if unknown.

    All but the ring's latency is taken to be the link's, as far as its rate is not known.
    """
    took_ns = took_ns[took_ns > 0]
    if not (len(took_ns) and trip_ns) or ranks < 2:
        return math.inf
    return max(float(np.median(took_ns)) / trip_ns - (ranks - 1), 0.0) * ranks / (2 * (ranks - 1))


def trips_of(sizes: Int64, trip_ns: float, line_rate_bps: float) -> float:
    """Return how many round trips the link takes for the median of some collectives' sizes; infinity if unknown."""
    known = sizes[sizes != UNKNOWN]
    if not (len(known) and trip_ns and line_rate_bps):
        return math.inf
    return float(np.median(known)) * 8e9 / line_rate_bps / trip_ns
