"""Which network a packet is of: the VLANs that it is tagged for and the overlay that it is in, as one number.

Two networks may use the same addresses. 0 is a packet without either; the lower 24 bits are the last two tags, above
them is the number of the innermost overlay (VXLAN, Geneve) plus one, inside of which tags begin anew.
"""

from __future__ import annotations

import numpy as np

from netprof.probes.capture.packets import Int64

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
    vlans = "".join(f" in VLAN {each}" for each in reversed(tags) if each)
    return vlans + (f" in overlay {overlay - 1}" if overlay else "")
