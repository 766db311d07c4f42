"""The account of a recording: what its links did, and what its ranks waited for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from netprof.analysis.account.activity import Activity, activity
from netprof.analysis.account.bottlenecks import LinkSide, alternation, bottlenecks, turns
from netprof.analysis.account.group_times import (
    NOBODY_HOLDS,
    GroupTimes,
    Held,
    least_silence_ns,
    lost_unseen,
    recoveries,
    silences,
    while_down,
    without_unsent,
)
from netprof.analysis.account.late_peers import late_peers
from netprof.analysis.account.lateness import resolve_lateness
from netprof.analysis.account.waiting import WITHOUT_COLLECTIVE, Known, OnWire, Waiting, explain, when_all_seen, within
from netprof.analysis.events.buckets import Buckets
from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.factors import sent_per_byte
from netprof.analysis.events.members import Members
from netprof.analysis.tables.columns import UNKNOWN, Bool, Int64, concatenate, distinct
from netprof.analysis.tables.flow_table import Flows, LinkKey
from netprof.analysis.tables.intervals import NOTHING, Intervals, joined, merge, union
from netprof.analysis.tables.transport import Resends
from netprof.analysis.wire.lanes import Lanes
from netprof.analysis.wire.recovery import Resent
from netprof.schema import RECEIVE, TRANSMIT

_HARDLY_ANY = 0.05
"""Share of the bytes that a collective needs, below which it went another way."""
MINOR_LINK = 0.01
"""Share of a communicator's bytes below which a link does not hold it up."""


@dataclass(frozen=True, eq=False)
class Account:
    """What every rank waited for, and by communicator (as in `Members`) what explains it.

    `around` is what they waited for in all iterations in sight, those of other pieces of the recording too.
    """

    waiting: Waiting
    around: Waiting
    groups: Mapping[int, GroupTimes]


@dataclass(frozen=True, eq=False)
class Sources:
    """What the account is made from.

    `waits` is by process, `exposed` what of them lies in whole iterations, `around` in all of them that are in sight;
    `peers` (the row of the other end), `moved_bytes`, `rtt_ns`, `resent` and `resends` are by the flow's row;
    `unplaced` is by process when bytes passed at a time that is not known, `stopped` when it was seen stopped. The
    clocks of hosts may be `apart_ns` apart. `unsent` is by process when its TCP held bytes back, `no_room` when for
    want of room at which process, and `down` by the flow's row when a device on its way was down. `unmarked` is by
    process when it waits for bytes that no mark tells of, and `busy` when it does not wait for others, of those that
    were watched; `traffic` are the bytes between each two.
    """

    waits: Mapping[int, Intervals]
    exposed: Mapping[int, Intervals]
    around: Mapping[int, Intervals]
    collectives: Collectives
    buckets: Buckets
    members: Members
    lanes: Lanes
    sides: Sequence[LinkSide]
    flows: Flows
    peers: Int64
    moved_bytes: Int64
    resent: Resent
    resends: Resends
    rtt_ns: Int64
    unplaced: Mapping[int, Intervals]
    stopped: Mapping[int, Intervals]
    apart_ns: float
    unsent: Mapping[int, Intervals] = field(default_factory=dict)
    no_room: Mapping[int, Sequence[tuple[int, Intervals]]] = field(default_factory=dict)
    down: Mapping[int, Intervals] = field(default_factory=dict)
    unmarked: Mapping[int, Intervals] = field(default_factory=dict)
    busy: Mapping[int, Intervals] = field(default_factory=dict)
    traffic: Mapping[tuple[int, int], float] = field(default_factory=dict)


def make_account(sources: Sources) -> Account:
    """Make the account. Nothing of it is a guess about time: every exposed nanosecond is in it once."""
    collectives, members = sources.collectives, sources.members
    activities = activities_of(sources)
    numbers = np.unique(members.group[members.group >= 0]).tolist()
    groups = {number: _group_times(number, sources, activities) for number in numbers}
    hidden, carried = without_collective(sources), on_ports(sources)
    if carried or sources.unmarked:
        groups[WITHOUT_COLLECTIVE] = _times_without_marks(carried, sources)
    late = late_peers(_silent(sources, activities), sources.busy, sources.traffic)
    more = {pid: sources.waits[pid] - _times_of(late, pid) for pid in distinct(late.pid).tolist()}
    waits = {**sources.waits, **more}
    known = Known(
        collectives=collectives,
        members=members,
        on_wire=on_wire(sources, activities),
        groups=groups,
        all_seen=when_all_seen(members, collectives),
        hidden=hidden,
        carried=carried,
        unmarked=sources.unmarked,
        between=_between(sources, activities),
    )
    explained = concatenate(Waiting, [explain(waits, known), late]).in_order()
    waiting = resolve_lateness(explained, sources.waits)
    around = within(waiting, sources.around)
    return Account(around if sources.exposed is sources.around else within(waiting, sources.exposed), around, groups)


