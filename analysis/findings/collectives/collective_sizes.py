"""Collectives by kind and size, in the columns of nccl-tests: size, count, time, algorithm and bus bandwidth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from netprof.analysis.definitions import BANDWIDTH
from netprof.analysis.events.collectives import Collectives, group_sizes
from netprof.analysis.events.factors import bus_factor
from netprof.analysis.findings.collectives.collective_kinds import kind_name
from netprof.analysis.findings.collectives.collectives import COLLECTIVES
from netprof.analysis.findings.iterations.iterations import ITERATIONS
from netprof.analysis.form import Cell, Grid, Part
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.columns import UNKNOWN
from netprof.schema import CollectiveKind
from netprof.units import brief_rate, duration, percent, size

_BRIEF = 3


@dataclass(frozen=True)
class SizeSummary:
    """The collectives of one kind whose sizes share a power of two, of all ranks together.

    `bytes` and `time_ns` are sums, each from when its last member had begun. `moved` is the bytes times the factor from
    algorithm to bus bandwidth; None where the number of ranks is unknown. `ranks` were seen to take part.
    """

    kind: str
    magnitude: int
    count: int
    bytes: int
    time_ns: int
    moved: float | None
    ranks: int

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
    """Sizes, those that take the most time first; `steps` of the rank with the most, the line rate to compare with."""

    sizes: tuple[SizeSummary, ...]
    steps: int | None
    line_rate_bps: float | None


def _conclude(analysis: Analysis) -> SizesFinding:
    evidence = analysis.evidence
    return _finding(tuple(_sizes(evidence.owned(evidence.together), evidence.world_size)), analysis)


def _finding(sizes: Sequence[SizeSummary], analysis: Analysis) -> SizesFinding:
    whole = analysis.of(COLLECTIVES).summary
    rate_bps = (
        whole.bus_bandwidth_bps / whole.line_rate_share if whole.bus_bandwidth_bps and whole.line_rate_share else None
    )
    ordered = tuple(sorted(sizes, key=lambda each: (-each.time_ns, each.kind, each.magnitude)))
    return SizesFinding(ordered, analysis.of(ITERATIONS).count, rate_bps)


def _sizes(found: Collectives, world_size: int | None) -> Iterator[SizeSummary]:
    found = found.where((found.bytes > 0) & (found.duration_ns > 0) & (found.kind != CollectiveKind.BARRIER))
    magnitudes = np.floor(np.log2(np.maximum(found.bytes, 1))).astype(np.int64)
    for kind, magnitude in sorted(set(zip(found.kind.tolist(), magnitudes.tolist(), strict=True))):
        each = found.where((found.kind == kind) & (magnitudes == magnitude))
        ranks = group_sizes(each, world_size)
        factors = {n: bus_factor(kind, None if n == UNKNOWN else n) for n in np.unique(ranks).tolist()}
        known = [factor for factor in factors.values() if factor is not None]
        moved = sum(f * int(each.bytes[ranks == n].sum()) for n, f in factors.items() if f is not None)
        yield SizeSummary(
            kind_name(kind),
            magnitude,
            len(each),
            int(each.bytes.sum()),
            int(each.duration_ns.sum()),
            float(moved) if len(known) == len(factors) else None,
            len(np.unique(each.pid)),
        )


def _merge(parts: Sequence[SizesFinding], whole: Analysis) -> SizesFinding:
    found: dict[tuple[str, int], SizeSummary] = {}
    for each in (one for part in parts for one in part.sizes):
        key = each.kind, each.magnitude
        found[key] = _both(found[key], each) if key in found else each
    return _finding(tuple(found.values()), whole)


def _both(a: SizeSummary, b: SizeSummary) -> SizeSummary:
    return replace(
        a,
        count=a.count + b.count,
        bytes=a.bytes + b.bytes,
        time_ns=a.time_ns + b.time_ns,
        moved=a.moved + b.moved if a.moved is not None and b.moved is not None else None,
        ranks=max(a.ranks, b.ranks),
    )


def _document(finding: SizesFinding) -> Mapping[str, Any]:
    return {"collectives_by_size": [_size(each) for each in finding.sizes]}


def _size(each: SizeSummary) -> dict[str, Any]:
    return {
        "kind": each.kind,
        "bytes": each.mean_bytes,
        "count": each.count,
        "ranks": each.ranks,
        "time_s": each.mean_s,
        "algorithm_bandwidth_bps": each.algorithm_bandwidth_bps,
        "bus_bandwidth_bps": each.bus_bandwidth_bps,
    }


def sizes_grid(finding: SizesFinding, most: int | None = None) -> Grid:
    """Return the table; `most` rows of it."""
    headings = ("collective", "size", "a step", "time", "algbw", "busbw", "of line rate")
    rows: list[Sequence[Cell]] = []
    for each in finding.sizes[:most]:
        bus_bps, rate_bps = each.bus_bandwidth_bps, finding.line_rate_bps
        a_step = f"{each.count / each.ranks / finding.steps:.3g}" if finding.steps else "-"
        rows.append(
            (
                each.kind,
                size(each.mean_bytes),
                a_step,
                duration(each.mean_s),
                brief_rate(each.algorithm_bandwidth_bps),
                brief_rate(bus_bps),
                percent(min(bus_bps / rate_bps, 1.0)) if bus_bps and rate_bps else "-",
            )
        )
    return Grid(headings, rows, optional=("algbw", "time"))


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
