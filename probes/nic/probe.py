"""The NIC probe: the devices that carry the job's flows, and those on their paths, and the counters of all of them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from netprof.errors import NetprofError, UsageError
from netprof.model import Device, LineRate, SkippedProbe, StartedProbe, Target
from netprof.probes.kernel.netns import NetworkNamespace
from netprof.probes.kernel.procfile import ProcFile
from netprof.probes.kernel.rtnetlink import RouteSocket
from netprof.probes.nic.counters import QdiscDrops, open_counters, parse_counters
from netprof.probes.nic.history import LinkHistory
from netprof.probes.nic.paths import Paths, Way
from netprof.probes.nic.places import Places
from netprof.probes.nic.settings import Fact, beside, facts_of, route_of
from netprof.probes.probe import Columns, Description, Probe, Row, Shared, Tables, columns_of
from netprof.schema import NIC_COUNTERS, TRANSMIT

_NAMESPACE_SHARE = 2e-3  # of a core, that reading one namespace may take: one with many devices is read less often
_SAY_AGAIN_NS = 1_000_000_000  # a device that stands still has a row this often


@dataclass
class _Sample:
    """The counters of a namespace as text, and what its devices go by, by the names that they had then.

    `qdisc_drops` is what their queueing disciplines had dropped, by those names too.
    """

    time_ns: int
    text: bytes
    names: dict[str, str]
    qdisc_drops: dict[str, int]


@dataclass
class _Namespace:
    """A network namespace's counters, the history of those of its devices that are sampled, and when it is due."""

    netns: int
    counters: ProcFile
    history: LinkHistory
    qdiscs: QdiscDrops
    next_s: float = 0.0
    changes: list[Row] = field(default_factory=list)
    samples: list[_Sample] = field(default_factory=list)
    parsed_s: float = 0.0  # CPU time that turning a sample into rows took
    costs_s: deque[float] = field(default_factory=lambda: deque(maxlen=3))  # of the last samples: one may be slow

    def listen(self, *, final: bool = False) -> None:
        """Take note of devices that changed."""
        self.changes += self.history.changes(final=final)

    def sample(self) -> None:
        """Read the counters once. Of several samples that hold the same, the first and the last are kept."""
        begin_s, before_ns = time.thread_time(), time.monotonic_ns()
        text = self.counters.read()
        taken_ns = (before_ns + time.monotonic_ns()) // 2
        taken = _Sample(taken_ns, text, self.history.names(), self.qdiscs.counts())
        if len(self.samples) > 1 and self._same(taken, self.samples[-1]) and self._same(taken, self.samples[-2]):
            self.samples[-1] = taken
        else:
            self.samples.append(taken)
        self.costs_s.append(time.thread_time() - begin_s + self.parsed_s)
        self.next_s = before_ns / 1e9 + min(self.costs_s) / _NAMESPACE_SHARE

    def take(self) -> list[Row]:
        """Return a row for each device that is sampled of each sample since the last call."""
        samples, self.samples = self.samples, []
        begin_s = time.thread_time()
        rows = [row for sample in samples for row in self._rows(sample)]
        if samples:
            self.parsed_s = (time.thread_time() - begin_s) / len(samples)
        return rows

    def close(self) -> None:
        """Close the counters, and stop following the devices."""
        self.counters.close()
        self.history.close()

    def _rows(self, sample: _Sample) -> list[Row]:
        found = parse_counters(sample.text, sample.names)
        about = {"netns": self.netns, "time_ns": sample.time_ns}
        return [
            {"device": sample.names[name], **about, **counters, "qdisc_drops": sample.qdisc_drops.get(name, 0)}
            for name, counters in found.items()
        ]

    @staticmethod
    def _same(one: _Sample, other: _Sample) -> bool:
        return (one.text, one.names, one.qdisc_drops) == (other.text, other.names, other.qdisc_drops)


