"""Where the packets were dropped for which a flow recovers, as far as devices, queues and hosts tell."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from netprof.analysis.account.wait_pieces import contains
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.names import name_on_host
from netprof.analysis.findings.transport.stuck import stuck_flows
from netprof.analysis.tables.columns import UNKNOWN, Int64, grouped, int64_column, text_column
from netprof.analysis.tables.flow_lanes import passed
from netprof.analysis.tables.flow_table import LOOPBACK, LinkKey
from netprof.analysis.tables.intervals import NOTHING, Intervals, merge, overlap
from netprof.analysis.tables.nic_counters import rows_by_device
from netprof.analysis.wire.loopback import HARMLESS
from netprof.schema import RECEIVE, TRANSMIT, HopKind
from netprof.units import count, duration, percent, size

_MATTERS = 0.2
"""Share of a recovery's time in which a device was down, from which on that explains it."""
_NEEDLESS = 0.5
"""Share of the packets that were sent again from which on their loss was a mistake."""
_SAMPLE_NS = 300_000_000
"""A drop is counted by so long after it at the latest."""
_IP_TCP_BYTES, _IPV6_TCP_BYTES, _TIMESTAMPS_BYTES = 40, 60, 12
_COUNTED = {TRANSMIT: ("qdisc_drops", "tx_drops"), RECEIVE: ("rx_drops", "rx_errors")}

