"""The bytes of streams by which clocks are compared, so few of them that they fit into a digest.

Both ends of a stream have to keep the same bytes, without knowing of each other: those whose positions have the
smallest hashes (bottom-k sampling). One that keeps fewer keeps some of what the other keeps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netprof.analysis.hosts.clocks import NumberedStreams, Steps, steps_of, windows_of
from netprof.analysis.hosts.streams import HostStreams, Passages, read_streams
from netprof.analysis.tables.columns import Int64, opens
from netprof.trace import TraceSource
from netprof.trace.index import TraceIndex

KEPT = 2000
"""Bytes of each direction of a flow."""
_WRAP = 1 << 32
_ODD = 2654435761
"""The golden ratio of 32 bits (Knuth, The Art of Computer Programming, 6.4)."""


def sample(reader: TraceSource) -> HostStreams:
    """Return what is kept of the streams of the trace of one host. Raises TraceError."""
    index, meta = TraceIndex(reader), reader.meta
    span_ns = meta.started_ns, meta.started_ns + 1 if meta.stopped_ns is None else meta.stopped_ns
    streams = read_streams(index, windows_of([index], span_ns))
    found = streams.passages.where(_kept(streams.passages))
    seen = {flow % _WRAP for flow in np.unique(found.flow_id).tolist()}
    return HostStreams(found, {flow: ends for flow, ends in streams.ends.items() if flow in seen})


def _kept(passages: Passages) -> Int64:
    """Return the rows that are kept, in their order: in each direction of a flow those with the smallest hashes."""
    mixed = (passages.position % _WRAP) * _ODD % _WRAP
    stream = passages.flow_id * 2 + passages.direction
    order = np.lexsort((mixed, stream))
    first = np.flatnonzero(opens(stream[order]))
    place = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    return np.sort(order[place < KEPT])


def steps_between(hosts: Sequence[NumberedStreams]) -> Steps:
    """Return how the clocks of hosts run beside each other that streams, or one kernel, join."""
    return steps_of({host.number: host for host in hosts}, [*_neighbours(hosts), *_of_one_kernel(hosts)])


def _neighbours(hosts: Sequence[NumberedStreams]) -> list[tuple[int, int]]:
    """Return which hosts have the two ends of a connection, by its addresses; none of one kernel."""
    boots = {host.number: host.boot_id for host in hosts}
    owner = {ends: host.number for host in hosts for ends in host.streams.ends.values()}
    pairs = {
        (host.number, owner[far, near])
        for host in hosts
        for near, far in host.streams.ends.values()
        if (far, near) in owner
    }
    return sorted((a, b) for a, b in pairs if a < b and boots[a] != boots[b])


def _of_one_kernel(hosts: Sequence[NumberedStreams]) -> list[tuple[int, int]]:
    first: dict[str, int] = {}
    pairs = []
    for host in sorted(hosts, key=lambda each: each.number):
        known = first.setdefault(host.boot_id, host.number)
        if known != host.number:
            pairs.append((known, host.number))
    return pairs
