"""Traces whose true answer is known in closed form, written with the real TraceWriter.

Every iteration of every rank is the same unless a test changes it:

    0        20          40   42                      140        150       200 ms
    forward  | backward  | ddp_wait ................. | ddp_done |  rest   |
             bucket 0 launched at 30, begun at 31, ended at 90
             bucket 1 launched at 41, begun at 42, ended at 138 (second worker thread: the two overlap)
    wire: `BYTES_PER_BIN` in every bin from 50 to 130 ms, both directions, nothing else
"""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from netprof.analysis.events.collectives import Collectives
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.columns import UNKNOWN
from netprof.model import Clock, Cost, Device, LineRate, Losses, Meta, ProgramCost, Target
from netprof.schema import Backend, CollectiveKind, LinkState, MarkKind, tables
from netprof.trace import TraceWriter

MS = 1_000_000
START_NS = 1_000_000 * MS
ITERATION_NS = 200 * MS
FORWARD, BACKWARD, WAIT, DONE = 0, 20 * MS, 42 * MS, 140 * MS
BUCKETS = ((30 * MS, 31 * MS, 90 * MS), (41 * MS, 42 * MS, 138 * MS))  # launch, begin, end
ELEMENTS = (1_000_000, 1_500_000)
BUCKET_BYTES = 4 * sum(ELEMENTS)
WIRE_FROM, WIRE_TO = 50 * MS, 130 * MS
RATE_BPS = 1e9
BYTES_PER_BIN = 125_000  # exactly line rate at 1 ms
PAYLOAD_PER_BIN = 124_000

K = MarkKind


def with_findings(analysis: Analysis, changes: Mapping[Section[Any], Any]) -> Analysis:
    """The same conclusions, but for some sections that find something else."""
    findings = {section: analysis.of(section) for section in analysis.sections}
    return Analysis(analysis.evidence, analysis.sections, {**findings, **changes})


