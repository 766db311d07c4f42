"""The traces of a job's hosts while they are written, each on its own clock: what `netprof live A B ...` follows.

Hosts number processes, flows and network namespaces alike, and call devices alike; recorders write when they are told.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from netprof.model import Clock, Meta
from netprof.trace import TraceWriter
from support.synthetic import START_NS, Job, mark_columns, wire_columns


@dataclass
class Clocks:
    """How the hosts' clocks lie: what each reads more than the first, and by how much its realtime clock is wrong."""

    offset_ns: Sequence[int]
    realtime_error_ns: Sequence[int]


class GrowingHosts:
    """Hosts with as many ranks each, of which `job` says what they do; rank r talks to the one of the next host.

    Without `clocks` all are on one machine. `grow` writes what was until a time, of all hosts or but some.
    """

    def __init__(self, folder: Path, job: Job, hosts: int, clocks: Clocks | None = None) -> None:
        self.job, self.hosts, self.each = job, hosts, job.ranks // hosts
        self.clocks = clocks or Clocks([0] * hosts, [0] * hosts)
        self.boots = [f"boot{host}" if clocks else "boot" for host in range(hosts)]
        self.paths = [folder / f"h{host}.netprof" for host in range(hosts)]
        self._marks, self._wire = mark_columns(sorted(job.marks)), wire_columns(job.wire)
        self._until = [0] * hosts
        self._writers: dict[int, TraceWriter] = {}

    def start(self, hosts: Collection[int] | None = None) -> list[Path]:
        """Begin the traces of all hosts, or some; returns those there are."""
        for host in range(self.hosts) if hosts is None else hosts:
            self._writers[host] = TraceWriter(self.paths[host], self.meta(host))
            self._writers[host].append("flows", self._flows(host))
        return [self.paths[host] for host in sorted(self._writers)]

    def grow(self, until_ns: int, hosts: Collection[int] | None = None) -> None:
        """Write the rows until a time of the first host's clock."""
        for host in self._writers if hosts is None else hosts:
            own = range(host * self.each, (host + 1) * self.each)
            for name, columns in (("wire", self._wire), ("marks", self._marks)):
                times = columns["bin_start_ns" if name == "wire" else "time_ns"]
                whose = columns["flow_id"] - 1 if name == "wire" else columns["pid"] - 100
                rows = (times >= self._until[host]) & (times < until_ns) & np.isin(whose, own)
                if rows.any():
                    self._writers[host].append(name, self._moved(host, columns, rows))
            self._until[host] = max(self._until[host], until_ns)

    def stop(self, host: int, reason: str = "the job ended") -> None:
        """End a host's trace."""
        self._writers.pop(host).close(replace(self.meta(host), stopped_ns=self._now(host), stop_reason=reason))

    def describe(self, number: int, **changes: Any) -> None:
        """Write another description of a host's trace."""
        self._writers[number].update_meta(replace(self.meta(number), **changes))

    def meta(self, host: int) -> Meta:
        """Return the description of a host's trace."""
        whole, offset_ns = self.job.meta(), self.clocks.offset_ns[host]
        own = slice(host * self.each, (host + 1) * self.each)
        return replace(
            whole,
            host=f"h{host}",
            boot_id=self.boots[host],
            clock=Clock(START_NS + offset_ns, whole.clock.realtime_ns + self.clocks.realtime_error_ns[host]),
            started_ns=whole.started_ns + offset_ns,
            stopped_ns=None,
            stop_reason="",
            targets=tuple(
                replace(target, pid=self._pid(host, target.rank), netns=self._netns(host))
                for target in whole.targets[own]
            ),
            devices=tuple(
                replace(device, device=f"eth{number}", netns=self._netns(host))
                for number, device in enumerate(whole.devices[own])
            ),
        )

    def _now(self, host: int) -> int:
        return self._until[host] + self.clocks.offset_ns[host]

    def _pid(self, host: int, rank: int) -> int:
        return 100 + rank - host * self.each if len(set(self.boots)) > 1 else 100 + rank

    def _netns(self, host: int) -> int:
        return 7 if len(set(self.boots)) > 1 else 7 + host

    def _flows(self, host: int) -> dict[str, Any]:
        ranks = range(host * self.each, (host + 1) * self.each)
        peers = [(rank + self.each) % self.job.ranks for rank in ranks]
        columns = {name: [values[rank] for rank in ranks] for name, values in self.job.flows().items()}
        return columns | {
            "flow_id": [rank + 1 - ranks[0] for rank in ranks],
            "remote_addr": [f"10.0.0.{peer + 1}" for peer in peers],
            "remote_port": [40_000 + peer for peer in peers],
            "pid": [self._pid(host, rank) for rank in ranks],
            "netns": [self._netns(host)] * self.each,
            "device": [f"eth{rank - ranks[0]}" for rank in ranks],
        }

    def _moved(self, host: int, columns: dict[str, Any], rows: Any) -> dict[str, Any]:
        first, offset_ns = host * self.each, self.clocks.offset_ns[host]
        found = {name: values[rows] for name, values in columns.items()}
        for name in found:
            if name.endswith("_ns"):
                found[name] = found[name] + offset_ns
        if "flow_id" in found:
            found["flow_id"] = found["flow_id"] - first
        else:
            found["pid"] = found["pid"] - 100 - first + self._pid(host, first)
        return found
