"""Who exchanged bytes with whom, where both ends of the connections were recorded."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from netprof.analysis.tables.columns import UNKNOWN, Int64
from netprof.analysis.wire.fold import WireFold
from netprof.schema import TRANSMIT


def traffic(fold: WireFold, peers: Int64) -> dict[tuple[int, int], float]:
    """Return the payload bytes that went between each two processes, in both directions; keys in both orders.

    `peers` are the rows of flows' other ends.
    """
    flows, sent = fold.flows, fold.totals(TRANSMIT).payload_bytes
    found: defaultdict[tuple[int, int], float] = defaultdict(float)
    for row in np.flatnonzero(peers != UNKNOWN).tolist():
        pair = int(flows.pid[row]), int(flows.pid[peers[row]])
        for key in (pair, pair[::-1]):
            found[key] += float(sent[row])
    return dict(found)