@dataclass
class Job:
    """A job to be written as a trace; tests change what they are about before writing it."""

    iterations: int = 10
    ranks: int = 2
    world_size: int | None = 2
    rate_bps: float | None = RATE_BPS
    one_device: bool = False
    other_traffic: float = 0.0
    drops: int = 0
    marks: list[tuple[int, ...]] = field(default_factory=list)  # time, pid, tid, kind, arg0, arg1 and maybe arg2
    wire: list[tuple[int, int, int, int, int]] = field(default_factory=list)  # flow, direction, bin, payload, wire
    changes: dict[str, Any] = field(default_factory=dict)  # fields of Meta
    flow_changes: dict[str, list[Any]] = field(default_factory=dict)  # columns of `flows`
    rate_changes: list[tuple[str, int, float | None]] = field(default_factory=list)
    outside: dict[str, list[Any]] = field(default_factory=dict)  # the table `outside`
    totals_changes: dict[str, list[Any]] = field(default_factory=dict)  # columns of `totals`
    extra: dict[str, dict[str, Any]] = field(default_factory=dict)  # whole tables

    def fill(self) -> Job:
        """Add the steps of every rank; one more than `iterations`, since the last one has no end."""
        if type(self) is Job:  # of a job that no class changes, rows are made once
            times = (ITERATION_NS, FORWARD, BACKWARD, WAIT, DONE, BUCKETS, ELEMENTS, WIRE_FROM, WIRE_TO)
            marks, wire = _rows(self.ranks, self.iterations + 1, times)
            self.marks += marks
            self.wire += wire
            return self
        for rank in range(self.ranks):
            for step in range(self.iterations + 1):
                self.step(rank, START_NS + step * ITERATION_NS)
        return self

    def step(self, rank: int, at: int) -> None:
        pid, autograd = 100 + rank, 200 + rank
        self.mark(at + FORWARD, pid, K.DDP_FORWARD)
        self.mark(at + BACKWARD, pid, K.DDP_BACKWARD)
        for number, (launch, begin, end) in enumerate(BUCKETS):
            address, worker = 0xFFFF_8000_0000_0000 + number, 300 + 10 * rank + number
            self.mark(at + launch, pid, K.BUCKET_LAUNCH, address, tid=autograd)
            self.mark(at + begin, pid, K.COLLECTIVE_BEGIN, tid=worker)
            self.mark(at + begin + 1, pid, K.COLLECTIVE_SIZE, ELEMENTS[number], 4, tid=worker)
            self.mark(at + end, pid, K.COLLECTIVE_END, tid=worker)
            self.mark(at + max(end, WAIT) + 1000, pid, K.BUCKET_DONE, address, tid=autograd)
        self.mark(at + WAIT, pid, K.DDP_WAIT, tid=autograd)
        for stats in (BACKWARD - 1000, WAIT - 1000, DONE, ITERATION_NS - 1000):
            self.mark(at + stats, pid, K.DDP_STATS, tid=autograd)
        for bin_start in range(at + WIRE_FROM, at + WIRE_TO, MS):
            for direction in (0, 1):
                self.wire.append((rank + 1, direction, bin_start, PAYLOAD_PER_BIN, BYTES_PER_BIN))

    def mark(self, time: int, pid: int, kind: int, arg0: int = 0, arg1: int = 0, tid: int | None = None) -> None:
        self.marks.append((time, pid, pid if tid is None else tid, int(kind), arg0, arg1))

    def without(self, kinds: Iterable[int], pid: int | None = None, between: tuple[int, int] | None = None) -> Job:
        """Lose marks of these kinds, of one process or in a span of time."""
        gone = {int(kind) for kind in kinds}
        low, high = between or (0, 1 << 62)
        self.marks = [
            m for m in self.marks if not (m[3] in gone and (pid is None or m[1] == pid) and low <= m[0] < high)
        ]
        return self

    def meta(self) -> Meta:
        devices = ["eth0"] if self.one_device else [f"eth{rank}" for rank in range(self.ranks)]
        meta = Meta(
            netprof_version="0.1.0",
            host="host",
            boot_id="boot",
            kernel="6.18",
            clock=Clock(START_NS, 1_700_000_000_000_000_000),
            command=("netprof", "attach", "100"),
            bin_ns=MS,
            started_ns=START_NS - 10 * MS,
            stopped_ns=START_NS + (self.iterations + 1) * ITERATION_NS,
            stop_reason="duration",
            targets=tuple(
                Target(100 + rank, 5, "python train.py", 7, rank, self.world_size, ("ddp", "gloo"))
                for rank in range(self.ranks)
            ),
            devices=tuple(Device(name, 7, LineRate(self.rate_bps, "tbf")) for name in devices),
            losses=Losses(),
            cost=Cost(2.0, 0.02, 90 << 20, 40_000, 1.0, (ProgramCost("on_transmit", 1000, 100_000),)),
        )
        return replace(meta, **self.changes)

    def flows(self) -> dict[str, list[Any]]:
        ranks = range(self.ranks)
        columns: dict[str, list[Any]] = {
            "flow_id": [rank + 1 for rank in ranks],
            "family": [4] * self.ranks,
            "local_addr": [f"10.0.0.{rank + 1}" for rank in ranks],
            "local_port": [40_000 + rank for rank in ranks],
            "remote_addr": [f"10.0.0.{(rank + 1) % self.ranks + 1}" for rank in ranks],
            "remote_port": [40_000 + (rank + 1) % self.ranks for rank in ranks],
            "protocol": [6] * self.ranks,
            "netns": [7] * self.ranks,
            "device": ["eth0" if self.one_device else f"eth{rank}" for rank in ranks],
            "pid": [100 + rank for rank in ranks],
            "rank": list(ranks),
            "adopted_ns": [START_NS - MS] * self.ranks,
        }
        earlier = ("sent_bytes", "resent_bytes", "received_bytes", "sent_packets", "received_packets")
        columns |= {f"earlier_{name}": [0] * self.ranks for name in earlier}
        columns |= {f"{side}_queue_pair": [0] * self.ranks for side in ("local", "remote")}
        columns["congestion_control"] = ["cubic"] * self.ranks
        return columns | self.flow_changes

    def totals(self, end_ns: int) -> dict[str, Any]:
        """One row a flow: TCP moved what was counted, but for `totals_changes`."""
        flows = self.flows()["flow_id"]
        wire = np.array(self.wire, np.int64).reshape(-1, 5)

        def moved(direction: int) -> list[int]:
            own = wire[wire[:, 1] == direction]
            return [int(own[own[:, 0] == flow, 3].sum()) for flow in flows]

        sent, received, nothing = moved(0), moved(1), [0] * len(flows)
        columns = dict.fromkeys(tables()["totals"].names, nothing)
        columns |= {"flow_id": list(flows), "time_ns": [end_ns] * len(flows), "settled": [1] * len(flows)}
        columns |= dict.fromkeys(("sent_bytes", "counted_sent_bytes"), sent)
        columns |= dict.fromkeys(("received_bytes", "counted_received_bytes"), received)
        return columns | self.totals_changes

    def link_changes(self) -> dict[str, Any]:
        """One row a device, and one for each of `rate_changes`: its device, when, and the new line rate."""
        rows = [(device.device, 0, device.line_rate.bps) for device in self.meta().devices] + self.rate_changes
        names, times, rates = (list(column) for column in zip(*rows, strict=True))
        columns: dict[str, Any] = {"device": names, "name": names, "since_ns": times}
        columns |= {"netns": [7] * len(rows), "state": [int(LinkState.UP)] * len(rows), "mtu_bytes": [1500] * len(rows)}
        columns |= {"line_rate_source": ["tbf"] * len(rows), "qdisc": ["tbf"] * len(rows)}
        columns |= {"receive_rate_bps": [0.0] * len(rows), "receive_rate_source": ["unknown"] * len(rows)}
        return columns | {"line_rate_bps": [bps or 0.0 for bps in rates]}

    def nic(self) -> dict[str, Any]:
        """Two samples of every device, which moved what the job moved and `other_traffic` as much again."""
        names = [device.device for device in self.meta().devices]
        of_flow = self.flows()["device"]
        moved = [
            sum(r[4] for r in self.wire if r[1] == 0 and r[0] <= self.ranks and of_flow[r[0] - 1] == n) for n in names
        ]
        end = START_NS + (self.iterations + 1) * ITERATION_NS
        columns = {
            name: [0] * 2 * len(names)
            for name in ("tx_packets", "rx_packets", "tx_drops", "rx_drops", "tx_errors", "rx_errors", "qdisc_drops")
        }
        columns["tx_drops"] = [0] * len(names) + [self.drops] * len(names)
        counted = [0] * len(names) + [round(amount * (1 + self.other_traffic)) for amount in moved]
        return columns | {
            "device": names * 2,
            "netns": [7] * 2 * len(names),
            "time_ns": [START_NS] * len(names) + [end] * len(names),
            "tx_bytes": counted,
            "rx_bytes": counted,
        }

    def write(self, path: Path) -> Path:
        """Write the trace and return its path."""
        writer = TraceWriter(path, self.meta())
        writer.append("flows", self.flows())
        writer.append("marks", mark_columns(self.marks))
        writer.append("wire", wire_columns(self.wire))
        end = START_NS + self.iterations * ITERATION_NS
        writer.append("tcp", tcp_columns(self.ranks, end))
        writer.append("totals", self.totals(end))
        if self.outside:
            writer.append("outside", self.outside)
        writer.append("nic", self.nic())
        if self.rate_changes:
            writer.append("link_changes", self.link_changes())
        for name, columns in self.extra.items():
            writer.append(name, columns)
        writer.close(self.meta())
        return path


