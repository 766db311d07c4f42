"""The pcap file format: both byte orders, micro- and nanoseconds (draft-ietf-opsawg-pcap)."""

from __future__ import annotations

import struct

import numpy as np

from netprof.probes.capture.file_bytes import FileBytes
from netprof.probes.capture.packets import Int64, Interface, Packets, number

_MAGICS = {0xA1B2C3D4: 1000, 0xA1B23C4D: 1}  # nanoseconds of a unit of the time's fraction
_FILE_HEADER, _HEADER = 24, 16
_LONGEST = 1 << 20
"""No packet is longer, unless the file says so of itself: a length beyond it is damage."""


class Pcap:
    """A pcap file after its first bytes `head`. `damage` says why it could not be read to its end."""

    record = "packet"
    dropped = untimed = 0

    def __init__(self, source: FileBytes, head: bytes) -> None:
        self._little = head[:1] in (b"\xd4", b"\x4d")
        head += source.read(_FILE_HEADER - len(head))
        header = struct.unpack(("<" if self._little else ">") + "IHHiIII", head.ljust(_FILE_HEADER, b"\0"))
        self.damage = "" if len(head) == _FILE_HEADER else "it ends in the file's own header"
        self._unit_ns = _MAGICS[header[0]]
        self._longest = max(_LONGEST, min(header[5], 1 << 26))
        self.interfaces = [Interface(header[6] & 0xFFFF)]

    @staticmethod
    def is_one(head: bytes) -> bool:
        """Tell whether a file that begins so is a pcap file."""
        return any(int.from_bytes(head, order) in _MAGICS for order in ("little", "big"))

    def walk(self, data: bytes, at: int) -> tuple[list[int], int, bool]:
        """Return where whole records in `data` begin from `at` on, where they end, and that there are no more.

        What is damaged is not followed.
        """
        length = struct.Struct("<I" if self._little else ">I").unpack_from
        longest, last = self._longest, len(data)
        places: list[int] = []
        while at + _HEADER <= last:
            (size,) = length(data, at + 8)
            if size > longest:
                self.damage = "a packet has an impossible length"
                break
            if at + _HEADER + size > last:
                break
            places.append(at)
            at += _HEADER + size
        return places, at, False

    def packets(self, data: bytes, places: Int64) -> Packets:
        """Return the packets whose records begin at some places."""
        columns = np.frombuffer(data, np.uint8)
        seconds, fraction, captured, length = (
            number(columns, places + 4 * field, 4, little=self._little) for field in range(4)
        )
        packets = Packets(
            data=columns,
            at=places + _HEADER,
            captured=captured,
            length=np.maximum(length, captured),
            time_ns=seconds * 10**9 + fraction * self._unit_ns,
            interface=np.zeros(len(places), np.int64),
        )
        wrong = np.flatnonzero(fraction * self._unit_ns >= 10**9)
        if not len(wrong):
            return packets
        self.damage = "a packet has an impossible time"
        return packets.where(np.arange(wrong[0]))
