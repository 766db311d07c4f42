"""Who or what is behind each cause of waiting, and how one says it: what happened, and what to do next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from netprof.analysis.account.account import links_of
from netprof.analysis.account.bottlenecks import Bottleneck
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
from netprof.analysis.findings.doing import Doing
from netprof.analysis.findings.port_reports import port_reason
from netprof.analysis.findings.transport_reason import NO_CLOCKS, Reason, transport_reason
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.tables.intervals import Intervals, merge, union
from netprof.schema import TRANSMIT
from netprof.units import duration, percent, rate

ALONE = 0.8
"""Share of a cause's time that one rank, or one link alone, has to account for to be called the one."""


HELD_UP = "the recorder was held up"
UNMARKED = "no mark tells what is waited for"
_PORT_GONE = "an RDMA port was not there"
_PORTS_REST = "; nor did the RDMA ports of these ranks move them"


@dataclass(frozen=True)
class Blame:
    """Who is behind a cause; what is not known is None or empty.

    `label` names the rank or link for a person, `part` is its share of the cause's time, `alone` says that the other
    links of the group have room meanwhile. `doing` is what all late ranks do, by name.
    """

    label: str = ""
    part: float = 1.0
    rank: int | None = None
    ranks: tuple[int, ...] = ()
    link: str | None = None
    flow: str | None = None
    alone: bool = False
    detail: str = ""
    reason: Reason = NO_CLOCKS
    doing: str = ""


def blame(evidence: Evidence) -> dict[Cause, Blame]:
    """Return who is behind each cause of the account that names somebody."""
    waiting = evidence.account.waiting
    found = {cause: _rank_behind(waiting.of(cause), evidence) for cause in (LATE_RANK, HOST)}
    found[LINK_FULL] = _link_behind(waiting.of(LINK_FULL), evidence, others=False)
    found[OTHER_TRAFFIC] = _link_behind(waiting.of(OTHER_TRAFFIC), evidence, others=True)
    found[LOSS] = _flow_behind(waiting.of(LOSS), evidence)
    if len(slow := waiting.of(TRANSPORT)):
        found[TRANSPORT] = Blame(reason=_reason(evidence, slow))
    found[UNSEEN] = _what_hides(waiting.of(UNSEEN), evidence)
    return {cause: each for cause, each in found.items() if each is not None}


def _reason(evidence: Evidence, slow: Waiting) -> Reason:
    """Return why a transport does not fill its link, be it an RDMA port or TCP."""
    of_port = port_reason(evidence, np.unique(slow.pid).tolist(), merge(slow.begin_ns, slow.end_ns))
    return transport_reason(evidence, slow) if of_port is None else of_port


def most_behind(found: Sequence[tuple[int, Blame]]) -> Blame:
    """Return who is behind most of a cause, given how long it lasted in each piece of a recording, and who was then."""
    weights: dict[tuple[str, str], float] = {}
    for length_ns, who in found:
        weights[_name(who)] = weights.get(_name(who), 0.0) + length_ns * who.part
    most = max(weights, key=lambda name: weights[name])
    alike = [(length_ns, who) for length_ns, who in found if _name(who) == most]
    alone = sum(length_ns for length_ns, who in alike if who.alone) * 2 > sum(length_ns for length_ns, _ in alike)
    total_ns = sum(length_ns for length_ns, _ in found)
    return replace(max(alike, key=lambda pair: pair[0])[1], part=weights[most] / max(total_ns, 1), alone=alone)


def _name(who: Blame) -> tuple[str, str]:
    return who.label, who.reason.name


def words(cause: Cause, who: Blame, part: float, doing: Doing | None = None) -> tuple[str, str]:
    """Return what happened, and what to do next.

    `part` is the cause's share of all exposed time, and `doing` what the rank that is behind it does meanwhile.
    """
    happened, next_step = _WORDS[cause]
    if doing is None or (who.part < ALONE and who.doing != doing.name):
        return happened(who, percent(part)), next_step(who)
    return f"{happened(who, percent(part))}: {doing.said}", doing.advice


