"""The queue pairs of the job: which process has them on which port, and who is at the other end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netprof.analysis.declared import Column, by_key, json_of, table
from netprof.analysis.form import Part
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
    of_ports = flows.where(rows[on_port])
    ends = list(zip(of_ports.local_queue_pair.tolist(), of_ports.remote_queue_pair.tolist(), strict=True))
    peers = _peers(ends, of_ports.rank.tolist())
    owners = list(zip(of_ports.device.tolist(), of_ports.netns.tolist(), of_ports.pid.tolist(), strict=True))
    by_owner = by_key([range(len(owners))], owners.__getitem__)
    return tuple(
        QueuePairs(
            *key,
            evidence.ranks.get(key[2]),
            tuple((ends[row][0], ends[row][1] or None) for row in mine),
            tuple(sorted({peers[row] for row in mine} - {UNKNOWN_RANK})),
        )
        for key, mine in by_owner.items()
    )


def _peers(ends: Sequence[tuple[int, int]], ranks: Sequence[int]) -> list[int]:
    """Return the rank at the other end of each queue pair, where the numbers leave only one that it can be.

    Devices number their queue pairs alike.
    """
    rows_of, peers = by_key([range(len(ends))], ends.__getitem__), []
    for row, (local, remote) in enumerate(ends):
        others = {ranks[place] for place in rows_of.get((remote, local), ()) if place != row and remote}
        peers.append(others.pop() if len(others) == 1 else UNKNOWN_RANK)
    return peers


def _row(each: QueuePairs) -> dict[str, Any]:
    unknown = {"sent_bytes": None, "received_bytes": None}
    pairs = [{"local": local, "remote": remote, **unknown} for local, remote in each.numbers]
    return json_of(each, "device netns pid rank peers", pairs=pairs)


def _parts(pairs: Sequence[QueuePairs]) -> Sequence[Part]:
    grid = table(_COLUMNS, pairs, MOST_PAIRS, brief=BRIEFLY)
    return [Part("Queue pairs", "whose RDMA it is; bytes are known of the port only", [grid])] if pairs else ()


_COLUMNS = (
    Column("port", "device"),
    Column("rank", "rank", none="?"),
    Column("pid", "pid"),
    Column("queue pairs", "numbers", lambda numbers: str(len(numbers))),
    Column("to ranks", "peers", lambda peers: ",".join(map(str, peers)) or "?", left=True),
)

QUEUE_PAIRS = Section(
    "queue pairs",
    _conclude,
    ("flows",),
    lambda pairs: {"queue_pairs": [_row(each) for each in pairs]},
    _parts,
    merge=lambda parts, whole: parts[-1],  # a flow is described once, for all of the recording
)
