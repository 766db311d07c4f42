"""Where the packets were dropped for which a flow recovers, as far as devices, queues and hosts tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from netprof.analysis.account.wait_pieces import contains
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.names import rank_or_pid
from netprof.analysis.findings.transport.stuck import StuckFlow, stuck_flows
from netprof.analysis.tables.columns import Int64, int64_column, text_column
from netprof.analysis.tables.flow_lanes import passed
from netprof.analysis.tables.flow_table import LOOPBACK, LinkKey
from netprof.analysis.tables.intervals import NOTHING, Intervals, covered_until, merge
from netprof.analysis.tables.nic_counters import rows_by_device
from netprof.schema import RECEIVE, TRANSMIT, HopKind
from netprof.units import count, duration, percent, size

_MATTERS = 0.2
"""Share of a recovery's time in which a device was down, from which on that explains it."""
_NEEDLESS = 0.5
"""Share of the packets that were sent again from which on their loss was a mistake."""
_SAMPLE_NS = 300_000_000
"""A drop is counted by so long after it at the latest."""
_IP_TCP_BYTES = 40
_HARMLESS = frozenset(
    {"NOT_SPECIFIED", "TCP_OLD_DATA", "TCP_OLD_SEQUENCE", "TCP_OLD_ACK", "TCP_TOO_OLD_ACK", "TCP_CLOSE", "TCP_RESET"}
    | {"TCP_OFOMERGE", "TCP_FLAGS", "TCP_ABORT_ON_DATA", "TCP_ABORT_ON_CLOSE", "TCP_ABORT_ON_LINGER", "SOCKET_CLOSE"}
)
"""Reasons for which TCP lets packets go that bring it nothing new."""
_COUNTED = {TRANSMIT: ("qdisc_drops", "tx_drops"), RECEIVE: ("rx_drops", "rx_errors")}

_OF_QUEUE = (
    "its queue overflows, by bursts or by several senders at once: a longer queue or a higher rate there, fewer "
    "senders at a time, or paced flows"
)
_OF_RING = "the host is slow to take packets: more receive queues and CPUs, larger rings (ethtool -G)"
_OF_PROCESS = "the process is slow to take packets: more CPU for it, larger net.ipv4.tcp_rmem"
_OF_REASON = {
    "QDISC": _OF_QUEUE,
    "NETFILTER": "a rule of the firewall drops it: nft list ruleset, iptables -vL",
    "TC_": "a filter of traffic control drops or polices it: tc -s filter show",
    "XDP": "a program (XDP) drops it: bpftool net",
    "BACKLOG": _OF_PROCESS,
    "RCVBUFF": _OF_PROCESS,
    "TOO_BIG": "give all devices on the way one MTU",
}
_OF_OTHERS = "the kernel's enum skb_drop_reason says what this reason means; perf trace -e skb:kfree_skb shows where"
_OF_ERRORS = "look at the port's errors (ethtool -S), its cable, and whether both ends have the same MTU"


@dataclass(frozen=True)
class LossPlace:
    """What is known of where packets of a flow were lost, and what helps; "" where nothing is."""

    happened: str = ""
    advice: str = ""


def needless_packets(evidence: Evidence) -> dict[int, tuple[int, int]]:
    """Return of each flow (by row) how many packets it sent again, and how many of them the receiver had already."""
    table, flows = evidence.table("tcp"), evidence.fold.flows
    row, sent, had = (int64_column(table, name) for name in ("flow_id", "retransmits", "dsacked"))
    row = flows.positions(row)
    own = [(each, np.flatnonzero((row == each) & (had >= 0))) for each in np.unique(row[row >= 0]).tolist()]
    return {each: (int(np.ptp(sent[rows])), int(np.ptp(had[rows]))) for each, rows in own if len(rows)}


def _needless(evidence: Evidence, flow: int) -> LossPlace:
    """Return that nothing was lost, where most of what was sent again had arrived."""
    resent, needless = needless_packets(evidence).get(flow, (0, 0))
    if not resent or needless < _NEEDLESS * resent:
        return LossPlace()
    return LossPlace("the receiver had nearly all of it already, it was only slow to say so", _OF_PROCESS)