def _times_of(late: Waiting, pid: int) -> Intervals:
    stretches = late.of_pid(pid)
    return merge(stretches.begin_ns, stretches.end_ns)


def _silent(sources: Sources, activities: Mapping[int, Activity]) -> dict[int, Intervals]:
    """Return when each process waits, no mark tells for what, and no byte of it moves although nothing was lost."""
    silent = {}
    for pid, waits in sources.unmarked.items():
        flows = np.flatnonzero(sources.flows.pid == pid)
        times = waits - _moving(pid, flows, sources, activities)
        times = times - union(list(_loss(flows, sources).values()))
        resends = {row: spans for row, spans in sources.resends.times().items() if row in flows}
        silent[pid] = lost_unseen(Held(times, np.full(len(times), pid)), resends)[0].times
    return silent


def _moving(pid: int, flows: Int64, sources: Sources, activities: Mapping[int, Activity]) -> Intervals:
    """Return when bytes of a process move, with the pauses in between that are no longer than an answer takes."""
    moved = merge(activities[pid].first_ns, activities[pid].last_ns + 1)
    return joined(moved, least_silence_ns(int(sources.rtt_ns[flows].max(initial=0)), sources.apart_ns))


def _between(sources: Sources, activities: Mapping[int, Activity]) -> dict[int, Intervals]:
    """Return when bytes move for which processes wait that exchange them with recorded ones alone, or nearly so."""
    between = {}
    for pid, waits in sources.unmarked.items():
        flows = np.flatnonzero(sources.flows.pid == pid)
        known = sources.peers[flows] != UNKNOWN
        moved = sources.moved_bytes[flows]
        if moved[known].sum() >= (1 - MINOR_LINK) * moved.sum() > 0:
            between[pid] = waits & _moving(pid, flows, sources, activities)
    return between


def activities_of(sources: Sources) -> dict[int, Activity]:
    """Return when payload moved to or from each process."""
    pids = sorted(sources.lanes.pids | set(sources.waits))
    return {pid: activity([sources.lanes.of_process(pid, way) for way in (TRANSMIT, RECEIVE)]) for pid in pids}


def on_wire(sources: Sources, activities: Mapping[int, Activity]) -> OnWire:
    """Return what the wire showed of each collective."""
    collectives = sources.collectives
    moved_ns = np.full(len(collectives), np.iinfo(np.int64).min)
    for pid in np.unique(collectives.pid).tolist():
        if pid in activities:
            rows = collectives.rows_of(pid)
            moved_ns[rows] = activities[pid].last_before(collectives.end_ns[rows])
    return OnWire(went_another_way(collectives, sources.members, sources.lanes), moved_ns)


def without_collective(sources: Sources) -> dict[int, Intervals]:
    """Return when each process waits for what is no collective that was seen."""
    return {pid: _without_collective(waits, pid, sources) for pid, waits in sources.waits.items()}


def on_ports(sources: Sources) -> dict[int, Intervals]:
    """Return when the RDMA ports that each process uses moved anything, to how often they are seen, if ever."""
    busy: dict[int, list[Intervals]] = {}
    for lane, _, bins in sources.lanes:
        if lane.pid in sources.waits and lane.link in sources.lanes.periods:
            busy.setdefault(lane.pid, []).append(bins.busy)
    return {pid: times for pid in sources.waits if len(times := union(busy.get(pid, [])))}


def _times_without_marks(carried: Mapping[int, Intervals], sources: Sources) -> GroupTimes:
    """Return what explains the time of bytes that nothing was seen to carry but links: RDMA ports of some processes.

    And any link of those that wait for bytes that no mark tells of.
    """
    pids = sorted({*carried, *sources.unmarked})
    links = {lane.link for lane, _, _ in sources.lanes if lane.pid in carried and lane.link in sources.lanes.periods}
    links |= links_of(sorted(sources.unmarked), sources.lanes)
    sides = [side for side in sources.sides if side.link in links]
    waits = union([sources.waits.get(pid, NOTHING) for pid in carried] + list(sources.unmarked.values()))
    unplaced = union([sources.unplaced[pid] for pid in pids if pid in sources.unplaced])
    flows = np.flatnonzero(np.isin(sources.flows.pid, sorted(sources.unmarked)))
    stopped = {pid: sources.stopped[pid] for pid in pids if pid in sources.stopped}
    return GroupTimes(bottlenecks(sides, waits, waits), _loss(flows, sources), NOBODY_HOLDS, unplaced, stopped)