def _rank_behind(stretches: Waiting, evidence: Evidence) -> Blame | None:
    stretches = stretches.where(stretches.culprit != NOBODY)
    if len(stretches) == 0:
        return None
    pids, index = np.unique(stretches.culprit, return_inverse=True)
    lengths = np.bincount(index, weights=stretches.length_ns)
    pid = int(pids[np.argmax(lengths)])
    rank = evidence.ranks.get(pid)
    host = evidence.host_of.get(pid)
    own = pid if host is None else host.pids[pid]
    label = (f"process {own}" if rank is None else f"rank {rank}") + (f" on {host.name}" if host is not None else "")
    return Blame(label, float(lengths.max() / lengths.sum()), rank=rank)


def _link_behind(stretches: Waiting, evidence: Evidence, *, others: bool) -> Blame | None:
    """Return the link that is full for most of the time."""
    times = merge(stretches.begin_ns, stretches.end_ns)
    numbers = [number for number in np.unique(stretches.group).tolist() if number in evidence.account.groups]
    found = [each for number in numbers for each in evidence.account.groups[number].bottlenecks]
    if not found:
        return None
    when = [((each.others if others else each.own) & times).total_ns for each in found]
    best = int(np.argmax(when))
    side = found[best].side
    pids = evidence.links.lanes.pids_of(side.link)
    ranks = tuple(sorted({evidence.ranks[pid] for pid in pids if pid in evidence.ranks}))
    rest = union([each.full for each in found if each.side.link != side.link])
    alone = _has_siblings(side.link, evidence) and (rest & times).total_ns < (1 - ALONE) * times.total_ns
    place = f"{side.link.device} of {ranks_named(ranks, pids)}{_on_host(side.link, evidence)}"
    way = "sending" if side.direction == TRANSMIT else "receiving"
    use = evidence.links.ports.get(side.link)
    seen = f", seen every {duration(use.period_ns / 1e9)}" if use is not None else ""
    return Blame(
        label=f"{place} ({rate(side.line_rate_bps)}, {way}{seen})",
        part=when[best] / max(times.total_ns, 1),
        ranks=ranks,
        link=side.link.device,
        alone=alone,
        detail=_others_share(found[best], times) if others else "",
    )


def _has_siblings(link: LinkKey, evidence: Evidence) -> bool:
    """Tell whether it is known of any other link that carries the job's bytes when that is full."""
    used = links_of(np.unique(evidence.collectives.pid).tolist(), evidence.links.lanes)
    return any(side.link in used for side in evidence.links.sides if side.link != link)


def _on_host(link: LinkKey, evidence: Evidence) -> str:
    host = evidence.host_of_link(link)
    return f" on {host}" if host else ""


def _others_share(full: Bottleneck, times: Intervals) -> str:
    own, others = full.side.own.busy_in(times), full.side.others.busy_in(times)
    return percent(others / (own + others)) if own + others else "an unknown part"


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
    name = f"{flows.local_addr[flow]}:{flows.local_port[flow]} → {flows.remote_addr[flow]}:{flows.remote_port[flow]}"
    return Blame(label=name, part=each[flow] / max(times.total_ns, 1), flow=name)


def _what_hides(stretches: Waiting, evidence: Evidence) -> Blame:
    """Return what is to blame if most of it is not known because the recorder was held up, or a port was gone."""
    times = merge(stretches.begin_ns, stretches.end_ns)
    gone = (times & union(list(evidence.links.without_port.values()))).total_ns
    if 2 * gone > times.total_ns:
        return Blame(_PORT_GONE, part=gone / times.total_ns)
    unplaced = (times & union(list(evidence.links.unplaced.values()))).total_ns
    if 2 * unplaced > times.total_ns:
        return Blame(HELD_UP, part=unplaced / times.total_ns)
    unmarked = union(
        [times & evidence.unmarked[pid] for pid in np.unique(stretches.pid).tolist() if pid in evidence.unmarked]
    )
    if 2 * unmarked.total_ns > times.total_ns:
        return Blame(UNMARKED, part=unmarked.total_ns / times.total_ns)
    with_port = {pid for use in evidence.links.ports.values() for pid in use.pids}
    return Blame(detail=_PORTS_REST if set(np.unique(stretches.pid).tolist()) <= with_port else "")