def place_of_loss(evidence: Evidence, flow: int, times: Intervals) -> LossPlace:
    """Return where the packets were lost for which a flow (by row) recovers in some time."""
    sides = dict(sides_of(evidence, flow))
    found = _down(evidence, sides, times)
    found = found if found.happened else _too_large(evidence, flow, sides)
    found = found if found.happened else _needless(evidence, flow)
    found = found if found.happened else _told(evidence, flow, times)
    found = found if found.happened else _dropped(evidence, sides, times)
    if found.happened:
        return found
    counted = evidence.links.counted
    seen = [link for link, _ in sides if link in counted]
    if not seen:
        return LossPlace()
    names = ", ".join(dict.fromkeys(link.device for link in seen))
    if names == LOOPBACK:
        return LossPlace("nothing is lost on lo: a process was slow to take or to acknowledge it", _OF_PROCESS)
    lanes, peer = evidence.fold.flow_lanes, evidence.paths.peer
    tunnels = [own.device for _, own, each in passed(lanes, peer, flow) if each.kind is HopKind.ASSUMED]
    return LossPlace(
        f"no device on the way that netprof sees dropped any ({names})",
        f"give the program behind {tunnels[0]}, which may drop them, more CPU and larger socket buffers, or look "
        "beyond these hosts"
        if tunnels
        else "look beyond these hosts: full buffers of a switch (its counters of drops), errors of a port, policing",
    )


def sides_of(evidence: Evidence, flow: int) -> Iterator[tuple[tuple[LinkKey, int], str]]:
    """Yield the devices that a flow's packets pass, which way, and whose they are: from the sender's own on."""
    flows = evidence.fold.flows
    for row, own, passage in passed(evidence.fold.flow_lanes, evidence.paths.peer, flow):
        pid = int(flows.pid[row])
        whose = rank_or_pid(evidence.ranks.get(pid), pid, "process")
        below = f", below {own.device}" if passage.kind is not HopKind.FLOW else ""
        yield (passage.link, passage.direction), f"{passage.link.device}{below} of {whose}"


def _down(evidence: Evidence, sides: Mapping[tuple[LinkKey, int], str], times: Intervals) -> LossPlace:
    """Return that a device was down meanwhile, if that is a good part of the time."""
    started_ns = evidence.meta.started_ns
    for (link, _), name in sides.items():
        past = evidence.pasts.get(link)
        down = past.down & evidence.recording if past is not None else NOTHING
        share = (down & times).total_ns / max(times.total_ns, 1)
        if share >= _MATTERS:
            when = ", ".join(duration((begin - started_ns) / 1e9) for begin in down.begin_ns[:3].tolist())
            more = f" and {count(len(down) - 3, 'time')} more" if len(down) > 3 else ""
            return LossPlace(
                f"for {percent(share)} of that {name} was down ({when} into the recording{more})",
                f"find out what takes {name} down: dmesg, its cable and port, whoever configures it",
            )
    return LossPlace()


def _too_large(evidence: Evidence, flow: int, sides: Mapping[tuple[LinkKey, int], str]) -> LossPlace:
    """Return that packets are larger than what the way carries, where a flow stands for that."""
    stuck = next((each for each in stuck_flows(evidence) if each.row == flow), None)
    if stuck is None or stuck.is_small:
        return LossPlace()
    needs = stuck.mss_bytes + _IP_TCP_BYTES
    least = [
        (past.changes[-1].mtu_bytes, name)
        for (link, _), name in sides.items()
        if (past := evidence.pasts.get(link)) is not None and past.changes[-1].mtu_bytes
    ]
    small = min((each for each in least if each[0] < needs), default=None)
    own = next(iter(sides.values()), "its device").partition(" of ")[0]
    how = f"ip link set dev {own} mtu {small[0] if small else 1500}"
    fix = f"give all devices on the way one MTU ({how}), or let TCP find it (net.ipv4.tcp_mtu_probing=1)"
    if small is not None:
        return LossPlace(f"{_what_stands(stuck)}: {small[1]} has an MTU of {small[0]}", fix)
    return LossPlace(f"{_what_stands(stuck)}, as where a device on the way has a smaller MTU", fix)


