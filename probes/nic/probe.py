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

_NAMESPACE_SHARE = 2e-3  # of a core, that reading one namespace may take: one with many devices is read less often
_SAY_AGAIN_NS = 1_000_000_000  # a device that stands still has a row this often

_Row = dict[str, int | str]


@dataclass
class _Namespace:
    """A network namespace's counters, those of its devices that are sampled, and when it is read next."""

    netns: int
    counters: ProcFile
    devices: set[str] = field(default_factory=set)
    next_s: float = 0.0

    def read(self) -> list[_Row]:
        """Read the counters once and return a row for each device that is sampled."""
        begin_s, before_ns = time.thread_time(), time.monotonic_ns()
        text = self.counters.read()
        time_ns = (before_ns + time.monotonic_ns()) // 2
        found = parse_counters(text, self.devices)
        cost_s = time.thread_time() - begin_s
        self.next_s = before_ns / 1e9 + cost_s / _NAMESPACE_SHARE
        return [{"device": name, "netns": self.netns, "time_ns": time_ns, **found[name]} for name in found]


class NicProbe(Probe):
    """Describes each device of the job's flows once, and samples its counters from then on.

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
                if device and (netns, device) not in self._devices:
                    self._add(netns, device, pid)

    def drain(self, *, final: bool = False) -> Tables:
        """Read the counters of all devices that are due: rows of table `nic`. A device that is gone has none.

        With `final` all are read, and each has a row.
        """
        now_s = time.monotonic()
        due = [each for each in self._namespaces.values() if final or now_s >= each.next_s]
        rows = [row for namespace in due for sample in namespace.read() for row in self._rows(sample, final=final)]
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
                self._namespaces[netns] = _Namespace(netns, open_counters(netns, pid))
            self._namespaces[netns].devices.add(device)
        except NetprofError as error:  # the process is gone or lives elsewhere by now
            rate = LineRate(self._line_rate_bps, "--line-rate" if self._line_rate_bps else f"unknown: {error.message}")
            self._devices.setdefault((netns, device), Device(device, netns, rate))
            self._skipped.append(SkippedProbe(f"nic:{device}", error.message, error.hint))

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
