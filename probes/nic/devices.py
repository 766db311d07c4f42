"""The network devices that carry the job's flows, learnt as flows show themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netprof.errors import NetprofError
from netprof.model import Device, LineRate, SkippedProbe
from netprof.probes.nic.counters import NicSampler
from netprof.probes.nic.line_rate import describe_device


class Devices:
    """Describes each device once and samples its counters from then on."""

    def __init__(self, line_rate_bps: float | None) -> None:
        self._line_rate_bps = line_rate_bps
        self._devices: dict[tuple[int, str], Device] = {}
        self._sampler = NicSampler()
        self.skipped: list[SkippedProbe] = []

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices found so far."""
        return tuple(self._devices.values())

    def add(self, flow: Mapping[str, Any]) -> None:
        """Take up the device of a row of table `flows`, if it is new."""
        netns, name, pid = flow["netns"], flow["device"], flow["pid"]
        if not name or (netns, name) in self._devices:
            return
        try:
            self._devices[netns, name] = describe_device(pid, name, self._line_rate_bps)
            self._sampler.add(name, netns, pid)
        except NetprofError as error:  # the process is gone or lives elsewhere by now
            rate = LineRate(self._line_rate_bps, "--line-rate" if self._line_rate_bps else f"unknown: {error.message}")
            self._devices.setdefault((netns, name), Device(name, netns, rate))
            self.skipped.append(SkippedProbe(f"nic:{name}", error.message, error.hint))

    def sample(self) -> dict[str, Any]:
        """Return a row of table `nic` for every device, as columns."""
        return self._sampler.sample()

    def close(self) -> None:
        """Close the counters."""
        self._sampler.close()
