"""The NIC probe: the devices that carry the job's flows, and those on their paths, and the counters of all of them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from netprof.closing import all_or_nothing
from netprof.errors import NetprofError, UsageError
from netprof.model import Device, LineRate, SkippedProbe, StartedProbe, Target
from netprof.probes.kernel.netns import NetworkNamespace
from netprof.probes.kernel.procfile import ProcFile
from netprof.probes.kernel.rtnetlink import device_names
from netprof.probes.nic.device_counters import QdiscDrops, open_counters, parse_counters
from netprof.probes.nic.flow_paths import FlowPaths, WantedPath
from netprof.probes.nic.history import LinkHistory
from netprof.probes.nic.namespaces import Namespaces
from netprof.probes.nic.settings import Fact, facts_of, route_of, usable_devices
from netprof.probes.probe import Columns, Description, Probe, Row, Shared, Tables, columns_of
from netprof.schema import NIC_COUNTERS, TRANSMIT

_NAMESPACE_SHARE = 2e-3  # of a core, that reading one namespace may take: one with many devices is read less often
_SAY_AGAIN_NS = 1_000_000_000  # a device that stands still has a row this often
_MOST_FLOWS = 65_536  # whose ends are kept: as many as are counted at a time


@dataclass
class _Sample:
    """The counters of a namespace as text, and what its devices go by, by the names that they had then.

    `qdisc_drops` is what their queueing disciplines had dropped, by those names too.
    """

    time_ns: int = field(compare=False)
    text: bytes
    names: dict[str, str]
    qdisc_drops: dict[str, int]


@dataclass
class _NamespaceSampler:
    """A network namespace's counters, the history of those of its devices that are sampled, and when it is due."""

    netns: int
    counters: ProcFile
    history: LinkHistory
    qdiscs: QdiscDrops
    next_s: float = 0.0
    samples: list[_Sample] = field(default_factory=list)
    parsed_s: float = 0.0  # CPU time that turning a sample into rows took
    costs_s: deque[float] = field(default_factory=lambda: deque(maxlen=3))  # of the last samples: one may be slow

    def sample(self) -> None:
        """Read the counters once. Of several samples that hold the same, the first and the last are kept."""
        begin_s, before_ns = time.thread_time(), time.monotonic_ns()
        text = self.counters.read()
        taken_ns = (before_ns + time.monotonic_ns()) // 2
        taken = _Sample(taken_ns, text, self.history.names(), self.qdiscs.counts())
        if self.samples[-2:] == [taken, taken]:
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
        about = {"netns": self.netns, "time_ns": sample.time_ns}
        return [
            {"device": sample.names[name], **about, **counters, "qdisc_drops": sample.qdisc_drops.get(name, 0)}
            for name, counters in parse_counters(sample.text, sample.names).items()
        ]


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
        self._visible = Namespaces()
        self._paths = FlowPaths(self._visible)
        self._changes_of_paths = 0
        self._ends: dict[int, tuple[int, int, str]] = {}  # by flow: namespace, process, address of the other end
        self._leaves: set[int] = set()  # namespaces of flows
        self._due: set[int] = set()  # of which settings are to be looked at
        self._settings_changed, self._settings_s = False, 0.0  # and when all may be looked at again
        self._facts: dict[tuple[int, str, str], str] = {}
        self._samplers: dict[int, _NamespaceSampler] = {}
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
                    netns, pid, remote = self._ends[flow_id] = self._ends.pop(flow_id)
                    self._take_up(netns, device, pid, direction, remote)
            return
        names = ("flow_id", "netns", "device", "pid", "remote_addr")
        for flow_id, netns, device, pid, remote in zip(*(columns[name] for name in names), strict=True):
            self._ends[flow_id] = netns, pid, remote
            self._take_up(netns, device, pid, TRANSMIT, remote)
        while len(self._ends) > _MOST_FLOWS:
            del self._ends[next(iter(self._ends))]

    def _take_up(self, netns: int, device: str, pid: int, direction: int, remote: str) -> None:
        if not _is_network_device(device):
            return
        self._add(netns, device, pid)
        if netns not in self._leaves:
            self._leaves.add(netns)
            self._due.add(netns)
        if remote and self._paths.want(WantedPath(netns, device, direction, remote)):
            self._due.add(netns)

    def drain(self, *, final: bool = False) -> Tables:
        """Return rows of table `nic` for the samples since the last call, and one more. A device that is gone has none.

        With `final` all are read, and each has a row. The other tables have a row for what is new or changed: a device
        in `link_changes`, each device on a path in `flow_paths`, and what is set in `settings`.
        """
        paths, settings = self._find_paths(), self._look_at_settings(final=final)
        self.sample(final=final)
        samplers = self._samplers.values()
        samples = [sample for sampler in samplers for sample in sampler.take()]
        last = {(sample["netns"], sample["device"]): number for number, sample in enumerate(samples)}
        rows = [
            row
            for number, sample in enumerate(samples)
            for row in self._rows(sample, final=final and last[sample["netns"], sample["device"]] == number)
        ]
        links = [row for sampler in samplers for row in sampler.history.changes(final=final)]
        by_table = {"link_changes": links, "flow_paths": paths, "settings": settings, "nic": rows}
        return {name: columns_of(name, rows) for name, rows in by_table.items()}

    def _find_paths(self) -> list[Row]:
        """Return rows of paths that are new or changed, and follow the devices on them."""
        changes = sum(sampler.history.changes_of_paths for sampler in self._samplers.values())
        if changes != self._changes_of_paths:
            self._changes_of_paths = changes
            self._paths.changed(time.monotonic_ns())
            self._settings_changed = True
        rows = self._paths.look()
        for netns, device in sorted(self._paths.devices) if rows else ():
            if self._visible.known(netns) is not None:
                self._add(netns, device, 0)
        return rows

    def _look_at_settings(self, *, final: bool) -> list[Row]:
        """Return rows of what is set in the namespaces of flows, where something may have changed.

        Where devices come and go all the time, as on a host of many containers, that is done less often.
        """
        rows, begin_s = list[Row](), time.monotonic()
        again = self._settings_changed and (final or begin_s >= self._settings_s)
        if again:
            self._settings_changed, self._due = False, set(self._leaves)
        due, self._due = self._due, set()
        for netns in due:
            namespace = self._visible.known(netns)
            if namespace is None:
                continue
            with suppress(NetprofError, OSError):  # it may end meanwhile, or not be entered
                devices = usable_devices(namespace)
                for device in devices:
                    self._add(netns, device, 0)
                ends = [(key.device, key.remote_addr) for key in self._paths.keys if key.netns == netns]
                facts = list(facts_of(namespace, devices))
                for device, remote in dict.fromkeys(ends):
                    facts += route_of(namespace, device, remote)
                rows += self._changed_facts(netns, facts)
        if again:
            self._settings_s = begin_s + (time.monotonic() - begin_s) / _NAMESPACE_SHARE
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
        for sampler in self._samplers.values():
            sampler.history.listen(at_once=final)
            if final or now_s >= sampler.next_s:
                sampler.sample()

    def describe(self) -> Description:
        """Return the devices found so far, and those that cannot be sampled."""
        started = StartedProbe(self.name, f"every {self.sample_s * 1e3:.0f} ms")
        return Description((started,), tuple(self._skipped), devices=tuple(self._devices.values()))

    def close(self) -> None:
        """Close the counters."""
        for sampler in self._samplers.values():
            sampler.close()
        self._samplers.clear()
        self._visible.close()

    def _add(self, netns: int, device: str, pid: int) -> None:
        """Take up a device, which `pid` has a flow on or which is on a path; what cannot be had of it is skipped.

        A name may be the new one of a device that is known by another.
        """
        sampler = self._samplers.get(netns)
        if (netns, device) in self._devices or (sampler is not None and sampler.history.has(device)):
            return
        try:
            if netns not in self._samplers:
                self._samplers[netns] = self._open(netns, pid)
            given_bps = self._line_rate_bps if pid else None
            self._devices[netns, device] = self._samplers[netns].history.add(device, given_bps)
        except (NetprofError, OSError) as failed:  # the process is gone or lives elsewhere by now
            error = failed if isinstance(failed, NetprofError) else NetprofError(str(failed))
            rate = LineRate(self._line_rate_bps, "--line-rate" if self._line_rate_bps else f"unknown: {error.message}")
            self._devices.setdefault((netns, device), Device(device, netns, rate))
            self._skipped.append(SkippedProbe(f"nic:{device}", error.message, error.hint))

    def _open(self, netns: int, pid: int) -> _NamespaceSampler:
        """Open a namespace, if a path has not led there yet by way of a process in it. Raises NetprofError."""
        known = self._visible.known(netns)
        with all_or_nothing() as opened:
            if known is not None:
                handle, counters = known.handle, opened.enter_context(known.counters())
            else:
                counters = opened.enter_context(open_counters(netns, pid))
                handle = NetworkNamespace.of(pid)
                known = self._visible.take(handle)
                if known is None:
                    opened.enter_context(handle)
            return _NamespaceSampler(netns, counters, LinkHistory(handle), QdiscDrops(known))

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
    present: set[str] = set()
    for pid in {target.netns: target.pid for target in targets}.values():
        try:
            with NetworkNamespace.of(pid) as namespace:
                present |= set(namespace.run(device_names).values())
        except (NetprofError, OSError):  # not permitted, or over by now: it cannot be told
            return
    missing = [device for device in devices if device not in present]
    if missing:
        there = ", ".join(sorted(present)) or "none"
        raise UsageError(f"the job has no network device {missing[0]}", f"name one that it has with --device: {there}")
