"""A capture file of any format as blocks of packets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from netprof.closing import Closing
from netprof.errors import NetprofError
from netprof.probes.capture.file_bytes import FileBytes
from netprof.probes.capture.packets import Interface, Packets
from netprof.probes.capture.pcap import Pcap
from netprof.probes.capture.pcapng import PcapNg

_BLOCK_BYTES = 16 << 20
LONGEST_NS = 366 * 24 * 3600 * 10**9
"""A capture is believed to last a year at most: a time further from its first one, before or after, is damage."""


class CaptureFile(Closing):
    """A capture that is read once, from its beginning to its end or to where it is damaged.

    Raises NetprofError for a file that cannot be read or is no capture.
    """

    def __init__(self, path: Path, block_bytes: int = _BLOCK_BYTES) -> None:
        self._source = FileBytes(path)
        self._block_bytes = block_bytes
        self._untimed = 0
        head = self._source.read(4)
        self._rest = b""
        if Pcap.is_one(head):
            self._format: Pcap | PcapNg = Pcap(self._source, head)
        elif PcapNg.is_one(head):
            self._format, self._rest = PcapNg(), head
        else:
            self.close()
            what = "is no packet capture" if head else "is empty"
            if self._source.damage:
                what = f"cannot be read: {self._source.damage}"
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
        return self._format.damage

    @property
    def dropped(self) -> int:
        """How many packets the file says that it lacks, because they came too fast."""
        return self._format.dropped

    @property
    def untimed(self) -> int:
        """How many packets it holds without a time."""
        return self._untimed + self._format.untimed

    @property
    def progress(self) -> tuple[int, int]:
        """Return how many bytes of the file were read, and how many there are (0: unknown)."""
        return self._source.done_bytes, self._source.total_bytes

    def blocks(self) -> Iterator[Packets]:
        """Yield the packets, block by block."""
        first_ns = 0
        for packets in self._packets():
            first_ns = first_ns or int(packets.time_ns[packets.time_ns != 0][:1].sum())
            packets = self._timed(packets, first_ns)
            wrong = np.flatnonzero(np.abs(packets.time_ns - first_ns) > LONGEST_NS)
            if len(wrong):  # nothing after it is read
                self._format.damage = "a packet has an impossible time"
                packets = packets.where(np.arange(wrong[0]))
            if len(packets):
                yield packets

    def _packets(self) -> Iterator[Packets]:
        """Yield the packets of the format, as many at once as are in `block_bytes`."""
        while not self._format.damage:
            fresh = self._source.read(self._block_bytes)
            data, at, more = self._rest + fresh, 0, True
            while more and not self._format.damage:
                places, at, more = self._format.walk(data, at)
                if places:
                    yield self._format.packets(data, np.array(places, np.int64))
            self._rest = data[at:]
            if not fresh:
                inside = f"it ends inside a {self._format.record}" if self._rest else ""
                self._format.damage = self._format.damage or self._source.damage or inside
                return

    def _timed(self, packets: Packets, first_ns: int) -> Packets:
        """Return the packets that have a time: 0 is none, unless the capture's clock began with it."""
        if 0 < first_ns <= LONGEST_NS:
            return packets
        timed = packets.time_ns != 0
        self._untimed += len(timed) - int(timed.sum())
        return packets if timed.all() else packets.where(timed)
