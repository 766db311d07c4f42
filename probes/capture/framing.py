"""The framings that captures are full of, a block at once: Ethernet, VLANs, cooked captures, IP, TCP, VXLAN, RoCEv2.

What is none of these, and may hold a stream all the same, is left to `dissect`, which knows far more and takes a
thousand times as long. Lengths come from the headers, for a capture may hold only the beginning of each packet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from netprof.probes.capture import bth, networks
from netprof.probes.capture.packets import Bool, Bytes, Int64, Interface, Packets, Rows, number, wide_number
from netprof.probes.capture.segments import SYN, Segments, concatenate, segments_of
from netprof.schema import ROCE, TCP

_ETHERNET, COOKED, COOKED2 = 1, 113, 276
_RAW = (12, 14, 101, 228, 229)
_LOOPBACK = (0, 108)
FRAMED = (_ETHERNET, COOKED, COOKED2, *_RAW, *_LOOPBACK)
"""The link types that are known here."""

_VLAN = (0x8100, 0x88A8, 0x9100)
_IPV4, _IPV6 = 0x0800, 0x86DD
_ODD_ETHER = (0x8847, 0x8848, 0x8864, 0x88E7, 0x8915)  # MPLS, PPPoE, provider backbone, RoCE of version 1
_ODD_IP = (4, 41, 47, 51)  # IP in IP, GRE, authentication
_EXTENSIONS = (0, 43, 60)
_FRAGMENT, _UDP = 44, 17
_VXLAN_PORTS, _GENEVE_PORT = (4789, 4790, 8472), 6081  # of IANA, its generic extension, and Linux
_VXLAN_BYTES, _VXLAN_FLAGS = 8, 0x08000000  # of a header that only numbers its network
_VXLAN_HAS_NUMBER, _VXLAN_HAS_KIND, _VXLAN_ETHERNET = 8, 4, 3
_WIREGUARD_PORT = 51820
_DEEPEST = 8


@dataclass
class Unparsed:
    """What of a block is no segment here: packets for `dissect`, by number, and how many cannot be used at all.

    `unread` counts those of tunnels that nobody here looks into.
    """

    odd: list[Int64] = field(default_factory=list)
    cut: int = 0
    fragments: int = 0
    unread: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, eq=False)
class _At(Rows):
    """Places in packets: each one's number, where a header begins, and what is known from the headers before it."""

    packet: Int64
    at: Int64
    kind: Int64
    network: Int64


@dataclass(frozen=True, eq=False)
class _Network(Rows):
    """What IP says of packets, beside their place in them: `length` bytes follow its header."""

    family: Int64
    length: Int64
    ecn: Int64
    header_at: Int64
    identifier: Int64


def link_types_of(packets: Packets, interfaces: Sequence[Interface]) -> Int64:
    """Return the link type of each packet."""
    return np.array([interface.link_type for interface in interfaces], np.int64)[packets.interface]


def parse(packets: Packets, interfaces: list[Interface]) -> tuple[Segments, Unparsed]:
    """Return the segments among packets of known framings, and what else there is."""
    left = Unparsed()
    parts = [segments_of(0)]
    link = link_types_of(packets, interfaces)
    for link_type in np.unique(link).tolist():
        rows = np.flatnonzero(link == link_type)
        if link_type not in FRAMED:
            left.odd.append(rows)
            continue
        parts += _Parser(packets, left).frames(rows, packets.at[rows], link_type, np.zeros(len(rows), np.int64))
    return concatenate(parts), left


