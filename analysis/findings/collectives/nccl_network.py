"""What NCCL handed to its network, process by process and connection by connection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netprof.analysis.declared import Column, by_key, json_of, plain, table
from netprof.analysis.definitions import NCCL_NETWORK as DEFINITION
from netprof.analysis.findings.names import rank_or_pid
from netprof.analysis.form import Pairs, Part
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.columns import concatenate, read_columns
from netprof.analysis.tables.posted import Posted
from netprof.schema import NCCL_NETWORK_PROBE, RDMA, RECEIVE, ROCE, TRANSMIT, NcclNetwork
from netprof.units import count, duration, rate, ratio, size

MOST_CONNECTIONS, BRIEFLY = 200, 8
"""Connections in the table, and where there is little room."""

_WORDS = {"socket": "TCP", "infiniband": "InfiniBand or RoCE", "plugin": "a plugin"}
_NEARLY_ALL = 0.98  # of what was posted on sockets: edges of a recording cut some of its packets off


@dataclass(frozen=True, eq=False)
class NcclNetworkFinding:
    """What was posted on every connection (`connections`, a row each way), and what tells it apart.

    `sent_bytes` is the payload that a process's TCP flows sent, `ranks` the rank of each process that has one,
    `sources` how the functions were found, and `length_ns` the time that it is over, which began at `begin_ns`.
    """

    connections: Posted
    sent_bytes: Mapping[int, int]
    ranks: Mapping[int, int]
    sources: tuple[str, ...]
    begin_ns: int
    length_ns: int

    @property
    def networks(self) -> tuple[NetworkUse, ...]:
        """Each process's use of each network."""
        every = self.connections
        pairs = sorted(set(zip(every.pid.tolist(), every.network.tolist(), strict=True)))
        return tuple(self._use(pid, network) for pid, network in pairs)

    def _use(self, pid: int, network: int) -> NetworkUse:
        connections = self.connections.where((self.connections.pid == pid) & (self.connections.network == network))
        sends, receives = (connections.where(connections.direction == direction) for direction in (TRANSMIT, RECEIVE))
        posted, posts = int(sends.posted_bytes.sum()), int(sends.posts.sum())
        return NetworkUse(
            pid=pid,
            rank=self.ranks.get(pid),
            network=NcclNetwork(network).name.lower(),
            sending=len(sends),
            receiving=len(receives),
            posts=posts,
            posted_bytes=posted,
            mean_bytes=posted / posts if posts else None,
            posted_bps=8e9 * posted / self.length_ns if self.length_ns > 0 else None,
            refused=int(sends.refused.sum()),
            receives=int(receives.posts.sum()),
            room_bytes=int(receives.posted_bytes.sum()),
            sent_bytes=self.sent_bytes.get(pid, 0) if network == NcclNetwork.SOCKET else None,
        )


@dataclass(frozen=True)
class NetworkUse:
    """What a process posted to one of NCCL's networks; `sent_bytes` is the payload that its TCP flows sent meanwhile.

    A receive is posted with room for at least what comes. `refused` are times that a send was asked for again.
    """

    pid: int
    rank: int | None
    network: str
    sending: int
    receiving: int
    posts: int
    posted_bytes: int
    mean_bytes: float | None
    posted_bps: float | None
    refused: int
    receives: int
    room_bytes: int
    sent_bytes: int | None

    @property
    def sent_to_posted(self) -> float | None:
        """The flows' payload over what was posted; None where no flows carry it, or nothing was."""
        return self.sent_bytes / self.posted_bytes if self.sent_bytes is not None and self.posted_bytes else None


def _conclude(analysis: Analysis) -> NcclNetworkFinding:
    evidence = analysis.evidence
    posted = read_columns(Posted, evidence.table("nccl_posted"))
    posted = posted.where(evidence.piece.owns(posted.first_ns)).by_connection()
    begin_ns = int(evidence.recording.begin_ns[0]) if len(evidence.recording) else evidence.meta.started_ns
    started = (each for each in evidence.meta.probes_started if each.name == NCCL_NETWORK_PROBE)
    return NcclNetworkFinding(
        posted,
        _sent(analysis) if len(posted) else {},
        evidence.ranks,
        tuple(each.detail for each in started),
        begin_ns,
        evidence.recording.total_ns,
    )


def _sent(analysis: Analysis) -> dict[int, int]:
    fold = analysis.evidence.fold
    is_tcp = ~np.isin(fold.flows.protocol, (RDMA, ROCE))
    payload, sent_bytes = fold.totals(TRANSMIT).payload_bytes, {}
    for pid in np.unique(fold.flows.pid[is_tcp]).tolist():
        sent_bytes[pid] = int(payload[is_tcp & (fold.flows.pid == pid)].sum())
    return sent_bytes


