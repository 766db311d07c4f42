"""Rows of the trace's tables in memory, in order of time: what a slice of time needs, and what may be let go of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from netprof.schema import KINDS, LASTING
from netprof.trace.columns import column_types

Rows = Mapping[str, Any]
"""Columns of one table, all of one length."""

ALWAYS, NEVER = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_SLACK_ROWS = 1_000
_OF_FLOWS = {"flow_devices": "flow_id", "flow_paths": "remote_addr"}
"""Tables of rows that are of flows, and the column of `flows` that says whose they are."""
_Mask = npt.NDArray[np.bool_]


def length(rows: Rows) -> int:
    """Return how many rows there are."""
    return len(next(iter(rows.values())))


def chosen(rows: Rows, which: Any) -> dict[str, Any]:
    """Return the rows that a mask or an index array selects."""
    return {name: _array(values)[which] for name, values in rows.items()}


def joined(table: str, parts: Sequence[Rows]) -> dict[str, Any]:
    """Return the rows of some parts, one after the other, as arrays."""
    if not parts:
        return {name: np.zeros(0, kind or object) for name, kind in column_types(table).items()}
    columns = {name: [_array(part[name]) for part in parts] for name in parts[0]}
    return {name: each[0] if len(each) == 1 else np.concatenate(each) for name, each in columns.items()}


def _array(values: Any) -> npt.NDArray[Any]:
    """Return values as an array; texts as objects, so that one long text does not make all of them long."""
    if isinstance(values, np.ndarray):
        return values if values.dtype.kind != "U" else values.astype(object)
    if not len(values) or not isinstance(values[0], str):
        return np.asarray(values)
    texts = np.empty(len(values), object)
    texts[:] = values
    return texts


def outlasts(table: str, rows: Rows) -> _Mask:
    """Return which rows matter to all time after them, until another one of their key comes."""
    if table == "marks" and "kind" in rows:
        return np.isin(rows["kind"], LASTING)
    return np.full(length(rows), KINDS[table].holds)


def in_force(table: str, rows: Rows, before_ns: int) -> npt.NDArray[np.int64]:
    """Return which rows of a table whose rows hold do so at an instant: the last of each key before it."""
    kind = KINDS[table]
    times = _times(table, rows)
    before: npt.NDArray[np.int64] = np.flatnonzero(times < before_ns)
    keys = _keys([rows[name] for name in kind.key if name in rows])[before]
    order = np.lexsort((times[before], keys))
    ends = np.append(np.flatnonzero(np.diff(keys[order])), len(order) - 1) if len(order) else order
    last_ns = np.zeros(int(keys.max(initial=-1)) + 1, np.int64)
    last_ns[keys[order[ends]]] = times[before[order[ends]]]
    return np.asarray(before[times[before] == last_ns[keys]])


def _times(table: str, rows: Rows) -> npt.NDArray[np.int64]:
    """Return the time of each row; its place where rows have no time."""
    time = KINDS[table].time
    return np.arange(length(rows)) if time is None else np.asarray(rows[time]).astype(np.int64)


def _keys(columns: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Return a number for each row, that is the same where all columns are."""
    numbers = np.zeros(len(columns[0]), np.int64)
    for values in columns:
        _, inverse = np.unique(np.asarray(values), return_inverse=True)
        _, numbers = np.unique(numbers * (int(inverse.max(initial=0)) + 1) + inverse, return_inverse=True)
    return numbers