class _Parser:
    def __init__(self, packets: Packets, left: Unparsed) -> None:
        self._packets = packets
        self._data: Bytes = packets.data
        self._end = packets.at + packets.captured
        self._left = left

    def frames(self, packet: Int64, at: Int64, link_type: int, network: Int64, deep: int = 0) -> list[Segments]:
        """Return the segments in frames of a link type that begin at `at`."""
        place = self._network_layer(_At(packet, at, np.zeros(len(at), np.int64), network), link_type)
        for _ in range(_DEEPEST):
            tagged = np.isin(place.kind, _VLAN)
            if not tagged.any():
                break
            kind = np.where(tagged, number(self._data, place.at + 2, 2), place.kind)
            network = networks.tagged(place.network, np.where(tagged, number(self._data, place.at, 2), 0))
            place = _At(place.packet, place.at + 4 * tagged, kind, network)
        place = place.where(self._have(place, 0))
        self._odd(place.packet[np.isin(place.kind, (*_ODD_ETHER, *_VLAN))])
        self._unread(place.kind, networks.OF_LINK)
        segments = []
        for version, read in ((_IPV4, self._ipv4), (_IPV6, self._ipv6)):
            of_version = place.where(place.kind == version)
            if len(of_version.packet):
                segments += self._transport(*read(of_version), deep)
        return segments

    def _odd(self, packet: Int64) -> None:
        if len(packet):
            self._left.odd.append(packet)

    def _unread(self, number: Int64, tunnels: Mapping[int, str]) -> None:
        for known in np.unique(number[np.isin(number, list(tunnels))]).tolist():
            self._left.unread[tunnels[known]] += int((number == known).sum())

    def _have(self, place: _At, size: int) -> Bool:
        """Say which places have `size` bytes behind them, and count the others as cut."""
        enough = place.at + size <= self._end[place.packet]
        self._left.cut += int((~enough).sum())
        return enough

    def _network_layer(self, place: _At, link_type: int) -> _At:
        at, data = place.at, self._data
        if link_type == _ETHERNET:
            return _At(place.packet, at + 14, number(data, at + 12, 2), place.network)
        if link_type == COOKED:
            return _At(place.packet, at + 16, number(data, at + 14, 2), place.network)
        if link_type == COOKED2:
            return _At(place.packet, at + 20, number(data, at, 2), place.network)
        skip = 4 if link_type in _LOOPBACK else 0
        version = number(data, at + skip, 1) >> 4
        kind = np.where(version == 4, _IPV4, np.where(version == 6, _IPV6, 0))
        return _At(place.packet, at + skip, kind, place.network)

    def _ipv4(self, place: _At) -> tuple[_At, _Network]:
        place = place.where(self._have(place, 20))
        first, at = number(self._data, place.at, 1), place.at
        header = (first & 15) * 4
        total, fragment = number(self._data, at + 2, 2), number(self._data, at + 6, 2) & 0x1FFF
        self._left.fragments += int((fragment > 0).sum())
        whole = np.where(total > 0, total, self._length_from(place))  # 0: longer than 64 KB, or cut by the device
        ecn, identifier = number(self._data, at + 1, 1) & 3, number(self._data, at + 4, 2)
        network = _Network(np.full(len(at), 4), whole - header, ecn, at, identifier)
        inner = _At(place.packet, at + header, number(self._data, at + 9, 1), place.network)
        good = (first >> 4 == 4) & (header >= 20) & (fragment == 0)
        return inner.where(good), network.where(good)

    def _ipv6(self, place: _At) -> tuple[_At, _Network]:
        place = place.where(self._have(place, 40))
        at = place.at
        word, length, kind = number(self._data, at, 2), number(self._data, at + 4, 2), number(self._data, at + 6, 1)
        length = np.where(length > 0, length, self._length_from(place) - 40)
        after, good = at + 40, word >> 12 == 6
        for _ in range(_DEEPEST):
            extended = np.isin(kind, (*_EXTENSIONS, _FRAGMENT)) & (after + 8 <= self._end[place.packet])
            if not extended.any():
                break
            apart = extended & (kind == _FRAGMENT) & (number(self._data, after + 2, 2) >> 3 > 0)
            self._left.fragments += int(apart.sum())
            good &= ~apart
            size = np.where(kind == _FRAGMENT, 8, (number(self._data, after + 1, 1) + 1) * 8) * extended
            kind = np.where(extended, number(self._data, after, 1), kind)
            after, length = after + size, length - size
        self._left.cut += int((good & np.isin(kind, (*_EXTENSIONS, _FRAGMENT))).sum())
        network = _Network(np.full(len(at), 6), length, word >> 4 & 3, at, np.zeros_like(at))
        return _At(place.packet, after, kind, place.network).where(good), network.where(good)

    def _length_from(self, place: _At) -> Int64:
        """Return how long packets were from some place on, as the link had them."""
        return self._packets.length[place.packet] - (place.at - self._packets.at[place.packet])

    def _transport(self, place: _At, network: _Network, deep: int) -> list[Segments]:
        self._odd(place.packet[np.isin(place.kind, _ODD_IP)])
        self._unread(place.kind[~np.isin(place.kind, _ODD_IP)], networks.OF_IP)
        is_tcp, is_udp = place.kind == TCP, place.kind == _UDP
        segments = [self._tcp(place.where(is_tcp), network.where(is_tcp))]
        if is_udp.any():
            segments += self._udp(place.where(is_udp), network.where(is_udp), deep)
        return segments

    def _udp(self, place: _At, network: _Network, deep: int) -> list[Segments]:
        enough = self._have(place, 8)
        place, network = place.where(enough), network.where(enough)
        port = number(self._data, place.at + 2, 2)
        segments = []
        self._odd(place.packet[port == _GENEVE_PORT])
        if (port == bth.PORT).any():
            segments.append(self._rdma(place.where(port == bth.PORT), network.where(port == bth.PORT)))
        overlaid = self._is_vxlan(place, port)
        if overlaid.any() and deep < _DEEPEST:
            segments += self._vxlan(place.where(overlaid), deep)
        # A port that a program got by chance may be this one; all messages of WireGuard begin alike.
        message = number(self._data, place.at + 8, 4, little=True)
        chance = (port == _WIREGUARD_PORT) & ((message < 1) | (message > 4))
        self._unread(port[~overlaid & ~chance], networks.OF_UDP)
        return segments

    def _is_vxlan(self, place: _At, port: Int64) -> Bool:
        """Say which datagrams carry a VXLAN: by their port, or on any other if all that can be told agrees."""
        header, at = number(self._data, place.at + 8, 4), place.at + 8
        named = np.isin(port, _VXLAN_PORTS) & (header >> 24 & _VXLAN_HAS_NUMBER > 0)
        likely = (header == _VXLAN_FLAGS) & (number(self._data, at + 7, 1) == 0)
        if likely.any():
            likely &= np.isin(number(self._data, at + _VXLAN_BYTES + 12, 2), (_IPV4, _IPV6, *_VLAN))
        return np.asarray(named | likely)

    def _vxlan(self, place: _At, deep: int) -> list[Segments]:
        place = place.where(self._have(place, 16 + 14))
        flags, kind = number(self._data, place.at + 8, 1), number(self._data, place.at + 11, 1)
        is_other = (flags & _VXLAN_HAS_KIND > 0) & (kind != _VXLAN_ETHERNET)
        self._odd(place.packet[is_other])
        place = place.where(~is_other)
        network = networks.in_overlay(number(self._data, place.at + 12, 3))
        return self.frames(place.packet, place.at + 16, _ETHERNET, network, deep + 1)

    def _tcp(self, place: _At, network: _Network) -> Segments:
        enough = self._have(place, 14)
        place, network = place.where(enough), network.where(enough)
        at = place.at
        header = (number(self._data, at + 12, 1) >> 4) * 4
        payload = network.length - header
        good = (header >= 20) & (payload >= 0)
        place, network, at = place.where(good), network.where(good), at[good]
        header, payload = header[good], payload[good]
        flags = number(self._data, at + 13, 1)
        return segments_of(
            len(at),
            **self._addressed(place, network),
            protocol=np.full(len(at), TCP),
            header_bytes=at + header - self._packets.at[place.packet],
            payload=payload,
            sequence=number(self._data, at + 4, 4),
            acknowledged=number(self._data, at + 8, 4),
            flags=flags,
            mss=self._segment_size(place, flags, header),
            option_bytes=header - 20,
        )

    def _segment_size(self, place: _At, flags: Int64, header: Int64) -> Int64:
        """Return what each SYN says of the largest segment (option 2), 0 where none does."""
        sizes = np.zeros(len(flags), np.int64)
        for row in np.flatnonzero(flags & SYN).tolist():
            begin, end = int(place.at[row]), int(self._end[place.packet[row]])
            sizes[row] = segment_size(self._data[begin + 20 : min(begin + int(header[row]), end)].tobytes())
        return sizes

    def _rdma(self, place: _At, network: _Network) -> Segments:
        enough = self._have(place, 8 + bth.HEADER_BYTES)
        place, network = place.where(enough), network.where(enough)
        at = place.at + 8
        opcode = number(self._data, at, 1)
        length = np.minimum(number(self._data, place.at + 4, 2), network.length)
        length = np.where(length > 0, length, network.length)
        padding = number(self._data, at + 1, 1) >> 4 & 3
        payload = bth.payload_bytes(opcode, length - 8 - bth.HEADER_BYTES, padding)
        has_syndrome = bth.has_syndrome(opcode) & (at + 13 <= self._end[place.packet])
        return segments_of(
            len(at),
            **self._addressed(place, network),
            protocol=np.full(len(at), ROCE),
            header_bytes=at + bth.HEADER_BYTES - self._packets.at[place.packet],
            payload=payload,
            sequence=number(self._data, at + 9, 3),
            opcode=opcode,
            queue_pair=number(self._data, at + 5, 3),
            syndrome=np.where(has_syndrome, number(self._data, at + 12, 1), -1),
        )

    def _addressed(self, place: _At, network: _Network) -> dict[str, Int64]:
        data, begin, narrow = self._data, network.header_at, network.family == 4
        sides: dict[str, Int64] = {}
        for name, at4, at6 in (("source", 12, 8), ("destination", 16, 24)):
            low = np.where(narrow, number(data, begin + at4, 4), wide_number(data, begin + at6 + 8).view(np.int64))
            high = np.where(narrow, 0, wide_number(data, begin + at6).view(np.int64))
            sides |= {f"{name}_high": high.view(np.uint64), f"{name}_low": low.view(np.uint64)}
        return sides | {
            "packet": place.packet,
            "family": network.family,
            "source_port": number(data, place.at, 2),
            "destination_port": number(data, place.at + 2, 2),
            "network": place.network,
            "identifier": network.identifier,
            "ecn": network.ecn,
        }


def segment_size(options: bytes) -> int:
    """Return the maximum segment size among TCP's options, 0 without."""
    at = 0
    while at + 1 < len(options) and options[at] != 0:
        if options[at] == 1:
            at += 1
        elif options[at] == 2 and at + 4 <= len(options):
            return int.from_bytes(options[at + 2 : at + 4], "big")
        else:
            at += max(2, options[at + 1])
    return 0
