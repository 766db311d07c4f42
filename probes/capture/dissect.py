"""Scapy's reading of a packet, for the framings that `framing` does not know, and what that one is held to."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from netprof.errors import UsageError
from netprof.probes.capture import bth, networks
from netprof.probes.capture.framing import segment_size
from netprof.probes.capture.packets import Int64, Interface, Packets
from netprof.probes.capture.segments import ADDRESSES, SYN, UNKNOWN, Segments, segments_of
from netprof.schema import ROCE, TCP

_ERSPAN = 0x88BE


def knows(link_type: int) -> bool:
    """Tell whether scapy has a layer for a link type."""
    return link_type in _scapy().link_types.num2layer


def dissect(
    packets: Packets, rows: Int64, interfaces: Sequence[Interface], unread: Counter[str] | None = None
) -> Segments:
    """Return the segments among some of a block's packets, by number.

    `unread` counts packets of tunnels that scapy cannot look into either.
    """
    segments = []
    for row in rows.tolist():
        link_type = interfaces[int(packets.interface[row])].link_type
        layers = _layers_of(packets.bytes_of(row), link_type)
        segment = _innermost(layers, int(packets.length[row]))
        if segment is not None:
            segments.append(segment | {"packet": row})
        elif unread is not None and (tunnel := _tunnel(layers)):
            unread[tunnel] += 1
    columns: dict[str, Any] = {
        name: np.array(
            [segment.get(name, unknown) for segment in segments], np.uint64 if name in ADDRESSES else np.int64
        )
        for name, unknown in UNKNOWN.items()
    }
    return segments_of(len(segments), **columns)


def _layers_of(data: bytes, link_type: int) -> list[Any]:
    layer = _scapy().link_types.num2layer.get(link_type)
    try:
        return _layers(layer(data)) if layer is not None else []
    except Exception:  # scapy raises whatever a damaged packet makes its fields raise
        return []


def _tunnel(layers: list[Any]) -> str:
    """Return what a packet without a segment was a tunnel of, "" for none: it ends in bytes that scapy cannot read."""
    scapy = _scapy()
    below = layers[-2] if len(layers) > 1 and isinstance(layers[-1], scapy.raw) else None
    if isinstance(below, scapy.gre):
        return f"GRE of protocol 0x{below.proto:04x}"
    if isinstance(below, scapy.ip):
        return networks.OF_IP.get(below.proto, "")
    if isinstance(below, scapy.udp):
        return networks.OF_UDP.get(below.dport, "")
    return below.name if isinstance(below, (scapy.mpls, *scapy.overlays)) else ""


def _innermost(layers: list[Any], length: int) -> dict[str, int] | None:
    scapy = _scapy()
    begins = np.cumsum([0, *(len(_header(layer)) for layer in layers)]).tolist()
    for index in range(len(layers) - 1, -1, -1):
        if isinstance(layers[index], (scapy.tcp, scapy.bth)):
            return _segment(layers, index, begins, length)
    return None


def _layers(packet: Any) -> list[Any]:
    layers = []
    while packet and not isinstance(packet, _scapy().none):
        layers.append(packet)
        packet = packet.payload
    return layers


def _header(layer: Any) -> bytes:
    """Return a layer's header as it was dissected."""
    return bytes(layer.raw_packet_cache or b"")


def _segment(layers: list[Any], index: int, begins: list[int], length: int) -> dict[str, int] | None:
    scapy = _scapy()
    networks = (scapy.ip, scapy.ip6, scapy.grh)
    below = next((at for at in range(index - 1, -1, -1) if isinstance(layers[at], networks)), None)
    if below is None:
        return None
    network, innermost = layers[below], layers[index]
    known = _network(network, length - begins[below])
    left = known.pop("after") - (begins[index] - begins[below])
    known["network"] = _within(layers[:below])
    if isinstance(innermost, scapy.tcp):
        header = int(innermost.dataofs or 0) * 4
        known |= _tcp(innermost, header) | {"header_bytes": begins[index] + header, "payload": left - header}
        return known if header >= 20 and left >= header else None
    known |= _rdma(innermost, left) | {"header_bytes": begins[index] + bth.HEADER_BYTES}
    udp = layers[index - 1]
    if isinstance(udp, scapy.udp):
        known |= {"source_port": udp.sport, "destination_port": udp.dport}
    return known


