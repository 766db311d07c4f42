"""Rows kept as columns: one numpy array a field, all of one length."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from netprof.analysis.memory import give_back
from netprof.errors import TraceError
from netprof.trace.columns import to_numpy

if TYPE_CHECKING:
    import pandas as pd

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]
Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]
Bool = npt.NDArray[np.bool_]

UNKNOWN = -1
"""What an integer column holds where nothing is known; no size, time or pid is negative."""

T = TypeVar("T", bound="Columns")


@dataclass(frozen=True, eq=False)
class Columns:
    """Base of the column-wise tables: every field is a 1-D array, all of one length."""

    def __len__(self) -> int:
        return len(getattr(self, next(iter(self.__dataclass_fields__))))

    def where(self: T, rows: Bool | Int64) -> T:
        """Return the rows that a mask or an index array selects, in its order."""
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows  # once for all columns
        return type(self)(**{name: getattr(self, name)[rows] for name in self.__dataclass_fields__})

    def sorted_by(self: T, *names: str) -> T:
        """Return the rows by some columns, the first one first; those that are alike keep their order."""
        columns = [getattr(self, name) for name in reversed(names)]
        return self.where(np.lexsort(columns) if len(names) > 1 else np.argsort(columns[0], kind="stable"))

    def of_pid(self: T, pid: int) -> T:
        """Return the rows of one process, in their order, of a table that has a column `pid`."""
        return self.where(self.rows_of(pid))

    def rows_of(self, pid: int) -> Int64:
        """Return which rows are of one process: they are sorted when first asked for, and not looked for by each."""
        pids, edges, order = self._by_pid
        at = int(np.searchsorted(pids, pid))
        return order[edges[at] : edges[at + 1]] if at < len(pids) and pids[at] == pid else order[:0]

    def of_most(self: T) -> T:
        """Return the rows of the process that has the most, of a table that has a column `pid`."""
        pid: Int64 = self.pid  # type: ignore[attr-defined]
        pids, counts = np.unique(pid, return_counts=True)
        return self.where(pid == pids[np.argmax(counts)]) if len(pids) else self

    @cached_property
    def _by_pid(self) -> tuple[Int64, Int64, Int64]:
        """The processes, ascending, where the rows of each begin in an order, and the order."""
        pid: Int64 = self.pid  # type: ignore[attr-defined]
        near = len(pid) > 0 and int(pid.max()) - int(pid.min()) <= np.iinfo(np.uint16).max
        order = np.argsort((pid - pid.min()).astype(np.uint16) if near else pid, kind="stable")  # so narrow: by radix
        begins = np.flatnonzero(np.diff(pid[order], prepend=pid[order[:1]] - 1))
        return pid[order[begins]], np.append(begins, len(order)), order

    def __getstate__(self) -> dict[str, Any]:
        """Return what is sent to other processes: not how rows are sorted."""
        return {name: value for name, value in vars(self).items() if name != "_by_pid"}

    def frame(self) -> pd.DataFrame:
        """Return the same columns as a pandas DataFrame (pandas is imported only here)."""
        import pandas as pd

        frame: pd.DataFrame = pd.DataFrame({f.name: getattr(self, f.name) for f in dataclasses.fields(self)})
        return frame


def concatenate(kind: type[T], parts: list[T]) -> T:
    """Return `parts` one after another as one table; an empty one if there is none."""
    if not parts:
        return empty(kind)
    names = kind.__dataclass_fields__
    return kind(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def by_pid(table: T, only: Collection[int] | None = None) -> Iterator[tuple[int, T]]:
    """Yield the rows of each process, or `only` of some, by pid: rows are sorted once, not looked for by each."""
    if only is not None and not only:
        return
    for pid in table._by_pid[0].tolist():
        if only is None or pid in only:
            yield pid, table.of_pid(pid)
    vars(table).pop("_by_pid", None)  # of marks that is much memory, and hardly ever asked for again


def concatenate_and_free(kind: type[T], parts: list[T]) -> T:
    """Return what `concatenate` does, of parts that nobody needs: a column of theirs that is copied is gone."""
    if not parts:
        return empty(kind)
    whole = {}
    for name in [f.name for f in dataclasses.fields(kind)]:
        whole[name] = np.concatenate([getattr(part, name) for part in parts])
        for part in parts:
            vars(part).pop(name)
        give_back()
    return kind(**whole)


def empty(kind: type[T]) -> T:
    """Return a table of `kind` without rows."""
    return kind(**{f.name: np.zeros(0, dtype=np.int64) for f in dataclasses.fields(kind)})


def distinct(*columns: Int64) -> Int64:
    """Return the values of some columns, ascending, each once.

    `np.unique` does the same by a hash, which for many times that are multiples of a round number takes minutes.
    """
    values: Int64 = np.sort(np.concatenate(columns), kind="stable")  # merges columns that are sorted in linear time
    return np.asarray(values[opens(values)])


def opens(*columns: npt.NDArray[Any]) -> Bool:
    """Return which rows differ in any of some columns from the row before; the first one does."""
    changes = np.logical_or.reduce([each[1:] != each[:-1] for each in columns])
    return np.append(True, changes)[: len(columns[0])]


def closes(*columns: npt.NDArray[Any]) -> Bool:
    """Return which rows differ in any of some columns from the row after; the last one does."""
    return np.append(opens(*columns)[1:], True)[: len(columns[0])]


def followed(time_ns: Int64, *keys: npt.NDArray[Any]) -> tuple[Int64, Int64]:
    """Return which rows follow one another in time, of those alike in some columns: the earlier, then the later."""
    order = np.lexsort((time_ns, *keys))
    same = ~opens(*(each[order] for each in keys))[1:]
    return order[:-1][same], order[1:][same]


def grouped(*columns: Int64) -> list[Int64]:
    """Return the rows that have the same values in all of some columns, in their order."""
    order = np.lexsort(columns)
    return np.split(order, np.flatnonzero(opens(*(each[order] for each in columns)))[1:]) if len(order) else []


def narrowed(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return whole numbers in 32 bits, where those hold them: a day has millions."""
    fits = len(values) == 0 or (values.min() >= 0 and values.max() <= np.iinfo(np.uint32).max)
    return values.astype(np.uint32) if fits else values


