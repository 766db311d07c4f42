"""What the rank executes that the others wait for: the lines that it is in for the largest part of their wait."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from netprof.analysis.account.causes import LATE_RANK
from netprof.analysis.declared import Column, by_key, json_of, table
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.names import name_on_host
from netprof.analysis.form import Part
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.columns import int64_column, text_column
from netprof.analysis.tables.intervals import NOTHING, Intervals, interval, merge, overlap
from netprof.units import duration, percent

_SHOWN = 5


@dataclass(frozen=True)
class ProcessStacks:
    """The stacks of one process: `seconds` in which they were sampled while others waited for it.

    Of a job that stands, after steps (`stands`) or without any, that is all the time in which they were. `lines` are
    the innermost frames and their parts of that, the largest first; `stacks` whole ones (outermost frame first) by
    seconds. Native ones are functions in place of lines of Python, and only of the time on a CPU.
    """

    pid: int
    name: str
    seconds: float
    lines: tuple[tuple[str, float], ...]
    stacks: Mapping[str, float]
    native: bool = False
    stands: bool = False


def _conclude(analysis: Analysis) -> tuple[ProcessStacks, ...]:
    evidence = analysis.evidence
    stacked = evidence.table("stacks")
    pid, end_ns = int64_column(stacked, "pid"), int64_column(stacked, "time_ns")
    begin_ns, frames = end_ns - int64_column(stacked, "period_ns"), text_column(stacked, "frames")
    summaries = []
    native = np.array([is_native(stack) for stack in frames], bool)
    stood = _stands_still(evidence)
    for one_pid, of_native in itertools.product(np.unique(pid).tolist(), (False, True)):
        rows = np.flatnonzero((pid == one_pid) & (native == of_native))
        late, span = _late(one_pid, evidence), (begin_ns[rows], end_ns[rows])
        amount = end_ns[rows] - begin_ns[rows] if late is None else overlap(late | stood, *span)
        stacks: Counter[str] = Counter()
        for stack, ns in zip((frames[row] for row in rows.tolist()), amount.tolist(), strict=True):
            stacks[stack] += ns
        if (total := sum(stacks.values())) > 0:
            stands = late is not None and 2 * int(overlap(stood, *span).sum()) > total
            summaries.append(replace(_of(one_pid, evidence, stacks, total), native=of_native, stands=stands))
    return tuple(sorted(summaries, key=lambda each: (each.native, -each.seconds)))


def is_native(stack: str) -> bool:
    """Return whether a stack is of native functions: a frame names its file in brackets there, and else its line."""
    return stack.endswith("]")


def _late(pid: int, evidence: Evidence) -> Intervals | None:
    """Return when others wait for a process; None where nothing is known to be waited for."""
    if not len(evidence.iterations):
        return None
    late = evidence.account.waiting.of(LATE_RANK)
    stretches = late.where(late.culprit == pid)
    return merge(stretches.begin_ns, stretches.end_ns)


def _stands_still(evidence: Evidence) -> Intervals:
    """Return since when a job stands as its recording ends, after steps that were seen."""
    since_ns = [each.since_ns for each in evidence.unfinished.values() if each.in_wait]
    return interval(max(since_ns), int(evidence.recording.end_ns[-1])) if since_ns else NOTHING


def _of(pid: int, evidence: Evidence, stacks: Counter[str], total: int) -> ProcessStacks:
    lines: Counter[str] = Counter()
    for stack, ns in stacks.items():
        lines[stack.rpartition(";")[2]] += ns
    name = name_on_host(pid, evidence)
    shares = tuple((line, ns / total) for line, ns in lines.most_common())
    return ProcessStacks(pid, name, total / 1e9, shares, {stack: ns / 1e9 for stack, ns in stacks.most_common() if ns})


def _document(stacks: Sequence[ProcessStacks]) -> Mapping[str, Any]:
    return {
        "stacks": [
            json_of(each, "pid name native seconds")
            | {"lines": [{"line": line, "share": share} for line, share in each.lines]}
            | {"folded": [{"frames": frames, "seconds": seconds} for frames, seconds in each.stacks.items()]}
            for each in stacks
        ]
    }


def _parts(stacks: Sequence[ProcessStacks]) -> Iterator[Part]:
    for each in stacks:
        on_cpu, of = (" on a CPU", "that") if each.native else ("", "the wait")
        when = "the job stood" if each.stands else "others waited for it"
        about = f"{each.name}, in {duration(each.seconds)}{on_cpu} in which {when}"
        line = Column("function" if each.native else "line", lambda row: row[0])
        grid = table((line, Column(f"of {of}", lambda row: row[1], percent)), each.lines, _SHOWN)
        yield Part("Native stacks" if each.native else "Stacks", about, [grid])


def _sum(parts: Sequence[ProcessStacks]) -> ProcessStacks:
    stacks: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for each in parts:
        stacks.update(each.stacks)
        lines.update({line: share * each.seconds for line, share in each.lines})
    total = sum(each.seconds for each in parts)
    shares = tuple((line, seconds / total) for line, seconds in lines.most_common())
    stands = 2 * sum(each.seconds for each in parts if each.stands) > total
    return ProcessStacks(
        parts[0].pid, parts[0].name, total, shares, dict(stacks.most_common()), parts[0].native, stands
    )


STACKS = Section(
    "stacks",
    _conclude,
    ("stacks", "marks"),
    _document,
    lambda stacks: tuple(_parts(stacks)),
    merge=lambda parts, whole: tuple(map(_sum, by_key(parts, lambda each: (each.native, each.pid)).values())),
)
