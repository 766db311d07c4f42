"""What each packet adds to a bin, as its sender counts it and as its receiver does."""

from __future__ import annotations

from dataclasses import dataclass

from netprof.probes.capture.packets import Bool, Int64, Rows


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
