"""Where the packets of a capture passed: kinds of links, and devices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netprof.errors import NetprofError
from netprof.probes.capture import dissect
from netprof.probes.capture.framing import FRAMED
from netprof.probes.capture.packets import Int64, Interface, Packets, number

_COOKED2 = 276
_BEYOND = {113: 2, _COOKED2: 6}
"""How much longer the header of a cooked capture is than Ethernet's, which the packet has on the link."""


def check_link_types(interfaces: Sequence[Interface]) -> None:
    """Raise NetprofError where nothing of a capture can be read: all its links are of kinds that nobody knows."""
    unknown = [each.link_type for each in interfaces if each.link_type not in FRAMED]
    if unknown and len(unknown) == len(interfaces) and not any(dissect.knows(each) for each in unknown):
        raise NetprofError(
            f"the capture is of a kind of link that netprof does not read (link type {unknown[0]})",
            "capture on an Ethernet device, or with -i any",
        )


def devices(packets: Packets, interfaces: Sequence[Interface]) -> Int64:
    """Return a number for the device of each packet; a cooked capture of any device has it in its header."""
    cooked = _link_types(packets, interfaces) == _COOKED2
    if not cooked.any():
        return packets.interface
    return np.where(cooked, number(packets.data, packets.at + 4, 4) << 16 | packets.interface, packets.interface)


def beyond_link(packets: Packets, interfaces: Sequence[Interface]) -> Int64:
    """Return how many bytes of each captured packet were not on the link."""
    link_type = _link_types(packets, interfaces)
    found = np.zeros(len(packets), np.int64)
    for each, extra in _BEYOND.items():
        found[link_type == each] = extra
    return found


def _link_types(packets: Packets, interfaces: Sequence[Interface]) -> Int64:
    return np.array([each.link_type for each in interfaces], np.int64)[packets.interface]
