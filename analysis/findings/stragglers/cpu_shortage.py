"""Ranks that have too little CPU: a quota that throttles them, or more threads than there are CPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from netprof.analysis.declared import added, by_key, json_of
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.names import name_on_host
from netprof.analysis.findings.stragglers.doing import CPU_TAKEN, THROTTLED
from netprof.analysis.findings.stragglers.thread_time import watched
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.process_counts import QUOTA_PERIODS, THREADS_CPU_WAIT, THROTTLED_PERIODS
from netprof.units import percent

_LEAST_PERIODS = 10
_THROTTLED_MATTERS = 0.2
"""Share of a quota's periods."""
_WAITS_MATTERS = 0.5
"""CPUs that the threads of a rank wait for, in the mean."""


@dataclass(frozen=True)
class CpuShortage:
    """One process: in how many of a quota's `periods` it was `throttled`, and for how many CPUs its threads wait."""

    pid: int
    name: str
    rank: int | None
    periods: int
    throttled: int
    waits_for: float

    @property
    def throttled_share(self) -> float:
        """The share of periods in which the quota kept it from running."""
        return self.throttled / self.periods if self.periods >= _LEAST_PERIODS else 0.0


@dataclass(frozen=True)
class CpuShortages:
    """Of all processes that train; what a part of the recording tells is added up."""

    ranks: tuple[CpuShortage, ...]

    @property
    def throttled(self) -> tuple[CpuShortage, ...]:
        """Those whose quota matters, the worst first."""
        short = [each for each in self.ranks if each.throttled_share >= _THROTTLED_MATTERS]
        return tuple(sorted(short, key=lambda each: -each.throttled_share))

    @property
    def oversubscribed(self) -> bool:
        """Whether the threads of every rank wait for CPUs, more than one or another that is in their way."""
        return len(self.ranks) > 1 and all(each.waits_for >= _WAITS_MATTERS for each in self.ranks)

    @property
    def sentence(self) -> str:
        """What is short, for a person; nothing where enough is there."""
        if self.throttled:
            first = self.throttled[0]
            return (
                f"the CPU quota of {first.name} throttles it in {percent(first.throttled_share)} of its periods "
                f"({first.throttled} of {first.periods})"
            )
        if self.oversubscribed:
            waits = sorted(each.waits_for for each in self.ranks)
            return (
                f"every rank's threads wait for {waits[0]:.1f} to {waits[-1]:.1f} CPUs: more want to run than there are"
            )
        return ""

    @property
    def advice(self) -> str:
        """What helps."""
        if self.throttled:
            return THROTTLED.advice
        return "fewer threads a rank (OMP_NUM_THREADS, torch.set_num_threads), fewer programs here, or more CPUs"

    def explains(self, doing: str | None, rank: int | None) -> bool:
        """Tell whether it is why a rank is late that does `doing`: an own quota, or CPUs that all of them want."""
        if self.throttled:
            return doing == THROTTLED.name or rank in {each.rank for each in self.throttled}
        return self.oversubscribed and doing in (None, "", CPU_TAKEN.name)


def _conclude(analysis: Analysis) -> CpuShortages:
    evidence = analysis.evidence
    return CpuShortages(tuple(_of_process(pid, evidence) for pid in watched(evidence)))


def _of_process(pid: int, evidence: Evidence) -> CpuShortage:
    rank = evidence.ranks.get(pid)
    periods, throttled, waited_us = (_grown(pid, name, evidence) for name in _COUNTED)
    waits_for = waited_us * 1e3 / max(evidence.recording.total_ns, 1)
    return CpuShortage(pid, name_on_host(pid, evidence), rank, round(periods), round(throttled), waits_for)


_COUNTED = (QUOTA_PERIODS, THROTTLED_PERIODS, THREADS_CPU_WAIT)


def _grown(pid: int, name: str, evidence: Evidence) -> float:
    """Return by how much a count of a process grew; 0 where it is not known."""
    span = evidence.recording
    times, _ = evidence.process_counts.series.get((pid, name), (np.zeros(0, np.int64),) * 2)
    if not len(times) or not len(span):
        return 0.0
    begin_ns = max(int(span.begin_ns[0]), int(times[0]))
    at = evidence.process_counts.until(pid, name, np.array([begin_ns, int(span.end_ns[-1])]))
    return float(np.nan_to_num(at[1] - at[0]))


def _merge(parts: Sequence[CpuShortages], whole: Analysis) -> CpuShortages:
    return CpuShortages(tuple(map(_in_one, by_key((part.ranks for part in parts), lambda each: each.pid).values())))


def _in_one(parts: Sequence[CpuShortage]) -> CpuShortage:
    return replace(
        parts[0], **added(parts, "periods throttled"), waits_for=float(np.mean([each.waits_for for each in parts]))
    )


def _document(shortages: CpuShortages) -> Mapping[str, Any]:
    keys = "rank pid quota_periods=periods throttled_periods=throttled threads_wait_for_cpus=waits_for"
    return {"cpu_shortage": [json_of(each, keys) for each in shortages.ranks]}


CPU_SHORTAGE = Section(
    "CPU shortage",
    _conclude,
    ("counters", "blocked"),
    _document,
    notes=lambda shortages: [f"{shortages.sentence}: {shortages.advice}"] if shortages.sentence else (),
    merge=_merge,
)
