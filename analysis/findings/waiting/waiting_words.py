"""Who or what is behind each cause of waiting; the words are in `cause_words`."""

from __future__ import annotations

import numpy as np

from netprof.analysis.account.causes import LOSS, TRANSPORT, UNSEEN, Cause
from netprof.analysis.account.held_up import CAUSES, Kind
from netprof.analysis.account.waiting import NOBODY, Waiting
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.blame import ALONE, HELD_UP, Blame, alike
from netprof.analysis.findings.links.full_links import link_behind
from netprof.analysis.findings.links.rdma_ports import port_reason
from netprof.analysis.findings.names import name_on_host
from netprof.analysis.findings.stragglers.doing import Doing
from netprof.analysis.findings.transport.loss_place import place_of_loss
from netprof.analysis.findings.transport.transport_reason import Reason, transport_reason
from netprof.analysis.findings.waiting.cause_words import CAUSE_WORDS, PORT_GONE, UNMARKED
from netprof.analysis.findings.waiting.open_waits import OpenWaits
from netprof.analysis.tables.intervals import merge, union

_PORTS_REST = "; nor did the RDMA ports of these ranks move them"


def blame(evidence: Evidence) -> dict[Cause, Blame]:
    """Return who is behind each cause of the account that names somebody."""
    waiting = evidence.account.waiting
    blames = {cause: _rank_behind(waiting.of(cause), evidence) for cause in CAUSES[Kind.RANK]}
    for cause in CAUSES[Kind.LINK]:
        blames[cause] = link_behind(waiting.of(cause), evidence, others=cause.of_others)
    blames[LOSS] = _flow_behind(waiting.of(LOSS), evidence)
    if len(slow := waiting.of(TRANSPORT)):
        blames[TRANSPORT] = Blame(reason=_reason(evidence, slow))
    blames[UNSEEN] = _what_hides(waiting.of(UNSEEN), evidence)
    return {cause: each for cause, each in blames.items() if each is not None}


def _reason(evidence: Evidence, slow: Waiting) -> Reason:
    """Return why a transport does not fill its link, be it an RDMA port or TCP."""
    of_port = port_reason(evidence, np.unique(slow.pid).tolist(), merge(slow.begin_ns, slow.end_ns))
    return transport_reason(evidence, slow) if of_port is None else of_port


def words(cause: Cause, who: Blame, part: float, doing: Doing | None = None) -> tuple[str, str]:
    """Return what happened, and what to do next.

    `part` is the cause's share of all exposed time, and `doing` what the rank that is behind it does meanwhile.
    """
    words = CAUSE_WORDS[cause]
    if doing is None or (who.part < ALONE and who.doing != doing.name):
        return words.sentence(who, part), words.advice(who)
    return f"{words.sentence(who, part)}: {doing.text}", doing.advice


def _rank_behind(stretches: Waiting, evidence: Evidence) -> Blame | None:
    stretches = stretches.where(stretches.culprit != NOBODY)
    if len(stretches) == 0:
        return None
    pids, index = np.unique(stretches.culprit, return_inverse=True)
    lengths = np.bincount(index, weights=stretches.length_ns).astype(np.float64)
    pid = int(pids[np.argmax(lengths)])
    part = float(lengths.max() / lengths.sum())
    ranks = alike(pids, lengths, evidence.ranks)
    return Blame(name_on_host(pid, evidence, "process"), part, rank=evidence.ranks.get(pid), ranks=ranks)


def blame_of_open_waits(evidence: Evidence, unclosed: OpenWaits | None) -> dict[Cause, Blame]:
    """Return who is behind a wait in which the recording ends, if that is longer than all other waiting."""
    if unclosed is None or unclosed.total_ns < int(evidence.account.waiting.length_ns.sum()):
        return {}
    if unclosed.culprit is not None:
        name = name_on_host(unclosed.culprit, evidence, "process")
        return {unclosed.cause: Blame(name, rank=evidence.ranks.get(unclosed.culprit))}
    if unclosed.flow is None:
        return {}
    name = evidence.fold.flows.name(unclosed.flow)
    place = place_of_loss(evidence, unclosed.flow, evidence.recording)
    return {LOSS: Blame(label=name, flow=name, detail=place.happened, advice=place.advice)}


def _flow_behind(stretches: Waiting, evidence: Evidence) -> Blame | None:
    times = merge(stretches.begin_ns, stretches.end_ns)
    lost_ns: dict[int, int] = {}
    for number in np.unique(stretches.group).tolist():
        for flow, when in evidence.account.groups[number].loss.items():
            lost_ns[flow] = max(lost_ns.get(flow, 0), (when & times).total_ns)
    if not lost_ns:
        return None
    flow = max(lost_ns, key=lambda row: lost_ns[row])
    flows = evidence.fold.flows
    name = flows.name(flow)
    lost = evidence.account.groups.values()
    place = place_of_loss(evidence, flow, union([group.loss[flow] for group in lost if flow in group.loss]))
    part = lost_ns[flow] / max(times.total_ns, 1)
    return Blame(label=name, part=part, flow=name, detail=place.happened, advice=place.advice)


def _what_hides(stretches: Waiting, evidence: Evidence) -> Blame:
    """Return what is to blame if most of it is not known because the recorder was held up, or a port was gone."""
    times = merge(stretches.begin_ns, stretches.end_ns)
    gone = (times & union(list(evidence.links.without_port.values()))).total_ns
    if 2 * gone > times.total_ns:
        return Blame(PORT_GONE, part=gone / times.total_ns)
    unplaced = (times & union(list(evidence.links.unplaced.values()))).total_ns
    if 2 * unplaced > times.total_ns:
        return Blame(HELD_UP, part=unplaced / times.total_ns)
    if evidence.meta.only_devices:
        only = " ".join(f"--device {device}" for device in evidence.meta.only_devices)
        return Blame(detail=f": only flows over some devices were recorded ({only})", advice=f"record without {only}")
    unmarked = union(
        [times & evidence.unmarked[pid] for pid in np.unique(stretches.pid).tolist() if pid in evidence.unmarked]
    )
    if 2 * unmarked.total_ns > times.total_ns:
        return Blame(UNMARKED, part=unmarked.total_ns / times.total_ns)
    with_port = {pid for use in evidence.links.ports.values() for pid in use.pids}
    return Blame(detail=_PORTS_REST if set(np.unique(stretches.pid).tolist()) <= with_port else "")
