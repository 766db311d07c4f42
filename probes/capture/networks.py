"""Which network a packet is of: the VLANs that it is tagged for and the overlay that it is in, as one number.

Two networks may use the same addresses. 0 is a packet without either; the lower 24 bits are the last two tags, above
them is the number of the innermost overlay (VXLAN, Geneve) plus one, inside of which tags begin anew.

Tunnels that netprof cannot look into are recognized by their protocol and port numbers.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from netprof.probes.capture.packets import Int64
from netprof.units import count

_TAG_BITS = 12
_TAG, _TAGS = (1 << _TAG_BITS) - 1, (1 << 2 * _TAG_BITS) - 1


def tagged(network: Int64, tag: Int64) -> Int64:
    """Return the networks of what in `network` has a tag (its two bytes, of which a priority is a part).

    A tag for VLAN 0 says a priority and no VLAN.
    """
    vlan = tag & _TAG
    return np.where(vlan > 0, (network & ~_TAGS) | ((network << _TAG_BITS | vlan) & _TAGS), network)


def in_overlay(identifier: Int64) -> Int64:
    """Return the networks of what overlays of such numbers carry."""
    return identifier + 1 << 2 * _TAG_BITS


def in_words(network: int) -> str:
    """Return a network as people say it, "" for one that needs no word."""
    overlay, tags = network >> 2 * _TAG_BITS, (network >> _TAG_BITS & _TAG, network & _TAG)
    vlans = "".join(f" in VLAN {tag}" for tag in reversed(tags) if tag)
    return vlans + (f" in overlay {overlay - 1}" if overlay else "")


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


def tunnels_in_words(unread: Counter[str]) -> str:
    """Return what packets were not looked into and how many of each kind, the most frequent kinds by name."""
    kinds = unread.most_common(_MOST)
    rest = unread.total() - sum(packets for _, packets in kinds)
    words = [f"{count(packets, 'packet')} of {kind}" for kind, packets in kinds]
    return ", ".join([*words, *([f"{count(rest, 'packet')} of other kinds"] if rest else [])])
