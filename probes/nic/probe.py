"""The NIC probe: the devices that carry the job's flows, learnt as flows show themselves, and their counters."""

from __future__ import annotations

import time
from dataclasses import dataclass
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
class _Namespace:
    """A network namespace's counters, the history of those of its devices that are sampled, and when it is due."""

    netns: int
    counters: ProcFile
    history: LinkHistory
    next_s: float = 0.0

    def read(self) -> list[_Row]:
        """Read the counters once and return a row for each device that is sampled."""
        begin_s, before_ns = time.thread_time(), time.monotonic_ns()
        text = self.counters.read()
        time_ns = (before_ns + time.monotonic_ns()) // 2
        names = self.history.names()
        found = parse_counters(text, names)
        cost_s = time.thread_time() - begin_s
        self.next_s = before_ns / 1e9 + cost_s / _NAMESPACE_SHARE
        return [{"device": names[name], "netns": self.netns, "time_ns": time_ns, **found[name]} for name in found]

    def close(self) -> None:
        """Close the counters, and stop following the devices."""
        self.counters.close()
        self.history.close()


class NicProbe(Probe):
    """Follows each device of the job's flows, and samples its counters, from its first flow on.

    Often enough to say what others moved during one collective. While a device stands still, a sample becomes a row
    when a second is over, and when the device moves again: between two rows its counters grow evenly or not at all.
    """

    name = "nic"
    period_s = 0.05

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
        if table == "flows":
            for netns, device, pid in zip(columns["netns"], columns["device"], columns["pid"], strict=True):
                if device and (netns, device) not in self._devices and not self._renamed(netns, device):
                    self._add(netns, device, pid)

    def drain(self, *, final: bool = False) -> Tables:
        """Read the counters of all devices that are due: rows of table `nic`. A device that is gone has none.

        With `final` all are read, and each has a row. Table `link_changes` has one for each device that is new or
        changed.
        """
        now_s = time.monotonic()
        links = [row for each in self._namespaces.values() for row in each.history.changes(final=final)]
        due = [each for each in self._namespaces.values() if final or now_s >= each.next_s]
        rows = [row for namespace in due for sample in namespace.read() for row in self._rows(sample, final=final)]
        return {"link_changes": _columns("link_changes", links), "nic": _columns("nic", rows)}

    def describe(self) -> Description:
        """Return the devices found so far, and those that cannot be sampled."""
        started = StartedProbe(self.name, f"every {self.period_s * 1e3:.0f} ms")
        return Description((started,), tuple(self._skipped), devices=tuple(self._devices.values()))

    def close(self) -> None:
        """Close the counters."""
        for namespace in self._namespaces.values():
            namespace.close()
        self._namespaces.clear()

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


def _columns(table: str, rows: list[_Row]) -> Columns:
    return {name: [row[name] for row in rows] for name in tables()[table].names}
