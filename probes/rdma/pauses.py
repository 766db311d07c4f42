"""How often an RDMA port and its switch made each other pause, by the counters of the network device beside it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from netprof.probes.nic import ethtool
from netprof.probes.rdma.drivers import PAUSE_RECEIVED, PAUSE_SENT
from netprof.probes.series import Quantity

_NAMES = (r"prio\d+_pause", r"pfc_ena_frames_pri\d+", r"pause_ctrl_phy", r"pause_frames")
"""What drivers call them after rx_ or tx_; the first kind that there is counts, for one frame may be in several."""


def statistics_of(device: str) -> dict[str, int]:
    """Return the counters of a network device."""
    return ethtool.statistics(os.fsencode(device))


def pauses(statistics: Mapping[str, int]) -> list[tuple[Quantity, int]]:
    """Return how many pauses were received and sent, of a network device's counters; nothing without any."""
    for names in _NAMES:
        found = []
        for way, quantity in (("rx", PAUSE_RECEIVED), ("tx", PAUSE_SENT)):
            counts = [value for name, value in statistics.items() if re.fullmatch(f"{way}_{names}", name)]
            found += [(quantity, sum(counts))] if counts else []
        if found:
            return found
    return []
