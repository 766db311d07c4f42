"""The account of a recording: what its links did, and what its ranks waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.account.activity import Activity, activity
from netprof.analysis.account.group_times import (
    Full,
    GroupTimes,
    LinkSide,
    others_served,
    recoveries,
    silences,
)
from netprof.analysis.account.waiting import Waiting, account
from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.factors import sent_per_byte
from netprof.analysis.events.members import Members
from netprof.analysis.tables.columns import UNKNOWN, Bool, Int64
from netprof.analysis.tables.flow_table import Flows, LinkKey
from netprof.analysis.tables.intervals import Intervals, merge, union
from netprof.analysis.wire.lanes import Lanes
from netprof.analysis.wire.recovery import Resent
from netprof.analysis.wire.served import served
from netprof.schema import RECEIVE, TRANSMIT

_HARDLY_ANY = 0.05
"""Share of the bytes that a collective needs, below which it went another way."""
_MINOR_LINK = 0.01
"""Share of a communicator's bytes below which a link does not hold it up."""
_LEAST_SILENCE_NS = 2_000_000
_ROUND_TRIPS = 2


@dataclass(frozen=True, eq=False)
class Account:
    """What every rank waited for, and by communicator (as in `Members`) what explains it."""

    waiting: Waiting
    groups: Mapping[int, GroupTimes]


@dataclass(frozen=True, eq=False)
class Sources:
    """What the account is made from; `waits` and all else by process, `rtt_ns` and `resent` by the flow's row."""

    waits: Mapping[int, Intervals]
    collectives: Collectives
    members: Members
    lanes: Lanes
    sides: Sequence[LinkSide]
    flows: Flows
    resent: Resent
    rtt_ns: Int64


def make_account(sources: Sources) -> Account:
    """Make the account. Nothing of it is a guess about time: every exposed nanosecond is in it once."""
    collectives, members = sources.collectives, sources.members
    pids = sorted(sources.lanes.pids | set(sources.waits))
    activities = {pid: activity([sources.lanes.of_process(pid, way) for way in (TRANSMIT, RECEIVE)]) for pid in pids}
    groups = {}
    for number in np.unique(members.group[members.group >= 0]).tolist():
        of_group = np.unique(collectives.pid[members.group == number]).tolist()
        groups[int(number)] = _group_times(of_group, sources, activities)
    unseen = went_another_way(collectives, members, sources.lanes)
    return Account(account(sources.waits, collectives, members, activities, groups, unseen), groups)


def link_sides(
    lanes: Lanes, rates: Mapping[LinkKey, float], counters: Mapping[LinkKey, tuple[Int64, Int64, Int64]]
) -> list[LinkSide]:
    """Return both sides of every link whose line rate is known; `counters` are times, bytes sent and received."""
    sides = []
    for link in lanes.links:
        for way in (TRANSMIT, RECEIVE):
            if rate := rates.get(link):
                own = served(lanes.of_link(link, way), way, rate)
                times, *moved = counters.get(link, (np.zeros(0, np.int64),) * 3)
                sides.append(LinkSide(link, way, rate, own, others_served(times, moved[way], own, rate)))
    return sides


def went_another_way(collectives: Collectives, members: Members, lanes: Lanes) -> Bool:
    """Return which collectives hardly any byte of was seen on a wire, by whoever performed it."""
    ranks = np.maximum(members.ranks, 2)
    need = np.where(collectives.bytes == UNKNOWN, 0, collectives.bytes) * sent_per_byte(collectives.kind, ranks)
    moved = np.zeros(len(collectives))
    for pid in np.unique(collectives.pid).tolist():
        rows = np.flatnonzero(collectives.pid == pid)
        for way in (TRANSMIT, RECEIVE):
            bins = lanes.of_process(pid, way)
            if bins is not None:
                until = bins.payload_until(collectives.end_ns[rows]) - bins.payload_until(collectives.posted_ns[rows])
                moved[rows] += until
    return np.asarray((need > 0) & (moved < _HARDLY_ANY * need))


def _group_times(pids: Sequence[int], sources: Sources, activities: Mapping[int, Activity]) -> GroupTimes:
    within = union([sources.waits[pid] for pid in pids if pid in sources.waits])
    links = _links_of(pids, sources.lanes)
    full = [Full(side, *side.full(within)) for side in sources.sides if side.link in links]
    flows = np.flatnonzero(np.isin(sources.flows.pid, pids))
    resent = sources.resent.where(np.isin(sources.resent.flow, flows))
    rtt_ns = int(sources.rtt_ns[flows].max(initial=0))
    moved = union([merge(activities[pid].first_ns, activities[pid].last_ns + 1) for pid in pids if pid in activities])
    sent = {pid: activity([sources.lanes.of_process(pid, TRANSMIT)]) for pid in pids}
    return GroupTimes(
        full=tuple(each for each in full if len(each.own) or len(each.others)),
        loss=recoveries(resent.flow, resent.before_ns, resent.last_ns, sources.rtt_ns[resent.flow]),
        held=silences(
            {pid: (each.first_ns, each.last_ns) for pid, each in sent.items()},
            moved,
            max(_LEAST_SILENCE_NS, _ROUND_TRIPS * rtt_ns),
        ),
    )


def _links_of(pids: Sequence[int], lanes: Lanes) -> set[LinkKey]:
    """Return the links over which some processes move their bytes, but for those that carry hardly any."""
    moved: dict[LinkKey, int] = {}
    for lane, _, bins in lanes:
        if lane.pid in pids:
            moved[lane.link] = moved.get(lane.link, 0) + int(bins.wire_bytes.sum(dtype=np.int64))
    most = max(moved.values(), default=0)
    return {link for link, amount in moved.items() if amount >= _MINOR_LINK * most}
