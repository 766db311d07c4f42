"""What the live view shows of the ranks, in the neutral form that reports have: a row a rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from netprof.analysis.account.causes import WAIT_CAUSES
from netprof.analysis.events.phases import PHASES
from netprof.analysis.findings.bounds.bounds import BOUNDS
from netprof.analysis.findings.waiting.waiting import WAITING
from netprof.analysis.findings.waiting.waiting_finding import RankWaiting, stack
from netprof.analysis.form import Cell, Grid, Pairs, Spark, Stack
from netprof.analysis.live.now import Recent
from netprof.analysis.live.past_iterations import PastIterations, usual_range_ns
from netprof.analysis.tables.columns import Int64
from netprof.units import UNKNOWN, duration, milliseconds, percent

_FRAMES = 8
"""The innermost frames of a stack that are listed."""

_TREND = 24
_STUCK = 3.0  # times its usual time a step may take before that is pointed out
_SLOWEST_ENDS_AT = 0.9
_FOR = 0.1  # of what a rank waits, from which on a cause is named


class Order(Enum):
    """By what the ranks are sorted."""

    RANK = "rank"
    WAITS = "waits"
    STEP = "step"


@dataclass(frozen=True)
class RankNow:
    """A rank in the last seconds; what is not known is None. `state` is LATE, STOPPED, GONE, ABSENT or ""."""

    pid: int
    name: str
    own_pid: int
    step_ns: float | None
    waiting: RankWaiting | None
    state: str
    trend_ns: Int64

    @property
    def waits(self) -> float | None:
        """The share of its time that it waits."""
        if self.waiting is None or not self.waiting.window_ns:
            return None
        return self.waiting.exposed_ns / self.waiting.window_ns


def ranks_now(recent: Recent, order: Order = Order.RANK, find: str = "") -> list[RankNow]:
    """Return the ranks that have a text in their name, pid or state, in some order; by rank, what stands out first."""
    waiting = {each.pid: each for each in _by_rank(recent)}
    pids = dict.fromkeys([*np.unique(recent.past.pid).tolist(), *waiting])
    states = states_of(recent)
    ranks = [_rank(recent, pid, waiting.get(pid), states.get(pid, "")) for pid in pids]
    keys = {
        Order.RANK: lambda each: (not each.state, recent.ranks.get(each.pid, 1 << 31), each.pid),
        Order.WAITS: lambda each: (-(each.waits or 0.0), each.pid),
        Order.STEP: lambda each: (-(each.step_ns or 0.0), each.pid),
    }
    chosen = [each for each in ranks if find.lower() in f"{each.name} {each.own_pid} {each.state}".lower()]
    return sorted(chosen, key=keys[order])


def _by_rank(recent: Recent) -> Sequence[RankWaiting]:
    if recent.analysis is None:
        return ()
    waiting, bounds = recent.analysis.of(WAITING), recent.analysis.of(BOUNDS)
    if waiting is None and bounds is not None and bounds.is_known:
        return bounds.most.by_rank
    return () if waiting is None else waiting.by_rank


def states_of(recent: Recent) -> dict[int, str]:
    """Return what stands out of each process, by what is surest: gone, stopped, absent from a collective, late."""
    late = [each.who.pid for each in recent.stragglers if each.who.pid is not None]
    states = dict.fromkeys(late, "LATE")
    states |= {pid: f"{seconds:.0f} s in this step" for pid, seconds in _stuck_s(recent).items()}
    if recent.stall is not None:
        states |= dict.fromkeys(recent.stall.absent if recent.stall.waiting else (), "ABSENT")
        states |= dict.fromkeys(recent.stall.stopped, "STOPPED")
        states |= dict.fromkeys(recent.stall.gone, "GONE")
    return states


def _stuck_s(recent: Recent) -> dict[int, float]:
    """Return for how long the step of each process lasts that takes far longer than its others."""
    stuck_s = {}
    for pid in np.unique(recent.past.pid).tolist():
        past = recent.past.of_pid(pid)
        running_ns = recent.through_ns - int(past.end_ns[-1])
        if running_ns > _STUCK * float(np.median(past.duration_ns)) + 1e9:
            stuck_s[pid] = running_ns / 1e9
    return stuck_s


def _rank(recent: Recent, pid: int, waiting: RankWaiting | None, state: str) -> RankNow:
    host, past = recent.host_of.get(pid), recent.past.of_pid(pid)
    step_ns = float(np.median(past.duration_ns)) if len(past) else None
    own_pid = pid if host is None else host.pids[pid]
    return RankNow(pid, recent.name_of(pid), own_pid, step_ns, waiting, state, past.duration_ns[-_TREND:])


def ranks_grid(recent: Recent, ranks: Sequence[RankNow], selected: int = -1) -> Grid:
    """Return a row for each rank; the one that is `selected` has a mark."""
    usual = usual_range_ns(recent.past.duration_ns) if len(recent.past) else (0, 1)
    rows = [_row(each, number == selected, usual) for number, each in enumerate(ranks)]
    strong = frozenset(number for number, each in enumerate(ranks) if each.state)
    headings = ("  rank", "pid", "step", "waits", "", "for", "last steps", " ")
    return Grid(
        headings, rows, frozenset({"", "for", "last steps", " "}), ("last steps", "pid", "for", "step"), strong=strong
    )


def _row(each: RankNow, is_selected: bool, usual: tuple[int, int]) -> Sequence[Cell]:
    mark = "▸ " if is_selected else "  "
    step = UNKNOWN if each.step_ns is None else milliseconds(each.step_ns / 1e9)
    bar: Cell = Stack(()) if each.waiting is None else stack(each.waiting.causes_ns, each.waiting.window_ns)
    low, high = usual
    heights = tuple((each.trend_ns - 0.7 * low) / max(1.0, high - 0.7 * low) * _SLOWEST_ENDS_AT)
    waits = percent(each.waits) if each.waits is not None else "-"
    return f"{mark}{each.name}", str(each.own_pid), step, waits, bar, _for(each.waiting), Spark(heights), each.state


def _for(waiting: RankWaiting | None) -> str:
    if waiting is None:
        return ""
    named = [(ns, cause.short) for cause, ns in zip(WAIT_CAUSES, waiting.causes_ns, strict=True)]
    return ", ".join([short for ns, short in sorted(named, reverse=True) if ns > _FOR * waiting.exposed_ns][:2])


def rank_detail(recent: Recent, each: RankNow) -> Pairs:
    """Return all that is known of one rank in the last seconds."""
    past = recent.past.of_pid(each.pid)
    rows = [("rank", f"{each.name} (pid {each.own_pid}){f': {each.state}' if each.state else ''}")]
    if each.step_ns is not None:
        last = milliseconds(float(past.duration_ns[-1]) / 1e9)
        rows.append(("step", f"{milliseconds(each.step_ns / 1e9)} in the median, last {last}"))
        if each.pid not in recent.launching:
            rows.append(("phases", ", ".join(f"{p.title} {milliseconds(_median(past, p.length))}" for p in PHASES)))
    if each.waiting is not None and each.waiting.window_ns:
        rows += [
            (f"waits: {cause.short}", percent(ns / each.waiting.window_ns))
            for cause, ns in zip(WAIT_CAUSES, each.waiting.causes_ns, strict=True)
            if ns
        ]
    for straggler in recent.stragglers:
        if straggler.who.pid == each.pid:
            rows += [("holds up", straggler.sentence), ("do", straggler.advice)]
    commands = {"STOPPED": f"kill -CONT {each.own_pid}", "GONE": "dmesg | grep -i 'killed process'"}
    rows.append(("run", commands.get(each.state, f"py-spy dump --pid {each.own_pid}")))
    if (stack := recent.stacks.get(each.pid)) is not None:
        ago = duration((recent.through_ns - stack.time_ns) / 1e9)
        rows.append((f"stack, {ago} ago", stack.frames[-1]))
        rows += [("called by", frame) for frame in stack.frames[-2 : -_FRAMES - 1 : -1]]
    return Pairs(rows)


def _median(past: PastIterations, name: str) -> float:
    return float(np.median(getattr(past, name))) / 1e9
