"""RDMA ports: the congestion and loss that they report, and ports without counters, which may have been idle."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from netprof.analysis.account.causes import UNSEEN
from netprof.analysis.events.collectives import Collectives
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.links.nic import bytes_in
from netprof.analysis.findings.transport.transport_reason import Reason
from netprof.analysis.tables.counters import CounterSamples
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.tables.intervals import Intervals, overlap
from netprof.analysis.wire.ports import is_port, users_of
from netprof.model import Series
from netprof.schema import RDMA_CONGESTION, RDMA_LOSS, RDMA_PORTS, RECEIVE, TRANSMIT
from netprof.units import duration, rate

_MATTERS = 0.1
"""Share of a process's waiting from which on it is no edge of an iteration that goes unseen."""
_HARDLY_ANY = 0.001
"""Share of what collectives move that other bytes of a process come to, such as those that it makes its groups with."""
_REPORTS = {
    "cnp_received": "was told of congestion {} times a second (CNP)",
    "ecn_marked": "received {} packets a second that a congested switch had marked",
    "credit_waits": "waited for room in the next switch, {} ticks a second",
    "pause_received": "was paused by the switch {} times a second",
    "sequence_errors": "was asked for lost packets {} times a second",
    "out_of_sequence": "received {} packets a second out of order",
    "ack_timeouts": "waited in vain for an acknowledgement {} times a second",
    "resent_packets": "sent {} packets a second again",
    "dropped": "dropped {} packets a second",
}
_NOTABLE = 1.0  # a second: less is no reason
_LOST = "look where packets are dropped: priority flow control and ECN of the switches, cables and optics, MTU"
_CONGESTED = (
    "look for what else meets there: several senders to one port, other jobs, routing; and at the switch's queues"
)
_NEITHER = (
    "look at the sizes of messages and how many are under way: channels and queue pairs a connection, host copies"
)


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
    process_waiting = waiting.of_pid(pid)
    unseen_ns = int(process_waiting.of(UNSEEN).length_ns.sum())
    return unseen_ns > 0 and unseen_ns >= _MATTERS * int(process_waiting.length_ns.sum())


def _launches_unseen(evidence: Evidence, pid: int) -> bool:
    """Tell whether a process's collectives are larger by far than what it sent by any wire."""
    wanted = _bytes_of(evidence.collectives, pid) + _bytes_of(evidence.posted, pid)
    return sum(evidence.sent_bytes.get(pid, {}).values()) < _HARDLY_ANY * wanted


def _bytes_of(collectives: Collectives, pid: int) -> int:
    return int(np.maximum(collectives.bytes[collectives.pid == pid], 0).sum())  # below 0: unknown


def port_reason(evidence: Evidence, pids: Collection[int], times: Intervals) -> Reason | None:
    """Return why the RDMA ports of some processes do not fill in some time; None where they use none."""
    used = {link: use for link, use in evidence.links.ports.items() if set(use.pids) & set(pids)}
    used = {link: use for link, use in used.items() if evidence.links.lanes.of_link(link, TRANSMIT) is not None}
    if not used:
        return None
    per_second = {link: reported(evidence, link, times) for link in used}

    def moves(link: LinkKey) -> str:
        sent = rate(_sent(evidence, link, times))
        return f"{link.device} sends {sent}, seen every {duration(used[link].period_ns / 1e9)}"

    for kind, names, advice in (("rdma_loss", RDMA_LOSS, _LOST), ("rdma_congestion", RDMA_CONGESTION, _CONGESTED)):
        if (report := _most_reported(per_second, names)) is not None:
            link, text = report
            return Reason(kind, f"{moves(link)}, and {text}", advice, of_port=True)
    link = max(used, key=lambda link: _sent(evidence, link, times))
    what = {"congestion": RDMA_CONGESTION, "loss": RDMA_LOSS}
    untold = [name for name, names in what.items() if per_second[link].keys().isdisjoint(names)]
    text = f"whether it met {' or '.join(untold)} is unknown" if untold else "it reports neither congestion nor loss"
    return Reason("rdma", f"{moves(link)}; {text}", _NEITHER, of_port=True)


def reported(evidence: Evidence, port: LinkKey, times: Intervals) -> dict[str, float]:
    """Return how often a second a port reports something in some time, by what; nothing where that is not known."""
    host = evidence.machine_of(evidence.host_of_link(port))
    subject = f"{port.device} of {host}" if host else port.device
    of_port = [each for each in evidence.meta.series if each.source == RDMA_PORTS and each.subject == subject]
    counted = {each.name: _counted(each, evidence.counters, times) for each in of_port if times.total_ns}
    return {name: amount * 1e9 / times.total_ns for name, amount in counted.items()}


def _counted(series: Series, samples: CounterSamples, times: Intervals) -> float:
    """Return what a series counted in some time, spread evenly between its samples."""
    rows = samples.where(samples.series == series.id)
    grown, length = np.diff(rows.value), np.diff(rows.time_ns)
    inside = overlap(times, rows.time_ns[:-1], rows.time_ns[1:])
    return float((np.maximum(grown, 0) * inside / np.maximum(length, 1)).sum())


def _most_reported(
    per_second: Mapping[LinkKey, Mapping[str, float]], names: Iterable[str]
) -> tuple[LinkKey, str] | None:
    """Return what ports report first of some names, and the one that reports most of it; None where none does."""
    for name in names:
        most, link = max((counts.get(name, 0.0), link) for link, counts in per_second.items())
        if most >= _NOTABLE:
            return link, _REPORTS[name].format(f"{most:,.0f}".replace(",", " "))
    return None


def _sent(evidence: Evidence, link: LinkKey, times: Intervals) -> float:
    sent_bytes = bytes_in(evidence.links.lanes.of_link(link, TRANSMIT), times)
    return sent_bytes * 8e9 / times.total_ns if times.total_ns else 0.0
