"""When a process last sent and received anything, as TCP knows it of its sockets: also before the attach."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from netprof.errors import NetprofError
from netprof.model import Target
from netprof.probes.job import procfs
from netprof.probes.kernel.netns import NetworkNamespace
from netprof.probes.sampled.tcp_info import TcpSocket, TcpSockets

_MUCH = 0.01
"""Share of the bytes of the socket that moved the most from which on another one is no mere control connection."""


@dataclass(frozen=True)
class LastMoved:
    """For how long nothing had been sent or received at `time_ns` (None: it never was), and what was on its way.

    Bytes that nobody had acknowledged, and that it had not read.
    """

    time_ns: int
    sent_before_ns: int | None
    received_before_ns: int | None
    unacked_bytes: int
    unread_bytes: int


def last_moved(targets: Sequence[Target]) -> dict[int, LastMoved]:
    """Return it of processes whose sockets can be looked at and have moved anything; each namespace is asked once."""
    by_netns: dict[int, list[Target]] = {}
    for target in targets:
        by_netns.setdefault(target.netns, []).append(target)
    last: dict[int, LastMoved] = {}
    for same in by_netns.values():
        with suppress(NetprofError, OSError), NetworkNamespace.of(same[0].pid) as namespace:
            owner = {inode: target.pid for target in same for inode in procfs.sockets(target.pid)}
            sockets = namespace.run(partial(_look, owner))
            for pid in dict.fromkeys(owner.values()):
                held = [tcp for tcp in sockets if owner.get(tcp.inode) == pid]
                if any(map(_moved, held)):
                    last[pid] = _of(held)
    return last


def _look(owner: dict[int, int]) -> list[TcpSocket]:
    with TcpSockets() as sockets:
        return sockets.look(owner, ())


def _moved(tcp: TcpSocket) -> int:
    return tcp.info["sent_bytes"] + tcp.info["received_bytes"]


def _of(sockets: Sequence[TcpSocket]) -> LastMoved:
    """Put the sockets of a process together: those that carry its data, not its heartbeats."""
    most = max(map(_moved, sockets))
    main = [tcp for tcp in sockets if _moved(tcp) >= _MUCH * most]
    sent = [tcp.silent_ms[0] * 10**6 for tcp in main if tcp.info["sent_bytes"]]
    received = [tcp.silent_ms[1] * 10**6 for tcp in main if tcp.info["received_bytes"]]
    unacked, unread = sum(tcp.unacked_bytes for tcp in main), sum(tcp.unread_bytes for tcp in main)
    now_ns = max(tcp.time_ns for tcp in main)
    return LastMoved(now_ns, min(sent, default=None), min(received, default=None), unacked, unread)
