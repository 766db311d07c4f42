"""When a live view would have named who holds a job up: a recorded trace, given to it as it grew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from netprof.analysis.findings.stalls.stall import Stall
from netprof.analysis.findings.stragglers.stragglers import Straggler
from netprof.analysis.live.live_state import span_ns, stragglers_now
from netprof.analysis.live.past_iterations import PastIterations, continued
from netprof.analysis.live.stall_watch import StallWatch
from netprof.analysis.live.window import Window
from netprof.analysis.tables.columns import column, empty
from netprof.schema import tables, time_column
from netprof.trace import TraceReader

_EVERY_NS = 500_000_000
_LATE_NS = 250_000_000
"""How late the recorder writes rows, at most."""


def detected_ns(trace: Path, since_ns: int, is_it: Callable[[Straggler], bool], rank: int) -> int | None:
    """Return when the first look that names the right one took place, from `since_ns` on; None if none did.

    The view looks twice a second. That the job stands still for want of `rank` is naming it too.
    """
    reader = TraceReader(trace)
    meta = reader.meta
    window, past, stalls = Window(meta.bin_ns), empty(PastIterations), StallWatch()
    window.set_ranks(meta)
    rows = list(_rows(reader))
    place = 0
    for at_ns in range(meta.started_ns + _EVERY_NS, (meta.stopped_ns or 0) + _EVERY_NS, _EVERY_NS):
        while place < len(rows) and rows[place][0] + _LATE_NS <= at_ns:
            window.add(*rows[place][1:])
            place += 1
        through_ns = at_ns - _LATE_NS
        typical_ns = int(np.median(past.duration_ns)) if len(past) else 0
        evidence = window.evidence(meta, through_ns - span_ns(typical_ns), through_ns, through_ns - 60 * 10**9)
        past = continued(past, evidence.iterations, evidence.marks, {})
        stall = stalls.look(evidence, past, through_ns)
        if at_ns < since_ns:
            continue
        if _stands_still_for(stall, rank, evidence.ranks) or any(is_it(each) for each in stragglers_now(evidence)[:1]):
            return at_ns
    return None


def _stands_still_for(stall: Stall | None, rank: int, ranks: Any) -> bool:
    if stall is None:
        return False
    named = stall.absent or ((stall.silent_first,) if stall.silent_first is not None else ())
    return any(ranks.get(pid) == rank for pid in named)


def _rows(reader: TraceReader) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield rows of all tables in the order of their times, a fifth of a second of a table at once."""
    parts = []
    for name, schema in tables().items():
        table = reader.table(name)
        time = time_column(name)
        columns = {
            each: column(table, each) if str(schema.field(each).type) != "string" else table[each].to_pylist()
            for each in schema.names
        }
        if time is None:
            parts.append((0, name, columns))
            continue
        block = np.asarray(columns[time], np.int64) // (_EVERY_NS // 5)
        for number in np.unique(block).tolist():
            rows = np.flatnonzero(block == number)
            chosen = {
                each: [values[row] for row in rows] if isinstance(values, list) else values[rows]
                for each, values in columns.items()
            }
            parts.append(((number + 1) * (_EVERY_NS // 5), name, chosen))
    yield from sorted((part for part in parts if len(next(iter(part[2].values())))), key=lambda part: part[0])