class NicProbe(Probe):
    """Follows each device of the job's flows and those on their paths, and samples their counters, from then on.

    Often enough to say what others moved during one collective. While a device stands still, a sample becomes a row
    when a second is over, and when the device moves again: between two rows its counters grow evenly or not at all.
    """

    name = "nic"
    period_s = 0.4
    sample_s = 0.05
    notices = frozenset({"flows", "flow_devices"})

    def __init__(self, line_rate_bps: float | None = None) -> None:
        self._line_rate_bps = line_rate_bps
        self._devices: dict[tuple[int, str], Device] = {}
        self._places = Places()
        self._paths = Paths(self._places)
        self._changes_of_paths = 0
        self._ends: dict[int, tuple[int, int, str]] = {}  # by flow: namespace, process, address of the other end
        self._leaves: set[int] = set()  # namespaces of flows
        self._due: set[int] = set()  # of which settings are to be looked at
        self._facts: dict[tuple[int, str, str], str] = {}
        self._namespaces: dict[int, _Namespace] = {}
        self._skipped: list[SkippedProbe] = []
        self._last: dict[tuple[int, str], Row] = {}  # rows
        self._waiting: dict[tuple[int, str], Row] = {}  # later samples that hold the same

    @classmethod
    def open(cls, shared: Shared) -> NicProbe:
        """Make one; it opens counters as it meets their namespaces."""
        return cls(shared.line_rate_bps)

    def notice(self, table: str, columns: Columns) -> None:
        """Take up the devices of new flows, and those that flows go by since."""
        if table == "flow_devices":
            rows = zip(columns["flow_id"], columns["device"], columns["direction"], strict=True)
            for flow_id, device, direction in rows:
                if flow_id in self._ends:
                    netns, pid, remote = self._ends[flow_id]
                    self._take_up(netns, device, pid, direction, remote)
            return
        rows = zip(columns["netns"], columns["device"], columns["pid"], strict=True)
        for number, (netns, device, pid) in enumerate(rows):
            remote = str(columns["remote_addr"][number]) if "remote_addr" in columns else ""
            if "flow_id" in columns:
                self._ends[int(columns["flow_id"][number])] = int(netns), int(pid), remote
            self._take_up(int(netns), device, int(pid), TRANSMIT, remote)

    def _take_up(self, netns: int, device: str, pid: int, direction: int, remote: str) -> None:
        if not _is_network_device(device):
            return
        if self._is_new(netns, device):
            self._add(netns, device, pid)
        if netns not in self._leaves:
            self._leaves.add(netns)
            self._due.add(netns)
        if remote and self._paths.want(Way(netns, device, direction, remote)):
            self._due.add(netns)

    def drain(self, *, final: bool = False) -> Tables:
        """Return rows of table `nic` for the samples since the last call, and one more. A device that is gone has none.

        With `final` all are read, and each has a row. The other tables have a row for what is new or changed: a device
        in `link_changes`, each device on a path in `flow_paths`, and what is set in `settings`.
        """
        paths, settings = self._find_paths(), self._look_at_settings()
        self.sample(final=final)
        namespaces = self._namespaces.values()
        samples = [sample for namespace in namespaces for sample in namespace.take()]
        last = {(sample["netns"], sample["device"]): number for number, sample in enumerate(samples)}
        rows = [
            row
            for number, sample in enumerate(samples)
            for row in self._rows(sample, final=final and last[sample["netns"], sample["device"]] == number)
        ]
        links = [row for each in namespaces for row in each.changes]
        for each in namespaces:
            each.changes.clear()
        found = {"link_changes": links, "flow_paths": paths, "settings": settings, "nic": rows}
        return {name: columns_of(name, rows) for name, rows in found.items()}

    def _find_paths(self) -> list[Row]:
        """Return rows of paths that are new or changed, and follow the devices on them."""
        changes = sum(namespace.history.changes_of_paths for namespace in self._namespaces.values())
        if changes != self._changes_of_paths:
            self._changes_of_paths = changes
            self._paths.changed(time.monotonic_ns())
            self._due = set(self._leaves)
        rows = self._paths.look()
        for netns, device in sorted(self._paths.devices) if rows else ():
            if self._is_new(netns, device) and self._places.known(netns) is not None:
                self._add(netns, device, 0)
        return rows

    def _look_at_settings(self) -> list[Row]:
        """Return rows of what is set in the namespaces of flows, where something may have changed."""
        rows: list[Row] = []
        due, self._due = self._due, set()
        for netns in due:
            place = self._places.known(netns)
            if place is None:
                continue
            with suppress(NetprofError, OSError):  # it may end meanwhile, or not be entered
                devices = beside(place)
                for device in devices:
                    if self._is_new(netns, device):
                        self._add(netns, device, 0)
                ways = [(way.device, way.remote_addr) for way in self._paths.ways if way.netns == netns]
                facts = list(facts_of(place, devices))
                for device, remote in dict.fromkeys(ways):
                    facts += route_of(place, device, remote)
                rows += self._changed_facts(netns, facts)
        return rows

    def _changed_facts(self, netns: int, facts: Sequence[Fact]) -> Iterator[Row]:
        since_ns = time.monotonic_ns()
        for device, name, value in facts:
            if self._facts.get((netns, device, name)) != value:
                self._facts[netns, device, name] = value
                yield {"netns": netns, "device": device, "name": name, "since_ns": since_ns, "value": value}

    def sample(self, *, final: bool = False) -> None:
        """Read the counters of all devices that are due, and learn which devices have changed; with `final` all."""
        now_s = time.monotonic()
        for namespace in self._namespaces.values():
            namespace.listen(final=final)
            if final or now_s >= namespace.next_s:
                namespace.sample()

    def describe(self) -> Description:
        """Return the devices found so far, and those that cannot be sampled."""
        started = StartedProbe(self.name, f"every {self.sample_s * 1e3:.0f} ms")
        return Description((started,), tuple(self._skipped), devices=tuple(self._devices.values()))

    def close(self) -> None:
        """Close the counters."""
        for namespace in self._namespaces.values():
            namespace.close()
        self._namespaces.clear()
        self._places.close()

    def _is_new(self, netns: int, device: str) -> bool:
        return (netns, device) not in self._devices and not self._renamed(netns, device)

    def _renamed(self, netns: int, device: str) -> bool:
        """Say whether a name is the new one of a device that is known by another."""
        namespace = self._namespaces.get(netns)
        return namespace is not None and namespace.history.has(device)

    def _add(self, netns: int, device: str, pid: int) -> None:
        """Take up a device, which `pid` has a flow on or which is on a path; what cannot be had of it is skipped."""
        try:
            if netns not in self._namespaces:
                self._namespaces[netns] = self._open(netns, pid)
            given_bps = self._line_rate_bps if pid else None
            self._devices[netns, device] = self._namespaces[netns].history.add(device, given_bps)
        except (NetprofError, OSError) as failed:  # the process is gone or lives elsewhere by now
            error = failed if isinstance(failed, NetprofError) else NetprofError(str(failed))
            rate = LineRate(self._line_rate_bps, "--line-rate" if self._line_rate_bps else f"unknown: {error.message}")
            self._devices.setdefault((netns, device), Device(device, netns, rate))
            self._skipped.append(SkippedProbe(f"nic:{device}", error.message, error.hint))

    def _open(self, netns: int, pid: int) -> _Namespace:
        """Open a namespace, if a path has not led there yet by way of a process in it. Raises NetprofError."""
        place = self._places.known(netns)
        if place is not None:
            namespace, counters = place.namespace, place.counters()
        else:
            counters = open_counters(netns, pid)
            namespace = NetworkNamespace.of(pid)
            place = self._places.take(namespace)
        return _Namespace(netns, counters, LinkHistory(namespace), QdiscDrops(place))

    def _rows(self, sample: Row, *, final: bool) -> list[Row]:
        """Return the rows that a sample of a device makes: none, itself, or also the one before it."""
        key = int(sample["netns"]), str(sample["device"])
        last = self._last.get(key, {})
        stands_still = all(sample[name] == last.get(name) for name in (*NIC_COUNTERS, "qdisc_drops"))
        if stands_still and not final and int(sample["time_ns"]) - int(last["time_ns"]) < _SAY_AGAIN_NS:
            self._waiting[key] = sample
            return []
        self._last[key] = sample
        before = self._waiting.pop(key, None)
        return [sample] if before is None or stands_still else [before, sample]


def _is_network_device(name: str) -> bool:
    """Tell a device's name from that of an RDMA port, which has a slash in it."""
    return bool(name) and "/" not in name


def require_devices(devices: Sequence[str], targets: Iterable[Target]) -> None:
    """Raise UsageError where no network namespace of the job has one of `devices`.

    A namespace that may not be entered may have any.
    """
    found: set[str] = set()
    for pid in {target.netns: target.pid for target in targets}.values():
        try:
            with NetworkNamespace.of(pid) as namespace:
                found |= namespace.run(_names)
        except (NetprofError, OSError):  # not permitted, or over by now: it cannot be told
            return
    missing = [device for device in devices if device not in found]
    if missing:
        there = ", ".join(sorted(found)) or "none"
        raise UsageError(f"the job has no network device {missing[0]}", f"name one that it has with --device: {there}")


def _names() -> set[str]:
    with RouteSocket() as route:
        return {link.name for link in route.links()}
