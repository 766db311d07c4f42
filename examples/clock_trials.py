"""How well the hosts' clocks are found: traces of one machine get clocks of their own, and the truth is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from shifted_clock import shift

from netprof.analysis.hosts.open_job import open_job
from netprof.model import HostClock
from netprof.trace import TraceReader

OFFSET_NS = 500_000_000
DRIFT = 50e-6


@dataclass(frozen=True)
class Trial:
    """What was found of one host's clock: how far it is from the truth at most, and from which it says it is."""

    error_ns: float
    bound_ns: float
    drift_error: float
    drift_bound: float
    source: str

    @property
    def holds(self) -> bool:
        """Whether the truth is inside the bounds."""
        return self.error_ns <= self.bound_ns and self.drift_error <= self.drift_bound


def trial(parts: Sequence[Path], folder: Path, random: np.random.Generator) -> list[Trial]:
    """Give every host but the first a clock of its own, and look for it; returns what is found of each.

    Each trial is of another stretch of the recordings, at least a third of them.
    """
    metas = [TraceReader(part).meta for part in parts]
    begin, end = max(meta.started_ns for meta in metas), min(meta.stopped_ns or 0 for meta in metas)
    length = int(random.uniform(1 / 3, 1) * (end - begin))
    since_ns = begin + int(random.integers(0, end - begin - length + 1))
    within = since_ns, since_ns + length
    truth, paths = [(0, 0.0, 0)], [shift(parts[0], folder / "clock0.netprof", within_ns=within)]
    for number, part in enumerate(parts[1:], 1):
        offset_ns, drift = int(random.integers(-OFFSET_NS, OFFSET_NS)), float(random.uniform(-DRIFT, DRIFT))
        truth.append((offset_ns, drift, since_ns))
        wrong_ns = int(random.integers(-OFFSET_NS, OFFSET_NS))
        path = folder / f"clock{number}.netprof"
        shift(part, path, offset_ns, drift, host=f"h{number}", realtime_error_ns=wrong_ns, within_ns=within)
        paths.append(path)
    reader = open_job(paths)
    span = reader.meta.started_ns, reader.meta.stopped_ns or reader.meta.started_ns
    return [_compare(host.clock, real, span) for host, real in zip(reader.hosts[1:], truth[1:], strict=True)]


def _compare(clock: HostClock, truth: tuple[int, float, int], span_ns: tuple[int, int]) -> Trial:
    offset_ns, drift, since_ns = truth
    at_ns = np.linspace(*span_ns, 11)
    real = offset_ns + drift * (at_ns - since_ns)
    found = clock.offset_ns + clock.drift * (at_ns - (clock.at_ns - clock.offset_ns))
    return Trial(
        float(np.abs(found - real).max()),
        np.inf if clock.bound_ns is None else clock.bound_ns,
        abs(clock.drift - drift),
        np.inf if clock.drift_bound is None else clock.drift_bound,
        clock.source,
    )
