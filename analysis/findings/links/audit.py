"""What about the job's network is not as it could be: findings with their evidence, and what changes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from netprof.analysis.declared import plain, put_together
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.links.alternatives import alternatives
from netprof.analysis.findings.links.hops import hops_below
from netprof.analysis.findings.links.links import LINKS
from netprof.analysis.findings.names import link_on_host
from netprof.analysis.findings.transport.transport_reason import main_samples
from netprof.analysis.form import Pairs, Part
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.flow_table import LOOPBACK, LinkKey
from netprof.network_advice import offloads_off, smaller_mtu
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
        *(
            Audited("faster_device", _subject(evidence, link), better.sentence, better.line)
            for link, better in alternatives(evidence).items()
        ),
        *(audited for key in main for audited in _of_device(evidence, key)),
        *_receive_processing(evidence),
        *_windows(evidence),
    )


def _of_device(evidence: Evidence, link: LinkKey) -> Iterator[Audited]:
    past, hops = evidence.pasts.get(link), hops_below(evidence, link)
    mtu = past.changes[-1].mtu_bytes if past is not None else 0
    for hop in {hop.device: hop for hop in hops if hop.on_path}.values():
        below = evidence.pasts.get(LinkKey(hop.netns, hop.device))
        least = below.changes[-1].mtu_bytes if below is not None else 0
        if 0 < least < mtu and hop.kind is not HopKind.TUNNEL:
            yield Audited("mtu", _subject(evidence, link), *smaller_mtu(link.device, mtu, hop.device, least))
    members = {hop.device: False for hop in hops if hop.kind is HopKind.MEMBER}
    members |= {hop.device: True for hop in hops if hop.kind is HopKind.MEMBER and hop.on_path}
    idle = [name for name, is_used in members.items() if not is_used]
    if idle and len(idle) < len(members):
        text = f"of the members of {link.device} hardly anything passes {', '.join(idle)}: a flow goes by one member"
        advice = "more connections (NCCL_NSOCKS_PERTHREAD), or a hash over ports (xmit_hash_policy layer3+4)"
        yield Audited("bond", _subject(evidence, link), text, advice)
    off = evidence.settings.of(link, "off").split()
    rate_bps = past.changes[-1].line_rate_bps if past is not None else None
    if (offloads := offloads_off(link.device, off, rate_bps)) is not None:
        yield Audited("offloads", _subject(evidence, link), *offloads)


def _subject(evidence: Evidence, link: LinkKey) -> str:
    return f"{link.device}{link_on_host(link, evidence)}"


def _receive_processing(evidence: Evidence) -> Iterator[Audited]:
    """Yield that one CPU receives nearly everything, on a host with several."""
    hosts: dict[str, dict[str, int]] = {}
    for series in evidence.meta.series:
        if series.name == "net_rx":
            values = evidence.counters.value[evidence.counters.series == series.id]
            host = series.subject.partition(" of ")[2]  # of several hosts the subjects say it
            hosts.setdefault(host, {})[series.subject] = int(values[-1] - values[0]) if len(values) else 0
    seconds = evidence.recording.total_ns / 1e9
    for received in hosts.values():
        total = sum(received.values())
        most, cpu = max((amount, name) for name, amount in received.items())
        if len(received) >= _FEW_CPUS and total >= max(_BUSY_PER_S * seconds, 1) and most >= _ONE_CPU * total:
            sentence = f"{cpu} does {percent(most / total)} of all receive processing, of {len(received)} CPUs"
            advice = "more receive queues (ethtool -L), their interrupts on several CPUs, or RPS (rps_cpus)"
            yield Audited("receive_cpu", cpu, sentence, advice)


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
            sentence = f"flows wait for {whose} buffers {part} of the time; {setting} is {min(values)}"
            yield Audited("buffers", setting, sentence, f'sysctl -w {setting}="4096 131072 67108864"')


def _parts(audited: Sequence[Audited]) -> Sequence[Part]:
    rows = [(each.subject, f"{each.sentence} → {each.advice}") for each in audited]
    return [Part("Network audit", "what could be set otherwise", [Pairs(rows)])] if rows else ()


def _what(audited: Audited) -> tuple[str, str, str]:
    """Return what is one finding in all pieces: the advice names what it is about, a sentence holds shares of each."""
    return audited.kind, audited.subject, audited.advice


AUDIT = Section(
    "audit",
    _conclude,
    ("settings", "nic", "flows", "tcp", "counters", "link_changes"),
    lambda audited: {"audit": plain(audited)},
    _parts,
    merge=lambda parts, whole: tuple(put_together(parts, _what, lambda a, b: b)),
)