@cache
def _rows(
    ranks: int, steps: int, _: object
) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, int, int, int, int], ...]]:
    """Return the marks and wire rows of every rank's steps. The third argument is the times that tests may change."""
    job = Job()
    for rank in range(ranks):
        for step in range(steps):
            job.step(rank, START_NS + step * ITERATION_NS)
    return tuple(job.marks), tuple(job.wire)


@cache
def trace_of(**spec: Any) -> Path:
    """Return a trace of a job that nothing is changed of, by fields of Job: written once a process, only to be read."""
    return Job(**spec).fill().write(_shelf() / f"{len(list(_shelf().iterdir()))}.netprof")


@cache
def _shelf() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="netprof-traces-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


def with_late_rank(job: Job, rank: int, late_ns: int, since: int = 0) -> Job:
    """Let a rank of a filled job be late in each step from one on, in its forward pass; the others wait for it."""
    moved = []
    for time, pid, *rest in job.marks:
        step, offset = divmod(time - START_NS, ITERATION_NS)
        shifts = pid == 100 + rank and step >= since and 0 < offset <= WAIT + 1 and rest[1] != K.DDP_FORWARD
        moved.append((time + late_ns if shifts else time, pid, *rest))
    job.marks = moved
    return job


def in_parts(job: Job, size: int) -> Job:
    """Put the ranks of a filled job into the communicators that `parts_of` says, a ring each."""
    parts = parts_of(job.ranks, size)
    place = {rank: (part, number) for part in parts for number, rank in enumerate(part)}
    marks = []
    for time, pid, tid, kind, *rest in job.marks:
        marks.append((time, pid, tid, kind, *rest))
        if kind == K.COLLECTIVE_BEGIN:
            rank = pid - 100
            marks.append((time, pid, tid, int(K.COLLECTIVE_GROUP), 0x9000 + 64 * rank, size, place[rank][1]))
    job.marks = marks
    after, before = ([place[rank][0][(place[rank][1] + step) % size] for rank in range(job.ranks)] for step in (1, -1))
    flows = {name: [*column, *column] for name, column in job.flows().items()}  # to the next, and from the one before
    flows["flow_id"] = list(range(1, 2 * job.ranks + 1))
    flows["local_port"] = [40_000 + rank for rank in range(job.ranks)] + [50_000 + rank for rank in range(job.ranks)]
    flows["remote_addr"] = [f"10.0.0.{rank + 1}" for rank in (*after, *before)]
    flows["remote_port"] = [*(50_000 + rank for rank in after), *(40_000 + rank for rank in before)]
    job.flow_changes = flows
    job.wire = [(flow + job.ranks * way, way, at, payload, wire) for flow, way, at, payload, wire in job.wire]
    return job


