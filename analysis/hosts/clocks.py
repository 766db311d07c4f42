"""How the hosts' clocks run beside the first one's: by the streams between them, or by what else there is."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from netprof.analysis.events.collectives import Collectives
from netprof.analysis.hosts.by_collectives import by_ends, same_collectives
from netprof.analysis.hosts.corridor import MOST_DRIFT, Line, corridor
from netprof.analysis.hosts.host_streams import Delays, HostStreams, delays, read_streams
from netprof.analysis.tables.columns import Int64, opens
from netprof.model import Clock, HostClock
from netprof.trace.index import TraceIndex

REFERENCE, SAME_HOST, FLOWS, COLLECTIVES = "reference", "same host", "flows", "collectives"
REALTIME = "realtime"
_EVER = (-(1 << 62), 1 << 62)
_MOST_ROWS = 4_000_000
"""Rows of `wire` of one host that are looked at: memory is what limits them."""
_WINDOWS, _SHORTEST_NS = 32, 2 * 10**9
_FEW_HOSTS = 32
_ROUNDED_NS = 1.0
"""Times are whole nanoseconds."""

Span = tuple[int, int]
"""From when to when a host recorded, on its own clock, ns."""


def find_clocks(indexes: Sequence[TraceIndex], spans: Sequence[Span]) -> list[HostClock]:
    """Return how the clock of each host runs beside the first one's, over the time that it recorded.

    Hosts that no streams join to the first one, by way of others either, are put in place by what they do together
    with it, and if that tells nothing, by their realtime clocks.
    """
    readers = [index.reader for index in indexes]
    rough = [by_realtime(readers[0].meta.clock, reader.meta.clock) for reader in readers]
    windows = windows_of(indexes, spans[0])
    hosts = {}
    for number, (index, clock, span) in enumerate(zip(indexes, rough, spans, strict=True)):
        streams = read_streams(index, [_moved(window, clock) for window in windows])
        hosts[number] = NumberedStreams(number, index.reader.meta.boot_id, span, streams)
    steps = steps_of(hosts, pairs_of(hosts))
    known = nearest(steps)
    for host in sorted(steps.keys() - known.keys()):
        both = same_collectives(readers[0], readers[host], rough[host])
        if both is not None:
            join(steps, 0, host, by_collectives(*both, spans[0]))
    known = nearest(steps)
    return [known.get(host, rough[host]) for host in range(len(readers))]


@dataclass(frozen=True, eq=False)
class NumberedStreams:
    """The streams of one host of a job, and when it recorded, on its own clock."""

    number: int
    boot_id: str
    span_ns: Span
    streams: HostStreams


def steps_of(hosts: Mapping[int, NumberedStreams], pairs: Iterable[tuple[int, int]]) -> dict[int, dict[int, HostClock]]:
    """Return how the clocks of hosts run beside each other that streams, or one kernel, join; some `pairs` may be."""
    ways: dict[tuple[int, int], Delays] = {}
    steps: dict[int, dict[int, HostClock]] = {number: {} for number in hosts}
    for near, far in pairs:
        near_host, far_host = hosts[near], hosts[far]
        if near_host.boot_id == far_host.boot_id:
            join(steps, near, far, HostClock(SAME_HOST, at_ns=near_host.span_ns[0]))
            continue
        ways[near, far], ways[far, near] = delays(near_host.streams, far_host.streams)
        join(steps, near, far, by_delays(ways[near, far], ways[far, near], near_host.span_ns))
    first = min(hosts)
    join_by_detours(steps, ways, first, hosts[first].span_ns)
    return steps


def pairs_of(hosts: Mapping[int, NumberedStreams]) -> list[tuple[int, int]]:
    """Return which hosts to compare: all pairs of few; of many those with both ends of a connection, or one kernel.

    The two ends are identified by their addresses.
    """
    if len(hosts) <= _FEW_HOSTS:
        return list(combinations(hosts, 2))
    owner = {ends: number for number, host in hosts.items() for ends in host.streams.ends.values()}
    first: dict[str, int] = {}
    pairs = {(first.setdefault(host.boot_id, number), number) for number, host in hosts.items()}
    for number, host in hosts.items():
        others = (owner.get(ends[::-1], number) for ends in host.streams.ends.values())
        pairs |= {(min(number, other), max(number, other)) for other in others}
    return sorted((near, far) for near, far in pairs if near != far)


def windows_of(indexes: Sequence[TraceIndex], span_ns: Span) -> list[Span]:
    """Return what is looked at of the recordings: all of short ones, of long ones windows that are spread over it."""
    rows = max(int(index.tables["wire"].rows.sum()) for index in indexes)
    if rows <= _MOST_ROWS:
        return [_EVER]
    length_ns = max(_SHORTEST_NS, int((span_ns[1] - span_ns[0]) * _MOST_ROWS / rows / _WINDOWS))
    begins = np.linspace(span_ns[0], span_ns[1] - length_ns, _WINDOWS).astype(np.int64).tolist()
    return [(begin, begin + length_ns) for begin in begins]


def _moved(window: Span, clock: HostClock) -> Span:
    """Return when a window is on another clock."""
    return window if window == _EVER else (window[0] + round(clock.offset_ns), window[1] + round(clock.offset_ns))


def join(steps: dict[int, dict[int, HostClock]], near: int, far: int, clock: HostClock | None) -> None:
    """Note how a host's clock runs beside another one's, and that one's beside it; None: nothing tells."""
    if clock is not None:
        steps[near][far], steps[far][near] = clock, backwards(clock)


