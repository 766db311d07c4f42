"""Flows that stand when the recording ends: what they sent is sent again and again, and never acknowledged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.declared import json_of
from netprof.analysis.evidence import Evidence
from netprof.analysis.section import Section
from netprof.analysis.tables.columns import int64_column
from netprof.analysis.tables.intervals import interval
from netprof.schema import RECEIVE
from netprof.units import count, duration

_LEAST_NS = 10**9
_LEAST_RESENT = 2
_SMALL_BYTES = 1280
"""What every way carries: IPv6 requires it."""
_RECOVERY = 3
"""enum tcp_ca_state: from here on TCP recovers."""


@dataclass(frozen=True)
class StuckFlow:
    """A flow (by its row) of which nothing was acknowledged since `since_ns`, though `resent` packets were sent again.

    Its packets are of `mss_bytes`; `hears` says that its process received something all the same.
    """

    row: int
    since_ns: int
    lasted_ns: int
    resent: int
    mss_bytes: int
    name: str
    hears: bool

    @property
    def is_small(self) -> bool:
        """Whether its packets are such as every way carries."""
        return self.mss_bytes <= _SMALL_BYTES


def stuck_flows(evidence: Evidence) -> tuple[StuckFlow, ...]:
    """Return the flows that stand when a recording, or its last piece, ends."""
    if not evidence.piece.is_last or not len(evidence.recording):
        return ()
    table, flows = evidence.table("tcp"), evidence.fold.flows
    names = ("time_ns", "unacked_bytes", "retransmits", "ca_state", "mss_bytes")
    row = flows.positions(int64_column(table, "flow_id"))
    columns = [int64_column(table, name) for name in names]
    order = np.lexsort((columns[0], row))
    order = order[row[order] >= 0]
    row, (time_ns, unacked, resent, state, mss) = row[order], [each[order] for each in columns]
    end_ns, stuck = int(evidence.recording.end_ns[-1]), []
    for flow in np.unique(row[(unacked > 0) & (state >= _RECOVERY)]).tolist():
        rows = np.flatnonzero(row == flow)
        changed = np.flatnonzero(unacked[rows] != unacked[rows[-1]])
        first = int(rows[changed[-1] + 1]) if len(changed) else int(rows[0])
        last = int(rows[-1])
        again, lasted_ns = int(resent[last] - resent[first]), end_ns - int(time_ns[first])
        if state[last] < _RECOVERY or again < _LEAST_RESENT or lasted_ns < _LEAST_NS:
            continue
        heard = evidence.links.lanes.of_process(int(flows.pid[flow]), RECEIVE)
        since = interval(int(time_ns[first]) + _LEAST_NS // 2, end_ns)
        hears = heard is not None and heard.wire_bytes_in(since) > 0
        stuck.append(StuckFlow(flow, int(time_ns[first]), lasted_ns, again, int(mss[last]), flows.name(flow), hears))
    return tuple(stuck)


def _notes(flows: Sequence[StuckFlow]) -> Iterator[str]:
    for each in flows[:3]:
        mtu = "" if each.is_small else "; ask whether all devices on the way carry packets of that size (MTU)"
        yield (
            f"when the recording ended, nothing of {each.name} had been acknowledged for "
            f"{duration(each.lasted_ns / 1e9)}: its packets of {each.mss_bytes} bytes were sent again "
            f"{count(each.resent, 'time')}{mtu}"
        )


STUCK = Section(
    "stuck flows",
    lambda analysis: () if analysis.evidence.is_recent else stuck_flows(analysis.evidence),
    ("tcp", "wire", "flows"),
    lambda flows: {"stuck_flows": [json_of(each, "flow=name lasted_s resent mss_bytes") for each in flows]},
    notes=_notes,
    merge=lambda parts, whole: parts[-1],
)
"""The connections that stand when a recording ends."""
