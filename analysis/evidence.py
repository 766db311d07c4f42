"""What conclusions rest on: the tables of a recording, and the events in them, each read or found once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from netprof.analysis.account.account import Account, Sources, make_account
from netprof.analysis.account.idle import CauseTimes, cause_times
from netprof.analysis.bounds.find import NO_BOUNDS, FoundBounds, find_bounds, gpu_processes, with_profiles
from netprof.analysis.bounds.launches import without_ends
from netprof.analysis.events.buckets import Buckets, find_buckets, outstanding_by_process
from netprof.analysis.events.collectives import Collectives, FoundCollectives
from netprof.analysis.events.elsewhere import (
    blocked_by_process,
    may_communicate,
    unmarked_communication,
    whole_time,
    with_waits,
)
from netprof.analysis.events.every_collective import all_collectives, outstanding_without_ddp
from netprof.analysis.events.exits import find_exits
from netprof.analysis.events.flow_cells import FlowCells, FlowsByWindow, collective_windows
from netprof.analysis.events.iterations import Dropped, FoundIterations, Iterations, IterationTimes, times_of
from netprof.analysis.events.job_ranks import CommunicatorRanks, ranks_by_pid, with_communicator_ranks, world_size
from netprof.analysis.events.level import level_columns
from netprof.analysis.events.members import Members, find_members, together
from netprof.analysis.events.messages import Exchanges, all_posted, with_messages
from netprof.analysis.events.optimizer_steps import find_all_iterations
from netprof.analysis.events.order import clock_bounds
from netprof.analysis.events.phase_times import PhaseTimes
from netprof.analysis.events.unfinished import Unfinished, find_unfinished
from netprof.analysis.events.waits import beside_training, from_to
from netprof.analysis.job_links import JobLinks
from netprof.analysis.memory import give_back
from netprof.analysis.piece import ALL, Piece
from netprof.analysis.tables.blocked import ThreadWaits, read_blocked
from netprof.analysis.tables.columns import UNKNOWN, Bool, Float64, Int64, by_pid
from netprof.analysis.tables.counters import CounterSamples, read_counters
from netprof.analysis.tables.flow_lanes import FlowLanes, passed, read_flow_lanes
from netprof.analysis.tables.flow_table import Flows, LinkKey, read_flows
from netprof.analysis.tables.gpu_samples import read_gpu_samples
from netprof.analysis.tables.intervals import NOTHING, Intervals, Windows, interval, merge, union
from netprof.analysis.tables.link_history import LinkPast, known_as, read_link_history
from netprof.analysis.tables.marks import Marks, read_marks
from netprof.analysis.tables.nccl_ranks import read_nccl_ranks
from netprof.analysis.tables.path_table import PathTable, read_paths
from netprof.analysis.tables.process_counts import ProcessCounts, process_counts, stolen_until
from netprof.analysis.tables.profiled import Profiles
from netprof.analysis.tables.settings import Settings, read_settings
from netprof.analysis.tables.transport import Resends, read_resends, round_trips_ns
from netprof.analysis.wire.fold import WireFold
from netprof.analysis.wire.loopback import lossless
from netprof.analysis.wire.paths import BusyClocks, Paths, find_paths, read_busy, traffic
from netprof.analysis.wire.unsent import main_flows
from netprof.model import Host, Meta
from netprof.schema import RECEIVE, TRANSMIT, MarkKind, Unsent

if TYPE_CHECKING:
    from netprof.trace import TraceSource

_SEE_DEVICE_WAITS = ("marks:cudart", "marks:cuda")
"""The probes of what a host is blocked in while it waits for its GPU."""

FoldWire = Callable[["Evidence"], WireFold]
T = TypeVar("T", Iterations, Collectives)


class Evidence:
    """A recording's tables and events. Everything is found when first asked for, and then kept.

    `table` returns a table's columns by its name, `fold` the folded `wire` table. `is_recent` says that this is the
    last part of a recording that goes on: too short, and looked at too often, for what takes long. Of a `piece` the
    tables hold what is around it too; `iterations`, `buckets`, `exposed`, the account, totals of flows and everything
    that `owned` returns are its own, all other events are those in sight.
    `earlier_ns` is how long the iterations took that are of pieces before.
    `is_bounded` says that of its iterations only bounds of the waiting are known.
    `known` are properties that need not be found any more. Raises TraceError, when asked, for what cannot be believed.
    """

    def __init__(
        self,
        meta: Meta,
        table: Callable[[str], Any],
        fold: FoldWire,
        *,
        piece: Piece = ALL,
        known: Mapping[str, Any] | None = None,
        is_recent: bool = False,
        is_truncated: Callable[[], bool] = lambda: False,
        damage: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self.meta = meta
        self.table = table
        self.piece = piece
        self.is_recent = is_recent
        self._fold = fold
        self._is_truncated = is_truncated
        self._damage = damage
        self.is_bounded = False
        self.baseline_s: float | None = None
        self.still_recording = False
        self.earlier_ns: Sequence[Int64] = ()
        self.hosts: Sequence[Host] = (Host(meta.host, meta, ""),)
        self.__dict__.update(known or {})

    @classmethod
    def of_trace(
        cls, reader: TraceSource, *, baseline_s: float | None = None, known: Mapping[str, Any] | None = None
    ) -> Evidence:
        """Return the evidence of a whole trace. The `wire` table is read batch by batch, the others whole.

        `baseline_s` is a measured iteration time of one worker alone, in seconds.
        """

        def fold(evidence: Evidence) -> WireFold:
            folded = WireFold(evidence.flows, reader.meta.bin_ns, evidence.cells, lanes=evidence.flow_lanes)
            folded.add_all(reader.batches("wire"))
            give_back()
            return folded

        evidence = cls(
            reader.meta,
            reader.table,
            fold,
            known=known,
            is_truncated=lambda: reader.truncated,
            damage=lambda: reader.damage,
        )
        evidence.baseline_s = baseline_s
        evidence.still_recording = reader.still_recording
        evidence.hosts = reader.hosts
        return evidence

    def with_iterations(self, iterations: Iterations) -> Evidence:
        """Return the same evidence but for its iterations, and with what rests on them found anew."""
        changed = copy(self)
        for name in ("iterations", "iteration_times", "buckets", "_buckets_in_sight", "outstanding", "cells"):
            changed.__dict__.pop(name, None)
        found_iterations = replace(self.found_iterations, iterations=iterations)
        changed.__dict__.update(found_iterations=found_iterations, marked=found_iterations)
        return changed

    @property
    def truncated(self) -> bool:
        """Whether the recording's end is missing; known once its tables were read."""
        return self._is_truncated()

    @property
    def damage(self) -> Sequence[str]:
        """What no recorder writes, and is left out, a sentence each; known once the tables were read."""
        return self._damage()

    @cached_property
    def host_of(self) -> Mapping[int, Host]:
        """The host of each process, where several hosts recorded the job."""
        return {pid: host for host in self.hosts for pid in host.pids} if len(self.hosts) > 1 else {}

    def host_of_link(self, link: LinkKey) -> str:
        """Return the name of the host that a device is of; "" where one host recorded the job."""
        return next((host.name for host in self.hosts if link.netns in host.netns and len(self.hosts) > 1), "")

    def machine_of(self, host: str) -> str:
        """Return the host that the counters of a host's machine are called after: the first that recorded there."""
        boots = {each.name: each.meta.boot_id for each in self.hosts}
        return next((name for name, boot in boots.items() if boot == boots.get(host)), host)

    @cached_property
    def ranks(self) -> Mapping[int, int]:
        """The rank of each process that has one, by pid."""
        return with_communicator_ranks(ranks_by_pid(self.meta.targets), self.communicator_ranks.ranks())

    @cached_property
    def communicator_ranks(self) -> CommunicatorRanks:
        """What the communicators that processes name say of their ranks."""
        ranks = CommunicatorRanks()
        ranks.add(self.table("marks"))
        ranks.add_nccl(read_nccl_ranks(self.table("nccl_ranks")))
        return ranks

    @cached_property
    def ranks_from_communicators(self) -> bool:
        """Whether ranks are what the communicators say, since nothing else does."""
        return len(self.ranks) > len(ranks_by_pid(self.meta.targets))

    @cached_property
    def world_size(self) -> int | None:
        """The number of ranks of the job: what is stated, unless a communicator has more (WORLD_SIZE of nodes)."""
        stated, named = world_size(self.meta.targets), self.communicator_ranks.world_size
        if stated is None and any(target.world_size is not None for target in self.meta.targets):
            return None  # they disagree
        return max(filter(None, (stated, named)), default=None)

    @property
    def is_whole_job(self) -> bool:
        """Whether all ranks are recorded: what they exchange with others is none of the job's communication."""
        return len(set(self.ranks.values())) == self.world_size

    @cached_property
    def marks(self) -> Marks:
        """The marks, by time."""
        return read_marks(self.table("marks"))

    @cached_property
    def marked(self) -> FoundIterations:
        """The iterations as marks alone tell of them, and what was dropped."""
        return find_all_iterations(self.marks)

    @cached_property
    def found_iterations(self) -> FoundIterations:
        """The iterations, and what was dropped; their waits are all that are seen, with marks and without."""
        return with_waits(self.marked, self.unmarked) if self.unmarked else self.marked

    @cached_property
    def blocked(self) -> Mapping[int, ThreadWaits]:
        """What each process's trainers were off their CPUs for, by pid; of those that were watched."""
        return blocked_by_process(read_blocked(self.table("blocked")), self.marks)

    @cached_property
    def unmarked(self) -> Mapping[int, Intervals]:
        """When each process waited for communication of which no mark tells, by pid."""
        if not self.blocked:
            return {}
        marked = {pid: times.exposed for pid, times in self.marked.phases.items()}
        known = {pid: waits for pid, waits in self.blocked.items() if pid not in self.only_launch | self.with_gpu}
        return unmarked_communication(known, marked, self.links.lanes, self.marks)

    @cached_property
    def iterations(self) -> Iterations:
        """The whole iterations of all processes."""
        return self.owned(self.found_iterations.iterations)

    @cached_property
    def iteration_times(self) -> IterationTimes:
        """When they were, and how long each phase took in them."""
        sight = self.found_iterations.iterations
        level = level_columns(sight, self.waits)
        owned = self.piece.owns(sight.begin_ns)
        return times_of(self.iterations, [each if self.piece.is_all else each[owned] for each in level])

    @cached_property
    def dropped(self) -> Mapping[int, Dropped]:
        """What is not reported as iterations, by process that trains."""
        return {pid: self._dropped(pid, cut) for pid, cut in self.found_iterations.dropped.items()}

    def _dropped(self, pid: int, cut: Dropped) -> Dropped:
        """Leave out what is of other pieces: only the recording's edges cut an iteration off."""
        last = min(cut.incomplete, 1)
        first = cut.incomplete - last
        damaged = self.piece.owns(self.found_iterations.damaged_ns.get(pid, np.zeros(0, np.int64)))
        return Dropped(first * self.piece.is_first + last * self.piece.is_last, int(damaged.sum()))

    def owned(self, events: T) -> T:
        """Return those of some iterations or collectives that are of the piece, and not just in sight."""
        return events if self.piece.is_all else events.where(self.piece.owns(events.begin_ns))

    @property
    def phases(self) -> Mapping[int, PhaseTimes]:
        """When each process that trains was in which phase, over all of the recording, by pid."""
        return self.found_iterations.phases

    @cached_property
    def waits(self) -> Mapping[int, Intervals]:
        """When the training threads of each process do nothing but wait for communication, by pid."""
        return {**self.unmarked, **{pid: times.exposed for pid, times in self.found_iterations.phases.items()}}

    @property
    def accounted(self) -> Iterations:
        """What time the account of waiting is of: the iterations; all time of those that wait where there are none."""
        return self._accounted(self.iterations)

    def _accounted(self, iterations: Iterations) -> Iterations:
        if len(iterations) or any(map(len, self.earlier_ns)) or not self.unmarked or not len(self.recording):
            return iterations
        return whole_time(sorted(self.unmarked), int(self.recording.begin_ns[0]), int(self.recording.end_ns[-1]))

    @cached_property
    def unfinished(self) -> Mapping[int, Unfinished]:
        """The step of each process that does not end, by pid: the job, or a part of it, stands still.

        Unknown where marks are missing at the end.
        """
        if not self.piece.is_last or not len(self.recording.end_ns) or self._marks_are_cut:
            return {}
        return find_unfinished(self.marks, self.iterations, int(self.recording.end_ns[-1]), self.earlier_ns)

    @cached_property
    def found_collectives(self) -> FoundCollectives:
        """The collectives, and how many marks had no partner."""
        return all_collectives(self.marks, self.world_size)

    @property
    def collectives(self) -> Collectives:
        """The collectives whose begin and end were seen, of all processes, by begin."""
        return self.found_collectives.collectives

    @cached_property
    def posted(self) -> Collectives:
        """What was handed over without its end being seen."""
        return all_posted(self.marks, self.found_collectives)

    @cached_property
    def only_launch(self) -> frozenset[int]:
        """The processes of which no mark tells when what they launch is done: what NCCL runs on a GPU, most of all."""
        return frozenset(without_ends(self.marks, self.with_gpu))

    @cached_property
    def with_gpu(self) -> frozenset[int]:
        """The processes that compute on a GPU, as far as that is known."""
        return gpu_processes(self.marks, self.meta.gpus, self.meta.targets)

    @cached_property
    def bounds(self) -> FoundBounds:
        """What those wait for at least and at most, in all steps in sight."""
        if not self.only_launch:
            return NO_BOUNDS
        samples = read_gpu_samples(self.table("gpu"))
        bounds = find_bounds(
            sorted(self.only_launch),
            self.with_gpu,
            self.marks,
            self.links.lanes,
            self.meta.gpus,
            samples,
            self.world_size,
            sees_waits=any(each.name in _SEE_DEVICE_WAITS for each in self.meta.probes_started),
        )
        if self.is_recent:
            return bounds
        profiles = Profiles(self.table("profiled"))
        return replace(bounds, rows=with_profiles(bounds.rows, profiles), profiled=profiles.pids)

    @cached_property
    def buckets(self) -> Buckets:
        """The gradient buckets of the whole iterations."""
        if self.piece.is_all:
            return self._buckets_in_sight
        owned = self.piece.owns(self.found_iterations.iterations.begin_ns)
        buckets = self._buckets_in_sight.where(owned[self._buckets_in_sight.iteration])
        return replace(buckets, iteration=(np.cumsum(owned) - 1)[buckets.iteration])

    @cached_property
    def _buckets_in_sight(self) -> Buckets:
        return find_buckets(self.marks, self.found_iterations.iterations, self.collectives)

    @cached_property
    def outstanding(self) -> Mapping[int, Intervals]:
        """When something is outstanding, for each process with iterations (`definitions.OUTSTANDING`)."""
        without_ddp = outstanding_without_ddp(self.marks, self.collectives, self.found_iterations.stepped)
        return outstanding_by_process(
            self.found_iterations.iterations, self._buckets_in_sight, self.collectives, without_ddp
        )

    @cached_property
    def flows(self) -> Flows:
        """The flow table."""
        return read_flows(self.table("flows"), dict(self.ranks), self.workers, known_as(self.pasts))

    @cached_property
    def path_table(self) -> PathTable:
        """The devices below those of flows."""
        return read_paths(self.table("flow_paths"), known_as(self.pasts))

    @cached_property
    def settings(self) -> Settings:
        """What is set of devices, routes and TCP."""
        return read_settings(self.table("settings"))

    @cached_property
    def flow_lanes(self) -> FlowLanes:
        """By which devices flows go, over time."""
        return read_flow_lanes(self.flows, self.table("flow_devices"), self.path_table, known_as(self.pasts))

    @cached_property
    def workers(self) -> frozenset[int]:
        """The processes that train: those with marks of a framework."""
        return frozenset(np.unique(self.marks.pid[self.marks.kind < MarkKind.PROCESS_FORK]).tolist())

    @cached_property
    def cells(self) -> FlowCells:
        """What each flow sent in each iteration of the reference process and in each collective of the piece.

        Filled while the wire is folded.
        """
        steps, flows = self.owned(self.marked.iterations).of_most(), len(self.flows)
        by_iteration = FlowsByWindow(Windows(steps.begin_ns, steps.end_ns), flows)
        return FlowCells(by_iteration, FlowsByWindow(collective_windows(self.owned(self.collectives)), flows))

    @cached_property
    def fold(self) -> WireFold:
        """The wire, folded."""
        return self._fold(self)

    @cached_property
    def links(self) -> JobLinks:
        """The links, over time."""
        return JobLinks(self.meta, self.table, self.pasts, self.fold, self.recording)

    @cached_property
    def pasts(self) -> Mapping[LinkKey, LinkPast]:
        """What each device that was watched was like over time."""
        return read_link_history(self.table("link_changes"), self.meta.devices)

    @cached_property
    def sent_bytes(self) -> Mapping[int, Mapping[LinkKey, int]]:
        """What each process sent, by pid and device."""
        sent = self.fold.moved_bytes(TRANSMIT)
        for lane, direction, bins in self.links.lanes:
            if lane.link in self.links.ports and direction == TRANSMIT:
                owned = bins.wire_bytes[self.piece.owns(bins.begin_ns)]
                sent.setdefault(lane.pid, {})[lane.link] = int(owned.sum(dtype=np.int64))
        return sent

    @cached_property
    def exposed(self) -> Mapping[int, Intervals]:
        """The part of the waits that lies in whole iterations, for each process that has any."""
        return self._exposed_in(self.iterations)

    @property
    def exposed_in_sight(self) -> Mapping[int, Intervals]:
        """The part that lies in all iterations in sight, those of other pieces of the recording too."""
        return self.exposed if self.piece.is_all else self._exposed_in(self.found_iterations.iterations)

    def _exposed_in(self, iterations: Iterations) -> Mapping[int, Intervals]:
        iterations = self._accounted(iterations)
        exposed = {}
        for pid in np.unique(iterations.pid).tolist():
            steps = iterations.of_pid(pid)
            exposed[pid] = self.waits[pid] & merge(steps.begin_ns, steps.end_ns)
        return exposed

    @cached_property
    def members(self) -> Members:
        """What the other ranks did, collective by collective."""
        clocks = clock_bounds(self.hosts)
        return find_members(self.collectives, self.ranks, self.world_size, traffic(self.fold, self.paths.peer), clocks)

    @cached_property
    def exchanges(self) -> Exchanges:
        """What ranks wait for each other in: the collectives, and messages whose end was seen."""
        known = (self.collectives, self.members, self.ranks, self.world_size)
        return with_messages(self.marks, *known, traffic(self.fold, self.paths.peer), clock_bounds(self.hosts))

    @cached_property
    def together(self) -> Collectives:
        """The collectives from when all members that were seen had posted them: what bandwidths are of."""
        return together(self.collectives, self.members)

    @cached_property
    def resends(self) -> Resends:
        """How often each flow had sent something again that was needed."""
        return read_resends(self.table("tcp"), self.fold.flows)

    @cached_property
    def round_trips_ns(self) -> Int64:
        """The median round-trip time of each flow, in the order of the folded flows; 0 where TCP said nothing."""
        return round_trips_ns(self.table("tcp"), self.fold.flows)

    @cached_property
    def paths(self) -> Paths:
        """The ways between processes that the folded flows go."""
        return find_paths(self.fold.flows, self.fold.peers())

    @cached_property
    def busy_clocks(self) -> BusyClocks:
        """For how long TCP had something to send, by flow as folded."""
        return read_busy(self.table("tcp"), self.fold.flows, self.piece)

    @cached_property
    def counters(self) -> CounterSamples:
        """The counters of all sources, by series and time."""
        return read_counters(self.table("counters"))

    @cached_property
    def process_counts(self) -> ProcessCounts:
        """What the kernel says that each process did with its time."""
        return process_counts(self.counters, self.meta.series, self.hosts)

    @cached_property
    def collecting(self) -> Mapping[int, Intervals]:
        """When Python's garbage collector ran in each process, by pid."""
        process_marks = by_pid(self.marks.of(MarkKind.COLLECTOR, MarkKind.COLLECTOR_OVER))
        return {pid: from_to(marks, MarkKind.COLLECTOR, MarkKind.COLLECTOR_OVER) for pid, marks in process_marks}

    @cached_property
    def profiling(self) -> frozenset[int]:
        """The processes in which torch.profiler ran."""
        return frozenset(self.marks.pid[self.marks.kind == MarkKind.PROFILER].tolist())

    @cached_property
    def stopped(self) -> Mapping[int, Intervals]:
        """When processes were seen stopped, by pid."""
        return self.process_counts.stopped()

    def stolen_until(self, pid: int, at_ns: Int64) -> Float64:
        """Return what the hypervisor took from the CPUs of a process's host by some instants, us; NaN: unknown."""
        host = self.host_of.get(pid)
        machine = "" if host is None else self.machine_of(host.name)
        return stolen_until(self.counters, self.meta.series, machine, at_ns)

    @cached_property
    def account(self) -> Account:
        """What every rank waited for."""
        return make_account(self.account_sources)

    @property
    def account_sources(self) -> Sources:
        """What the account is made from."""
        awaited = ~beside_training(self.marks, self.exchanges.collectives)
        resent, resends = self.fold.resent(), self.resends
        return Sources(
            waits=self.waits,
            exposed=self.exposed,
            around=self.exposed_in_sight,
            collectives=self.exchanges.collectives.where(awaited),
            buckets=self._buckets_in_sight,
            members=self.exchanges.members.where(awaited),
            lanes=self.links.lanes,
            sides=self.links.sides,
            flows=self.fold.flows,
            peers=self.paths.peer,
            moved_bytes=self.fold.totals(TRANSMIT).wire_bytes + self.fold.totals(RECEIVE).wire_bytes,
            resent=resent.where(~self._lossless[resent.flow]),
            resends=resends.where(~self._lossless[resends.row]),
            rtt_ns=self.round_trips_ns,
            unplaced=self.links.unplaced,
            stopped=self.stopped,
            apart_ns=clock_bounds(self.hosts).apart_ns,
            unsent=self.unsent,
            no_room=self._no_room,
            down=self._down,
            unmarked=self.unmarked,
            busy=self._busy if self.unmarked else {},
            traffic=traffic(self.fold, self.paths.peer) if self.unmarked else {},
        )

    @property
    def _busy(self) -> Mapping[int, Intervals]:
        """When each process that was watched did something else than to wait for others, while it lived."""
        exits = find_exits(self.marks)
        return {
            pid: (self.recorded - may_communicate(waits) - self.waits.get(pid, NOTHING))
            & interval(self.meta.started_ns, exits[pid].time_ns if pid in exits else self._stopped_ns)
            for pid, waits in self.blocked.items()
        }

    @property
    def _down(self) -> Mapping[int, Intervals]:
        """When a device on the way of each flow, by row, was down."""
        down = {link: past.down & self.recording for link, past in self.pasts.items()}
        if not any(map(len, down.values())):
            return {}
        lanes, peers = self.fold.flow_lanes, self.paths.peer
        ways = {row: [each.link for _, _, each in passed(lanes, peers, row)] for row in range(len(self.fold.flows))}
        return {row: union([down.get(link, NOTHING) for link in links]) for row, links in ways.items()}

    @cached_property
    def unsent(self) -> Mapping[int, Intervals]:
        """When the TCP of each process held bytes back that its main flows had to send, though there was room."""
        unsent_flows = self._unsent_flows(Unsent.WAITS)
        return {pid: union([times for _, times in flow_times]) for pid, flow_times in unsent_flows.items()}

    @property
    def _no_room(self) -> Mapping[int, Sequence[tuple[int, Intervals]]]:
        """When they waited at which process, of those that are recorded, for room or for it to take what lo carried."""
        keys, of_flow = self.paths.keys, self.paths.of_flow
        waits: dict[int, list[tuple[int, Intervals]]] = {}
        full = [waited for flow_times in self._unsent_flows(Unsent.NO_ROOM).values() for waited in flow_times]
        slow = self.resends.where(self._lossless[self.resends.row]).times()
        for flow, times in (*full, *slow.items()):
            if (receiver := keys[int(of_flow[flow])].to_pid) != UNKNOWN:
                waits.setdefault(int(self.fold.flows.pid[flow]), []).append((receiver, times))
        return waits

    @cached_property
    def _lossless(self) -> Bool:
        """Which flows, by row, lose nothing; their receivers are slow to take it where something is sent again."""
        return lossless(self.fold.flows, self.fold.flow_lanes, self.paths.peer, self.table("drops"), self.table("nic"))

    def _unsent_flows(self, what: Unsent) -> dict[int, list[tuple[int, Intervals]]]:
        times = self.fold.unsent().times(what)
        main = main_flows(self.fold.flows, self.fold.totals(TRANSMIT).wire_bytes)
        return {pid: [(flow, times[flow]) for flow in flows if flow in times] for pid, flows in main.items()}

    @cached_property
    def recording(self) -> Intervals:
        """When was recorded; up to the last event where the recorder did not get to say when it stopped."""
        return self.recorded & self.piece.time

    @property
    def recorded(self) -> Intervals:
        """When was recorded, also outside of the piece."""
        return interval(self.meta.started_ns, self._stopped_ns)

    @property
    def _stopped_ns(self) -> int:
        stopped_ns = self.meta.stopped_ns
        if stopped_ns is not None and not (self._marks_are_cut and len(self.marks)):
            return stopped_ns
        if not self.piece.is_last:
            return self.piece.end_ns
        last_mark = int(self.marks.time_ns[-1]) if len(self.marks) else self.meta.started_ns
        if stopped_ns is not None:
            return max(last_mark, self.meta.started_ns + 1)
        span = self.fold.span_ns()
        return max(last_mark, span[1] if span else self.meta.started_ns)

    @property
    def _marks_are_cut(self) -> bool:
        """Whether marks of a recording of one host that ended well are missing from some moment on."""
        return any(sentence.startswith("marks.arrows is damaged") for sentence in self.damage)

    def cause_times(self, link: LinkKey) -> CauseTimes | None:
        """Return when which cause of idleness applies to a link; None where no iteration of its ranks is known.

        When the gradients of a rank that only launches are there is unknown, and so is why its link is idle.
        """
        pids = [pid for pid in self.links.lanes.pids_of(link) if pid not in self.only_launch]
        times = cause_times(self.found_iterations.iterations, self.outstanding, pids)
        times = times if self.piece.is_all else times.within(self.piece.time)
        return times if len(times.window) else None
