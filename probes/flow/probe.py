"""The flow probe: each flow's bytes in time bins, as the kernel programs of flow.bpf.c hand them over."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netprof.closing import all_or_nothing
from netprof.errors import NetprofError, NotPermittedError
from netprof.model import Losses, StartedProbe, Target
from netprof.probes.flow.adoption import Adoption
from netprof.probes.flow.bin_collector import BIN_RECORD, BinCollector
from netprof.probes.flow.devices import FlowDevices
from netprof.probes.flow.flow_records import SAMPLE_NS, DropRecords, FlowRecords, TcpRecords, TotalsRecords, tick_us
from netprof.probes.flow.flow_row import flow_row
from netprof.probes.flow.slots import Slots
from netprof.probes.flow.untyped import UNTYPED, WITHOUT_TYPES, UntypedAdoption
from netprof.probes.kernel.btf import layout
from netprof.probes.kernel.headers import described_by_headers
from netprof.probes.kernel.loader import BpfObject, KernelMemoryError, RingBuffer, object_path
from netprof.probes.kernel.targets import TargetMap
from netprof.probes.kernel.types import described_by_kernel
from netprof.probes.probe import Columns, Description, Probe, Row, Shared, Tables, columns_of
from netprof.schema import RECEIVE, UNKNOWN_RANK

MAX_FLOWS = 65_536
_SMALL_RING_BYTES = 4 << 20  # of bins, where there is room for fewer flows
_ENDED_AFTER_S = 5.0  # the sockets of a process are closed after it has told that it ends
_EXIT = 102  # LIFE_EXIT of flow.h
_TRIES_AT_END = 1000  # for a bin that is read while packets are added to it; what they add is of after the end
_COUNTERS = ("merged_bins", "lost_events", "untracked_flows", "healed_bytes")


class FlowProbe(Probe):
    """Counts the job's TCP bytes per flow, direction and bin of `bin_ns`, from the first `follow` until `close`.

    `targets` is the map of the job's processes; without one to share the probe makes its own. Only flows of `device`
    are kept, where any are named. Raises NotPermittedError without the rights for it, NetprofError when the kernel
    refuses a program.
    """

    name = "flows"
    period_s = 0.4
    required = True

    def __init__(
        self,
        bin_ns: int,
        *,
        targets: TargetMap | None = None,
        rank_of: Callable[[int], int] = lambda pid: UNKNOWN_RANK,
        devices: Sequence[str] = (),
        max_flows: int = MAX_FLOWS,
    ) -> None:
        self.bin_ns = bin_ns
        self._owns_targets = targets is None
        self._rank_of, self._only = rank_of, devices
        self._left_out: set[int] = set()  # flows of other devices than those
        self._elsewhere = Counter[str]()  # of how many such flows there were, by device
        self._untyped = not described_by_kernel()
        self._adoption: Adoption | UntypedAdoption | None = None
        self._begun_ns = 0  # what was adopted after that was adopted late
        kinds: dict[str, type[FlowRecords]] = {"tcp": TcpRecords, "totals": TotalsRecords}
        if not self._untyped:
            kinds["drops"] = DropRecords
        with all_or_nothing() as opened:
            self.targets = targets or opened.enter_context(TargetMap())
            self._object = opened.enter_context(_load(bin_ns, self.targets.fd, max_flows))
            self._slots = Slots(self._object, max_flows, bin_ns)
            self._bins = opened.enter_context(RingBuffer(self._object, "bins", BIN_RECORD))
            self._records = {name: opened.enter_context(kind(self._object)) for name, kind in kinds.items()}
            lives = RingBuffer(self._object, "lives", layout("flow", "life_record"))
            self._lives = opened.enter_context(lives)
        self._collector = BinCollector(bin_ns, max_flows)
        self._devices = FlowDevices(max_flows)
        self._published = np.zeros(max_flows, dtype=np.uint32)  # the id last published from each slot
        self._ended: list[tuple[float, int]] = []  # processes, and when to forget them
        self._late_flows = self._late_bytes = 0

    @classmethod
    def open(cls, shared: Shared) -> FlowProbe:
        """Load the programs. Raises NotPermittedError or NetprofError."""
        return cls(
            shared.bin_ns,
            targets=shared.targets,
            rank_of=shared.rank_of,
            devices=shared.devices,
            max_flows=shared.max_flows or MAX_FLOWS,
        )

    def follow(self, targets: Sequence[Target] = ()) -> None:
        """Begin counting, at the first call; later ones adopt the sockets of the processes that have joined."""
        if self._adoption is not None:
            self._adoption.look()
            return
        # The packet programs come first: a flow must not exist before its bytes are seen.
        for program in ("packet_sent", "packet_received"):
            self._object.attach(program)
        for program in ("process_forked", "process_executed", "process_exited", "state_changed"):
            self._object.attach(program)
        if self._untyped:
            self._adoption = UntypedAdoption(self._object, self.targets, self._slots)
        else:
            self._adoption = Adoption(self._object, self.targets)
            self._object.attach("packet_dropped")
        self._begun_ns = self._adoption.begin()

    def drain(self, *, final: bool = False) -> Tables:
        """Return what happened since the last call: rows of `marks` (forks, execs, exits), `flows`, `wire`,
        `flow_devices`, `tcp`, `totals`, `drops`.

        With `final` the open bins count too, and so does what the transport says of flows without packets.
        """
        if self._adoption is not None:
            self._adoption.look() if final else self._adoption.look_if_due()
        lives = self._drain_lives()
        wire = self._drain_bins(final=final)
        flows = self._new_flows(final=final)  # after the bins: each flow that has one has its row
        slots = self._slots.used()
        used, published = slots["id"], self._published[: len(slots)]
        devices = self._devices.changes(slots, published)
        of_flows: dict[str, dict[str, Any]] = {"wire": wire, "flow_devices": devices}
        of_flows |= {name: records.drain(published, used) for name, records in self._records.items()}
        self._collector.forget(self._slots.recycle(time.monotonic_ns()))
        return {"marks": lives, "flows": flows, **{name: self._wanted(rows) for name, rows in of_flows.items()}}

    def describe(self) -> Description:
        """Return the bin width, and what was lost or mended."""
        counters = self._object.counters(*_COUNTERS)
        losses = Losses(
            merged_bins=counters["merged_bins"],
            lost_marks=counters["lost_events"],
            untracked_flows=counters["untracked_flows"],
            healed_bytes=counters["healed_bytes"],
            late_flows=self._late_flows,
            late_bytes=self._late_bytes,
        )
        started = StartedProbe(self.name, f"{self.bin_ns} ns bins")
        devices = ", ".join(f"{count} over {name}" for name, count in self._elsewhere.items())
        total = self._elsewhere.total()
        left_out = (f"{self.name}: --device leaves out {total} flows of the job: {devices}",) if devices else ()
        warnings = (
            f"{self.name}: this kernel has no BTF (/sys/kernel/btf/vmlinux), so bcc read its headers. {WITHOUT_TYPES}",
        )
        return Description(started=(started,), losses=losses, warnings=left_out + (warnings if self._untyped else ()))

    @property
    def objects(self) -> Sequence[BpfObject]:
        """The loaded BPF object."""
        return (self._object,)

    def close(self) -> None:
        """Detach from the kernel."""
        rings: list[RingBuffer | FlowRecords] = [self._bins, *self._records.values(), self._lives]
        for ring in rings:
            ring.close()
        self._object.close()
        if self._owns_targets:
            self.targets.close()

    def _drain_lives(self) -> dict[str, NDArray[Any]]:
        """Return forks, execs and exits of the job's processes since the last call."""
        records = self._lives.drain()
        self._forget_ended(records["pid"][records["kind"] == _EXIT].tolist())
        columns = {name: records[name] for name in ("time_ns", "pid", "tid", "kind")}
        return columns | {f"arg{index}": records["arguments"][:, index] for index in range(3)}

    def _forget_ended(self, pids: list[int]) -> None:
        """Drop processes from the job some time after they have told that they end."""
        now_s = time.monotonic()
        self._ended += [(now_s + _ENDED_AFTER_S, pid) for pid in pids]
        while self._ended and self._ended[0][0] <= now_s:
            self.targets.drop_ended(self._ended.pop(0)[1])

    def _drain_bins(self, *, final: bool) -> dict[str, NDArray[Any]]:
        """Return the finished bins since the last call; with `final` the open ones too."""
        now_bin, tries = time.monotonic_ns() // self.bin_ns, 1
        if final:
            now_bin, tries = now_bin + 3, _TRIES_AT_END
        flows = self._slots.used()
        silent = self._collector.silent(flows["id"], flows["streams"], now_bin, tries)
        return self._collector.columns(self._bins.drain(), silent)

    def _new_flows(self, *, final: bool) -> Columns:
        """Return a row for every wanted flow that showed itself since the last call."""
        flows = self._slots.used()
        past = flows["adoption"]
        missed = (past["time_ns"] > self._begun_ns) & (past["sent_bytes"] + past["received_bytes"] > 0)
        moved = (flows["streams"]["bin_end_ns"] > 0).any(axis=1)
        over = np.full(len(flows), True) if final else (flows["closed"] != 0) | (flows["holder"] == 0)
        known = (flows["device"] != b"") | (over & (missed | moved))
        fresh = np.flatnonzero((flows["id"] != self._published[: len(flows)]) & (flows["id"] != 0) & known)
        if fresh.size and self._adoption is not None and (flows["accepted"][fresh] != 0).any():
            self._adoption.look()  # settles who owns them
        self._published[fresh] = flows["id"][fresh]
        fresh = fresh[flows["told"][fresh] == 0]  # the others had another slot before
        flows["told"][fresh] = 1
        late = past[fresh[missed[fresh]]]
        rows = [flow_row(flow, self._rank_of) for flow in flows[fresh].copy()]
        if final and isinstance(self._adoption, UntypedAdoption):
            silent = self._adoption.silent()
            rows += [flow_row(flow, self._rank_of) for flow in silent]
            late = np.append(late, silent["adoption"][silent["adoption"]["time_ns"] > self._begun_ns])
        self._late_flows += len(late)
        self._late_bytes += int(late["sent_bytes"].sum() + late["received_bytes"].sum())
        others = {row["flow_id"]: row["device"] for row in rows if self._only and not self._goes_by(row, flows)}
        self._elsewhere.update(name or "an unknown device" for name in others.values())
        self._left_out.update(others)
        self._left_out = still_needed(self._left_out, flows["id"])
        wanted = [row for row in rows if row["flow_id"] not in others]
        return columns_of("flows", wanted)

    def _goes_by(self, row: Row, flows: NDArray[Any]) -> bool:
        """Tell whether a flow is sent or received by one of the devices that the person wants."""
        received = (self._devices.name(flow, RECEIVE) for flow in flows[flows["id"] == row["flow_id"]])
        return row["device"] in self._only or any(name in self._only for name in received)

    def _wanted(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Leave out rows of the flows that are not wanted."""
        if not self._left_out:
            return columns
        wanted = ~np.isin(columns["flow_id"], list(self._left_out))
        return {name: np.asarray(column)[wanted] for name, column in columns.items()}


def still_needed(left_out: set[int], used: NDArray[np.uint32]) -> set[int]:
    """Return the flows that are in a slot, and the newest others: rows of those may be on their way."""
    if len(left_out) <= 2 * MAX_FLOWS:
        return left_out
    newest, slots = max(left_out) - MAX_FLOWS, set(used.tolist())
    return {flow_id for flow_id in left_out if flow_id > newest or flow_id in slots}


def _load(bin_ns: int, targets_fd: int, max_flows: int) -> BpfObject:
    """Load the programs, with plain reads of packet memory where the verifier knows them (Linux 6.17 and later)."""
    sizes, shared = {"flows": max_flows, "free_slots": max_flows}, {"targets": targets_fd}
    if max_flows < MAX_FLOWS:
        sizes["bins"] = _SMALL_RING_BYTES

    def load(plain_reads: int) -> BpfObject:
        constants = {"bin_ns": bin_ns, "max_flows": max_flows, "plain_reads": plain_reads}
        constants |= {"tcp_sample_ns": SAMPLE_NS, "tick_us": tick_us()}
        if described_by_kernel():
            return BpfObject("flow", rodata=constants, max_entries=sizes, reuse=shared)
        with described_by_headers(object_path(UNTYPED)) as types:
            return BpfObject(UNTYPED, rodata=constants, max_entries=sizes, reuse=shared, types=types)

    try:
        return load(int(described_by_kernel()))
    except (NotPermittedError, KernelMemoryError):
        raise
    except NetprofError:
        return load(0)
