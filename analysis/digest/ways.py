"""The connections that a digest of one host alone keeps, one way each, and for how long TCP was busy on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from netprof.analysis.declared import merged
from netprof.analysis.evidence import Evidence
from netprof.analysis.tables.columns import Columns, Float64, Int64, concatenate
from netprof.schema import TRANSMIT

_MOST = 1024
"""Connections of a host: in an all-to-all each process has as many as there are ranks, or more."""
_MEASURED = 0.01
"""Share of the bytes of the connection that carries the most from which on one is worth a row an iteration."""


@dataclass(frozen=True)
class WayOut:
    """What a process sends on one connection: local and remote address and port as one text; bytes with headers.

    To which process that goes the other host's digest says.
    """

    pid: int
    flow: str
    sent_bytes: int


@dataclass(frozen=True, eq=False)
class WayBusy(Columns):
    """For how long one of the digest's `ways` had something to send, in an iteration of table `windows`."""

    way: Int64
    window: Int64
    busy_ns: Int64


class WayKey(NamedTuple):
    """A connection of a process."""

    pid: int
    flow: str


@dataclass(frozen=True, eq=False)
class FoundWays:
    """By connection, the bytes sent, and of those that carry enough how busy it was in each of `windows` iterations."""

    sent_bytes: Mapping[WayKey, int]
    busy_ns: Mapping[WayKey, Int64]
    windows: int


NO_WAYS = FoundWays({}, {}, 0)


def find_ways(evidence: Evidence, begin_ns: Int64, end_ns: Int64) -> FoundWays:
    """Return the ways of a recording, or of a piece of one, and how busy they were in some iterations."""
    flows, sent = evidence.fold.flows, evidence.fold.totals(TRANSMIT).wire_bytes
    rows = np.argsort(-sent, kind="stable")[:_MOST]
    keys = {row: WayKey(int(flows.pid[row]), flows.name(row)) for row in rows.tolist()}
    measured = rows[sent[rows] >= max(_MEASURED * sent.max(initial=0), 1)].tolist()
    busy = {keys[row]: evidence.busy_clocks.during([row], begin_ns, end_ns) for row in measured}
    return FoundWays(
        {key: int(sent[row]) for row, key in keys.items()},
        {key: np.rint(each).astype(np.int64) for key, each in busy.items()},
        len(begin_ns),
    )


def other_end(flow: str) -> str:
    """Return the text of the same flow as the other end has it."""
    near, _, far = flow.partition(" → ")
    return f"{far} → {near}"


def merge_ways(parts: Sequence[FoundWays]) -> FoundWays:
    """Return the ways of consecutive pieces; one that a piece does not have was not busy in it."""
    measured = {key for part in parts for key in part.busy_ns}
    busy = {
        key: np.concatenate([part.busy_ns.get(key, np.zeros(part.windows, np.int64)) for part in parts])
        for key in measured
    }
    sent = merged([part.sent_bytes for part in parts], sum)
    return FoundWays(sent, busy, sum(part.windows for part in parts))


def ways_table(ways: FoundWays) -> tuple[tuple[WayOut, ...], WayBusy]:
    """Return what is written of ways, those that carry the most first."""
    keys = sorted(ways.sent_bytes, key=lambda key: (-ways.sent_bytes[key], key))[:_MOST]
    parts = []
    for number, key in enumerate(keys):
        busy_ns = ways.busy_ns.get(key, np.zeros(0, np.int64))
        window = np.flatnonzero(busy_ns)
        parts.append(WayBusy(np.full(len(window), number), window, busy_ns[window]))
    return tuple(WayOut(*key, ways.sent_bytes[key]) for key in keys), concatenate(WayBusy, parts)


def spread_over(values: Float64, edges: tuple[Int64, Int64], wanted: tuple[Int64, Int64]) -> Float64:
    """Return amounts by the iterations of one host as amounts by those of another: spread evenly within each.

    `values` has the shape (kinds, own iterations), the result (kinds, wanted ones); both are begins and ends.
    """
    if values.shape[1] == 0:
        return np.zeros((len(values), len(wanted[0])))
    at_ns = np.append(edges[0], edges[1][-1:])
    through = np.concatenate((np.zeros((len(values), 1)), np.cumsum(values, axis=1)), axis=1)
    ends, begins = (np.stack([np.interp(edge, at_ns, each) for each in through]) for edge in (wanted[1], wanted[0]))
    return np.asarray(ends - begins)