def _loss(flows: Int64, sources: Sources) -> dict[int, Intervals]:
    """Return when some flows recovered from loss, by flow."""
    resent = sources.resent.where(np.isin(sources.resent.flow, flows))
    resent = resent.where(~sources.resends.needless(resent.flow, resent.first_ns))
    return recoveries(resent.flow, resent.before_ns, resent.last_ns, sources.rtt_ns[resent.flow])


def _without_collective(waits: Intervals, pid: int, sources: Sources) -> Intervals:
    """Return when a process waits for buckets that nothing was seen to carry, or for nothing that was seen at all."""
    buckets = sources.buckets.of_pid(pid)
    buckets = buckets.where(buckets.from_collective == 0)
    since = np.concatenate(([np.iinfo(np.int64).min], waits.end_ns[:-1]))[: len(waits)]
    posted = np.sort(sources.collectives.of_pid(pid).posted_ns)
    none = np.searchsorted(posted, waits.end_ns) == np.searchsorted(posted, since)
    return merge(buckets.launch_ns, buckets.end_ns) | merge(waits.begin_ns[none], waits.end_ns[none])


def went_another_way(collectives: Collectives, members: Members, lanes: Lanes) -> Bool:
    """Return which collectives hardly any byte of was seen on a wire, by whoever performed it."""
    ranks = np.maximum(members.ranks, 2)
    need = np.where(collectives.bytes == UNKNOWN, 0, collectives.bytes) * sent_per_byte(collectives.kind, ranks)
    moved = np.zeros(len(collectives))
    for pid in np.unique(collectives.pid).tolist():
        rows = collectives.rows_of(pid)
        for way in (TRANSMIT, RECEIVE):
            bins = lanes.of_process(pid, way)
            if bins is not None:
                since_ns = np.minimum(collectives.posted_ns, collectives.begin_ns)[rows]
                moved[rows] += bins.payload_until(collectives.end_ns[rows]) - bins.payload_until(since_ns)
    return np.asarray(moved < _HARDLY_ANY * need)


def _group_times(number: int, sources: Sources, activities: Mapping[int, Activity]) -> GroupTimes:
    pids = np.unique(sources.collectives.pid[sources.members.group == number]).tolist()
    waits = union([sources.waits[pid] for pid in pids if pid in sources.waits])
    links = links_of(pids, sources.lanes)
    sides = [side for side in sources.sides if side.link in links]
    turn = turns(sources.collectives, sources.members, number)
    flows = flows_between(pids, number, sources)
    loss = _loss(flows, sources)
    moved = union([merge(activities[pid].first_ns, activities[pid].last_ns + 1) for pid in pids if pid in activities])
    sent = {pid: activity(sources.lanes.by_packet(pid, TRANSMIT)).first_ns for pid in pids}
    least_ns = least_silence_ns(int(sources.rtt_ns[flows].max(initial=0)), sources.apart_ns)
    resends = {flow: times for flow, times in sources.resends.times().items() if flow in flows}
    quiet, without_link = while_down(
        silences(sent, moved, least_ns), {flow: times for flow, times in sources.down.items() if flow in flows}
    )
    quiet, unseen = lost_unseen(quiet, resends)
    held = without_unsent(quiet, sources.unsent, sources.no_room)
    for flow, times in (*without_link.items(), *unseen.items()):
        loss[flow] = loss[flow] | times if flow in loss else times
    unplaced = union([sources.unplaced[pid] for pid in pids if pid in sources.unplaced])
    stopped = {pid: sources.stopped[pid] for pid in pids if pid in sources.stopped}
    full_sides = bottlenecks(sides, turn, waits)
    return GroupTimes(full_sides, loss, held, unplaced, stopped, alternation(full_sides, turn))


def flows_between(pids: Sequence[int], group: int, sources: Sources) -> Int64:
    """Return the flows of some processes, the members of a communicator that were seen, that carry its bytes.

    Their other end is a member; or unknown, where not all members are recorded and more than a few bytes go there.
    """
    flows = np.flatnonzero(np.isin(sources.flows.pid, pids))
    peers, moved, ranks = sources.peers[flows], sources.moved_bytes[flows], sources.members.ranks
    among = (peers != UNKNOWN) & np.isin(sources.flows.pid[peers], pids)
    if len(pids) not in ranks[sources.members.group == group]:
        among |= (peers == UNKNOWN) & (moved >= MINOR_LINK * moved.max(initial=0))
    return flows[among] if among.any() else flows


def links_of(pids: Sequence[int], lanes: Lanes) -> set[LinkKey]:
    """Return the links over which some processes move their bytes, but for those that carry hardly any."""
    moved = Counter[LinkKey]()
    for pid in pids:
        moved.update(lanes.moved_bytes(pid))
    most = max(moved.values(), default=0)
    return {link for link, amount in moved.items() if amount and amount >= MINOR_LINK * most}
