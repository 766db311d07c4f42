"""Rows kept as columns: one numpy array a field, all of one length."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pandas as pd

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]

UNKNOWN = -1
"""What an integer column holds where nothing is known; no size, time or pid is negative."""

T = TypeVar("T", bound="Columns")


@dataclass(frozen=True, eq=False)
class Columns:
    """Base of the column-wise tables: every field is a 1-D array, all of one length."""

    def __len__(self) -> int:
        return len(getattr(self, dataclasses.fields(self)[0].name))

    def where(self: T, rows: Bool | Int64) -> T:
        """Return the rows that a mask or an index array selects, in its order."""
        return type(self)(**{f.name: getattr(self, f.name)[rows] for f in dataclasses.fields(self)})

    def frame(self) -> pd.DataFrame:
        """Return the same columns as a pandas DataFrame (pandas is imported only here)."""
        import pandas as pd

        frame: pd.DataFrame = pd.DataFrame({f.name: getattr(self, f.name) for f in dataclasses.fields(self)})
        return frame


def concatenate(kind: type[T], parts: list[T]) -> T:
    """Return `parts` one after another as one table; an empty one if there is none."""
    if not parts:
        return empty(kind)
    names = [f.name for f in dataclasses.fields(kind)]
    return kind(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def empty(kind: type[T]) -> T:
    """Return a table of `kind` without rows."""
    return kind(**{f.name: np.zeros(0, dtype=np.int64) for f in dataclasses.fields(kind)})


def column(table: Any, name: str) -> npt.NDArray[Any]:
    """Return column `name` of an Arrow table or batch, a DataFrame or a mapping of arrays, as a numpy array."""
    values = table[name] if isinstance(table, Mapping) else table.column(name) if hasattr(table, "column") else None
    if values is None:
        values = table[name]
    if hasattr(values, "to_numpy") and hasattr(values, "null_count"):  # an Arrow array
        try:
            return np.asarray(values.to_numpy(zero_copy_only=False))
        except TypeError:  # a chunked array
            return np.asarray(values.to_numpy())
    return np.asarray(values)


def int64_column(table: Any, name: str) -> Int64:
    """Return an integer column as int64 (a uint64 beyond 2**63 wraps: only opaque addresses are that large)."""
    return column(table, name).astype(np.int64, copy=False)