def ranks_named(ranks: tuple[int, ...], pids: Iterable[int]) -> str:
    """Return how some ranks are called, or the processes if nothing says which ranks they are."""
    numbers = ranks or tuple(pids)
    one, several = ("rank", "ranks") if ranks else ("process", "processes")
    return f"{several if len(numbers) > 1 else one} {', '.join(map(str, numbers))}"


def _late(who: Blame, part: str) -> str:
    if who.label and who.part >= ALONE:
        return f"{part} of the waiting is for {who.label}, which asks for its collectives after everybody else"
    often = f"most often {who.label}" if who.label else "which of them, their hosts' clocks do not tell"
    return f"{part} of the waiting is for ranks that ask for their collectives last, {often}"


def _full(who: Blame, part: str) -> str:
    alone = ", while the other links have room" if who.alone else ""
    return f"in {part} of the waiting {who.label or 'a link'} is full of the job's own bytes{alone}"


_NOT_FULL_NOR_LOST = ", no link is known to be full and nothing is lost"
_NOT_FULL = " and no link is known to be full"

_Say = tuple[Callable[[Blame, str], str], Callable[[Blame], str]]

_WORDS: dict[Cause, _Say] = {
    LATE_RANK: (
        _late,
        lambda who: (
            f"look at what {who.label} does before: data loading, a slower or busier CPU or GPU, uneven batches"
            if who.label
            else "look at what makes some ranks slower"
        ),
    ),
    LINK_FULL: (
        _full,
        lambda who: (
            f"bring {who.label} up to the speed of the others (cable, port, driver, shaping): everybody waits for it"
            if who.alone
            else "a faster link, or fewer bytes: compression, gradient accumulation, larger batches"
        ),
    ),
    OTHER_TRAFFIC: (
        lambda who, part: (
            f"in {part} of the waiting {who.label or 'a link'} is full, "
            f"{who.detail or 'a part'} of it not the job's bytes"
        ),
        lambda who: "move the other traffic to another link or another time, or give the job priority on this one",
    ),
    LOSS: (
        lambda who, part: (
            f"in {part} of the waiting TCP recovers from loss{', most of all ' if who.label else ''}{who.label}"
        ),
        lambda who: "find where packets are dropped: full switch buffers, errors of a port (ethtool -S), a wrong MTU",
    ),
    TRANSPORT: (
        lambda who, part: (
            f"in {part} of the waiting bytes are under way"
            f"{_NOT_FULL if who.reason.of_port else _NOT_FULL_NOR_LOST}; {who.reason.happened}"
        ),
        lambda who: who.reason.advice,
    ),
    HOST: (
        lambda who, part: (
            f"in {part} of the waiting all bytes have arrived and a host is busy with them"
            f"{': ' if who.label else ''}{who.label}"
        ),
        lambda who: f"give {who.label or 'the hosts'} more CPU: cores to itself, pinning, fewer neighbours",
    ),
    UNSEEN: (
        lambda who, part: (
            f"in {part} of the waiting the ranks are blocked in sockets or locks while their bytes move, and "
            f"{who.label}"
            if who.label == UNMARKED
            else f"in {part} of the waiting bytes passed of which it is not known when: {who.label}"
            if who.label
            else f"{part} of the waiting is for bytes that passed no wire that netprof watches{who.detail}"
        ),
        lambda who: (
            "see dmesg for why its driver let go of the port"
            if who.label == _PORT_GONE
            else "look at who carries those bytes: the flows and links below, and at what the ranks are blocked in"
            if who.label == UNMARKED
            else "give the recorder a core that is not so busy, or wider bins (--bin)"
            if who.label
            else "they go through shared memory, over NVLink, over an RDMA port whose bytes nothing counts, or between "
            "members that are not recorded: record those too"
        ),
    ),
}
