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
from netprof.analysis.findings.iterations.per_iteration import rows_of
from netprof.analysis.inference.sources import infer_iterations
from netprof.analysis.tables.columns import UNKNOWN, Float64, Int64
from netprof.analysis.tables.intervals import Windows, merge, overlap, row_at
from netprof.analysis.tables.process_counts import ON_CPU
from netprof.schema import TRANSMIT

LINE_RATE = "line_rate"
"""The one column that is no quantity: of the device that a process sends most over, bits per second."""


@dataclass(frozen=True, eq=False)
class Steps:
    """Whole iterations of all processes, by process and begin; shape (I,) each.

    `values` are by the name of the quantity (`quantities.QUANTITIES`): seconds, bytes, bits per second, shares; NaN
    where unknown.
    """

    pid: Int64
    begin_ns: Int64
    values: Mapping[str, Float64]


def steps_of(evidence: Evidence) -> Steps:
    """Return the iterations of a recording, or of a piece of one; inferred ones where no mark tells of any.

    Raises TraceError.
    """
    if not len(evidence.iterations) and not evidence.found.dropped:
        return _inferred(evidence)
    pids = np.unique(evidence.iterations.pid).tolist()
    return joined([_of_process(pid, evidence) for pid in pids])


def _inferred(evidence: Evidence) -> Steps:
    """Return inferred iterations, which all processes that train share; where phases lie in them is unknown."""
    found = infer_iterations(evidence.marks, evidence.collectives, evidence.links.lanes, evidence.ranks).within(
        evidence.piece
    )
    if found.summary is None:
        return joined([])
    spans = found.summary.iterations
    own = Windows(spans.begin_ns, spans.end_ns)
    pids = sorted((evidence.workers | set(evidence.ranks)) & evidence.links.lanes.pids or evidence.links.lanes.pids)
    values = {pid: {"iteration": own.duration_ns / 1e9, **_moved(pid, own, evidence)} for pid in pids}
    return joined([Steps(np.full(len(own), pid), own.begin_ns, values[pid]) for pid in pids])


def joined(parts: Sequence[Steps]) -> Steps:
    """Return iterations one after another, by process and begin."""
    if not parts:
        return Steps(np.zeros(0, np.int64), np.zeros(0, np.int64), {})
    names = dict.fromkeys(name for part in parts for name in part.values)
    pid, begin = (np.concatenate([getattr(part, name) for part in parts]) for name in ("pid", "begin_ns"))
    order = np.lexsort((begin, pid))
    values = {name: np.concatenate([_column(part, name) for part in parts])[order] for name in names}
    return Steps(pid[order], begin[order], values)


def _column(part: Steps, name: str) -> Float64:
    return part.values.get(name, np.full(len(part.pid), np.nan))


def _of_process(pid: int, evidence: Evidence) -> Steps:
    if pid in evidence.only_launch:
        return _launched(pid, evidence)
    own = evidence.iterations.of_pid(pid)
    rows = rows_of(evidence, pid)
    forward_s = np.full(len(own), np.nan) if pid in evidence.found.stepped else rows.forward_s
    values = {
        "iteration": rows.duration_s,
        "compute": rows.duration_s - rows.exposed_communication_s,
        "forward": forward_s,
        "backward": rows.backward_s,
        "rest": rows.rest_s,
        "cpu_time": _cpu_s(pid, own, evidence),
        "exposed_communication": rows.exposed_communication_s,
        **_waited_s(own, evidence.account.waiting.of_pid(pid)),
        "bus_bandwidth": rows.bus_bandwidth_bps,
        **_moved(pid, Windows(own.begin_ns, own.end_ns), evidence),
    }
    return Steps(own.pid, own.begin_ns, values)


def _launched(pid: int, evidence: Evidence) -> Steps:
    """Return the steps of a process whose host only launches them, by when their bytes passed, where that is known.

    Else a step is as long as it took to launch, which is unknown where the host is ahead of its GPU by many of them.
    """
    bounds = evidence.bounds.rows
    performed = bounds.where((bounds.pid == pid) & evidence.piece.owns(bounds.begin_ns))
    launched = evidence.iterations.of_pid(pid)
    spans = performed if len(performed) else launched
    own = Windows(spans.begin_ns, spans.end_ns)
    duration_s = own.duration_ns / 1e9
    if spans is launched and is_ahead(own.duration_ns):
        duration_s = np.full(len(own), np.nan)
    values = {"iteration": duration_s, "cpu_time": _cpu_s(pid, own, evidence)}
    return Steps(np.full(len(own), pid), own.begin_ns, values | _moved(pid, own, evidence))


def _cpu_s(pid: int, own: Iterations | Windows, evidence: Evidence) -> Float64:
    """Return how long the threads of a process were on a CPU in each iteration, as the kernel counts; NaN: unknown."""
    begin, end = (evidence.process_counts.until(pid, ON_CPU, at_ns) for at_ns in (own.begin_ns, own.end_ns))
    return (end - begin) / 1e6


def _moved(pid: int, own: Windows, evidence: Evidence) -> dict[str, Float64]:
    """Return what a process exchanges in each of some iterations."""
    asked = _asked_bytes(pid, own, evidence)
    return {"collective_bytes": asked, **_sent_bytes(pid, own, evidence), **_of_link(pid, own, evidence)}


def _waited_s(own: Iterations, waiting: Waiting) -> dict[str, Float64]:
    """Return how long each iteration waits for what; the causes add up to its exposed communication."""
    found = {}
    for cause in WAIT_CAUSES:
        part = waiting.of(cause)
        found[cause.name] = overlap(merge(part.begin_ns, part.end_ns), own.begin_ns, own.end_ns) / 1e9
    return found


def _asked_bytes(pid: int, own: Windows, evidence: Evidence) -> Float64:
    """Return the buffers of the collectives that an iteration asks for; NaN where it asks for none of known size."""
    both = [each.where((each.pid == pid) & (each.bytes > 0)) for each in (evidence.collectives, evidence.posted)]
    posted = np.concatenate([each.posted_ns for each in both])
    sizes = np.concatenate([each.bytes for each in both])
    index = row_at(own.begin_ns, own.end_ns, posted)
    inside = index != UNKNOWN
    total = np.bincount(index[inside], weights=sizes[inside], minlength=len(own))
    return np.where(total > 0, total, np.nan)


def _sent_bytes(pid: int, own: Windows, evidence: Evidence) -> dict[str, Float64]:
    bins = evidence.links.lanes.of_process(pid, TRANSMIT)
    if bins is None:
        return {}
    return {
        "wire_bytes": bins.wire_until(own.end_ns) - bins.wire_until(own.begin_ns),
        "retransmitted_bytes": bins.resent_until(own.end_ns) - bins.resent_until(own.begin_ns),
    }


def _of_link(pid: int, own: Windows, evidence: Evidence) -> dict[str, Float64]:
    """Return the line rate of the device that a process sends most over, and how much of it all its ranks use."""
    sent = evidence.fold.moved_bytes(TRANSMIT).get(pid, {})
    link = max(sent, key=lambda each: sent[each], default=None)
    bins = None if link is None else evidence.links.lanes.of_link(link, TRANSMIT)
    past = None if link is None else evidence.pasts.get(link)
    if bins is None or past is None:
        return {}
    rate_bps = past.rate.at(own.begin_ns)
    sent_bits = 8 * (bins.wire_until(own.end_ns) - bins.wire_until(own.begin_ns))
    with np.errstate(divide="ignore", invalid="ignore"):
        return {LINE_RATE: rate_bps, "utilization": sent_bits / (own.duration_ns / 1e9) / rate_bps}
