"""A capture file of any format as blocks of packets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np

from netprof.closing import Closing
from netprof.errors import NetprofError
from netprof.probes.capture.packets import Interface, Packets
from netprof.probes.capture.pcap import Pcap
from netprof.probes.capture.pcapng import PcapNg
from netprof.probes.capture.source import Source

_BLOCK_BYTES = 16 << 20
LONGEST_NS = 366 * 24 * 3600 * 10**9
"""A capture is believed to last a year at most: a time further from its first one, before or after, is damage."""


class _Format(Protocol):
    damage: str
    interfaces: list[Interface]

    def blocks(self, block_bytes: int) -> Iterator[Packets]:
        """Yield the packets of the file."""


class CaptureFile(Closing):
    """A capture that is read once, from its beginning to its end or to where it is damaged.

    Raises NetprofError for a file that cannot be read or is no capture.
    """

    def __init__(self, path: Path, block_bytes: int = _BLOCK_BYTES) -> None:
        self._source = Source(path)
        self._block_bytes = block_bytes
        self._implausible = False
        self._untimed = 0
        head = self._source.read(4)
        if Pcap.is_one(head):
            self._format: _Format = Pcap(self._source, head)
        elif PcapNg.is_one(head):
            self._format = PcapNg(self._source, head)
        else:
            self.close()
            what = self._source.damage or ("is empty" if not head else "is no packet capture")
            what = f"cannot be read: {what}" if self._source.damage else what
            raise NetprofError(f"{path} {what}", "name a pcap or pcapng file, as tcpdump -w writes it; gzip is fine")

    def close(self) -> None:
        """Close the file."""
        self._source.close()

    @property
    def interfaces(self) -> list[Interface]:
        """Where the packets so far were captured."""
        return self._format.interfaces

    @property
    def damage(self) -> str:
        """Why the file could not be read to its end; "" where it was."""
        return "a packet has an impossible time" if self._implausible else self._format.damage

    @property
    def dropped(self) -> int:
        """How many packets the file says that it lacks, because they came too fast."""
        return getattr(self._format, "dropped", 0)

    @property
    def untimed(self) -> int:
        """How many packets it holds without a time."""
        return self._untimed + getattr(self._format, "untimed", 0)

    @property
    def progress(self) -> tuple[int, int]:
        """Return how many bytes of the file were read, and how many there are (0: nobody knows)."""
        return self._source.done_bytes, self._source.total_bytes

    def blocks(self) -> Iterator[Packets]:
        """Yield the packets, block by block."""
        first_ns = 0
        for packets in self._format.blocks(self._block_bytes):
            first_ns = first_ns or int(packets.time_ns[packets.time_ns != 0][:1].sum())
            packets = self._timed(packets, first_ns)
            wrong = np.flatnonzero(np.abs(packets.time_ns - first_ns) > LONGEST_NS)
            self._implausible = len(wrong) > 0
            packets = packets.where(np.arange(wrong[0])) if self._implausible else packets
            if len(packets):
                yield packets
            if self._implausible:
                return

    def _timed(self, packets: Packets, first_ns: int) -> Packets:
        """Return the packets that have a time: 0 is none, unless the capture's clock began with it."""
        if 0 < first_ns <= LONGEST_NS:
            return packets
        timed = packets.time_ns != 0
        self._untimed += len(timed) - int(timed.sum())
        return packets if timed.all() else packets.where(timed)
