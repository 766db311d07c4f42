"""The queue pairs of the job: which process has them on which port, and who is at the other end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netprof.analysis.form import Grid, Part
from netprof.analysis.section import Analysis, Section
from netprof.schema import UNKNOWN_RANK

MOST_PAIRS, BRIEFLY = 200, 10


@dataclass(frozen=True)
class QueuePairs:
    """The queue pairs of a process on a port. `peers` are the ranks at the other ends that were recorded.

    `numbers` are local and remote numbers; a remote one is None where nothing says it (not connected, or a datagram's).
    """

    device: str
    netns: int
    pid: int
    rank: int | None
    numbers: tuple[tuple[int, int | None], ...]
    peers: tuple[int, ...]


def _conclude(analysis: Analysis) -> tuple[QueuePairs, ...]:
    evidence = analysis.evidence
    flows = evidence.fold.flows
    rows = np.flatnonzero(flows.local_queue_pair > 0)
    on_port = np.array(["/" in device for device in flows.device[rows].tolist()], bool)  # what a capture has are others
    own = flows.where(rows[on_port])
    ends = list(zip(own.local_queue_pair.tolist(), own.remote_queue_pair.tolist(), strict=True))
    peers = _peers(ends, own.rank.tolist())
    found: dict[tuple[str, int, int], list[int]] = {}
    for row, key in enumerate(zip(own.device.tolist(), own.netns.tolist(), own.pid.tolist(), strict=True)):
        found.setdefault(key, []).append(row)
    return tuple(
        QueuePairs(
            *key,
            evidence.ranks.get(key[2]),
            tuple((ends[row][0], ends[row][1] or None) for row in mine),
            tuple(sorted({peers[row] for row in mine} - {UNKNOWN_RANK})),
        )
        for key, mine in found.items()
    )


def _peers(ends: Sequence[tuple[int, int]], ranks: Sequence[int]) -> list[int]:
    """Return the rank at the other end of each queue pair, where the numbers leave only one that it can be.

    Devices number their queue pairs alike.
    """
    rows_of: dict[tuple[int, int], list[int]] = {}
    for row, each in enumerate(ends):
        rows_of.setdefault(each, []).append(row)
    found = []
    for row, (local, remote) in enumerate(ends):
        others = {ranks[other] for other in rows_of.get((remote, local), ()) if other != row and remote}
        found.append(others.pop() if len(others) == 1 else UNKNOWN_RANK)
    return found


def _document(found: Sequence[QueuePairs]) -> dict[str, Any]:
    return {
        "queue_pairs": [
            {"device": each.device, "netns": each.netns, "pid": each.pid, "rank": each.rank, "peers": list(each.peers)}
            | {"pairs": [_pair(*numbers) for numbers in each.numbers]}
            for each in found
        ]
    }


def _pair(local: int, remote: int | None) -> dict[str, int | None]:
    return {"local": local, "remote": remote, "sent_bytes": None, "received_bytes": None}


def _parts(found: Sequence[QueuePairs]) -> Sequence[Part]:
    if not found:
        return ()
    rows = [
        (
            each.device,
            "?" if each.rank is None else str(each.rank),
            str(each.pid),
            str(len(each.numbers)),
            ",".join(map(str, each.peers)) or "?",
        )
        for each in found[:MOST_PAIRS]
    ]
    headings = ("port", "rank", "pid", "queue pairs", "to ranks")
    grid = Grid(headings, rows, frozenset({"to ranks"}), brief=BRIEFLY, total=len(found))
    return [Part("Queue pairs", "whose RDMA it is; bytes are known of the port only", [grid])]


def _merge(parts: Sequence[tuple[QueuePairs, ...]], whole: Analysis) -> tuple[QueuePairs, ...]:
    return parts[-1]  # a flow is described once, for all of the recording


QUEUE_PAIRS = Section("queue pairs", _conclude, ("flows",), _document, _parts, merge=_merge)
