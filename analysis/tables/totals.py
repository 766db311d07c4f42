"""The `totals` table: what TCP itself says that each flow has moved, against what was counted of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from netprof.analysis.tables.columns import Bool, Columns, Int64, closes, read_columns

_SEGMENTS = 1 << 32
"""Where TCP's counts of segments begin again."""


@dataclass(frozen=True, eq=False)
class TcpTotals(Columns):
    """The last totals of each flow, by flow id: all since the flow is counted.

    `closed` says that the socket ended with them, `settled` that nothing was on its way then.
    """

    flow_id: Int64
    time_ns: Int64
    closed: Bool
    settled: Bool
    sent_bytes: Int64
    resent_bytes: Int64
    received_bytes: Int64
    sent_segments: Int64
    received_segments: Int64
    counted_sent_bytes: Int64
    counted_resent_bytes: Int64
    counted_received_bytes: Int64
    counted_sent_packets: Int64
    counted_received_packets: Int64
    queued_bytes: Int64
    earlier_queued_bytes: Int64


@dataclass(frozen=True, eq=False)
class Differences(Columns):
    """What TCP's totals of each flow hold beyond what was counted, in the order of the totals; never below 0.

    What a flow had on its way is part of nothing else. `unseen_*` is missing from the recording: payload of which no
    packet was seen and no sequence number told. What was sent again without being seen is `recovered_resent_bytes`,
    and so are the segments: how much is known, but not when. `beyond_bytes` were counted and TCP knows nothing of them.
    """

    on_its_way_bytes: Int64
    unseen_sent_bytes: Int64
    unseen_received_bytes: Int64
    recovered_resent_bytes: Int64
    recovered_sent_segments: Int64
    recovered_received_segments: Int64
    beyond_bytes: Int64


def last_totals(table: Any) -> TcpTotals:
    """Return the last totals of each flow; `table` is the `totals` table: Arrow, DataFrame or mapping of columns."""
    read = read_columns(TcpTotals, table)
    return last_of_each(replace(read, closed=read.closed > 0, settled=read.settled > 0))


def last_of_each(totals: TcpTotals) -> TcpTotals:
    """Return the last row of each flow, by flow."""
    order = np.lexsort((totals.time_ns, totals.flow_id))
    return totals.where(order[closes(totals.flow_id[order])])


def differences(totals: TcpTotals) -> Differences:
    """Compare TCP's totals with what was counted.

    A flow that was busy when it was read had packets on their way: TCP had sent them, the device had not, or they had
    arrived and TCP had not taken them up. A socket that has ended has none: nobody counts what it leaves behind.
    """
    on_its_way = ~(totals.settled | totals.closed)
    new_bytes = totals.sent_bytes - totals.resent_bytes
    counted_new = totals.counted_sent_bytes - totals.counted_resent_bytes
    new, sent = new_bytes - counted_new, totals.sent_bytes - totals.counted_sent_bytes
    received = totals.received_bytes - totals.counted_received_bytes
    out = _more_segments(totals.sent_segments, totals.counted_sent_packets)
    into = _more_segments(totals.received_segments, totals.counted_received_packets)
    waiting = np.where(totals.queued_bytes > 0, totals.queued_bytes, _more(sent))  # the memory of a packet is larger
    queued = np.where(on_its_way, np.minimum(_more(sent), waiting), 0)
    arriving = np.where(on_its_way, _more(received), 0)
    unseen = np.minimum(_more(new - queued), _more(sent - queued))
    return Differences(
        on_its_way_bytes=queued + arriving,
        unseen_sent_bytes=unseen,
        unseen_received_bytes=_more(received - arriving),
        recovered_resent_bytes=_more(sent - queued - unseen),
        recovered_sent_segments=np.where(on_its_way, 0, out),
        recovered_received_segments=np.where(on_its_way, 0, into),
        beyond_bytes=_more(-sent - totals.earlier_queued_bytes) + _more(-received),
    )


def _more(difference: Int64) -> Int64:
    return np.maximum(difference, 0)


def _more_segments(stated: Int64, counted: Int64) -> Int64:
    """Return how many segments TCP counted that were not counted here; its counts begin again at 2**32."""
    difference = (stated - counted) % _SEGMENTS
    return np.where(difference < _SEGMENTS // 2, difference, 0)
