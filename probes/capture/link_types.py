"""Where the packets of a capture passed: kinds of links, and devices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netprof.errors import NetprofError
from netprof.probes.capture import dissect
from netprof.probes.capture.framing import COOKED, COOKED2, FRAMED, link_types_of
from netprof.probes.capture.packets import Int64, Interface, Packets, number

_BEYOND = {COOKED: 2, COOKED2: 6}
"""How much longer the header of a cooked capture is than Ethernet's, which the packet has on the link."""


def check_link_types(interfaces: Sequence[Interface]) -> None:
    """Raise NetprofError where nothing of a capture can be read: all its links are of unknown kinds."""
    unknown = [interface.link_type for interface in interfaces if interface.link_type not in FRAMED]
    if unknown and len(unknown) == len(interfaces) and not any(map(dissect.knows, unknown)):
        raise NetprofError(
            f"the capture is of a kind of link that netprof does not read (link type {unknown[0]})",
            "capture on an Ethernet device, or with -i any",
        )


def devices(packets: Packets, interfaces: Sequence[Interface]) -> Int64:
    """Return a number for the device of each packet; a cooked capture of any device has it in its header."""
    cooked = link_types_of(packets, interfaces) == COOKED2
    if not cooked.any():
        return packets.interface
    return np.where(cooked, number(packets.data, packets.at + 4, 4) << 16 | packets.interface, packets.interface)


def beyond_link(packets: Packets, interfaces: Sequence[Interface]) -> Int64:
    """Return how many bytes of each captured packet were not on the link."""
    link_types = link_types_of(packets, interfaces)
    extra = np.zeros(len(packets), np.int64)
    for link_type, size in _BEYOND.items():
        extra[link_types == link_type] = size
    return extra
