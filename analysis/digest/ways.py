"""The ways between ranks that a digest of one host alone keeps, and for how long TCP was busy on each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.account.held_up import main_ways
from netprof.analysis.evidence import Evidence
from netprof.analysis.tables.columns import Columns, Float64, Int64, concatenate
from netprof.analysis.tables.flow_table import Flows
from netprof.analysis.wire.paths import PathKey
from netprof.schema import TRANSMIT

_MOST = 1024
"""Ways of a host: in an all-to-all each process has as many as there are ranks."""
_NO_TIME = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Way:
    """The flows from a process to another one: local and remote address and port of each, as one text.

    `main` says that enough is sent there for it to be compared with others.
    """

    pid: int
    flows: tuple[str, ...]
    main: bool


@dataclass(frozen=True, eq=False)
class WayBusy(Columns):
    """For how long one of the digest's `ways` had something to send, in an iteration of table `windows`."""

    way: Int64
    window: Int64
    busy_ns: Int64


@dataclass(frozen=True, eq=False)
class FoundWays:
    """By way, its flows, and of main ones for how long they were busy in each of `windows` iterations; ns."""

    flows: Mapping[PathKey, tuple[str, ...]]
    busy_ns: Mapping[PathKey, Int64]
    windows: int


NO_WAYS = FoundWays({}, {}, 0)


def find_ways(evidence: Evidence, begin_ns: Int64, end_ns: Int64) -> FoundWays:
    """Return the ways of a recording, or of a piece of one, and how busy they were in some iterations."""
    paths, flows = evidence.paths, evidence.fold.flows
    main = main_ways(paths, evidence.fold.totals(TRANSMIT).wire_bytes).tolist()
    others = sorted(set(range(len(paths.keys))) - set(main))
    first = [*main, *others][:_MOST]
    rows = {paths.keys[place]: np.flatnonzero(paths.of_flow == place).tolist() for place in first}
    compared = {paths.keys[place] for place in main} & set(rows)
    busy = {key: evidence.busy_clocks.during(rows[key], begin_ns, end_ns) for key in compared}
    return FoundWays(
        {key: tuple(flow_name(row, flows) for row in own) for key, own in rows.items()},
        {key: np.rint(each).astype(np.int64) for key, each in busy.items()},
        len(begin_ns),
    )


def flow_name(row: int, flows: Flows) -> str:
    """Return a flow's addresses and ports as one text."""
    return f"{flows.local_addr[row]}:{flows.local_port[row]} → {flows.remote_addr[row]}:{flows.remote_port[row]}"


def other_end(flow: str) -> str:
    """Return the text of the same flow as the other end has it."""
    near, _, far = flow.partition(" → ")
    return f"{far} → {near}"


def merge_ways(parts: Sequence[FoundWays]) -> FoundWays:
    """Return the ways of consecutive pieces; one that a piece does not have was not busy in it."""
    flows: dict[PathKey, tuple[str, ...]] = {}
    for key, own in (item for part in parts for item in part.flows.items()):
        flows[key] = tuple(dict.fromkeys((*flows.get(key, ()), *own)))
    main = {key for part in parts for key in part.busy_ns}
    busy = {
        key: np.concatenate([part.busy_ns.get(key, np.zeros(part.windows, np.int64)) for part in parts]) for key in main
    }
    return FoundWays(flows, busy, sum(part.windows for part in parts))


def ways_table(found: FoundWays) -> tuple[tuple[Way, ...], WayBusy]:
    """Return what is written of ways."""
    keys, parts = list(found.flows)[:_MOST], []
    for number, key in enumerate(keys):
        busy_ns = found.busy_ns.get(key, _NO_TIME)
        window = np.flatnonzero(busy_ns)
        parts.append(WayBusy(np.full(len(window), number), window, busy_ns[window]))
    ways = tuple(Way(key.pid, found.flows[key], key in found.busy_ns) for key in keys)
    return ways, concatenate(WayBusy, parts)


def spread_over(values: Float64, own: tuple[Int64, Int64], wanted: tuple[Int64, Int64]) -> Float64:
    """Return amounts by the iterations of one host as amounts by those of another: spread evenly within each.

    `values` has the shape (kinds, own iterations), the result (kinds, wanted ones); both are begins and ends.
    """
    if values.shape[1] == 0:
        return np.zeros((len(values), len(wanted[0])))
    at_ns = np.append(own[0], own[1][-1:])
    through = np.concatenate((np.zeros((len(values), 1)), np.cumsum(values, axis=1)), axis=1)
    ends, begins = (np.stack([np.interp(edge, at_ns, each) for each in through]) for edge in (wanted[1], wanted[0]))
    return np.asarray(ends - begins)
