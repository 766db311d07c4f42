"""The NIC probe: the devices that carry the job's flows, learnt as flows show themselves, and their counters."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from netprof.errors import NetprofError
from netprof.model import Device, LineRate, SkippedProbe, StartedProbe
from netprof.probes.kernel.netns import NetworkNamespace
from netprof.probes.kernel.procfile import ProcFile
from netprof.probes.nic.counters import open_counters, parse_counters
from netprof.probes.nic.history import LinkHistory
from netprof.probes.probe import Columns, Description, Probe, Shared, Tables
from netprof.schema import NIC_COUNTERS, tables

_NAMESPACE_SHARE = 2e-3  # of a core, that reading one namespace may take: one with many devices is read less often
_SAY_AGAIN_NS = 1_000_000_000  # a device that stands still has a row this often

_Row = dict[str, Any]


@dataclass
class _Sample:
    """The counters of a namespace as text, and what its devices go by, by the names that they had then."""

    time_ns: int
    text: bytes
    names: dict[str, str]


@dataclass
class _Namespace:
    """A network namespace's counters, the history of those of its devices that are sampled, and when it is due."""

    netns: int
    counters: ProcFile
    history: LinkHistory
    next_s: float = 0.0
    changes: list[_Row] = field(default_factory=list)
    samples: list[_Sample] = field(default_factory=list)
    parsed_s: float = 0.0  # CPU time that turning a sample into rows took

    def listen(self, *, final: bool = False) -> None:
        """Take note of devices that changed."""
        self.changes += self.history.changes(final=final)

    def sample(self) -> None:
        """Read the counters once. Of several samples that hold the same, the first and the last are kept."""
        begin_s, before_ns = time.thread_time(), time.monotonic_ns()
        text = self.counters.read()
        taken = _Sample((before_ns + time.monotonic_ns()) // 2, text, self.history.names())
        if len(self.samples) > 1 and self._same(taken, self.samples[-1]) and self._same(taken, self.samples[-2]):
            self.samples[-1] = taken
        else:
            self.samples.append(taken)
        cost_s = time.thread_time() - begin_s + self.parsed_s
        self.next_s = before_ns / 1e9 + cost_s / _NAMESPACE_SHARE

    def take(self) -> list[_Row]:
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

    def _rows(self, sample: _Sample) -> list[_Row]:
        found = parse_counters(sample.text, sample.names)
        about = {"netns": self.netns, "time_ns": sample.time_ns}
        return [{"device": sample.names[name], **about, **counters} for name, counters in found.items()]

    @staticmethod
    def _same(one: _Sample, other: _Sample) -> bool:
        return one.text == other.text and one.names == other.names


class NicProbe(Probe):
    """Follows each device of the job's flows, and samples its counters, from its first flow on.

    Often enough to say what others moved during one collective. While a device stands still, a sample becomes a row
    when a second is over, and when the device moves again: between two rows its counters grow evenly or not at all.
    """

    name = "nic"
    period_s = 0.4
    sample_s = 0.05
    notices = frozenset({"flows"})

    def __init__(self, line_rate_bps: float | None = None) -> None:
        self._line_rate_bps = line_rate_bps
        self._devices: dict[tuple[int, str], Device] = {}
        self._namespaces: dict[int, _Namespace] = {}
        self._skipped: list[SkippedProbe] = []
        self._last: dict[tuple[int, str], _Row] = {}  # rows
        self._waiting: dict[tuple[int, str], _Row] = {}  # later samples that hold the same

    @classmethod
    def open(cls, shared: Shared) -> NicProbe:
        """Make one; it opens counters as it meets their namespaces."""
        return cls(shared.line_rate_bps)

    def notice(self, table: str, columns: Columns) -> None:
        """Take up the devices of new flows."""
        for netns, device, pid in zip(columns["netns"], columns["device"], columns["pid"], strict=True):
            if _is_network_device(device) and self._is_new(netns, device):
                self._add(netns, device, pid)

    def sample(self) -> None:
        """Read the counters of all devices that are due, and learn which devices have changed."""
        self._sample()

    def drain(self, *, final: bool = False) -> Tables:
        """Return rows of table `nic` for the samples since the last call, and one more. A device that is gone has none.

        With `final` all are read, and each has a row. Table `link_changes` has one for each device that is new or
        changed.
        """
        self._sample(final=final)
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
        return {"link_changes": _columns("link_changes", links), "nic": _columns("nic", rows)}

    def _sample(self, *, final: bool = False) -> None:
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

    def _is_new(self, netns: int, device: str) -> bool:
        return (netns, device) not in self._devices and not self._renamed(netns, device)

    def _renamed(self, netns: int, device: str) -> bool:
        """Say whether a name is the new one of a device that is known by another."""
        namespace = self._namespaces.get(netns)
        return namespace is not None and namespace.history.has(device)

    def _add(self, netns: int, device: str, pid: int) -> None:
        """Take up a device, which `pid` has a flow on; what cannot be had of it is skipped."""
        try:
            if netns not in self._namespaces:
                self._namespaces[netns] = self._open(netns, pid)
            self._devices[netns, device] = self._namespaces[netns].history.add(device)
        except NetprofError as error:  # the process is gone or lives elsewhere by now
            rate = LineRate(self._line_rate_bps, "--line-rate" if self._line_rate_bps else f"unknown: {error.message}")
            self._devices.setdefault((netns, device), Device(device, netns, rate))
            self._skipped.append(SkippedProbe(f"nic:{device}", error.message, error.hint))

    def _open(self, netns: int, pid: int) -> _Namespace:
        """Open a namespace by way of a process in it. Raises NetprofError."""
        namespace = NetworkNamespace.of(pid)
        try:
            counters = open_counters(netns, pid)
        except NetprofError:
            namespace.close()
            raise
        return _Namespace(netns, counters, LinkHistory(namespace, self._line_rate_bps))

    def _rows(self, sample: _Row, *, final: bool) -> list[_Row]:
        """Return the rows that a sample of a device makes: none, itself, or also the one before it."""
        key = int(sample["netns"]), str(sample["device"])
        last = self._last.get(key, {})
        stands_still = all(sample[name] == last.get(name) for name in NIC_COUNTERS)
        if stands_still and not final and int(sample["time_ns"]) - int(last["time_ns"]) < _SAY_AGAIN_NS:
            self._waiting[key] = sample
            return []
        self._last[key] = sample
        before = self._waiting.pop(key, None)
        return [sample] if before is None or stands_still else [before, sample]


def _is_network_device(name: str) -> bool:
    """Tell a device's name from that of an RDMA port, which has a slash in it."""
    return bool(name) and "/" not in name


def _columns(table: str, rows: list[_Row]) -> Columns:
    return {name: [row[name] for row in rows] for name in tables()[table].names}
