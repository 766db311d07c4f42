"""The streams of hosts as their traces would hold them, on clocks of which the truth is known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from netprof.analysis.hosts.moved import to_reference
from netprof.model import HostClock

MS, S = 10**6, 10**9
WRAP = 1 << 32


@dataclass
class Wire:
    """The streams of one host, as its trace would hold them; its clock is some function of the true time."""

    offset_ns: int = 0
    drift: float = 0.0
    bin_ns: int = MS
    rows: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    flows: list[tuple[int, str, int, str, int]] = field(default_factory=list)

    def clock(self, true_ns: Any) -> Any:
        return true_ns + self.offset_ns + np.rint(true_ns * self.drift).astype(np.int64)

    def moved(self, flow: int, direction: int, true_ns: Any, position: Any, first: int) -> None:
        """Packets passed, after which the stream stood at `position`; only the last of each bin is noted."""
        times = self.clock(true_ns)
        last = np.flatnonzero(np.append(np.diff(times // self.bin_ns) > 0, True))
        sizes = np.diff(position[last], prepend=first)
        self.rows += [
            (flow, direction, int(size), int(position[row]) % WRAP, int(times[row]))
            for row, size in zip(last, sizes, strict=True)
        ]

    @property
    def reader(self) -> Wire:
        return self

    def between(self, name: str, begin_ns: int, end_ns: int) -> list[dict[str, Any]]:
        names = ("flow_id", "direction", "payload_bytes", "stream_position", "stream_position_ns")
        table = np.array(self.rows, np.int64).reshape(-1, 5)
        table = table[(table[:, 4] >= begin_ns) & (table[:, 4] < end_ns)]
        return [{name: table[:, number] for number, name in enumerate(names)}]

    def table(self, name: str) -> dict[str, Any]:
        names = ("flow_id", "local_addr", "local_port", "remote_addr", "remote_port")
        columns = list(zip(*self.flows, strict=True)) or [()] * 5
        return {name: list(columns[number]) for number, name in enumerate(names)}


def bursts(random: np.random.Generator, seconds: float = 20, per_s: int = 10, packets: int = 200) -> Any:
    """When packets leave: in bursts, as gradients do."""
    begin = np.sort(random.integers(0, int(seconds * S), int(seconds * per_s)))
    times = begin[:, None] + np.cumsum(random.integers(5_000, 50_000, (len(begin), packets)), axis=1)
    return np.sort(times.ravel())


def assert_true(clock: HostClock | None, one: Wire, other: Wire, within_ns: float = 40_000) -> None:
    assert clock is not None
    assert clock.bound_ns is not None
    true_ns = np.arange(0, 21 * S, S)
    error = np.abs(to_reference(clock, other.clock(true_ns)) - one.clock(true_ns)).max()
    assert error <= clock.bound_ns
    assert clock.bound_ns <= within_ns
    assert clock.drift_bound is not None
    assert abs((1 + clock.drift) * (1 + one.drift) - (1 + other.drift)) <= clock.drift_bound
