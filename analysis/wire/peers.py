"""Which flow is the other end of which: by their addresses, and behind a NAT by where their streams stand."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt

from netprof.analysis.tables.columns import UNKNOWN, Int64
from netprof.analysis.tables.flow_table import Flows
from netprof.schema import RECEIVE, TRANSMIT

_NEAR_BYTES = 1 << 24
"""What may be under way between two ends, or moved before the later one was last looked at."""
_ALIKE = 0.1
"""Share by which what one end sent and the other received may differ."""
_ENOUGH_BYTES = 1 << 16
_SEQUENCE = 1 << 32


def find_peers(flows: Flows, payload_bytes: npt.NDArray[np.int64], position: npt.NDArray[np.int64]) -> Int64:
    """Return the row of the other end of each flow, UNKNOWN where it is not recorded.

    `payload_bytes` and the last stream `position` have the shape (2, flows), by direction. A NAT changes addresses and
    ports but no sequence numbers: what one end last sent and received is where the other one's streams stand.
    """
    here = _ends(flows.local_addr, flows.local_port)
    there = _ends(flows.remote_addr, flows.remote_port)
    row_of = {ends: row for row, ends in enumerate(zip(here, there, strict=True))}
    peer = np.array([row_of.get(ends, UNKNOWN) for ends in zip(there, here, strict=True)], np.int64)
    peer[peer == np.arange(len(peer))] = UNKNOWN
    lone = np.flatnonzero((peer == UNKNOWN) & (payload_bytes.sum(axis=0) >= _ENOUGH_BYTES))
    place = position // _NEAR_BYTES
    at_place: defaultdict[int, list[int]] = defaultdict(list)  # what is near is at the same place, or beside it
    for row in lone.tolist():
        at_place[int(place[RECEIVE, row])].append(row)
    for row in lone.tolist():
        near = [(int(place[TRANSMIT, row]) + beside) % (_SEQUENCE // _NEAR_BYTES) for beside in (-1, 0, 1)]
        rivals = [end for number in near for end in at_place.get(number, ()) if end > row and peer[end] == UNKNOWN]
        ends = [end for end in rivals if _are_ends(row, end, payload_bytes, position)]
        if peer[row] == UNKNOWN and len(ends) == 1:
            peer[row], peer[ends[0]] = ends[0], row
    return peer


def _are_ends(one: int, other: int, payload: npt.NDArray[np.int64], position: npt.NDArray[np.int64]) -> bool:
    pairs = ((TRANSMIT, RECEIVE), (RECEIVE, TRANSMIT))
    if any(UNKNOWN in (position[a, one], position[b, other]) for a, b in pairs):
        return False
    apart = [(int(position[a, one]) - int(position[b, other])) % _SEQUENCE for a, b in pairs]
    near = all(min(each, _SEQUENCE - each) <= _NEAR_BYTES for each in apart)
    return near and all(
        abs(int(payload[a, one]) - int(payload[b, other])) <= _ALIKE * max(payload[a, one], payload[b, other])
        for a, b in pairs
    )


def _ends(address: npt.NDArray[Any], port: Int64) -> list[tuple[str, int]]:
    return list(zip(address.tolist(), port.tolist(), strict=True))
