"""RDMA ports of which nothing tells whether they were idle."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from netprof.analysis.account.causes import UNSEEN
from netprof.analysis.events.collectives import Collectives
from netprof.analysis.evidence import Evidence
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.wire.ports import is_port, users_of
from netprof.schema import RECEIVE, TRANSMIT

_NOTABLE = 0.1
"""Share of a process's waiting from which on it is no edge of an iteration that goes unseen."""
_HARDLY_ANY = 0.001
"""Share of what collectives move that other bytes of a process come to, such as those that it makes its groups with."""


def users_of_port(evidence: Evidence, link: LinkKey) -> tuple[int, ...]:
    """Return the processes that use a link if it is an RDMA port, whether it moved anything or not."""
    return users_of(link, evidence.fold.flows) if is_port(link) else ()


def counts_bytes(evidence: Evidence, link: LinkKey) -> bool:
    """Tell whether what a link moves is known: of an RDMA port, whether it has counters of it that can be read."""
    return not is_port(link) or link in evidence.links.ports


def stands_still(evidence: Evidence, link: LinkKey) -> bool:
    """Tell whether a link is an RDMA port whose counters did not move."""
    links = evidence.links
    return link in links.ports and all(links.lanes.of_link(link, way) is None for way in (TRANSMIT, RECEIVE))


def goes_unseen(evidence: Evidence, pids: Collection[int]) -> bool:
    """Tell whether any of some processes communicates by a way that nothing shows."""
    return any(_waits_unseen(evidence, pid) or _launches_unseen(evidence, pid) for pid in pids)


def _waits_unseen(evidence: Evidence, pid: int) -> bool:
    waiting = evidence.account.waiting
    own = waiting.of_pid(pid)
    unseen_ns = int(own.of(UNSEEN).length_ns.sum())
    return unseen_ns > 0 and unseen_ns >= _NOTABLE * int(own.length_ns.sum())


def _launches_unseen(evidence: Evidence, pid: int) -> bool:
    """Tell whether a process's collectives are larger by far than what it sent by any wire."""
    wanted = _bytes_of(evidence.collectives, pid) + _bytes_of(evidence.posted, pid)
    return sum(evidence.sent_bytes.get(pid, {}).values()) < _HARDLY_ANY * wanted


def _bytes_of(collectives: Collectives, pid: int) -> int:
    return int(np.maximum(collectives.bytes[collectives.pid == pid], 0).sum())  # below 0: unknown
