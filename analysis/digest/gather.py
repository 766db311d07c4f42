"""What a digest holds beyond findings, gathered from a recording or, of a long one, from each of its pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from netprof.analysis.digest.digest import WAITED_NAMES, CollectiveTimes, Waited, WindowTimes
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.waiting_by_iteration import WaitingByIteration, waiting_by_iteration
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.columns import UNKNOWN, Columns, Int64, concatenate, empty
from netprof.analysis.tables.flow_table import LinkKey
from netprof.schema import RECEIVE, TRANSMIT

_SECOND_NS = 10**9
_OPAQUE = (1 << 62) - 1
"""What is kept of an address: enough to tell communicators of a process apart."""


@dataclass(frozen=True, eq=False)
class Seconds(Columns):
    """A link's bytes by second."""

    begin_ns: Int64
    tx_bytes: Int64
    rx_bytes: Int64


@dataclass(frozen=True, eq=False)
class Gathered:
    """What the processes waited for in each of the iterations `windows`, their collectives, and each link's bytes."""

    waited: Waited
    windows: WindowTimes
    collectives: CollectiveTimes
    seconds: Mapping[LinkKey, Seconds]


def _conclude(analysis: Analysis) -> Gathered:
    evidence = analysis.evidence
    waited, windows = empty(Waited), empty(WindowTimes)
    if len(evidence.iterations):
        table = waiting_by_iteration(evidence.iterations, evidence.account.around)
        waited, windows = _rows(table), WindowTimes(table.begin_ns, table.end_ns)
    return Gathered(waited, windows, _collectives(evidence), _seconds(evidence))


def _rows(table: WaitingByIteration) -> Waited:
    pids, count = len(table.pids), len(table)
    causes = {
        name: table.waited_ns[:, :, number].reshape(-1) for number, name in enumerate(WAITED_NAMES)
    }  # fmt: skip
    window = np.tile(np.arange(count), pids)
    return Waited(np.repeat(table.pids, count), window, **causes, late_for_ns=table.late_for_ns.reshape(-1))


def _collectives(evidence: Evidence) -> CollectiveTimes:
    own = evidence.owned(evidence.collectives)
    group = np.where(own.group == UNKNOWN, UNKNOWN, own.group & _OPAQUE)
    columns = {name: getattr(own, name) for name in CollectiveTimes.__dataclass_fields__}
    return CollectiveTimes(**columns | {"group": group})


def _seconds(evidence: Evidence) -> dict[LinkKey, Seconds]:
    return {link: found for link in evidence.lanes.links if len(found := _of_link(evidence, link))}


def _of_link(evidence: Evidence, link: LinkKey) -> Seconds:
    amounts = []
    for way in (TRANSMIT, RECEIVE):
        bins = evidence.lanes.of_link(link, way)
        if bins is None:
            amounts.append((np.zeros(0, np.int64), np.zeros(0, np.int64)))
            continue
        own = np.flatnonzero(evidence.piece.owns(bins.begin_ns))
        amounts.append((bins.begin_ns[own] // _SECOND_NS, bins.wire_bytes[own].astype(np.int64)))
    second = np.unique(np.concatenate([each for each, _ in amounts]))
    tx, rx = (_added(second, *each) for each in amounts)
    return Seconds(second * _SECOND_NS, tx, rx)


def _added(second: Int64, own: Int64, amount: Int64) -> Int64:
    found = np.zeros(len(second), np.int64)
    np.add.at(found, np.searchsorted(second, own), amount)
    return found


def _merge(parts: Sequence[Gathered], whole: Analysis) -> Gathered:
    before, waited = 0, []
    for part in parts:
        waited.append(replace(part.waited, window=part.waited.window + before))
        before += len(part.windows)
    links = dict.fromkeys(link for part in parts for link in part.seconds)
    return Gathered(
        concatenate(Waited, waited),
        concatenate(WindowTimes, [part.windows for part in parts]),
        concatenate(CollectiveTimes, [part.collectives for part in parts]),
        {link: _in_one([part.seconds[link] for part in parts if link in part.seconds]) for link in links},
    )


def _in_one(parts: Sequence[Seconds]) -> Seconds:
    """Return the seconds of consecutive pieces; the one in which a piece ends is in two."""
    every = concatenate(Seconds, list(parts))
    second = np.unique(every.begin_ns)
    return Seconds(second, *(_added(second, every.begin_ns, each) for each in (every.tx_bytes, every.rx_bytes)))


GATHERED = Section("gathered", _conclude, ("marks", "wire", "flows"), merge=_merge)
"""What a digest holds beyond what a report says."""