def _within(layers: list[Any]) -> int:
    """Return the network that a packet behind these layers is of."""
    scapy, network = _scapy(), np.zeros(1, np.int64)
    for layer in layers:
        if isinstance(layer, scapy.vlan):
            network = networks.tagged(network, np.array([layer.vlan]))
        elif isinstance(layer, scapy.overlays):
            network = networks.in_overlay(np.array([layer.vni]))
    return int(network[0])


def _network(network: Any, length: int) -> dict[str, int]:
    """Return what the network layer says; `after` are the bytes from its beginning to its payload's end."""
    scapy = _scapy()
    if isinstance(network, scapy.ip):
        source, destination = (int(ipaddress.ip_address(name)) for name in (network.src, network.dst))
        return {
            "family": 4,
            "ecn": network.tos & 3,
            "identifier": network.id,
            "after": network.len or length,
            **_halves("source", source),
            **_halves("destination", destination),
        }
    if isinstance(network, scapy.grh):
        after, ecn, source, destination = network.paylen, network.tclass & 3, network.sgid, network.dgid
    else:
        after, ecn = network.plen, network.tc & 3
        source, destination = (int(ipaddress.ip_address(name)) for name in (network.src, network.dst))
    after = after + 40 if after else length
    return {"family": 6, "ecn": ecn, "after": after, **_halves("source", source), **_halves("destination", destination)}


def _halves(name: str, address: int) -> dict[str, int]:
    return {f"{name}_high": address >> 64, f"{name}_low": address & (1 << 64) - 1}


def _tcp(layer: Any, header: int) -> dict[str, int]:
    flags = int(layer.flags) & 0xFF
    return {
        "protocol": TCP,
        "source_port": layer.sport,
        "destination_port": layer.dport,
        "sequence": layer.seq,
        "acknowledged": layer.ack,
        "flags": flags,
        "mss": segment_size(_header(layer)[20:header]) if flags & SYN else 0,
        "option_bytes": header - 20,
    }


def _rdma(layer: Any, left: int) -> dict[str, int]:
    opcode = np.array([layer.opcode])
    payload = bth.payload_bytes(opcode, np.array([left - bth.HEADER_BYTES]), np.array([layer.padcount]))
    has_syndrome = bool(bth.has_syndrome(opcode)[0])
    rest = bytes(layer.payload.original) if layer.payload else b""
    return {
        "protocol": ROCE,
        "opcode": layer.opcode,
        "queue_pair": layer.dqpn,
        "sequence": layer.psn,
        "payload": int(payload[0]),
        "syndrome": rest[0] if has_syndrome and rest else -1,
    }


class _Scapy:
    """What is used of scapy, imported when the first packet needs it: that takes a fifth of a second."""

    def __init__(self) -> None:
        import logging

        logging.getLogger("scapy.runtime").setLevel(logging.ERROR)  # what it finds missing on this machine is no matter

        try:
            import scapy
        except ImportError as error:
            message = (
                "this capture has packets (tunnels, MPLS, RoCE and the like) that take scapy, which is not installed"
            )
            raise UsageError(message, "pip install 'netprof-ebpf[capture]'") from error
        import scapy.contrib.erspan as erspan
        import scapy.contrib.geneve as geneve
        import scapy.contrib.mpls as mpls
        import scapy.contrib.roce as roce
        import scapy.layers.ppp  # noqa: F401 (PPPoE)
        from scapy.config import conf
        from scapy.layers import inet, inet6, l2, vxlan
        from scapy.packet import NoPayload, Raw, bind_layers, split_layers

        self.link_types, self.none = conf.l2types, NoPayload
        self.ip, self.ip6, self.tcp, self.udp = inet.IP, inet6.IPv6, inet.TCP, inet.UDP
        self.bth, self.grh = roce.BTH, roce.GRH
        # ERSPAN of type I has no header, which scapy tells by the first bits of an address.
        split_layers(l2.GRE, erspan.ERSPAN, proto=_ERSPAN, seqnum_present=0)
        bind_layers(l2.GRE, l2.Ether, proto=_ERSPAN, seqnum_present=0)
        self.raw, self.gre, self.mpls = Raw, l2.GRE, mpls.MPLS
        self.vlan, self.overlays = l2.Dot1Q, (vxlan.VXLAN, geneve.GENEVE)


@lru_cache(maxsize=1)
def _scapy() -> _Scapy:
    return _Scapy()
