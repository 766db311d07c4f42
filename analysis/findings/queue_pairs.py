"""The queue pairs of the job: which process has them on which port, and who is at the other end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from netprof.analysis.findings.counters import COUNTERS
from netprof.analysis.form import Grid, Part
from netprof.analysis.section import Analysis, Section
from netprof.schema import PAIR_RECEIVED, PAIR_SENT, RDMA_PAIRS, UNKNOWN_RANK
from netprof.units import size

MOST_PAIRS, BRIEFLY = 200, 10


@dataclass(frozen=True)
class QueuePairs:
    """The queue pairs of a process on a port. `peers` are the ranks at the other ends that were recorded.

    `numbers` are local and remote numbers; a remote one is None where nothing says it (not connected, or a datagram's).
    `moved` are bytes sent and received by local number, of those that have a counter to themselves.
    """

    device: str
    netns: int
    pid: int
    rank: int | None
    numbers: tuple[tuple[int, int | None], ...]
    peers: tuple[int, ...]
    moved: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    def of(self, local: int) -> tuple[int | None, int | None]:
        """Return the bytes that a queue pair sent and received; None where no counter is bound to it."""
        return self.moved.get(local, (None, None))

    @property
    def total(self) -> tuple[int | None, int | None]:
        """The bytes of all of them; None where none has a counter."""
        known = [self.moved[local] for local, _ in self.numbers if local in self.moved]
        return (sum(sent for sent, _ in known), sum(received for _, received in known)) if known else (None, None)


def _conclude(analysis: Analysis) -> tuple[QueuePairs, ...]:
    return _with_bytes(_pairs(analysis), analysis)


def _pairs(analysis: Analysis) -> tuple[QueuePairs, ...]:
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


def _with_bytes(found: Sequence[QueuePairs], analysis: Analysis) -> tuple[QueuePairs, ...]:
    """Add what the counters of single queue pairs have grown by."""
    counters = analysis.of(COUNTERS)
    grown = {
        summary.name: totals
        for summary, totals in zip(counters.summaries, counters.totals, strict=True)
        if summary.source == RDMA_PAIRS
    }
    return tuple(replace(each, moved=_moved(each, grown)) for each in found)


def _moved(pairs: QueuePairs, grown: Mapping[str, Mapping[str, int]]) -> dict[int, tuple[int, int]]:
    sent, received = (grown.get(name, {}) for name in (PAIR_SENT, PAIR_RECEIVED))
    names = {local: f"{pairs.device} QP {local}" for local, _ in pairs.numbers}
    return {
        local: (sent.get(name, 0), received.get(name, 0))
        for local, name in names.items()
        if name in sent or name in received
    }


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
            | {"pairs": [_pair(each, *numbers) for numbers in each.numbers]}
            for each in found
        ]
    }


def _pair(pairs: QueuePairs, local: int, remote: int | None) -> dict[str, int | None]:
    sent, received = pairs.of(local)
    return {"local": local, "remote": remote, "sent_bytes": sent, "received_bytes": received}


def _parts(found: Sequence[QueuePairs]) -> Sequence[Part]:
    if not found:
        return ()
    rows = [
        (
            each.device,
            "?" if each.rank is None else str(each.rank),
            str(each.pid),
            str(len(each.numbers)),
            *(size(moved) if moved is not None else "-" for moved in each.total),
            ",".join(map(str, each.peers)) or "?",
        )
        for each in found[:MOST_PAIRS]
    ]
    headings = ("port", "rank", "pid", "queue pairs", "sent", "received", "to ranks")
    grid = Grid(headings, rows, frozenset({"to ranks"}), ("sent", "received"), brief=BRIEFLY, total=len(found))
    about = "whose RDMA it is; bytes are known of the port only"
    if any(each.moved for each in found):
        about = "whose RDMA it is, and by the counters bound to queue pairs, its bytes"
    return [Part("Queue pairs", about, [grid])]


def _merge(parts: Sequence[tuple[QueuePairs, ...]], whole: Analysis) -> tuple[QueuePairs, ...]:
    return _with_bytes(parts[-1], whole)  # a flow is described once, for all of the recording


QUEUE_PAIRS = Section("queue pairs", _conclude, ("flows", "counters"), _document, _parts, merge=_merge)
