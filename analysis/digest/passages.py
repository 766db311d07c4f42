"""The bytes of streams by which clocks are compared, so few of them that they fit into a digest.

Both ends of a stream have to keep the same bytes, without knowing of each other: those whose positions have the
smallest hashes (bottom-k sampling). One that keeps fewer keeps some of what the other keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from netprof.analysis.hosts.clocks import NumberedStreams, Steps, steps_of
from netprof.analysis.hosts.host_streams import HostStreams, StreamRows, carried_on, flow_ends, stream_rows
from netprof.analysis.tables.columns import Bool, closes, concatenate, opens
from netprof.trace import TraceSource

KEPT = 2000
"""Bytes of each direction of a flow."""
_MOST_STREAMS = 2048
"""How many directions of flows are kept, those with the most rows first: a day may have millions of connections."""
_AT_ONCE = 1_000_000
"""How many rows of `wire` are read before the directions to keep are chosen."""
_WRAP = 1 << 32
_ODD = 2654435761
"""The golden ratio of 32 bits (Knuth, The Art of Computer Programming, 6.4)."""


def sample(reader: TraceSource) -> HostStreams:
    """Return what is kept of the streams of the trace of one host. Raises TraceError."""
    held: list[StreamRows] = []
    for batch in reader.batches("wire"):
        held.append(stream_rows(batch))
        if sum(map(len, held[1:])) >= _AT_ONCE:
            held = [thinned(held)]
    passages, ends = carried_on(thinned(held)), flow_ends(reader)
    seen = np.unique(passages.flow_id).tolist()
    return HostStreams(passages, {flow: ends[flow] for flow in seen if flow in ends})


def thinned(parts: Sequence[StreamRows]) -> StreamRows:
    """Return of consecutive parts of a recording the rows that are kept; each has the payload of those before it too.

    The last row of each stream stays with its payload alone: what comes later goes on from there.
    """
    rows = concatenate(StreamRows, list(parts))
    rows = _of_most(rows.where(np.lexsort((rows.direction, rows.flow_id))))
    kept = _smallest(rows)
    wanted = np.flatnonzero(kept | closes(rows.flow_id, rows.direction))
    return replace(
        rows.where(wanted),
        payload_bytes=np.diff(np.cumsum(rows.payload_bytes)[wanted], prepend=0),
        stream_position_ns=np.where(kept, rows.stream_position_ns, 0)[wanted],
    )


def _of_most(rows: StreamRows) -> StreamRows:
    """Leave out the streams that moved the fewest rows, where there are too many."""
    stream = np.cumsum(opens(rows.flow_id, rows.direction)) - 1
    amounts = np.bincount(stream)
    if len(amounts) <= _MOST_STREAMS:
        return rows
    most = np.sort(np.argsort(-amounts, kind="stable")[:_MOST_STREAMS])
    return rows.where(np.isin(stream, most))


def _smallest(rows: StreamRows) -> Bool:
    """Return which rows are kept: in each direction of a flow those whose positions have the smallest hashes."""
    known = np.flatnonzero(rows.stream_position_ns > 0)
    mixed, stream = rows.stream_position[known] * _ODD % _WRAP, rows.flow_id[known] * 2 + rows.direction[known]
    order = np.lexsort((mixed, stream))
    first = np.flatnonzero(opens(stream[order]))
    place = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    kept = np.zeros(len(rows), bool)
    kept[known[order[place < KEPT]]] = True
    return kept


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