def _merge(parts: Sequence[NcclNetworkFinding], whole: Analysis) -> NcclNetworkFinding:
    every = concatenate(Posted, [part.connections for part in parts]).by_connection()
    sent = sum((Counter(part.sent_bytes) for part in parts), Counter())
    last, length_ns = parts[-1], sum(part.length_ns for part in parts)
    return NcclNetworkFinding(every, sent, last.ranks, last.sources, parts[0].begin_ns, length_ns)


def _connections(finding: NcclNetworkFinding) -> list[dict[str, Any]]:
    """Return the connections, the largest first: their JSON, process and network."""
    every = finding.connections.where(np.argsort(-finding.connections.posted_bytes, kind="stable"))
    return [
        {
            "pid": int(every.pid[row]),
            "network": NcclNetwork(int(every.network[row])).name.lower(),
            "connection": f"{int(every.connection[row]):#x}",
            "direction": "send" if every.direction[row] == TRANSMIT else "receive",
            **{name: int(getattr(every, name)[row]) for name in ("posts", "posted_bytes", "refused")},
            "first_s": (int(every.first_ns[row]) - finding.begin_ns) / 1e9,
            "last_s": (int(every.last_ns[row]) - finding.begin_ns) / 1e9,
        }
        for row in range(len(every))
    ]


def _document(finding: NcclNetworkFinding) -> dict[str, Any]:
    of_process = by_key([_connections(finding)], lambda each: (each["pid"], each["network"]))
    keys = "connection direction posts posted_bytes refused first_s last_s"
    networks = [
        plain(use)
        | {"sent_to_posted": use.sent_to_posted}
        | {"connections": [json_of(each, keys) for each in of_process[use.pid, use.network]]}
        for use in finding.networks
    ]
    return {"nccl_network": {"found": list(finding.sources), "processes": networks}}


def _parts(finding: NcclNetworkFinding) -> Sequence[Part]:
    if not (uses := finding.networks):
        return ()
    about = "what NCCL handed to its network to be sent: posting times, not those of the transfers"
    seen = Pairs([("seen at", "; ".join(finding.sources) or "?")])
    rank = Column("rank", lambda each: finding.ranks.get(each["pid"], f"pid {each['pid']}"))
    sends = [each for each in _connections(finding) if each["direction"] == "send"]
    connections = table((_OF_CONNECTION[0], rank, *_OF_CONNECTION[1:]), sends, MOST_CONNECTIONS, brief=BRIEFLY)
    largest = "the largest first, by their address in the process"
    return (
        Part("NCCL's network", about, [table(_OF_NETWORK, uses), seen]),
        Part("Connections of NCCL", largest, [connections], detail=True),
    )


_NETWORK = Column("network", "network", lambda name: _WORDS[name], left=True)
_POSTED, _POSTS = Column("posted", "posted_bytes", size), Column("posts", "posts")
_OF_CONNECTION = (
    Column("connection", "connection"),
    _NETWORK,
    _POSTED,
    _POSTS,
    Column("first at", "first_s", duration),
    Column("last at", "last_s", duration),
)
_OF_NETWORK = (
    Column("rank", "rank", none="?"),
    Column("pid", "pid", goes=3),
    _NETWORK,
    _POSTED,
    Column("a second", "posted_bps", rate),
    _POSTS,
    Column("mean", "mean_bytes", lambda value: size(round(value)), "-", goes=2),
    Column("to", "sending", lambda number: count(number, "connection"), goes=4),
    Column("asked again", "refused", goes=1),
    Column("TCP / posted", "sent_to_posted", ratio, "-"),
)


def _notes(finding: NcclNetworkFinding) -> Iterator[str]:
    few = [use for use in finding.networks if (use.sent_to_posted or 1.0) < _NEARLY_ALL]
    if few:
        ratios = ", ".join(f"{rank_or_pid(use.rank, use.pid)}: {ratio(use.sent_to_posted)}" for use in few[:3])
        yield (
            f"NCCL posted more to TCP than flows of its process were seen to send ({ratios} of it): some of its "
            "connections go unseen"
        )


NCCL_NETWORK = Section(
    "nccl network",
    _conclude,
    ("nccl_posted", "wire", "flows"),
    _document,
    _parts,
    _notes,
    lambda finding: (DEFINITION,) if len(finding.connections) else (),
    merge=_merge,
)