def join_by_detours(steps: dict[int, dict[int, HostClock]], ways: Ways, first: int, span_ns: Span) -> None:
    """Join hosts to the first one that no streams there and back join to it, by way of others either."""
    missing = steps.keys() - nearest(steps, first).keys()
    for host, (there, back) in there_and_back(ways, first, missing).items():
        join(steps, first, host, by_delays(there, back, span_ns))


def by_delays(there: Delays, back: Delays, span_ns: Span) -> HostClock | None:
    """Return how one clock runs beside another, given what took how long to it and back; None where nothing tells.

    The bound holds for all of a span of the other, reference's, time.
    """
    return _clock(FLOWS, there, back, span_ns)


def by_collectives(first: Collectives, second: Collectives, span_ns: Span) -> HostClock | None:
    """Return how one clock runs beside another, given the same collectives on both; None where nothing tells.

    Ranks are done at about the same time, but all that is sure is that nobody is before all have begun.
    """
    there, back = Delays(first.posted_ns, second.end_ns), Delays(second.posted_ns, first.end_ns)
    return _clock(COLLECTIVES, there, back, span_ns, by_ends(first, second))


def _clock(source: str, there: Delays, back: Delays, span_ns: Span, line: Line | None = None) -> HostClock | None:
    """Return the clock on a line, or else in the middle of all that the delays leave possible."""
    upper, lower = there.arrived_ns - there.sent_ns, back.sent_ns - back.arrived_ns
    possible = corridor(there.sent_ns, upper, back.arrived_ns, lower)
    if possible is None:
        return None
    line = line or possible.middle()
    above, below = upper - line.of(there.sent_ns), line.of(back.arrived_ns) - lower
    return HostClock(
        source,
        line.offset_ns,
        line.drift,
        line.at_ns + round(line.offset_ns),
        bound_ns=_ROUNDED_NS + max(possible.farthest_ns(line, time_ns) for time_ns in span_ns),
        drift_bound=float(max(possible.drifts[-1] - line.drift, line.drift - possible.drifts[0])),
        residual_ns=float(np.median(np.concatenate((above - above.min(), below - below.min())))),
        pairs=len(there) + len(back),
    )


def by_realtime(reference: Clock, clock: Clock) -> HostClock:
    """Return how a clock runs beside the reference if both hosts' realtime clocks are right, with no bound."""
    offset_ns = (clock.monotonic_ns - clock.realtime_ns) - (reference.monotonic_ns - reference.realtime_ns)
    offset_ns = min(max(offset_ns, _EVER[0]), _EVER[1])  # centuries apart is apart enough: 64 bits hold the times
    return HostClock(REALTIME, float(offset_ns), 0.0, clock.monotonic_ns, bound_ns=None, drift_bound=None)


def backwards(clock: HostClock) -> HostClock:
    """Return how the reference runs beside a clock."""
    drift = -clock.drift / (1 + clock.drift)
    return replace(clock, offset_ns=-clock.offset_ns, drift=drift, at_ns=clock.at_ns - round(clock.offset_ns))


def one_after_other(first: HostClock, second: HostClock) -> HostClock:
    """Return how a clock runs beside the reference that runs like `second` beside one that runs like `first`."""
    reference_ns = first.at_ns - round(first.offset_ns)
    gained_ns = second.drift * (first.at_ns - (second.at_ns - second.offset_ns))
    offset_ns = first.offset_ns + second.offset_ns + gained_ns
    return HostClock(
        second.source if first.source in (REFERENCE, SAME_HOST) else first.source,
        offset_ns,
        (1 + first.drift) * (1 + second.drift) - 1,
        reference_ns + round(offset_ns),
        bound_ns=_sum(first.bound_ns, second.bound_ns),
        drift_bound=_sum(first.drift_bound, second.drift_bound),
        residual_ns=_sum(first.residual_ns or 0.0, second.residual_ns or 0.0),
        pairs=first.pairs + second.pairs,
    )


