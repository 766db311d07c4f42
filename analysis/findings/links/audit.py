"""What about the job's network is not as it could be: findings with their evidence, and what changes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from netprof.alternatives import offloads_off, smaller_mtu
from netprof.analysis.declared import plain, put_together
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.links.alternatives import alternatives
from netprof.analysis.findings.links.hops import hops_below
from netprof.analysis.findings.links.links import LINKS
from netprof.analysis.findings.transport.transport_reason import main_samples
from netprof.analysis.form import Pairs, Part
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.flow_table import LOOPBACK, LinkKey
from netprof.schema import HopKind
from netprof.units import percent

_MATTERS = 0.01
"""Share of the job's bytes from which on a device matters."""
_ONE_CPU = 0.9
_FEW_CPUS = 4
_BUSY_PER_S = 2000
_LIMITED = 0.05


@dataclass(frozen=True)
class Audited:
    """Something that could be better: about which device, what is the case, and what changes it."""

    kind: str
    subject: str
    sentence: str
    advice: str


def _conclude(analysis: Analysis) -> tuple[Audited, ...]:
    evidence = analysis.evidence
    if evidence.is_recent:
        return ()
    links = [link for link in analysis.of(LINKS) if not link.above and link.device != LOOPBACK and not link.period_ns]
    whole = sum(link.moved_bytes for link in links)
    main = [link.key for link in links if whole and link.moved_bytes >= _MATTERS * whole]
    return (
        *_faster_devices(evidence),
        *(found for key in main for found in _of_device(evidence, key)),
        *_receive_processing(evidence),
        *_windows(evidence),
    )


def _faster_devices(evidence: Evidence) -> Iterator[Audited]:
    for link, found in alternatives(evidence).items():
        yield Audited("faster_device", link.device, found.sentence, found.line)


def _of_device(evidence: Evidence, link: LinkKey) -> Iterator[Audited]:
    past, hops = evidence.pasts.get(link), hops_below(evidence, link)
    mtu = past.changes[-1].mtu_bytes if past is not None else 0
    for hop in {hop.device: hop for hop in hops if hop.on_path}.values():
        below = evidence.pasts.get(LinkKey(hop.netns, hop.device))
        least = below.changes[-1].mtu_bytes if below is not None else 0
        if 0 < least < mtu and hop.kind is not HopKind.TUNNEL:
            yield Audited("mtu", link.device, *smaller_mtu(link.device, mtu, hop.device, least))
    members = {hop.device: hop for hop in hops if hop.kind is HopKind.MEMBER}
    idle = [name for name, hop in members.items() if not hop.on_path]
    if idle and len(idle) < len(members):
        said = f"of the members of {link.device} hardly anything passes {', '.join(idle)}: a flow goes by one member"
        advice = "more connections (NCCL_NSOCKS_PERTHREAD), or a hash over ports (xmit_hash_policy layer3+4)"
        yield Audited("bond", link.device, said, advice)
    off = evidence.settings.of(link, "off").split()
    rate_bps = past.changes[-1].line_rate_bps if past is not None else None
    if (found := offloads_off(link.device, off, rate_bps)) is not None:
        yield Audited("offloads", link.device, *found)


def _receive_processing(evidence: Evidence) -> Iterator[Audited]:
    """Yield that one CPU receives nearly everything, on a host with several."""
    received: dict[str, int] = {}
    for series in evidence.meta.series:
        if series.name == "net_rx":
            own = evidence.counters.value[evidence.counters.series == series.id]
            received[series.subject] = received.get(series.subject, 0) + (int(own[-1] - own[0]) if len(own) else 0)
    total, seconds = sum(received.values()), evidence.recording.total_ns / 1e9
    if len(received) < _FEW_CPUS or not seconds or total < _BUSY_PER_S * seconds:
        return
    cpu = max(received, key=lambda each: received[each])
    if received[cpu] >= _ONE_CPU * total:
        said = f"{cpu} does {percent(received[cpu] / total)} of all receive processing, of {len(received)} CPUs"
        advice = "more receive queues (ethtool -L), their interrupts on several CPUs, or RPS (rps_cpus)"
        yield Audited("receive_cpu", cpu, said, advice)


def _windows(evidence: Evidence) -> Iterator[Audited]:
    """Yield that TCP's buffers are what flows wait for, with what they are set to."""
    samples = main_samples(evidence)
    if samples is None:
        return
    ran = samples.ran_in(evidence.recording)
    for name, spent, whose in (("tcp_rmem", ran.receiver, "receive"), ("tcp_wmem", ran.sender, "send")):
        setting = f"net.ipv4.{name}"
        values = {value for (link, key), value in evidence.settings.values.items() if key == setting}
        if ran.whole and spent >= _LIMITED * ran.whole and values:
            part = percent(spent / ran.whole)
            said = f"flows wait for {whose} buffers {part} of the time; {setting} is {min(values)}"
            yield Audited("buffers", setting, said, f'sysctl -w {setting}="4096 131072 67108864"')


def _parts(found: Sequence[Audited]) -> Sequence[Part]:
    rows = [(each.subject, f"{each.sentence} → {each.advice}") for each in found]
    return [Part("Network audit", "what could be set otherwise", [Pairs(rows)])] if rows else ()


AUDIT = Section(
    "audit",
    _conclude,
    ("settings", "nic", "flows", "tcp", "counters", "link_changes"),
    lambda found: {"audit": plain(found)},
    _parts,
    merge=lambda parts, whole: tuple(put_together(parts, lambda each: (each.kind, each.subject), lambda a, b: b)),
)
