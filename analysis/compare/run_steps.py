"""One row an iteration of a process: what two runs are compared by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.account.causes import WAIT_CAUSES
from netprof.analysis.account.waiting import Waiting
from netprof.analysis.events.iterations import Iterations
from netprof.analysis.events.typical import is_ahead
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.iterations.iterations import inferred_from
from netprof.analysis.findings.iterations.per_iteration import rows_of
from netprof.analysis.tables.columns import UNKNOWN, Float64, Int64
from netprof.analysis.tables.intervals import Windows, merge, overlap, row_at
from netprof.analysis.tables.process_counts import ON_CPU
from netprof.schema import TRANSMIT

LINE_RATE = "line_rate"
"""The one column that is no quantity: of the device that a process sends most over, bits per second."""


INFERRED, LAUNCHED, SEEN = range(3)


@dataclass(frozen=True, eq=False)
class Steps:
    """Whole iterations of all processes, by process and begin; shape (I,) each.

    `values` are by the name of the quantity (`quantities.QUANTITIES`): seconds, bytes, bits per second, shares; NaN
    where unknown. `told_by` is what tells of an iteration: INFERRED, LAUNCHED or SEEN.
    """

    pid: Int64
    begin_ns: Int64
    values: Mapping[str, Float64]
    told_by: Int64


def steps_of(evidence: Evidence) -> Steps:
    """Return the iterations of a recording, or of a piece of one; inferred ones where no mark tells of any.

    Raises TraceError.
    """
    if not len(evidence.iterations) and not evidence.found_iterations.dropped:
        return _inferred(evidence)
    pids = np.unique(evidence.iterations.pid).tolist()
    return joined([_of_process(pid, evidence) for pid in pids])


def _inferred(evidence: Evidence) -> Steps:
    """Return inferred iterations, which all processes that train share; where phases lie in them is unknown."""
    inferred = inferred_from(evidence)
    if inferred.summary is None:
        return joined([])
    spans = inferred.summary.iterations
    windows = Windows(spans.begin_ns, spans.end_ns)
    pids = sorted((evidence.workers | set(evidence.ranks)) & evidence.links.lanes.pids or evidence.links.lanes.pids)
    values = {pid: {"iteration": windows.duration_ns / 1e9, **_moved(pid, windows, evidence)} for pid in pids}
    told_by = np.full(len(windows), INFERRED)
    return joined([Steps(np.full(len(windows), pid), windows.begin_ns, values[pid], told_by) for pid in pids])


def joined(parts: Sequence[Steps]) -> Steps:
    """Return iterations one after another, by process and begin. A process keeps those with the best source.

    Launches and what they led to are not alike, whichever a piece of a recording holds; nor is what is inferred.
    """
    if not parts:
        return Steps(np.zeros(0, np.int64), np.zeros(0, np.int64), {}, np.zeros(0, np.int64))
    names = dict.fromkeys(name for part in parts for name in part.values)
    pid, begin, told_by = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("pid", "begin_ns", "told_by")
    )
    best = np.full(len(pid), min(told_by.max(initial=INFERRED), LAUNCHED))  # with marks of one, none is inferred
    for each in np.unique(pid).tolist():
        best[pid == each] = np.maximum(best[pid == each], told_by[pid == each].max())
    order = np.lexsort((begin, pid))
    order = order[told_by[order] == best[order]]
    values = {name: np.concatenate([_column(part, name) for part in parts])[order] for name in names}
    return Steps(pid[order], begin[order], values, told_by[order])


def _column(part: Steps, name: str) -> Float64:
    return part.values.get(name, np.full(len(part.pid), np.nan))


def _of_process(pid: int, evidence: Evidence) -> Steps:
    if pid in evidence.only_launch:
        return _launched(pid, evidence)
    iterations = evidence.iterations.of_pid(pid)
    rows = rows_of(evidence, pid)
    forward_s = np.full(len(iterations), np.nan) if pid in evidence.found_iterations.stepped else rows.forward_s
    values = {
        "iteration": rows.duration_s,
        "compute": rows.duration_s - rows.exposed_communication_s,
        "forward": forward_s,
        "backward": rows.backward_s,
        "rest": rows.rest_s,
        "cpu_time": _cpu_s(pid, iterations, evidence),
        "exposed_communication": rows.exposed_communication_s,
        **_waited_s(iterations, evidence.account.waiting.of_pid(pid)),
        "bus_bandwidth": rows.bus_bandwidth_bps,
        **_moved(pid, Windows(iterations.begin_ns, iterations.end_ns), evidence),
    }
    return Steps(iterations.pid, iterations.begin_ns, values, np.full(len(iterations), SEEN))


def _launched(pid: int, evidence: Evidence) -> Steps:
    """Return the steps of a process whose host only launches them, by when their bytes passed, where that is known.

    Else a step is as long as it took to launch, which is unknown where the host is ahead of its GPU by many of them.
    """
    bounds = evidence.bounds.rows
    performed = bounds.where((bounds.pid == pid) & evidence.piece.owns(bounds.begin_ns))
    launched = evidence.iterations.of_pid(pid)
    spans = performed if len(performed) else launched
    windows = Windows(spans.begin_ns, spans.end_ns)
    duration_s = windows.duration_ns / 1e9
    if spans is launched and is_ahead(windows.duration_ns):
        duration_s = np.full(len(windows), np.nan)
    values = {"iteration": duration_s, "cpu_time": _cpu_s(pid, windows, evidence)}
    told_by = np.full(len(windows), LAUNCHED if spans is launched else SEEN)
    return Steps(np.full(len(windows), pid), windows.begin_ns, values | _moved(pid, windows, evidence), told_by)


def _cpu_s(pid: int, windows: Iterations | Windows, evidence: Evidence) -> Float64:
    """Return how long the threads of a process were on a CPU in each iteration, as the kernel counts; NaN: unknown."""
    begin, end = (evidence.process_counts.until(pid, ON_CPU, at_ns) for at_ns in (windows.begin_ns, windows.end_ns))
    return (end - begin) / 1e6


def _moved(pid: int, windows: Windows, evidence: Evidence) -> dict[str, Float64]:
    """Return what a process exchanges in each of some iterations."""
    asked = _asked_bytes(pid, windows, evidence)
    return {"collective_bytes": asked, **_sent_bytes(pid, windows, evidence), **_of_link(pid, windows, evidence)}


def _waited_s(iterations: Iterations, waiting: Waiting) -> dict[str, Float64]:
    """Return how long each iteration waits for what; the causes add up to its exposed communication."""
    waited_s = {}
    for cause in WAIT_CAUSES:
        part = waiting.of(cause)
        waited_s[cause.name] = overlap(merge(part.begin_ns, part.end_ns), iterations.begin_ns, iterations.end_ns) / 1e9
    return waited_s


def _asked_bytes(pid: int, windows: Windows, evidence: Evidence) -> Float64:
    """Return the buffers of the collectives that an iteration asks for; NaN where it asks for none of known size."""
    both = [each.where((each.pid == pid) & (each.bytes > 0)) for each in (evidence.collectives, evidence.posted)]
    posted = np.concatenate([each.posted_ns for each in both])
    sizes = np.concatenate([each.bytes for each in both])
    index = row_at(windows.begin_ns, windows.end_ns, posted)
    inside = index != UNKNOWN
    total = np.bincount(index[inside], weights=sizes[inside], minlength=len(windows))
    return np.where(total > 0, total, np.nan)


def _sent_bytes(pid: int, windows: Windows, evidence: Evidence) -> dict[str, Float64]:
    bins = evidence.links.lanes.of_process(pid, TRANSMIT)
    if bins is None:
        return {}
    return {
        "wire_bytes": bins.wire_until(windows.end_ns) - bins.wire_until(windows.begin_ns),
        "retransmitted_bytes": bins.resent_until(windows.end_ns) - bins.resent_until(windows.begin_ns),
    }


def _of_link(pid: int, windows: Windows, evidence: Evidence) -> dict[str, Float64]:
    """Return the line rate of the device that a process sends most over, and how much of it all its ranks use."""
    sent = evidence.fold.moved_bytes(TRANSMIT).get(pid, {})
    link = max(sent, key=lambda each: sent[each], default=None)
    bins = None if link is None else evidence.links.lanes.of_link(link, TRANSMIT)
    past = None if link is None else evidence.pasts.get(link)
    if bins is None or past is None:
        return {}
    rate_bps = past.rate.at(windows.begin_ns)
    sent_bits = 8 * (bins.wire_until(windows.end_ns) - bins.wire_until(windows.begin_ns))
    with np.errstate(divide="ignore", invalid="ignore"):
        return {LINE_RATE: rate_bps, "utilization": sent_bits / (windows.duration_ns / 1e9) / rate_bps}
