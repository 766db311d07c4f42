"""Collectives by kind and size, in the columns of nccl-tests: size, count, time, algorithm and bus bandwidth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from netprof.analysis.declared import Column, added, json_of, put_together, share_of, table
from netprof.analysis.definitions import BANDWIDTH
from netprof.analysis.events.collectives import Collectives, group_sizes
from netprof.analysis.events.factors import bus_factor
from netprof.analysis.events.iterations import Iterations
from netprof.analysis.findings.collectives.collective_kinds import kind_name
from netprof.analysis.findings.collectives.collectives import COLLECTIVES
from netprof.analysis.form import Grid, Part
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.columns import UNKNOWN, Bool, by_pid
from netprof.analysis.tables.intervals import row_at
from netprof.schema import CollectiveKind
from netprof.units import brief_rate, duration, percent, size


@dataclass(frozen=True)
class SizeSummary:
    """The collectives of one kind whose sizes share a power of two, of all ranks together.

    `bytes` and `time_ns` are sums, each from when its last member had begun. `moved` is the bytes times the factor from
    algorithm to bus bandwidth; None where the number of ranks is unknown. `ranks` were seen to take part, which
    have `steps` whole steps together; `in_steps` began in one of those.
    """

    kind: str
    magnitude: int
    count: int
    bytes: int
    time_ns: int
    moved: float | None
    ranks: int
    in_steps: int
    steps: int

    @property
    def a_step(self) -> float | None:
        """How many a rank takes part in, in a step."""
        return share_of(self.in_steps, self.steps)

    @property
    def mean_bytes(self) -> float:
        """The mean size of one."""
        return self.bytes / self.count

    @property
    def mean_s(self) -> float:
        """How long one takes."""
        return self.time_ns / self.count / 1e9

    @property
    def algorithm_bandwidth_bps(self) -> float | None:
        """Size over time, of each alone."""
        return self.bytes * 8e9 / self.time_ns if self.time_ns else None

    @property
    def bus_bandwidth_bps(self) -> float | None:
        """What each link of the best algorithm carries."""
        return self.moved * 8e9 / self.time_ns if self.time_ns and self.moved is not None else None


@dataclass(frozen=True)
class SizesFinding:
    """Sizes, those that take the most time first, and the line rate to compare with."""

    sizes: tuple[SizeSummary, ...]
    line_rate_bps: float | None


def _conclude(analysis: Analysis) -> SizesFinding:
    evidence = analysis.evidence
    timed = evidence.owned(evidence.together)
    return _finding(_sizes(timed, evidence.iterations, evidence.world_size), analysis)


def _finding(sizes: Iterable[SizeSummary], analysis: Analysis) -> SizesFinding:
    whole = analysis.of(COLLECTIVES).summary
    rate_bps = share_of(whole.bus_bandwidth_bps or None, whole.line_rate_share)
    ordered = tuple(sorted(sizes, key=lambda each: (-each.time_ns, each.kind, each.magnitude)))
    return SizesFinding(ordered, rate_bps)


def _in_steps(timed: Collectives, iterations: Iterations) -> Bool:
    """Return which collectives begin in a whole step of their rank."""
    inside = np.zeros(len(timed), bool)
    for pid, steps in by_pid(iterations):
        rows = timed.rows_of(pid)
        inside[rows] = row_at(steps.begin_ns, steps.end_ns, timed.begin_ns[rows]) != UNKNOWN
    return inside


def _sizes(timed: Collectives, iterations: Iterations, world_size: int | None) -> Iterator[SizeSummary]:
    timed = timed.where((timed.bytes > 0) & (timed.duration_ns > 0) & (timed.kind != CollectiveKind.BARRIER))
    inside = _in_steps(timed, iterations)
    magnitudes = np.floor(np.log2(np.maximum(timed.bytes, 1))).astype(np.int64)
    for kind, magnitude in sorted(set(zip(timed.kind.tolist(), magnitudes.tolist(), strict=True))):
        chosen = (timed.kind == kind) & (magnitudes == magnitude)
        alike = timed.where(chosen)
        ranks = group_sizes(alike, world_size)
        factors = {n: bus_factor(kind, None if n == UNKNOWN else n) for n in np.unique(ranks).tolist()}
        known = [factor for factor in factors.values() if factor is not None]
        moved = sum(f * int(alike.bytes[ranks == n].sum()) for n, f in factors.items() if f is not None)
        yield SizeSummary(
            kind_name(kind),
            magnitude,
            len(alike),
            int(alike.bytes.sum()),
            int(alike.duration_ns.sum()),
            float(moved) if len(known) == len(factors) else None,
            len(np.unique(alike.pid)),
            int(inside[chosen].sum()),
            int(np.isin(iterations.pid, alike.pid).sum()),
        )


def _merge(parts: Sequence[SizesFinding], whole: Analysis) -> SizesFinding:
    return _finding(put_together((part.sizes for part in parts), lambda e: (e.kind, e.magnitude), _both), whole)


def _both(a: SizeSummary, b: SizeSummary) -> SizeSummary:
    return replace(a, **added((a, b), "count bytes time_ns moved in_steps steps"), ranks=max(a.ranks, b.ranks))


def _document(finding: SizesFinding) -> Mapping[str, Any]:
    keys = "kind bytes=mean_bytes count ranks time_s=mean_s algorithm_bandwidth_bps bus_bandwidth_bps"
    return {"collectives_by_size": [json_of(each, keys) for each in finding.sizes]}


def sizes_grid(finding: SizesFinding, most: int | None = None) -> Grid:
    """Return the table; `most` rows of it."""
    line_rate_bps = finding.line_rate_bps
    columns = (
        Column("collective", "kind"),
        Column("size", "mean_bytes", size),
        Column("a step", "a_step", "{:.3g}".format, "-"),
        Column("time", "mean_s", duration, goes=2),
        Column("algbw", "algorithm_bandwidth_bps", brief_rate, goes=1),
        Column("busbw", "bus_bandwidth_bps", brief_rate),
        Column("of line rate", lambda e: capped(share_of(e.bus_bandwidth_bps or None, line_rate_bps)), percent, "-"),
    )
    return table(columns, finding.sizes[:most])


def capped(share: float | None) -> float | None:
    """Return a share of line rate: bytes that a buffer took are there before the wire has them, so one may exceed 1."""
    return None if share is None else min(share, 1.0)


def _parts(finding: SizesFinding) -> Sequence[Part]:
    if not finding.sizes:
        return ()
    return [Part("Collectives by size", "each alone, from when its last rank has begun", [sizes_grid(finding)])]


COLLECTIVE_SIZES = Section(
    "collective sizes",
    _conclude,
    ("marks", "wire", "flows"),
    _document,
    _parts,
    merge=_merge,
    definitions=lambda finding: (BANDWIDTH,) if finding.sizes else (),
)