_OF_QUEUE = (
    "its queue overflows, by bursts or by several senders at once: a longer queue or a higher rate there, fewer "
    "senders at a time, or paced flows"
)
_OF_RING = "the host is slow to take packets: more receive queues and CPUs, larger rings (ethtool -G)"
_OF_PROCESS = "the process is slow to take packets: more CPU for it, larger net.ipv4.tcp_rmem"
_OF_BACKLOG = "spread receiving over CPUs (RSS, RPS), or raise net.core.netdev_max_backlog"
_OF_REASON = {
    "QDISC": _OF_QUEUE,
    "CPU_BACKLOG": _OF_BACKLOG,
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
    kept = np.flatnonzero((row >= 0) & (had >= 0))
    flow_rows = (kept[rows] for rows in grouped(row[kept]))
    return {int(row[rows[0]]): (int(np.ptp(sent[rows])), int(np.ptp(had[rows]))) for rows in flow_rows}


def _needless(evidence: Evidence, flow: int) -> LossPlace | None:
    """Return that nothing was lost, where most of what was sent again had arrived."""
    resent, needless = needless_packets(evidence).get(flow, (0, 0))
    if not resent or needless < _NEEDLESS * resent:
        return None
    return LossPlace("the receiver had nearly all of it already, it was only slow to say so", _OF_PROCESS)


def place_of_loss(evidence: Evidence, flow: int, times: Intervals) -> LossPlace:
    """Return where the packets were lost for which a flow (by row) recovers in some time."""
    sides = dict(sides_of(evidence, flow))
    place = (
        _down(evidence, sides, times)
        or _too_large(evidence, flow, sides)
        or _needless(evidence, flow)
        or _dropped_by_kernel(evidence, flow, times)
        or _dropped(evidence, flow, sides, times)
    )
    if place is not None:
        return place
    names = ", ".join(dict.fromkeys(link.device for link, _ in sides if link in evidence.links.counted))
    if not names:
        return LossPlace()
    if names == LOOPBACK:
        return LossPlace("nothing is lost on lo: a process was slow to take or to acknowledge it", _OF_PROCESS)
    lanes, peer = evidence.fold.flow_lanes, evidence.paths.peer
    tunnels = [flow_link.device for _, flow_link, each in passed(lanes, peer, flow) if each.kind is HopKind.ASSUMED]
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
    for row, flow_link, passage in passed(evidence.fold.flow_lanes, evidence.paths.peer, flow):
        pid = int(flows.pid[row])
        whose = name_on_host(pid, evidence, "process")
        below = f", below {flow_link.device}" if passage.kind is not HopKind.FLOW else ""
        yield (passage.link, passage.direction), f"{passage.link.device}{below} of {whose}"


def _down(evidence: Evidence, sides: Mapping[tuple[LinkKey, int], str], times: Intervals) -> LossPlace | None:
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
    return None


def _too_large(evidence: Evidence, flow: int, sides: Mapping[tuple[LinkKey, int], str]) -> LossPlace | None:
    """Return that packets are larger than what the way carries, where a flow stands for that."""
    stuck = next((each for each in stuck_flows(evidence) if each.row == flow), None)
    if stuck is None or stuck.is_small:
        return None
    least = [
        (past.changes[-1].mtu_bytes, name)
        for (link, _), name in sides.items()
        if (past := evidence.pasts.get(link)) is not None and past.changes[-1].mtu_bytes
    ]
    needs = stuck.mss_bytes + (_IPV6_TCP_BYTES if evidence.fold.flows.family[flow] == 6 else _IP_TCP_BYTES)
    if any(mtu == needs + _TIMESTAMPS_BYTES for mtu, _ in least):  # that is what they fill
        needs += _TIMESTAMPS_BYTES
    small = min((each for each in least if each[0] < needs), default=None)
    device = next(iter(sides.values()), "its device").partition(" of ")[0]
    how = f"ip link set dev {shlex.quote(device)} mtu {small[0] if small else 1500}"
    fix = f"give all devices on the way one MTU ({how}), or let TCP find it (net.ipv4.tcp_mtu_probing=1)"
    why = f": {small[1]} has an MTU of {small[0]}" if small else ", as where a device on the way has a smaller MTU"
    arrive = ", while smaller ones arrive" if stuck.hears else ""
    resent = count(stuck.resent, "time")
    return LossPlace(f"packets of {stuck.mss_bytes} bytes are sent again ({resent}) and never arrive{arrive}{why}", fix)


def _dropped_by_kernel(evidence: Evidence, flow: int, times: Intervals) -> LossPlace | None:
    """Return for which reason the kernel dropped packets of the flow itself, and where."""
    table, flows = evidence.table("drops"), evidence.fold.flows
    row, time_ns = flows.positions(int64_column(table, "flow_id")), int64_column(table, "time_ns")
    way, packet_bytes = (int64_column(table, name) for name in ("direction", "bytes"))
    ends = ((row == flow) & (way == TRANSMIT)) | (
        (row == int(evidence.paths.peer[flow])) & (way == RECEIVE) & (row >= 0)
    )
    around = merge(times.begin_ns - _SAMPLE_NS, times.end_ns)
    reasons, devices = text_column(table, "reason"), text_column(table, "device")
    dropped: dict[tuple[str, str, str], list[int]] = {}
    for place in np.flatnonzero(ends & contains(around, time_ns)).tolist():
        if reasons[place] not in HARMLESS:
            host = evidence.host_of.get(int(flows.pid[row[place]]))
            key = reasons[place], devices[place], "this host" if host is None else host.name
            dropped.setdefault(key, []).append(int(packet_bytes[place]))
    if not dropped:
        return None
    (reason, device, host_name), amounts = max(dropped.items(), key=lambda each: sum(each[1]))
    where = f" at {device}" if device else ""
    sentence = f"{host_name} dropped {count(len(amounts), 'packet')} of it{where} ({size(sum(amounts))}; {reason})"
    return LossPlace(sentence, next((advice for name, advice in _OF_REASON.items() if name in reason), _OF_OTHERS))


def _dropped(
    evidence: Evidence, flow: int, sides: Mapping[tuple[LinkKey, int], str], times: Intervals
) -> LossPlace | None:
    """Return which device on the way counted drops meanwhile, or that the host did."""
    around = merge(times.begin_ns, times.end_ns + _SAMPLE_NS)
    table = evidence.table("nic")
    time_ns = int64_column(table, "time_ns")
    rows = rows_by_device(table, time_ns)
    counted: list[tuple[int, str, str, str]] = []
    for (link, way), name in sides.items():
        for column in _COUNTED[way] if link in rows else ():
            device_rows = rows[link]
            packets = _grown_in(around, time_ns[device_rows], int64_column(table, column)[device_rows])
            counted.append((packets, column, name, _qdisc(evidence, link)))
    packets, column, name, qdisc = max(counted, default=(0, "", "", ""))
    softnet = _softnet_drops(evidence, flow, around)
    if softnet > packets:
        sentence = f"{count(softnet, 'packet')} found no room in the backlog of a CPU"
        return LossPlace(sentence, _OF_BACKLOG)
    if not packets:
        return None
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
    touched = overlap(times, time_ns[rows], time_ns[rows + 1]) > 0
    return int(np.diff(value)[rows][touched].sum())


def _qdisc(evidence: Evidence, link: LinkKey) -> str:
    past = evidence.pasts.get(link)
    return past.changes[-1].qdisc.partition(",")[0] if past is not None else ""


def _softnet_drops(evidence: Evidence, flow: int, times: Intervals) -> int:
    """Return how many packets found no room in the backlogs of CPUs in some time, on the hosts of a flow's two ends."""
    pids = [int(evidence.fold.flows.pid[row]) for row in (flow, int(evidence.paths.peer[flow])) if row != UNKNOWN]
    boots = {evidence.host_of[pid].meta.boot_id for pid in pids if pid in evidence.host_of}
    hosts = {host.name for host in evidence.hosts if host.meta.boot_id in boots}
    total = 0
    for series in evidence.meta.series:
        if series.name == "softnet_dropped" and (not hosts or series.subject.partition(" of ")[2] in hosts):
            samples = evidence.counters.where(evidence.counters.series == series.id)
            total += _grown_in(times, samples.time_ns, samples.value)
    return total
