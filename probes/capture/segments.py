"""What a packet says of the stream that it belongs to: TCP segments and RoCEv2 packets, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from netprof.probes.capture.packets import Int64, Rows, joined

FIN, SYN, RST, ACK = 0x01, 0x02, 0x04, 0x10


@dataclass(frozen=True, eq=False)
class Segments(Rows):
    """Packets of streams, in the order of the file; `packet` is the number of each in its block.

    Addresses are two halves of 64 bits; IPv4 is a lower half. `network` tells VLANs and overlays apart (`networks.py`),
    `identifier` is IP's: 0 says nothing, and is all that IPv6 has. `header_bytes` is everything before the payload,
    `payload` what is the application's. `sequence` counts bytes of TCP, packets of RoCE (24 bits); `acknowledged`,
    `flags` and `mss` (the option of a SYN, 0 without) and `option_bytes` (of all options) are TCP's; `opcode`,
    `queue_pair` and `syndrome` (of an acknowledgement, -1 without) are RoCE's.
    """

    packet: Int64
    protocol: Int64
    family: Int64
    source_high: npt.NDArray[np.uint64]
    source_low: npt.NDArray[np.uint64]
    destination_high: npt.NDArray[np.uint64]
    destination_low: npt.NDArray[np.uint64]
    source_port: Int64
    destination_port: Int64
    network: Int64
    identifier: Int64
    ecn: Int64
    header_bytes: Int64
    payload: Int64
    sequence: Int64
    acknowledged: Int64
    flags: Int64
    mss: Int64
    option_bytes: Int64
    opcode: Int64
    queue_pair: Int64
    syndrome: Int64

    def __len__(self) -> int:
        return len(self.packet)


ADDRESSES = ("source_high", "source_low", "destination_high", "destination_low")
UNKNOWN = {column.name: -1 if column.name == "syndrome" else 0 for column in fields(Segments)}
"""What is in a column of which nothing is known."""


def concatenate(parts: Sequence[Segments]) -> Segments:
    """Return all segments of `parts`, at least one, in the order of their packets."""
    every = joined(parts)
    ordered = len(parts) == 1 or bool((np.diff(every.packet) >= 0).all())
    return every if ordered else every.where(np.argsort(every.packet, kind="stable"))


def segments_of(count: int, **known: npt.NDArray[np.generic]) -> Segments:
    """Return `count` segments with the columns that are known; the others are UNKNOWN."""
    columns: dict[str, npt.NDArray[np.generic]] = {
        name: np.full(count, unknown, np.uint64 if name in ADDRESSES else np.int64) for name, unknown in UNKNOWN.items()
    }
    return Segments(**(columns | known))  # type: ignore[arg-type]