def parts_of(ranks: int, size: int) -> list[list[int]]:
    """Return communicators of `size` ranks, whose members are not the first ones that one would guess."""
    parts = ranks // size
    return [[number * parts + (part + number) % parts for number in range(size)] for part in range(parts)]


def mark_columns(rows: Sequence[tuple[int, ...]]) -> dict[str, Any]:
    """Return the columns of `marks`."""
    names = ("time_ns", "pid", "tid", "kind", "arg0", "arg1", "arg2")
    columns = list(zip(*((*row, 0)[: len(names)] for row in rows), strict=True)) or [()] * len(names)
    kinds = [np.uint64 if name.startswith("arg") else np.int64 for name in names]
    return {name: np.array(column, kind) for name, column, kind in zip(names, columns, kinds, strict=True)}


def wire_columns(rows: list[tuple[int, int, int, int, int]]) -> dict[str, Any]:
    """Return the columns of `wire`; each bin's packets fill it from end to end and its streams begin at 0."""
    table = np.array(rows, np.int64).reshape(-1, 5)
    position = np.zeros(len(table), np.int64)
    for flow, direction in np.unique(table[:, :2], axis=0).tolist():
        own = np.flatnonzero((table[:, 0] == flow) & (table[:, 1] == direction))
        position[own] = np.cumsum(table[own, 3])
    return {
        "flow_id": table[:, 0],
        "direction": table[:, 1],
        "bin_start_ns": table[:, 2],
        "payload_bytes": table[:, 3],
        "wire_bytes": table[:, 4],
        "retransmitted_bytes": np.zeros(len(table), np.int64),
        "packets": table[:, 4] // 1500 + 1,
        "first_ns": table[:, 2],
        "last_ns": table[:, 2] + MS,
        "stream_position": position % (1 << 32),
        "stream_position_ns": table[:, 2] + MS,
        "unsent": np.zeros(len(table), np.int64),
    }