def _what_stands(stuck: StuckFlow) -> str:
    smaller = ", while smaller ones arrive" if stuck.hears else ""
    return (
        f"packets of {stuck.mss_bytes} bytes are sent again ({count(stuck.resent, 'time')}) and never arrive{smaller}"
    )


def _told(evidence: Evidence, flow: int, times: Intervals) -> LossPlace:
    """Return for which reason the kernel dropped packets of the flow itself, and where."""
    table, flows = evidence.table("drops"), evidence.fold.flows
    row, time_ns = flows.positions(int64_column(table, "flow_id")), int64_column(table, "time_ns")
    way, packet_bytes = (int64_column(table, name) for name in ("direction", "bytes"))
    ends = ((row == flow) & (way == TRANSMIT)) | (
        (row == int(evidence.paths.peer[flow])) & (way == RECEIVE) & (row >= 0)
    )
    around = merge(times.begin_ns - _SAMPLE_NS, times.end_ns)
    reasons, devices = text_column(table, "reason"), text_column(table, "device")
    found: dict[tuple[str, str], list[int]] = {}
    for place in np.flatnonzero(ends & contains(around, time_ns)).tolist():
        if reasons[place] not in _HARMLESS:
            found.setdefault((reasons[place], devices[place]), []).append(int(packet_bytes[place]))
    if not found:
        return LossPlace()
    (reason, device), amounts = max(found.items(), key=lambda each: sum(each[1]))
    where = f" at {device}" if device else ""
    said = f"this host dropped {count(len(amounts), 'packet')} of it{where} ({size(sum(amounts))}; {reason})"
    return LossPlace(said, next((advice for name, advice in _OF_REASON.items() if name in reason), _OF_OTHERS))


def _dropped(evidence: Evidence, sides: Mapping[tuple[LinkKey, int], str], times: Intervals) -> LossPlace:
    """Return which device on the way counted drops meanwhile, or that the host did."""
    around = merge(times.begin_ns, times.end_ns + _SAMPLE_NS)
    table = evidence.table("nic")
    time_ns = int64_column(table, "time_ns")
    rows = rows_by_device(table, time_ns)
    found: list[tuple[int, str, str, str]] = []
    for (link, way), name in sides.items():
        for column in _COUNTED[way] if link in rows else ():
            own = rows[link]
            packets = _grown_in(around, time_ns[own], int64_column(table, column)[own])
            found.append((packets, column, name, _qdisc(evidence, link)))
    packets, column, name, qdisc = max(found, default=(0, "", "", ""))
    softnet = _softnet_drops(evidence, around)
    if softnet > packets:
        said = f"{count(softnet, 'packet')} found no room in the backlog of a CPU"
        return LossPlace(said, "spread receiving over CPUs (RSS, RPS), or raise net.core.netdev_max_backlog")
    if not packets:
        return LossPlace()
    what, advice = {
        "qdisc_drops": (f"the queue ({qdisc}) of {name} dropped", _OF_QUEUE),
        "tx_drops": (f"{name} dropped what it was to send:", _OF_QUEUE),
        "rx_drops": (f"{name} dropped what it received:", _OF_RING),
        "rx_errors": (f"{name} received with errors", _OF_ERRORS),
    }[column]
    return LossPlace(f"{what} {count(packets, 'packet')} meanwhile", advice)


def _grown_in(times: Intervals, time_ns: Int64, value: Int64) -> int:
    """Return what a counter grew by between samples of which the later one lies in some time."""
    if len(time_ns) < 2 or (value < 0).any():
        return 0
    rows = np.flatnonzero(np.diff(value) > 0)
    begin, end = time_ns[rows], time_ns[rows + 1]
    touched = (covered_until(times, end) - covered_until(times, begin)) > 0
    return int(np.diff(value)[rows][touched].sum())


def _qdisc(evidence: Evidence, link: LinkKey) -> str:
    past = evidence.pasts.get(link)
    return past.changes[-1].qdisc.partition(",")[0] if past is not None else ""


def _softnet_drops(evidence: Evidence, times: Intervals) -> int:
    series = [each.id for each in evidence.meta.series if each.name == "softnet_dropped"]
    samples = evidence.counters
    total = 0
    for number in series:
        own = samples.where(samples.series == number)
        total += _grown_in(times, own.time_ns, own.value)
    return total
