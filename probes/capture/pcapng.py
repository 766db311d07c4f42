"""The pcapng file format: sections, interfaces with their own clocks, packets (draft-ietf-opsawg-pcapng)."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from netprof.probes.capture.packets import Int64, Interface, Packets, UInt64, number

_SECTION, _INTERFACE, _OLD_PACKET, _SIMPLE_PACKET, _STATISTICS, _PACKET = 0x0A0D0D0A, 1, 2, 3, 5, 6
_MAGIC = 0x1A2B3C4D
_IF_NAME, _IF_DESCRIPTION, _IF_TSRESOL, _IF_TSOFFSET, _IF_HARDWARE = 2, 3, 9, 14, 15
_ISB_STARTTIME = 2
_DROPPED = (5, 7)  # isb_ifdrop, isb_osdrop
_PACKET_HEADER = 28
_LONGEST = 1 << 26


@dataclass
class _PcapSection:
    """The interfaces of a section by its own numbers: which of the file's each is, and how it tells time.

    That is the exponent of a unit, of 10 or of 2, and an offset.
    """

    interface: list[int] = field(default_factory=list)
    exponent: list[int] = field(default_factory=list)
    binary: list[bool] = field(default_factory=list)
    offset_s: list[int] = field(default_factory=list)
    alike: Counter[Hashable] = field(default_factory=Counter)  # how many are told apart by nothing but their order


class PcapNg:
    """A pcapng file. `damage` says why it could not be read to its end.

    `untimed` packets are in it without a time, and left out.
    """

    record = "block"

    def __init__(self) -> None:
        self.damage = ""
        self.untimed = 0
        self.interfaces: list[Interface] = []
        self._known: dict[tuple[Hashable, ...], int] = {}  # interfaces by what tells them apart
        self._section = _PcapSection()
        self._sections = 0
        self._dropped: dict[tuple[Hashable, ...], int] = {}
        self._little = True

    @property
    def dropped(self) -> int:
        """How many packets were, as the file says, not captured."""
        return sum(self._dropped.values())

    @staticmethod
    def is_one(head: bytes) -> bool:
        """Tell whether a file that begins so is a pcapng file."""
        return head == _SECTION.to_bytes(4, "big")

    def walk(self, data: bytes, at: int) -> tuple[list[int], int, bool]:
        """Return where packets begin in `data` from `at` on, where that ended, and whether only a new section ends it.

        A section has its own byte order and interfaces, so packets of two are not returned together.
        """
        header = struct.Struct("<II" if self._little else ">II").unpack_from
        places: list[int] = []
        last = len(data)
        while at + 12 <= last:
            kind, size = header(data, at)
            if kind == _SECTION:
                if places:
                    return places, at, True
                if not self._begin_section(data, at):
                    break
                header = struct.Struct("<II" if self._little else ">II").unpack_from
                kind, size = header(data, at)
            if size < 12 or size % 4 or size > _LONGEST:
                self.damage = "a block has an impossible length"
                break
            if at + size > last:
                break
            if kind in (_PACKET, _OLD_PACKET):
                places.append(at)
            else:
                self._take(kind, data, at, size)
            at += size
        return places, at, False

    def _begin_section(self, data: bytes, at: int) -> bool:
        order = data[at + 8 : at + 12]
        if order not in (_MAGIC.to_bytes(4, "little"), _MAGIC.to_bytes(4, "big")):
            self.damage = "a section has no byte order"
            return False
        self._little = order == _MAGIC.to_bytes(4, "little")
        self._section = _PcapSection()
        self._sections += 1
        return True

    def _take(self, kind: int, data: bytes, at: int, size: int) -> None:
        """Learn from a block that is no packet."""
        order = "<" if self._little else ">"
        if kind == _SIMPLE_PACKET:
            self.untimed += 1
        elif kind == _INTERFACE and size >= 20:
            self._add_interface(struct.unpack_from(order + "H", data, at + 8)[0], data[at + 16 : at + size - 4])
        elif kind == _STATISTICS and size >= 24:
            self._count_dropped(struct.unpack_from(order + "I", data, at + 8)[0], data[at + 20 : at + size - 4])

    def _add_interface(self, link_type: int, data: bytes) -> None:
        options = dict(self._options(data))
        resolution = options.get(_IF_TSRESOL, b"\x06")[:1] or b"\x06"
        offset = options.get(_IF_TSOFFSET, b"")
        self._section.exponent.append(resolution[0] & 0x7F)
        self._section.binary.append(resolution[0] > 0x7F)
        seconds = struct.unpack(("<" if self._little else ">") + "q", offset)[0] if len(offset) == 8 else 0
        self._section.offset_s.append(seconds if abs(seconds) < 1 << 32 else 0)
        name = options.get(_IF_NAME, b"").split(b"\0")[0].decode("utf-8", "replace")
        self._section.interface.append(self._number(Interface(link_type, name), options))

    def _count_dropped(self, which: int, data: bytes) -> None:
        """Learn how many packets an interface dropped; every block says how many there were since a capture began.

        That is the same capture in all sections which say that it began at the same time, and in those alone.
        """
        options = dict(self._options(data))
        known = which < len(self._section.interface)
        capture = self._section.interface[which] if known else -1, options.get(_ISB_STARTTIME, self._sections)
        for code in _DROPPED:
            value, key = options.get(code, b""), (*capture, code)
            if len(value) == 8:
                total = int.from_bytes(value, "little" if self._little else "big")
                self._dropped[key] = max(total, self._dropped.get(key, 0))

    def _number(self, interface: Interface, options: Mapping[int, bytes]) -> int:
        """Return the number of an interface: that of one with the same name in an earlier section, if there is one.

        Files that follow one another have a section each, and are of the same devices.
        """
        about = interface, options.get(_IF_DESCRIPTION), options.get(_IF_HARDWARE)
        if interface.name:
            number = self._known.setdefault((*about, self._section.alike[about]), len(self.interfaces))
            self._section.alike[about] += 1
        else:
            number = len(self.interfaces)
        if number == len(self.interfaces):
            self.interfaces.append(interface)
        return number

    def _options(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        at = 0
        while at + 4 <= len(data):
            code, size = struct.unpack_from("<HH" if self._little else ">HH", data, at)
            if code == 0:
                return
            yield code, data[at + 4 : at + 4 + size]
            at += 4 + size + -size % 4

    def packets(self, data: bytes, places: Int64) -> Packets:
        """Return the packets whose blocks begin at some places, all of one section."""
        columns = np.frombuffer(data, np.uint8)
        kind, size, which, high, low, captured, length = (
            number(columns, places + 4 * field, 4, little=self._little) for field in range(7)
        )
        which = np.where(kind == _OLD_PACKET, number(columns, places + 8, 2, little=self._little), which)
        known = which < len(self._section.exponent)
        wrong = np.flatnonzero(~known | (_PACKET_HEADER + captured > size - 4))
        if len(wrong):
            self.damage = "a packet is longer than its block" if known[wrong[0]] else "a packet names no interface"
            rows = slice(0, int(wrong[0]))
            places, which, high, low = places[rows], which[rows], high[rows], low[rows]
            captured, length = captured[rows], length[rows]
        return Packets(
            data=columns,
            at=places + _PACKET_HEADER,
            captured=captured,
            length=np.maximum(length, captured),
            time_ns=self._time_ns(which, high.astype(np.uint64) << np.uint64(32) | low.astype(np.uint64)),
            interface=np.array(self._section.interface, np.int64)[which],
        )

    def _time_ns(self, which: Int64, ticks: UInt64) -> Int64:
        """Return times as nanoseconds, by the clock of each packet's interface."""
        times_ns = np.zeros(len(which), np.int64)
        for interface in np.unique(which).tolist():
            rows = which == interface
            exponent, offset_ns = self._section.exponent[interface], self._section.offset_s[interface] * 10**9
            times_ns[rows] = _nanoseconds(ticks[rows], exponent, self._section.binary[interface]) + offset_ns
        return times_ns


def _nanoseconds(ticks: UInt64, exponent: int, binary: bool) -> Int64:
    """Return ticks of 10 or 2 to the minus `exponent` seconds as nanoseconds, rounded down."""
    if not binary:
        if exponent <= 9:
            return np.asarray(ticks * np.uint64(10 ** (9 - exponent)), np.int64)
        return np.asarray(ticks // np.uint64(10 ** min(exponent - 9, 19)), np.int64)
    if exponent > 63:
        return np.zeros(len(ticks), np.int64)
    fine = np.uint64(max(0, exponent - 30))
    seconds = ticks >> np.uint64(exponent)
    fraction = (ticks & np.uint64((1 << exponent) - 1)) >> fine
    part_ns = fraction * np.uint64(10**9) >> np.uint64(min(exponent, 30))
    return np.asarray(seconds * np.uint64(10**9) + part_ns, np.int64)
