"""What the rank executes that the others wait for: the lines that it is in for the largest part of their wait."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from netprof.analysis.account.causes import LATE_RANK
from netprof.analysis.evidence import Evidence
from netprof.analysis.form import Grid, Part
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.columns import int64_column, text_column
from netprof.analysis.tables.intervals import Intervals, covered_until, merge
from netprof.units import duration, percent

_SHOWN = 5


@dataclass(frozen=True)
class StacksOf:
    """The stacks of one process: `seconds` in which they were sampled while others waited for it.

    Of a job that stands that is all the time in which they were. `lines` are the innermost frames and their parts of
    that, the largest first; `stacks` whole ones (outermost frame first) by seconds. Native ones are functions in place
    of lines of Python, and only of the time on a CPU.
    """

    pid: int
    name: str
    seconds: float
    lines: tuple[tuple[str, float], ...]
    stacks: Mapping[str, float]
    native: bool = False


def _conclude(analysis: Analysis) -> tuple[StacksOf, ...]:
    evidence = analysis.evidence
    table = evidence.table("stacks")
    pid, end_ns = int64_column(table, "pid"), int64_column(table, "time_ns")
    begin_ns, frames = end_ns - int64_column(table, "period_ns"), text_column(table, "frames")
    found = []
    native = np.array([is_native(stack) for stack in frames], bool)
    for own, of_native in itertools.product(np.unique(pid).tolist(), (False, True)):
        rows = np.flatnonzero((pid == own) & (native == of_native))
        late = _late(own, evidence)
        amount = end_ns[rows] - begin_ns[rows]
        if late is not None:
            amount = covered_until(late, end_ns[rows]) - covered_until(late, begin_ns[rows])
        stacks: Counter[str] = Counter()
        for stack, ns in zip((frames[row] for row in rows.tolist()), amount.tolist(), strict=True):
            stacks[stack] += ns
        if (total := sum(stacks.values())) > 0:
            found.append(replace(_of(own, evidence, stacks, total), native=of_native))
    return tuple(sorted(found, key=lambda each: (each.native, -each.seconds)))


def is_native(stack: str) -> bool:
    """Return whether a stack is of native functions: a frame names its file in brackets there, and else its line."""
    return stack.endswith("]")


def _late(pid: int, evidence: Evidence) -> Intervals | None:
    """Return when others wait for a process; None where nothing is known to be waited for."""
    if not len(evidence.iterations):
        return None
    late = evidence.account.waiting.of(LATE_RANK)
    own = late.where(late.culprit == pid)
    return merge(own.begin_ns, own.end_ns)


def _of(pid: int, evidence: Evidence, stacks: Counter[str], total: int) -> StacksOf:
    lines: Counter[str] = Counter()
    for stack, ns in stacks.items():
        lines[stack.rpartition(";")[2]] += ns
    rank = evidence.ranks.get(pid)
    name = f"pid {pid}" if rank is None else f"rank {rank}"
    shares = tuple((line, ns / total) for line, ns in lines.most_common())
    return StacksOf(pid, name, total / 1e9, shares, {stack: ns / 1e9 for stack, ns in stacks.most_common() if ns})


def _document(found: Sequence[StacksOf]) -> Mapping[str, Any]:
    return {
        "stacks": [
            {
                "pid": each.pid,
                "name": each.name,
                "native": each.native,
                "seconds": each.seconds,
                "lines": [{"line": line, "share": share} for line, share in each.lines],
                "folded": [{"frames": frames, "seconds": seconds} for frames, seconds in each.stacks.items()],
            }
            for each in found
        ]
    }


def _parts(found: Sequence[StacksOf]) -> Iterator[Part]:
    for each in found:
        rows = [(line, percent(share)) for line, share in each.lines[:_SHOWN]]
        about = f"{each.name}, in {duration(each.seconds)} in which others waited for it"
        headings, title = ("line", "of the wait"), "Stacks"
        if each.native:
            about = f"{each.name}, in {duration(each.seconds)} on a CPU in which others waited for it"
            headings, title = ("function", "of that"), "Native stacks"
        yield Part(title, about, [Grid(headings, rows, total=len(each.lines))])


STACKS = Section(
    "stacks",
    _conclude,
    ("stacks", "marks"),
    _document,
    lambda found: tuple(_parts(found)),
    merge=lambda parts, whole: _all(parts),
)


def _all(parts: Sequence[Sequence[StacksOf]]) -> tuple[StacksOf, ...]:
    """Return the stacks of consecutive pieces of a recording as one."""
    found: dict[tuple[bool, int], list[StacksOf]] = {}
    for each in (one for part in parts for one in part):
        found.setdefault((each.native, each.pid), []).append(each)
    return tuple(_sum(own) for own in found.values())


def _sum(own: Sequence[StacksOf]) -> StacksOf:
    stacks: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for each in own:
        stacks.update(each.stacks)
        lines.update({line: share * each.seconds for line, share in each.lines})
    total = sum(each.seconds for each in own)
    shares = tuple((line, seconds / total) for line, seconds in lines.most_common())
    return StacksOf(own[0].pid, own[0].name, total, shares, dict(stacks.most_common()), own[0].native)
