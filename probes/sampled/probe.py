"""The sampled flow probe: where no BPF program may be loaded, TCP's totals of the job's sockets, time and again.

What moved between two samples is exact; when within them it moved is not known, and it is taken to have moved evenly.
What a socket moved after its last sample is not seen, nor is what moved before its owner was found.
"""

from __future__ import annotations

import ipaddress
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from netprof.closing import all_or_nothing
from netprof.errors import NetprofError
from netprof.model import Losses, SkippedProbe, StartedProbe, Target
from netprof.probes.job import procfs
from netprof.probes.job.processes import is_same
from netprof.probes.kernel.netns import NetworkNamespace
from netprof.probes.kernel.rtnetlink import RouteSocket
from netprof.probes.pace import ReadingPace
from netprof.probes.probe import Columns, Description, Probe, Row, Shared, Tables, columns_of, row_of
from netprof.probes.sampled.tcp_info import TcpSocket, TcpSockets
from netprof.schema import RECEIVE, TCP, TRANSMIT, UNKNOWN_RANK, tables

BIN_NS = 20_000_000
"""The least width of a time bin: what is sampled says no more of when bytes moved."""

_PERIOD_NS = 10_000_000
_BUDGET = 0.05  # of a core, that sampling may take: where there are many sockets it is done less often
_LOOK_NS = 250_000_000
_LOOK_BUDGET = 0.02  # of a core, that finding the job's sockets among all of its machine may take
_NOT_ASKED = (
    "send_buffer_bytes",
    "send_queued_bytes",
    "pacing_bytes_per_s",
    "pacing_limit_bytes_per_s",
    "unacked_bytes",
)
_ETHERNET, _IPV4, _IPV6, _TCP_HEADER = 14, 20, 40, 20


@dataclass
class _Flow:
    """A socket of the job: its row, and it at the last sample."""

    row: Row
    last: TcpSocket
    header_bytes: int
    is_written: bool = False


@dataclass
class _SampledNamespace:
    """The sockets of a network namespace, and the job's processes in it."""

    inode: int
    sockets: TcpSockets
    route: RouteSocket
    targets: dict[tuple[int, int], Target] = field(default_factory=dict)  # by pid and when it began
    owner: dict[int, int] = field(default_factory=dict)  # process, by the inode of the socket
    flows: dict[int, _Flow] = field(default_factory=dict)  # by cookie


