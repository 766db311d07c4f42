"""The flow probe: each flow's bytes in time bins, as the kernel programs of flow.bpf.c hand them over."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netprof.errors import NetprofError, NotPermittedError
from netprof.model import Losses, StartedProbe, Target
from netprof.probes.flow.bins import BIN_RECORD, STREAM, BinCollector
from netprof.probes.flow.transport import SAMPLE_NS, TcpSamples, tick_us
from netprof.probes.kernel.loader import (
    BpfLink,
    BpfObject,
    RingBuffer,
    map_array,
    map_update,
    run_iterator,
)
from netprof.probes.kernel.rtnetlink import device_name
from netprof.probes.kernel.targets import TargetMap
from netprof.probes.probe import Description, Probe, Shared, Tables
from netprof.schema import UNKNOWN_RANK

FLOW = np.dtype(
    [
        ("id", "u4"),
        ("pid", "u4"),
        ("family", "u4"),
        ("netns", "u4"),
        ("local_addr", "u1", 16),
        ("remote_addr", "u1", 16),
        ("local_port", "u2"),
        ("remote_port", "u2"),
        ("interface", "u4"),
        ("device", "S16"),
        ("attach_sequence", "u4"),
        ("known_at_attach", "u4"),
        ("closed", "u4"),
        ("accepted", "u4"),
        ("unused", "u4", 4),
        ("sampled_ns", "u8"),
        ("stuck_ends_ns", "u8", 2),
        ("streams", STREAM, 2),
    ]
)
"""`struct flow` of flow.h."""

LIFE_RECORD = np.dtype(
    [("time_ns", "u8"), ("pid", "u4"), ("tid", "u4"), ("kind", "u4"), ("padding", "u4"), ("arguments", "u8", 3)]
)
"""`struct life_record` of flow.h."""

MAX_FLOWS = 4096
_AF_INET6 = 10
_RECYCLE_AFTER_NS = 2_000_000_000
_BINS_RING_BYTES = 4 << 20
_LIVES_RING_BYTES = 256 << 10
_COUNTERS = ("merged_bins", "lost_events", "untracked_flows", "healed_bytes")


class FlowProbe(Probe):
    """Counts the job's TCP bytes per flow, direction and bin of `bin_ns`, from the first `follow` until `close`.

    `targets` is the map of the job's processes; without one to share the probe makes its own. Only flows of `device`
    are kept, where one is named. Raises NotPermittedError without the rights for it, NetprofError when the kernel
    refuses a program.
    """

    name = "flows"
    period_s = 0.2
    required = True

    def __init__(
        self,
        bin_ns: int,
        *,
        targets: TargetMap | None = None,
        rank_of: Callable[[int], int] = lambda pid: UNKNOWN_RANK,
        device: str | None = None,
        max_flows: int = MAX_FLOWS,
    ) -> None:
        self.bin_ns = bin_ns
        self._own_targets = targets is None
        self.targets = targets or TargetMap()
        self._rank_of, self._device = rank_of, device
        self._left_out: set[int] = set()  # flows of other devices
        self._object = _load(bin_ns, self.targets.fd, max_flows)
        self._iterator: BpfLink | None = None
        self._flows: NDArray[Any] = map_array(self._object.map_fd("flows"), FLOW.itemsize, max_flows).view(FLOW)[:, 0]
        self._bins = RingBuffer(self._object.map_fd("bins"), _BINS_RING_BYTES, BIN_RECORD.itemsize)
        self._tcp = TcpSamples(self._object)
        self._lives = RingBuffer(self._object.map_fd("lives"), _LIVES_RING_BYTES, LIFE_RECORD.itemsize)
        self._collector = BinCollector(bin_ns, max_flows)
        self._published = np.zeros(max_flows, dtype=np.uint32)  # the id last published from each slot
        self._closed_ns: dict[int, int] = {}

    @classmethod
    def open(cls, shared: Shared) -> FlowProbe:
        """Load the programs. Raises NotPermittedError or NetprofError."""
        return cls(shared.bin_ns, targets=shared.targets, rank_of=shared.rank_of, device=shared.device)

    def follow(self, targets: Sequence[Target] = ()) -> None:
        """Begin counting, at the first call; who is in the map of targets is known to the programs at once."""
        if self._iterator is None:
            # The packet programs come first: a flow must not exist before its bytes are seen.
            for program in ("packet_sent", "packet_received"):
                self._object.attach(program)
            for program in ("process_forked", "process_executed", "process_exited", "state_changed"):
                self._object.attach(program)
            self._iterator = self._object.attach_iterator("find_sockets")
            run_iterator(self._iterator)  # sockets that the job holds already

    def drain(self, *, final: bool = False) -> Tables:
        """Return what happened since the last call: rows of `marks` (forks, execs, exits), `flows`, `wire`, `tcp`.

        With `final` the open bins count too, and so does what the transport says of flows without packets.
        """
        if final and self._iterator is not None:
            run_iterator(self._iterator)
        lives = self._drain_lives()
        wire = self._drain_bins(final=final)
        flows = self._new_flows(final=final)  # after the bins: each flow that has one has its row
        tcp = self._wanted(self._tcp.drain(self._published, self._used()["id"]))
        self._recycle()
        return {"marks": lives, "flows": flows, "wire": self._wanted(wire), "tcp": tcp}

    def describe(self) -> Description:
        """Return the bin width, and what was lost or mended."""
        counters = self._object.counters(*_COUNTERS)
        losses = Losses(
            merged_bins=counters["merged_bins"],
            lost_marks=counters["lost_events"],
            untracked_flows=counters["untracked_flows"],
            healed_bytes=counters["healed_bytes"],
        )
        return Description(started=(StartedProbe(self.name, f"{self.bin_ns} ns bins"),), losses=losses)

    @property
    def objects(self) -> Sequence[BpfObject]:
        """The loaded BPF object."""
        return (self._object,)

    def close(self) -> None:
        """Detach from the kernel."""
        self._bins.close()
        self._tcp.close()
        self._lives.close()
        self._object.close()
        if self._own_targets:
            self.targets.close()

    def _drain_lives(self) -> dict[str, NDArray[Any]]:
        """Return forks, execs and exits of the job's processes since the last call."""
        records = self._lives.drain().copy().view(LIFE_RECORD)[:, 0]
        columns = {name: records[name] for name in ("time_ns", "pid", "tid", "kind")}
        return columns | {f"arg{index}": records["arguments"][:, index] for index in range(3)}

    def _drain_bins(self, *, final: bool) -> dict[str, NDArray[Any]]:
        """Return the finished bins since the last call; with `final` the open ones too."""
        now_bin = time.monotonic_ns() // self.bin_ns
        flows = self._used()
        silent = self._collector.silent(flows["id"], flows["streams"], now_bin + 3 if final else now_bin)
        records = self._bins.drain().view(BIN_RECORD)[:, 0]
        return self._collector.columns(records, silent)

    def _new_flows(self, *, final: bool) -> dict[str, list[Any]]:
        """Return a row for every wanted flow that showed itself since the last call."""
        flows = self._used()
        known = (flows["device"] != b"") if not final else (flows["streams"]["bin_end_ns"] > 0).any(axis=1)
        fresh = np.flatnonzero((flows["id"] != self._published[: len(flows)]) & (flows["id"] != 0) & known)
        if fresh.size and self._iterator is not None and (flows["accepted"][fresh] != 0).any():
            run_iterator(self._iterator)  # settles who owns them
        self._published[fresh] = flows["id"][fresh]
        rows = [_row(flow, self._rank_of) for flow in flows[fresh].copy()]
        wanted = [row for row in rows if self._device in (None, row.device)]
        self._left_out.update({row.flow_id for row in rows} - {row.flow_id for row in wanted})
        return {name: [row[place] for row in wanted] for place, name in enumerate(_Row._fields)}

    def _wanted(self, columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Leave out rows of the flows that are not wanted."""
        if not self._left_out:
            return columns
        wanted = ~np.isin(columns["flow_id"], list(self._left_out))
        return {name: column[wanted] for name, column in columns.items()}

    def _recycle(self) -> None:
        """Give the slots of flows that closed a while ago back to the kernel programs."""
        now_ns = time.monotonic_ns()
        for slot in np.flatnonzero(self._used()["closed"]).tolist():
            closed_ns = self._closed_ns.setdefault(slot, now_ns)
            if now_ns - closed_ns < _RECYCLE_AFTER_NS:
                continue
            del self._closed_ns[slot]
            self._collector.forget(slot)
            map_update(self._object.map_fd("flows"), slot.to_bytes(4, "little"), bytes(FLOW.itemsize))
            map_update(self._object.map_fd("free_slots"), b"", slot.to_bytes(4, "little"))

    def _used(self) -> NDArray[Any]:
        return self._flows[: self._object.counters("next_slot")["next_slot"]]


def _load(bin_ns: int, targets_fd: int, max_flows: int) -> BpfObject:
    """Load the programs, with plain reads of packet memory where the verifier knows them (Linux 6.17 and later)."""
    sizes, shared = {"flows": max_flows, "free_slots": max_flows}, {"targets": targets_fd}

    def load(plain_reads: int) -> BpfObject:
        constants = {"bin_ns": bin_ns, "max_flows": max_flows, "plain_reads": plain_reads}
        constants |= {"tcp_sample_ns": SAMPLE_NS, "tick_us": tick_us()}
        return BpfObject("flow", rodata=constants, max_entries=sizes, reuse=shared)

    try:
        return load(1)
    except NotPermittedError:
        raise
    except NetprofError:
        return load(0)


class _Row(NamedTuple):
    """A row of table `flows`."""

    flow_id: int
    family: int
    local_addr: str
    local_port: int
    remote_addr: str
    remote_port: int
    protocol: int
    netns: int
    device: str
    pid: int
    rank: int


def _row(flow: Any, rank_of: Callable[[int], int]) -> _Row:
    local, remote = (_address(flow[name], int(flow["family"])) for name in ("local_addr", "remote_addr"))
    return _Row(
        flow_id=int(flow["id"]),
        family=local.version,
        local_addr=str(local),
        local_port=int(flow["local_port"]),
        remote_addr=str(remote),
        remote_port=int(flow["remote_port"]),
        protocol=6,
        netns=int(flow["netns"]),
        device=device_name(bytes(flow["device"]).split(b"\0")[0]),
        pid=int(flow["pid"]),
        rank=rank_of(int(flow["pid"])),
    )


def _address(data: NDArray[np.uint8], family: int) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Read an address; IPv4 carried by an IPv6 socket is IPv4."""
    if family != _AF_INET6:
        return ipaddress.IPv4Address(data[:4].tobytes())
    address = ipaddress.IPv6Address(data.tobytes())
    return address.ipv4_mapped or address
