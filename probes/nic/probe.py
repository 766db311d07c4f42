"""The NIC probe: the devices that carry the job's flows, learnt as flows show themselves, and their counters."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from netprof.errors import NetprofError
from netprof.model import Device, LineRate, SkippedProbe, StartedProbe
from netprof.probes.kernel.procfile import ProcFile
from netprof.probes.nic.counters import open_counters, parse_counters
from netprof.probes.nic.line_rate import describe_device
from netprof.probes.probe import Columns, Description, Probe, Shared, Tables
from netprof.schema import NIC_COUNTERS


@dataclass
class _Namespace:
    """A network namespace's counters, and those of its devices that are sampled."""

    counters: ProcFile
    devices: set[str] = field(default_factory=set)


class NicProbe(Probe):
    """Describes each device of the job's flows once, and samples its counters from then on."""

    name = "nic"
    period_s = 0.1

    def __init__(self, line_rate_bps: float | None = None) -> None:
        self._line_rate_bps = line_rate_bps
        self._devices: dict[tuple[int, str], Device] = {}
        self._namespaces: dict[int, _Namespace] = {}
        self._skipped: list[SkippedProbe] = []

    @classmethod
    def open(cls, shared: Shared) -> NicProbe:
        """Make one; it opens counters as it meets their namespaces."""
        return cls(shared.line_rate_bps)

    def notice(self, table: str, columns: Columns) -> None:
        """Take up the devices of new flows."""
        if table == "flows":
            for netns, device, pid in zip(columns["netns"], columns["device"], columns["pid"], strict=True):
                if device and (netns, device) not in self._devices:
                    self._add(netns, device, pid)

    def drain(self, *, final: bool = False) -> Tables:
        """Read the counters of all devices once: rows of table `nic`. A device that is gone has no row."""
        rows = [row for netns, namespace in self._namespaces.items() for row in _sample(netns, namespace)]
        names = ("device", "netns", "time_ns", *NIC_COUNTERS)
        return {"nic": {name: [row[name] for row in rows] for name in names}}

    def describe(self) -> Description:
        """Return the devices found so far, and those that cannot be sampled."""
        started = StartedProbe(self.name, f"every {self.period_s * 1e3:.0f} ms")
        return Description((started,), tuple(self._skipped), devices=tuple(self._devices.values()))

    def close(self) -> None:
        """Close the counters."""
        for namespace in self._namespaces.values():
            namespace.counters.close()
        self._namespaces.clear()

    def _add(self, netns: int, device: str, pid: int) -> None:
        """Take up a device, which `pid` has a flow on; what cannot be had of it is skipped."""
        try:
            self._devices[netns, device] = describe_device(pid, device, self._line_rate_bps)
            if netns not in self._namespaces:
                self._namespaces[netns] = _Namespace(open_counters(netns, pid))
            self._namespaces[netns].devices.add(device)
        except NetprofError as error:  # the process is gone or lives elsewhere by now
            rate = LineRate(self._line_rate_bps, "--line-rate" if self._line_rate_bps else f"unknown: {error.message}")
            self._devices.setdefault((netns, device), Device(device, netns, rate))
            self._skipped.append(SkippedProbe(f"nic:{device}", error.message, error.hint))


def _sample(netns: int, namespace: _Namespace) -> list[dict[str, int | str]]:
    """Read a namespace's counters once and return a row for each device that is sampled."""
    before_ns = time.monotonic_ns()
    text = namespace.counters.read()
    time_ns = (before_ns + time.monotonic_ns()) // 2
    counters = parse_counters(text, namespace.devices)
    return [{"device": name, "netns": netns, "time_ns": time_ns, **counters[name]} for name in counters]
