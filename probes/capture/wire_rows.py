"""From packets to rows of table `wire`: one for each flow, direction and time bin of a block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.probes.capture.grouped import Groups, differs
from netprof.probes.capture.packets import Bool, Int64, Rows
from netprof.probes.probe import Columns


def bin_groups(stream: Int64, time_ns: Int64, bin_ns: int) -> Groups:
    """Return the packets, which are together by stream, in groups of one stream and one bin."""
    return Groups(np.cumsum(differs(stream, time_ns // bin_ns)))


def wire_rows(groups: Groups, flow_id: Int64, direction: int, time_ns: Int64, amounts: Amounts, bin_ns: int) -> Columns:
    """Return the columns of table `wire` for packets in their `groups`; `flow_id` is by packet, at least one."""
    first = groups.starts
    newest = groups.last_where(amounts.advanced)
    has_place = (newest >= 0) & (groups.sums(amounts.unseen) == 0) & (amounts.position[newest] >= 0)
    return {
        "flow_id": flow_id[first],
        "direction": np.full(len(first), direction),
        "bin_start_ns": time_ns[first] // bin_ns * bin_ns,
        "payload_bytes": groups.sums(amounts.payload),
        "wire_bytes": groups.sums(amounts.wire),
        "retransmitted_bytes": groups.sums(amounts.retransmitted),
        "packets": groups.sums(amounts.packets),
        "first_ns": np.minimum.reduceat(time_ns, first),
        "last_ns": np.maximum.reduceat(time_ns, first),
        "stream_position": np.maximum(amounts.position[groups.ends - 1], 0),
        "stream_position_ns": np.where(has_place, time_ns[newest], 0),
        "unsent": np.zeros(len(first), np.uint8),  # no packet tells what its sender still had
    }


@dataclass(frozen=True, eq=False)
class Amounts(Rows):
    """Of packets: `payload` is new, `retransmitted` was seen before; the `wire` bytes and `packets` of the link.

    `advanced` says where the stream goes further, `position` where it then stands (-1: its bytes have no numbers),
    `unseen` are bytes of the payload that passed without being captured.
    """

    payload: Int64
    retransmitted: Int64
    wire: Int64
    packets: Int64
    advanced: Bool
    position: Int64
    unseen: Int64