class SampledFlowProbe(Probe):
    """Samples the TCP sockets of the job's processes, from the first `follow` until `close`."""

    name = "flows"
    period_s = 0.1

    def __init__(
        self, bin_ns: int, rank_of: Callable[[int], int] = lambda pid: UNKNOWN_RANK, devices: Sequence[str] = ()
    ) -> None:
        self._bin_ns, self._rank_of, self._devices = bin_ns, rank_of, devices
        self._namespaces: dict[int, _SampledNamespace] = {}
        self._skipped: dict[SkippedProbe, None] = {}
        self._rows: dict[str, list[Any]] = {"flows": [], "wire": [], "tcp": []}
        self._lock = threading.Lock()  # for all of the above
        self._begun_ns = 0
        self._next_look_ns = 0
        self._looks, self._samples = ReadingPace(_LOOK_BUDGET, _LOOK_NS), ReadingPace(_BUDGET, _PERIOD_NS)
        self._flows = 0
        self._losses = Losses()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    @classmethod
    def open(cls, shared: Shared) -> SampledFlowProbe:
        """Make one; it opens sockets as it meets their namespaces."""
        return cls(shared.bin_ns, shared.rank_of, shared.devices)

    def follow(self, targets: Sequence[Target]) -> None:
        """Sample the sockets of these processes too."""
        with self._lock:
            for target in targets:
                namespace = self._namespaces.get(target.netns) or self._open(target)
                if namespace is not None:
                    namespace.targets[target.pid, target.start_ticks] = target
                    self._next_look_ns = 0
        if self._thread is None:
            self._sample_all()
            self._begun_ns = time.monotonic_ns()
            self._thread = threading.Thread(target=self._run, name="netprof-sockets", daemon=True)
            self._thread.start()

    def drain(self, *, final: bool = False) -> Tables:
        """Return what was sampled since the last call: rows of `flows`, `wire` and `tcp`."""
        if self._failure is not None:
            raise self._failure
        if final:
            self._sample_all()
        with self._lock:
            rows, self._rows = self._rows, {name: [] for name in self._rows}
        rows["flows"] = [row | {"rank": self._rank_of(row["pid"])} for row in rows["flows"]]
        return {name: _columns(name, of_table) for name, of_table in rows.items()}

    def describe(self) -> Description:
        """Return how often sockets are sampled, and which cannot be."""
        with self._lock:
            detail = (
                f"TCP's totals of {self._flows} sockets, sampled every {_PERIOD_NS / 1e6:.0f} ms or less often; bytes "
                "on the link are payload and as many headers as segments"
            )
            started = (StartedProbe(self.name, detail),) if self._namespaces else ()
            return Description(started, tuple(self._skipped), losses=self._losses)

    def close(self) -> None:
        """Stop sampling."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        for namespace in self._namespaces.values():
            namespace.sockets.close()
            namespace.route.close()
        self._namespaces.clear()

    def _open(self, target: Target) -> _SampledNamespace | None:
        """Open the network namespace of a process; None where that cannot be, which is noted."""
        try:
            with NetworkNamespace.of(target.pid) as namespace:
                if namespace.inode not in self._namespaces:
                    self._namespaces[namespace.inode] = _SampledNamespace(namespace.inode, *namespace.run(_sockets))
                return self._namespaces[namespace.inode]
        except (NetprofError, OSError) as error:
            remedy = error.hint if isinstance(error, NetprofError) else ""
            self._skipped[SkippedProbe(self.name, f"sockets of process {target.pid}: {error}", remedy)] = None
            return None

    def _run(self) -> None:
        while not self._ended.wait(self._samples.period_ns / 1e9):
            try:
                self._sample_all()
            except Exception as error:
                self._failure = error
                return

    def _sample_all(self) -> None:
        """Sample the known sockets; now and then look for new ones, which takes the kernel longer."""
        with self._lock:
            looks = time.monotonic_ns() >= self._next_look_ns
            begin_ns = time.thread_time_ns()
            for namespace in self._namespaces.values():
                self._sample(namespace, looks)
            pace = self._looks if looks else self._samples
            pace.took(time.thread_time_ns() - begin_ns)
            if looks:
                self._next_look_ns = time.monotonic_ns() + self._looks.period_ns

    def _sample(self, namespace: _SampledNamespace, looks: bool) -> None:
        if looks:
            namespace.targets = {name: target for name, target in namespace.targets.items() if is_same(target)}
            namespace.owner = {inode: pid for pid, _ in namespace.targets for inode in procfs.sockets(pid)}
            sockets = namespace.sockets.look(namespace.owner, namespace.flows)
        else:
            sockets = namespace.sockets.again([flow.last for flow in namespace.flows.values()])
        for socket in sockets:
            self._see(namespace, socket)
        seen = {socket.cookie for socket in sockets}
        for cookie in namespace.flows.keys() - seen:
            del namespace.flows[cookie]

    def _see(self, namespace: _SampledNamespace, socket: TcpSocket) -> None:
        """Keep what a socket of the job has moved since it was sampled last."""
        flow = namespace.flows.get(socket.cookie)
        if flow is None:
            self._adopt(namespace, socket)
            return
        if self._devices and flow.row["device"] not in self._devices:
            return
        for row in self._moved(flow, socket):
            self._write(flow)
            self._rows["wire"].append(row)
        if socket.info != flow.last.info:
            self._write(flow)
            values = {**dict.fromkeys(_NOT_ASKED, 0), **socket.info, "ca_state": socket.ca_state}
            self._rows["tcp"].append(
                [flow.row["flow_id"], socket.time_ns, *(values[name] for name in tables()["tcp"].names[2:])]
            )
        flow.last = socket

    def _write(self, flow: _Flow) -> None:
        """Write the row of a flow before anything else of it."""
        if not flow.is_written:
            flow.is_written = True
            self._rows["flows"].append(flow.row)

    def _adopt(self, namespace: _SampledNamespace, socket: TcpSocket) -> None:
        self._flows += 1
        row = self._flow_row(namespace, socket)
        ip_bytes = _IPV4 if len(socket.local[0]) == 4 else _IPV6
        header_bytes = _ETHERNET + ip_bytes + _TCP_HEADER + socket.options_bytes
        namespace.flows[socket.cookie] = _Flow(row, socket, header_bytes)
        moved = row["earlier_sent_bytes"] + row["earlier_received_bytes"]
        if self._begun_ns and moved and (not self._devices or row["device"] in self._devices):
            self._losses += Losses(late_flows=1, late_bytes=moved)

    def _flow_row(self, namespace: _SampledNamespace, socket: TcpSocket) -> Row:
        pid = namespace.owner.get(socket.inode, 0)
        local, remote = (ipaddress.ip_address(end[0]) for end in (socket.local, socket.remote))
        return row_of(
            "flows",
            flow_id=self._flows,
            family=local.version,
            local_addr=str(local),
            local_port=socket.local[1],
            remote_addr=str(remote),
            remote_port=socket.remote[1],
            protocol=TCP,
            netns=namespace.inode,
            device=_device(namespace.route, socket),
            pid=pid,
            rank=UNKNOWN_RANK,  # until it is drained: the job is looked at by one thread
            adopted_ns=socket.time_ns,
            **{
                f"earlier_{name}": socket.info[name]
                for name in (*_MOVED[TRANSMIT], "received_bytes", "received_packets")
            },
            congestion_control=socket.congestion_control,
        )

    def _moved(self, flow: _Flow, socket: TcpSocket) -> Iterator[list[int]]:
        """Yield rows of `wire` for what moved between two samples: in each bin as much as it has of that time."""
        for direction, names in _MOVED.items():
            new, again, packets = (max(0, socket.info[name] - flow.last.info[name]) if name else 0 for name in names)
            if not new + again + packets:
                continue
            amounts = (new, again, packets * flow.header_bytes, packets)
            for begin_ns, end_ns, share in _in_bins(flow.last.time_ns + 1, socket.time_ns, self._bin_ns):
                payload, resent, headers, count = (_part(amount, share) for amount in amounts)
                wire = payload + resent + headers  # not a part of their sum, which may round to less than payload
                start_ns = begin_ns // self._bin_ns * self._bin_ns
                moved = (payload, wire, resent, count)
                yield [flow.row["flow_id"], direction, start_ns, *moved, begin_ns, end_ns, 0, 0, 0]


def _sockets() -> tuple[TcpSockets, RouteSocket]:
    with all_or_nothing() as opened:
        return opened.enter_context(TcpSockets()), opened.enter_context(RouteSocket())


def _columns(table: str, rows: list[Any]) -> Columns:
    """Return rows as columns: of numbers, but for table `flows`."""
    if table == "flows":
        return columns_of(table, rows)
    return {name: np.array([row[at] for row in rows], np.int64) for at, name in enumerate(tables()[table].names)}


_MOVED = {
    TRANSMIT: ("sent_bytes", "resent_bytes", "sent_packets"),
    RECEIVE: ("received_bytes", "", "received_packets"),
}
"""What a socket counts each way: new payload, what was sent again, segments."""

_Share = tuple[int, int, int]
"""The part of an amount between two moments of a span, and of the whole span, ns."""


def _in_bins(begin_ns: int, end_ns: int, bin_ns: int) -> Iterator[tuple[int, int, _Share]]:
    """Yield the parts of a span that lie in different bins; one that is longer than two bins is left whole.

    Nobody knows when bytes moved in so long a time, and a row that ends beyond its bin says so.
    """
    whole = end_ns - begin_ns + 1
    edge_ns = end_ns // bin_ns * bin_ns
    if whole > 2 * bin_ns or edge_ns <= begin_ns:
        yield begin_ns, end_ns, (0, whole, whole)
        return
    first_edge_ns = edge_ns - bin_ns if edge_ns - bin_ns > begin_ns else edge_ns
    edges = [begin_ns, *range(first_edge_ns, end_ns + 1, bin_ns), end_ns + 1]
    for first_ns, next_ns in itertools.pairwise(edges):
        if next_ns > first_ns:
            yield first_ns, next_ns - 1, (first_ns - begin_ns, next_ns - begin_ns, whole)


def _part(amount: int, share: _Share) -> int:
    """Return a part of an amount, so that the parts of one add up to it."""
    begin, end, whole = share
    return amount * end // whole - amount * begin // whole


def _device(route: RouteSocket, socket: TcpSocket) -> str:
    """Return the device by which a socket's packets leave as of now; "" where nobody can tell."""
    with suppress(OSError):
        index = route.route(socket.remote[0], socket.local[0]).index
        return next((link.name for link in route.links() if link.index == index), "")
    return ""