def tcp_columns(ranks: int, end_ns: int) -> dict[str, Any]:
    """Return the columns of `tcp`: two samples a flow, in the wrong order."""
    flows = list(range(1, ranks + 1))
    return {
        "flow_id": flows * 2,
        "time_ns": [end_ns] * ranks + [START_NS] * ranks,
        "retransmits": [3] * ranks + [1] * ranks,
        "rtt_us": [300] * ranks + [100] * ranks,
        "cwnd": [20] * ranks + [10] * ranks,
        "mss_bytes": [1448] * 2 * ranks,
        "busy_us": [900_000] * ranks + [0] * ranks,
        "rwnd_limited_us": [0] * 2 * ranks,
        "sndbuf_limited_us": [0] * 2 * ranks,
        "notsent_bytes": [0] * 2 * ranks,
        "ca_state": [0] * 2 * ranks,
        "dsacked": [0] * 2 * ranks,
        "send_buffer_bytes": [1 << 20] * 2 * ranks,
        "send_queued_bytes": [1 << 16] * 2 * ranks,
        "pacing_bytes_per_s": [0] * 2 * ranks,
        "pacing_limit_bytes_per_s": [0] * 2 * ranks,
        "min_rtt_us": [80] * 2 * ranks,
        "unacked_bytes": [0] * 2 * ranks,
    }


def collectives(
    pid: int,
    posted: npt.ArrayLike,
    end: npt.ArrayLike,
    size: npt.ArrayLike = 1000,
    group: int = 0x1000,
    ranks: int = 2,
    number: int = 0,
) -> Collectives:
    """All-reduces of one process that begin when they are posted."""
    posted_ns, end_ns = np.asarray(posted, np.int64), np.asarray(end, np.int64)
    full = {name: np.full(len(posted_ns), value) for name, value in (("pid", pid), ("tid", pid), ("posted_tid", pid))}
    of_group = {name: np.full(len(posted_ns), value) for name, value in (("group", group), ("ranks", ranks))}
    return Collectives(
        **full,
        **of_group,
        begin_ns=posted_ns,
        end_ns=end_ns,
        posted_ns=posted_ns,
        bytes=np.broadcast_to(size, len(posted_ns)).astype(np.int64),
        kind=np.full(len(posted_ns), int(CollectiveKind.ALL_REDUCE)),
        backend=np.full(len(posted_ns), int(Backend.GLOO)),
        number=np.full(len(posted_ns), number),
        work=np.zeros(len(posted_ns), np.int64),
        root=np.full(len(posted_ns), UNKNOWN),
        sequence=np.full(len(posted_ns), UNKNOWN),
    )


FLOAT32 = 7
"""As ncclDataType_t."""


def enqueued(last_share: float = 0.5, launch: int = 25 * MS, iterations: int = 10) -> Job:
    """A job on GPUs: two all-reduces are enqueued long before the wire moves, the last of them with a share."""
    job = Job(iterations=iterations).fill()
    kept = (K.DDP_FORWARD, K.DDP_BACKWARD, K.DDP_STATS)
    job.marks = [mark for mark in job.marks if mark[3] in kept]
    elements = 10_000_000
    for rank in range(job.ranks):
        for step in range(job.iterations + 1):
            at = START_NS + step * ITERATION_NS + launch
            for number, share in enumerate((1 - last_share, last_share)):
                when, pid = at + number * MS, 100 + rank
                job.mark(when, pid, K.BUCKET_LAUNCH, number)
                row = (when + 1000, pid, pid, int(K.NCCL_ALL_REDUCE), round(elements * share), 1 << 8 | FLOAT32, 0xC0)
                job.marks.append(row)
            job.mark(at + 3 * MS, 100 + rank, K.DDP_WAIT)
    return job


def launched_ahead(job: Job, together: int = 5) -> Job:
    """The same where the host launches so many steps at once, and then waits until they are performed."""
    length_ns = together * ITERATION_NS
    at_once = [START_NS + (mark[0] - START_NS) // length_ns * length_ns for mark in job.marks]
    job.marks = [(at + (mark[0] - at) // 50, *mark[1:]) for at, mark in zip(at_once, job.marks, strict=True)]
    return job
