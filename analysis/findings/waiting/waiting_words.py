"""Who or what is behind each cause of waiting, and how one says it: what happened, and what to do next."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from netprof.analysis.account.causes import (
    HOST,
    LATE_RANK,
    LINK_FULL,
    LOSS,
    OTHER_TRAFFIC,
    TRANSPORT,
    UNSEEN,
    Cause,
)
from netprof.analysis.account.waiting import NOBODY, Waiting
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.blame import ALONE, HELD_UP, Blame, alike
from netprof.analysis.findings.links.full_links import advice_on_full, link_behind, said_full, said_full_of_others
from netprof.analysis.findings.links.rdma_ports import port_reason
from netprof.analysis.findings.names import name_on_host
from netprof.analysis.findings.stragglers.doing import Doing
from netprof.analysis.findings.transport.loss_place import place_of_loss
from netprof.analysis.findings.transport.transport_reason import Reason, transport_reason
from netprof.analysis.findings.waiting.open_waits import OpenWaits
from netprof.analysis.tables.intervals import merge, union
from netprof.units import percent

UNMARKED = "no mark tells what is waited for"
_PORT_GONE = "an RDMA port was not there"
_PORTS_REST = "; nor did the RDMA ports of these ranks move them"


def blame(evidence: Evidence) -> dict[Cause, Blame]:
    """Return who is behind each cause of the account that names somebody."""
    waiting = evidence.account.waiting
    found = {cause: _rank_behind(waiting.of(cause), evidence) for cause in (LATE_RANK, HOST)}
    found[LINK_FULL] = link_behind(waiting.of(LINK_FULL), evidence, others=False)
    found[OTHER_TRAFFIC] = link_behind(waiting.of(OTHER_TRAFFIC), evidence, others=True)
    found[LOSS] = _flow_behind(waiting.of(LOSS), evidence)
    if len(slow := waiting.of(TRANSPORT)):
        found[TRANSPORT] = Blame(reason=_reason(evidence, slow))
    found[UNSEEN] = _what_hides(waiting.of(UNSEEN), evidence)
    return {cause: each for cause, each in found.items() if each is not None}


def _reason(evidence: Evidence, slow: Waiting) -> Reason:
    """Return why a transport does not fill its link, be it an RDMA port or TCP."""
    of_port = port_reason(evidence, np.unique(slow.pid).tolist(), merge(slow.begin_ns, slow.end_ns))
    return transport_reason(evidence, slow) if of_port is None else of_port


def words(cause: Cause, who: Blame, part: float, doing: Doing | None = None) -> tuple[str, str]:
    """Return what happened, and what to do next.

    `part` is the cause's share of all exposed time, and `doing` what the rank that is behind it does meanwhile.
    """
    happened, next_step = _WORDS[cause]
    if doing is None or (who.part < ALONE and who.doing != doing.name):
        return happened(who, part), next_step(who)
    return f"{happened(who, part)}: {doing.said}", doing.advice


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
    each: dict[int, int] = {}
    for number in np.unique(stretches.group).tolist():
        for flow, when in evidence.account.groups[number].loss.items():
            each[flow] = max(each.get(flow, 0), (when & times).total_ns)
    if not each:
        return None
    flow = max(each, key=lambda row: each[row])
    flows = evidence.fold.flows
    name = flows.name(flow)
    lost = evidence.account.groups.values()
    place = place_of_loss(evidence, flow, union([group.loss[flow] for group in lost if flow in group.loss]))
    part = each[flow] / max(times.total_ns, 1)
    return Blame(label=name, part=part, flow=name, detail=place.happened, advice=place.advice)


def _what_hides(stretches: Waiting, evidence: Evidence) -> Blame:
    """Return what is to blame if most of it is not known because the recorder was held up, or a port was gone."""
    times = merge(stretches.begin_ns, stretches.end_ns)
    gone = (times & union(list(evidence.links.without_port.values()))).total_ns
    if 2 * gone > times.total_ns:
        return Blame(_PORT_GONE, part=gone / times.total_ns)
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


def _late(who: Blame, part: float) -> str:
    if who.label and who.part >= ALONE:
        return f"{percent(part)} of the waiting is for {who.label}, which asks for its collectives after everybody else"
    often = f"most often {who.label}" if who.label else "which of them, their hosts' clocks do not tell"
    return f"{percent(part)} of the waiting is for ranks that ask for their collectives last, {often}"


def _lost(who: Blame, part: float) -> str:
    whose = f", most of all {who.label}" if who.label else ""
    return f"in {percent(part)} of the waiting TCP recovers from loss{whose}{f': {who.detail}' if who.detail else ''}"


def _lost_advice(who: Blame) -> str:
    return (
        who.advice or "find where packets are dropped: full switch buffers, errors of a port (ethtool -S), a wrong MTU"
    )


_NOT_FULL_NOR_LOST = ", no link is known to be full and nothing is lost"
_NOT_FULL = " and no link is known to be full"

_Say = tuple[Callable[[Blame, float], str], Callable[[Blame], str]]

_WORDS: dict[Cause, _Say] = {
    LATE_RANK: (
        _late,
        lambda who: (
            f"look at what {who.label} does before: data loading, a slower or busier CPU or GPU, uneven batches"
            if who.label
            else "look at what makes some ranks slower"
        ),
    ),
    LINK_FULL: (said_full, advice_on_full),
    OTHER_TRAFFIC: (
        said_full_of_others,
        lambda who: "move the other traffic to another link or another time, or give the job priority on this one",
    ),
    LOSS: (_lost, _lost_advice),
    TRANSPORT: (
        lambda who, part: (
            f"in {percent(part)} of the waiting bytes are under way"
            f"{_NOT_FULL if who.reason.of_port else _NOT_FULL_NOR_LOST}; {who.reason.happened}"
        ),
        lambda who: who.reason.advice,
    ),
    HOST: (
        lambda who, part: (
            f"in {percent(part)} of the waiting all bytes have arrived and a host is busy with them"
            f"{': ' if who.label else ''}{who.label}"
        ),
        lambda who: f"give {who.label or 'the hosts'} more CPU: cores to itself, pinning, fewer neighbours",
    ),
    UNSEEN: (
        lambda who, part: (
            f"in {percent(part)} of the waiting the ranks are blocked in sockets or locks while their bytes move, and "
            f"{who.label}"
            if who.label == UNMARKED
            else f"in {percent(part)} of the waiting bytes passed of which it is not known when: {who.label}"
            if who.label
            else f"{percent(part)} of the waiting is for bytes that passed no wire that netprof watches{who.detail}"
        ),
        lambda who: (
            "see dmesg for why its driver let go of the port"
            if who.label == _PORT_GONE
            else "look at who carries those bytes: the flows and links below, and at what the ranks are blocked in"
            if who.label == UNMARKED
            else "give the recorder a core that is not so busy, or wider bins (--bin)"
            if who.label
            else who.advice
            or "they go through shared memory, over NVLink, over an RDMA port whose bytes nothing counts, or between "
            "members that are not recorded: record those too"
        ),
    ),
}
