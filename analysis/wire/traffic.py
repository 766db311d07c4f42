"""Who exchanged bytes with whom, where both ends of the connections were recorded."""

from __future__ import annotations

from collections import defaultdict

from netprof.analysis.wire.fold import WireFold
from netprof.schema import TRANSMIT


def traffic(fold: WireFold) -> dict[tuple[int, int], float]:
    """Return the payload bytes that went between each two processes, in both directions; keys in both orders."""
    flows, sent = fold.flows, fold.totals(TRANSMIT).payload_bytes
    here = list(zip(flows.local_addr.tolist(), flows.local_port.tolist(), strict=True))
    there = list(zip(flows.remote_addr.tolist(), flows.remote_port.tolist(), strict=True))
    row_of = {ends: row for row, ends in enumerate(zip(here, there, strict=True))}
    found: defaultdict[tuple[int, int], float] = defaultdict(float)
    for ends, row in row_of.items():
        other = row_of.get((ends[1], ends[0]))
        if other is not None and other != row:
            pair = int(flows.pid[row]), int(flows.pid[other])
            for key in (pair, pair[::-1]):
                found[key] += float(sent[row])
    return dict(found)
