"""Tunnels that netprof cannot look into, by the numbers that give them away, and what it says of them."""

from __future__ import annotations

from collections import Counter

from netprof.units import count

OF_LINK = {0x88E5: "MACsec", 0x894F: "NSH"}
"""By the type of a frame."""

OF_IP = {50: "IPsec", 51: "IPsec", 97: "EtherIP", 115: "L2TP"}
"""By IP's protocol."""

OF_UDP = {
    1194: "OpenVPN",
    1701: "L2TP",
    2152: "GTP-U",
    3544: "Teredo",
    4500: "IPsec",
    6080: "GUE",
    6635: "MPLS in UDP",
    51820: "WireGuard",
}
"""By the port that packets are for."""

_MOST = 4


def in_words(unread: Counter[str]) -> str:
    """Return what packets were not looked into and how many of each kind, the most frequent kinds by name."""
    kinds = unread.most_common(_MOST)
    rest = unread.total() - sum(packets for _, packets in kinds)
    words = [f"{count(packets, 'packet')} of {kind}" for kind, packets in kinds]
    return ", ".join([*words, *([f"{count(rest, 'packet')} of other kinds"] if rest else [])])