class Store:
    """Holds rows of tables: `slice` returns those of a time and what holds in it, `let_go` forgets the others.

    `slice` may be called for any time that was not let go of. At most `most_rows` are kept of what holds, and of flows
    `most_flows`, of those that closed `most_closed`; flows that are `in_use` are kept all the same. `dropped` counts
    the rows that these bounds cost.
    """

    def __init__(
        self,
        most_flows: int = 50_000,
        most_closed: int | None = None,
        in_use: Callable[[], Collection[int]] = tuple,
        most_rows: int = 200_000,
    ) -> None:
        self.dropped = 0
        self._most_flows, self._most_closed = most_flows, most_closed or most_flows
        self._most_rows = most_rows
        self._in_use = in_use
        self._parts: dict[str, list[Rows]] = {}
        self._lasting: list[Rows] = []  # marks that were let go of, and last
        self._rows: dict[str, int] = {}
        self._in_force: dict[str, int] = {}  # rows that were when it was looked last
        self._gone_ns: dict[str, int] = {}
        self._flows: dict[int, None] = {}  # in the order of their last rows
        self._closed: dict[int, None] = {}  # in the order in which they closed
        self._flows_at, self._closed_at = self._most_flows, self._most_closed  # so many are too many

    @classmethod
    def of_what_holds(cls) -> Store:
        """Return a store that only keeps what matters to all time after it."""
        store = cls()
        store._gone_ns = dict.fromkeys(KINDS, NEVER)
        return store

    @property
    def rows(self) -> int:
        """How many rows are kept."""
        return sum(self._rows.values()) + sum(map(length, self._lasting))

    def add(self, table: str, rows: Rows) -> None:
        """Add rows of a table; they must not change any more, and times of a key only go on."""
        if not length(rows):
            return
        rows = {name: _array(values) for name, values in rows.items()}
        if table == "totals":
            ended = np.asarray(rows["flow_id"])[np.asarray(rows["closed"]) != 0]
            self._closed.update(dict.fromkeys(ended.tolist()))
        gone_ns = self._gone_ns.get(table, ALWAYS)
        if not KINDS[table].holds and gone_ns != ALWAYS and int(_times(table, rows).max()) < gone_ns:
            self._note_lasting(table, rows)
            return
        self._parts.setdefault(table, []).append(rows)
        self._rows[table] = self._rows.get(table, 0) + length(rows)
        if table == "flows":
            self._add_flows(np.asarray(rows["flow_id"]).tolist())
        if gone_ns != ALWAYS:
            self._compact(table, gone_ns)

    def tables(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield all rows that are kept, by table."""
        for table in [*self._parts, *(["marks"] if self._lasting and "marks" not in self._parts else [])]:
            yield table, self.slice(table, ALWAYS)

    def carry(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield what matters to all time after all that was added, by table."""
        for table, rows in self.tables():
            if KINDS[table].holds:
                yield table, chosen(rows, in_force(table, rows, NEVER))
            elif (lasts := outlasts(table, rows)).any():
                yield table, chosen(rows, lasts)

    def slice(self, table: str, since_ns: int, until_ns: int = NEVER) -> dict[str, Any]:
        """Return the rows of a table in [since_ns, until_ns), and those from before that hold in it."""
        parts = self._parts.get(table, [])
        if KINDS[table].holds:
            rows = joined(table, parts)
            if KINDS[table].time is None or (since_ns, until_ns) == (ALWAYS, NEVER):
                return rows
            times = _times(table, rows)
            wanted = (times >= since_ns) & (times < until_ns)
            if since_ns > ALWAYS and not wanted.all():
                wanted[in_force(table, rows, since_ns)] = True
        else:
            older = [part for part in parts if table == "marks" and int(_times(table, part).min()) < since_ns]
            lasting = [chosen(part, outlasts(table, part) & (_times(table, part) < since_ns)) for part in older]
            parts = [part for part in parts if int(_times(table, part).max()) >= since_ns]
            rows = joined(table, parts)
            times = _times(table, rows)
            wanted = (times >= since_ns) & (times < until_ns)
            if table == "marks" and (before := [*self._lasting, *lasting]):
                return joined(table, [*before, rows if wanted.all() else chosen(rows, wanted)])
        return rows if wanted.all() else chosen(rows, wanted)

    def let_go(self, before_ns: int, own_ns: Mapping[str, int] | None = None) -> None:
        """Forget what no slice from `before_ns` on needs; of some tables, from another time on."""
        for table in self._parts:
            gone_ns = self._gone_ns[table] = (own_ns or {}).get(table, before_ns)
            if KINDS[table].holds:
                self._compact(table, gone_ns)
                continue
            parts = self._parts[table]
            old = [int(_times(table, part).max()) < gone_ns for part in parts]
            for part in [part for part, is_old in zip(parts, old, strict=True) if is_old]:
                self._note_lasting(table, part)
            self._parts[table] = [part for part, is_old in zip(parts, old, strict=True) if not is_old]
            self._rows[table] = sum(map(length, self._parts[table]))

    def _note_lasting(self, table: str, rows: Rows) -> None:
        if table == "marks" and (lasts := outlasts(table, rows)).any():
            self._lasting.append(chosen(rows, lasts))
            while sum(map(length, self._lasting)) > self._most_rows:
                self.dropped += length(self._lasting.pop(0))

    def _compact(self, table: str, before_ns: int) -> None:
        """Leave out what no longer holds, once that may be half of the rows."""
        if not KINDS[table].holds or self._rows[table] <= 2 * self._in_force.get(table, 0) + _SLACK_ROWS:
            return
        rows = joined(table, self._parts[table])
        kept = np.zeros(length(rows), bool)
        kept[in_force(table, rows, before_ns)] = True
        if KINDS[table].time is not None:
            kept |= _times(table, rows) >= before_ns
        surplus = int(kept.sum()) - self._most_rows
        if surplus > 0:
            kept[np.flatnonzero(kept)[:surplus]] = False
            self.dropped += surplus
        self._keep(table, rows, kept)
        self._in_force[table] = self._rows[table]

    def _keep(self, table: str, rows: Rows, kept: _Mask) -> None:
        self._parts[table] = [rows if kept.all() else chosen(rows, kept)] if kept.any() else []
        self._rows[table] = int(kept.sum())

    def _add_flows(self, flows: Sequence[int]) -> None:
        """Note flows, and forget of too many those that closed, and then those that rest, the oldest first."""
        for flow in flows:
            self._flows.pop(flow, None)
            self._flows[flow] = None
        if len(self._flows) <= self._flows_at and len(self._closed) <= self._closed_at:
            return
        used = set(self._in_use())
        self._closed = {flow: None for flow in self._closed if flow in self._flows}
        closed = [flow for flow in self._closed if flow not in used]
        too_many = len(self._flows) - self._most_flows * 3 // 4 if len(self._flows) > self._most_flows else 0
        gone = closed[: max(too_many, len(closed) - self._most_closed // 2 if len(closed) > self._most_closed else 0)]
        idle = [flow for flow in self._flows if flow not in used and flow not in self._closed]
        self._forget({*gone, *idle[: max(0, too_many - len(gone))]})
        self._flows_at = max(self._most_flows, len(self._flows) * 5 // 4)
        self._closed_at = max(self._most_closed, len(self._closed) * 5 // 4)

    def _forget(self, gone: set[int]) -> None:
        """Let go of flows, and of what is of them alone."""
        if not gone:
            return
        self.dropped += len(gone)
        self._flows = {flow: None for flow in self._flows if flow not in gone}
        self._closed = {flow: None for flow in self._closed if flow not in gone}
        flows = joined("flows", self._parts["flows"])
        kept = ~np.isin(flows["flow_id"], list(gone))
        for table, column in _OF_FLOWS.items():
            if table in self._parts and column in flows:
                rows = joined(table, self._parts[table])
                of_gone = set(flows[column][~kept].tolist()) - set(flows[column][kept].tolist())
                of_others = np.array([value not in of_gone for value in rows[column]], bool)
                self._keep(table, rows, of_others)
        self._keep("flows", flows, kept)