def at(clock: HostClock, reference_ns: int) -> HostClock:
    """Return the same clock with its offset at another moment of the reference's time."""
    offset_ns = clock.offset_ns + clock.drift * (reference_ns - (clock.at_ns - clock.offset_ns))
    return replace(clock, offset_ns=offset_ns, at_ns=reference_ns + round(offset_ns))


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


Steps = Mapping[int, Mapping[int, HostClock]]
"""By host, how the clocks of others run beside its own, as far as something compares the two."""


def nearest(steps: Steps, first: int = 0) -> dict[int, HostClock]:
    """Return the clocks of the hosts that can be reached from the first one, on the way with the smallest bound."""
    clocks: dict[int, HostClock] = {}
    waiting: list[tuple[float, int, int, HostClock]] = [(0.0, 0, first, HostClock())]
    turn = 0
    while waiting:
        _, _, host, clock = heapq.heappop(waiting)
        if host in clocks:
            continue
        clocks[host] = clock
        for neighbour, step in steps[host].items():
            turn += 1
            there = one_after_other(clock, step)
            heapq.heappush(waiting, (there.bound_ns or 0.0, turn, neighbour, there))
    return clocks


_WINDOWS_NS = (10_000_000, 100_000_000, 1_000_000_000)
"""So near to each other in time have the two bytes to be whose delays are added: as little as there are enough."""
_ENOUGH = 20

Ways = Mapping[tuple[int, int], Delays]
"""What went from one host to another, and how long that took at most, by both hosts."""


def there_and_back(ways: Ways, first: int, hosts: Collection[int]) -> dict[int, tuple[Delays, Delays]]:
    """Return, for those of some hosts to which streams lead from the first one and back, the delays of both ways.

    Around a ring bytes go one way only between two hosts. Along a way of several streams the bounds add up, to that of
    the first clock and the last; two ways, there and back, bound it on both sides.
    """
    out = _from(first, {pair: each for pair, each in ways.items() if len(each)})
    back = _from(first, {pair[::-1]: _turned(each) for pair, each in ways.items() if len(each)})
    return {host: (out[host], _turned(back[host])) for host in sorted(hosts) if host in out and host in back}


def _from(first: int, ways: Ways) -> dict[int, Delays]:
    """Return the delays on the way from one host to every other one, over as few streams as that takes."""
    neighbours: dict[int, list[int]] = {}
    for near, neighbour in sorted(ways):
        neighbours.setdefault(near, []).append(neighbour)
    delays_to: dict[int, Delays] = {}
    waiting = deque([first])
    while waiting:
        here = waiting.popleft()
        for neighbour in neighbours.get(here, ()):
            if neighbour not in delays_to and neighbour != first:
                step = ways[here, neighbour]
                delays_to[neighbour] = step if here == first else _after(delays_to[here], step)
                waiting.append(neighbour)
    return {host: each for host, each in delays_to.items() if len(each)}


def _turned(delays: Delays) -> Delays:
    """Return the same as if time ran backwards: what arrived left, later, for where it came from."""
    return Delays(-delays.arrived_ns, -delays.sent_ns)


def _after(first: Delays, second: Delays) -> Delays:
    """Return the delays of two ways, one after the other: those of bytes that passed the host between at about a time.

    In the time between the two its clock may have gained on the others'.
    """
    for width_ns in _WINDOWS_NS:
        arrived, sent = first.arrived_ns // width_ns, second.sent_ns // width_ns
        rows, next_rows = _least(first, arrived), _least(second, sent)
        _, ours, theirs = np.intersect1d(arrived[rows], sent[next_rows], assume_unique=True, return_indices=True)
        if len(ours) >= _ENOUGH:
            break
    rows, next_rows = rows[ours], next_rows[theirs]
    apart_ns = np.abs(second.sent_ns[next_rows] - first.arrived_ns[rows])
    gained_ns = np.ceil(MOST_DRIFT * apart_ns).astype(np.int64)
    took_ns = second.arrived_ns[next_rows] - second.sent_ns[next_rows] + gained_ns
    return Delays(first.sent_ns[rows], first.arrived_ns[rows] + took_ns)


def _least(delays: Delays, window: Int64) -> Int64:
    """Return the row of each window that took least, by window."""
    order = np.lexsort((delays.arrived_ns - delays.sent_ns, window))
    return np.asarray(order[opens(window[order])], np.int64)
