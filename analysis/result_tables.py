"""What was concluded, as tables: the columns that exports write and notebooks get.

| table | a row is |
|---|---|
| `iterations` | an iteration of a process: its edges, and how long each phase is |
| `iteration_summary` | the same iterations: phases in seconds and bus bandwidth |
| `buckets` | a gradient bucket, from launch to unpacking |
| `collectives` | a collective that a process saw |
| `arrivals` | the last rank of a communicator in an iteration: how much later than the last but one it asked for a \
collective, and what it did meanwhile |
| `waiting` | how long a process waits in an iteration for one cause, and for which rank (-1: none is named) |
| `outstanding` | a stretch of time in which a bucket of a process is outstanding |
| `idle` | a stretch of time in which a link was idle both ways, and why |
| `utilization` | a time bin of a link in one direction in which a byte moved |
| `links`, `ranks`, `flow_summary`, `stragglers`, `paths` | a link, a rank, a flow, who holds the job up, a way \
between ranks, as in the report; nested names are joined by `.` |

Empty cells (None, NaN) are unknown; -1 is unknown in columns of whole numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from netprof.analysis.account.causes import LATE_RANK, WAIT_CAUSES
from netprof.analysis.findings.collectives.ranks import RANKS
from netprof.analysis.findings.iterations.per_iteration import rows_of
from netprof.analysis.findings.links.links import LINKS, spans_of_idleness
from netprof.analysis.findings.stragglers.stragglers import arrivals_table
from netprof.analysis.findings.waiting.waiting import WAITING
from netprof.analysis.findings.waiting.waiting_by_iteration import waiting_by_iteration
from netprof.analysis.section import Analysis
from netprof.analysis.tables.columns import Columns
from netprof.analysis.tables.intervals import Intervals
from netprof.schema import RECEIVE, TRANSMIT

Table = Mapping[str, Any]
"""Columns by name, all of one length: arrays of numbers, lists of texts."""


def result_tables() -> tuple[str, ...]:
    """Return the names of the tables."""
    return tuple(_TABLES)


def result_table(analysis: Analysis, name: str) -> Table:
    """Return one of the tables. Raises KeyError for a name that is none."""
    return _TABLES[name](analysis)


def _columns(columns: Columns | Intervals) -> Table:
    return {field.name: getattr(columns, field.name) for field in dataclasses.fields(columns)}


def _iteration_summary(analysis: Analysis) -> Table:
    parts = []
    for rank in analysis.of(RANKS):
        if rank.durations is not None:
            rows = rows_of(analysis.evidence, rank.pid)
            parts.append({"pid": np.full(len(rows), rank.pid), **_columns(rows)})
    return _stacked(parts, ("pid",))


def _outstanding(analysis: Analysis) -> Table:
    parts = [{"pid": np.full(len(s), pid), **_columns(s)} for pid, s in analysis.evidence.outstanding.items()]
    return _stacked(parts, ("pid", "begin_ns", "end_ns"))


def _waiting(analysis: Analysis) -> Table:
    """Return the account of waiting, row by row: process, iteration (by begin), cause."""
    evidence = analysis.evidence
    names = ("pid", "rank", "iteration", "begin_ns", "cause", "waited_ns", "late_rank")
    if analysis.of(WAITING) is None:
        return {name: np.zeros(0, np.int64) for name in names}
    waits, pids = waiting_by_iteration(evidence), np.unique(evidence.iterations.pid)
    rank, row, cause = np.nonzero(waits.waited_ns)
    ranks = np.array([evidence.ranks.get(pid, -1) for pid in pids.tolist()], np.int64)
    late = np.array([evidence.ranks.get(pid, -1) for pid in waits.latest_pid.tolist()], np.int64)
    is_late = cause == WAIT_CAUSES.index(LATE_RANK)
    values = (
        pids[rank],
        ranks[rank],
        row + 1,
        waits.begin_ns[row],
        [WAIT_CAUSES[number].name for number in cause.tolist()],
        waits.waited_ns[rank, row, cause],
        np.where(is_late, late[row], -1),
    )
    return dict(zip(names, values, strict=True))


def _idle(analysis: Analysis) -> Table:
    parts = [
        {
            "netns": np.full(len(spans), link.netns, np.int64),
            "device": [link.device] * len(spans),
            "cause": [cause] * len(spans),
            **_columns(spans),
        }
        for link in analysis.of(LINKS)
        for cause, spans in spans_of_idleness(analysis.evidence, link).items()
    ]
    return _stacked(parts, ("netns", "device", "cause", "begin_ns", "end_ns"))


def _utilization(analysis: Analysis) -> Table:
    parts = []
    for link in analysis.of(LINKS):
        for direction in (TRANSMIT, RECEIVE):
            bins = analysis.evidence.links.lanes.of_link(link.key, direction)
            if bins is None:
                continue
            bins = bins.where(bins.wire_bytes > 0)
            rate = analysis.evidence.links.rates.get((link.key, direction))
            rates = rate.at(bins.begin_ns) if rate is not None else np.full(len(bins), np.nan)
            bits = bins.wire_bytes * (8e9 / bins.bin_ns)
            parts.append(
                {
                    "netns": np.full(len(bins), link.netns, np.int64),
                    "device": [link.device] * len(bins),
                    "direction": np.full(len(bins), direction, np.uint8),
                    "bin_start_ns": bins.begin_ns,
                    "wire_bytes": bins.wire_bytes.astype(np.uint64),
                    "payload_bytes": bins.payload_bytes.astype(np.uint64),
                    "utilization": np.minimum(bits / rates, 1.0),
                }
            )
    return _stacked(parts, ("netns",))


def _documents(key: str, *first: str) -> Callable[[Analysis], Table]:
    """Return what makes a table of a list in the JSON report: nested keys joined by '.', lists as text.

    `first` are the names of its first columns, all that it has without a row.
    """

    def table(analysis: Analysis) -> Table:
        rows = [_flat(document) for document in analysis.document()[key] or ()]
        names = dict.fromkeys([*first, *(name for row in rows for name in row)])
        return {name: [row.get(name) for row in rows] for name in names}

    return table


def _flat(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, Mapping):
            row |= _flat(value, f"{prefix}{name}.")
        else:
            row[prefix + name] = " ".join(map(str, value)) if isinstance(value, list | tuple) else value
    return row


def _stacked(parts: Sequence[Table], names: Sequence[str]) -> Table:
    """Return tables one below the other; without any, an empty one with the columns `names`."""
    if not parts:
        return {name: np.zeros(0, np.int64) for name in names}
    return {name: _joined([part[name] for part in parts]) for name in parts[0]}


def _joined(columns: Sequence[Any]) -> Any:
    if isinstance(columns[0], list):
        return [value for column in columns for value in column]
    return np.concatenate(columns)


_TABLES: dict[str, Callable[[Analysis], Table]] = {
    "iterations": lambda analysis: _columns(analysis.evidence.iterations),
    "iteration_summary": _iteration_summary,
    "buckets": lambda analysis: _columns(analysis.evidence.buckets),
    "collectives": lambda analysis: _columns(analysis.evidence.collectives),
    "arrivals": arrivals_table,
    "waiting": _waiting,
    "outstanding": _outstanding,
    "idle": _idle,
    "utilization": _utilization,
    "links": _documents("links", "device"),
    "ranks": _documents("ranks", "rank"),
    "flow_summary": _documents("flows", "flow_id"),
    "stragglers": _documents("stragglers", "kind", "name"),
    "paths": _documents("paths", "from", "to"),
}