def nearest(ascending: npt.NDArray[Any], values: npt.NDArray[Any]) -> Int64:
    """Return which of some ascending numbers is the nearest to each value; there is one at least."""
    right = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    left = np.maximum(right - 1, 0)
    return np.where(np.abs(ascending[left] - values) < np.abs(ascending[right] - values), left, right)


def column(table: Any, name: str) -> npt.NDArray[Any]:
    """Return a column of numbers of an Arrow table or batch, a DataFrame or a mapping of arrays, as a numpy array.

    Arrow's own conversion would import pandas (0.5 s, 50 MB), so its buffers are read directly.
    """
    values = table.column(name) if hasattr(table, "column") else table[name]
    if hasattr(values, "chunks"):
        chunks = [_numbers(chunk) for chunk in values.chunks]
        return np.concatenate(chunks) if chunks else np.zeros(0, np.int64)
    return _numbers(values) if hasattr(values, "buffers") else np.asarray(values)


def int64_column(table: Any, name: str) -> Int64:
    """Return an integer column as int64, UNKNOWN where the recorder did not know the column yet.

    A uint64 beyond 2**63 wraps: only opaque addresses are that large.
    """
    return column(table, name).astype(np.int64, copy=False)


def read_columns(kind: type[T], table: Any) -> T:
    """Return the integer columns of a table that a class of tables has, as `int64_column`."""
    return kind(**{name: int64_column(table, name) for name in kind.__dataclass_fields__})


def text_column(table: Any, name: str) -> list[str]:
    """Return a column of strings, "" where an older schema had none. Raises TraceError for bytes that are no text."""
    values = table.column(name) if hasattr(table, "column") else table[name]
    try:
        texts = values.to_pylist() if hasattr(values, "to_pylist") else values
        known: dict[str, str] = {"": ""}  # one string for what is alike: a capture has 100,000 ends of few hosts
        return [known.setdefault(text, text) for text in ("" if value is None else str(value) for value in texts)]
    except ValueError as error:
        raise TraceError(f"column {name} of the trace holds no text", "the trace is damaged") from error


def _numbers(array: Any) -> npt.NDArray[Any]:
    """Return an Arrow array of fixed-width numbers as a numpy view of its buffer; of nulls, as UNKNOWN."""
    if array.null_count:  # whole columns, of a trace of an older schema
        return np.full(len(array), UNKNOWN, np.int64)
    return to_numpy(array)
