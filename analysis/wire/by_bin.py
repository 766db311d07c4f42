"""Rows in any order, put together: one for each bin (of each lane), by lane and time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from netprof.analysis.tables.columns import Int64

_FEW_VALUES = 1 << 16  # as many fit into 16 bits, which numpy sorts in linear time

Amounts = npt.NDArray[np.unsignedinteger]
"""Bytes, in the smallest type that holds the largest of them."""


class ByBin:
    """Which rows are of the same bin. `number` are the bins, `lane` whose they are; without it all are of one lane.

    Rows that come by time, as nearly all do, need no sorting; those of a bin that has one row are not touched.
    """

    def __init__(self, number: Int64, lane: Int64 | None = None) -> None:
        self._order = _order(number, lane)
        number = self._sorted(number)
        lane = self._sorted(lane) if lane is not None else np.zeros(len(number), np.int8)
        differs = (number[1:] != number[:-1]) | (lane[1:] != lane[:-1])
        self._first = None if differs.all() else np.flatnonzero(np.append(True, differs))
        self.number: Int64 = self._one_each(number)
        self._lane = self._one_each(lane)

    def sums(self, values: npt.NDArray[Any]) -> Amounts:
        """Return for each bin the sum of its rows."""
        values = self._sorted(values)
        if self._first is not None:
            values = np.add.reduceat(values, self._first, dtype=np.uint64)
        return values.astype(np.min_scalar_type(values.max(initial=0)), copy=False)

    def largest(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return for each bin the largest value of its rows."""
        values = self._sorted(values)
        return values if self._first is None else np.maximum.reduceat(values, self._first)

    def lanes(self) -> Iterator[tuple[int, slice]]:
        """Yield each lane, and where its bins are."""
        edges = np.flatnonzero(np.diff(self._lane, prepend=-1, append=-1)).tolist()
        for begin, end in pairwise(edges):
            yield int(self._lane[begin]), slice(begin, end)

    def _sorted(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return values if self._order is None else values[self._order]

    def _one_each(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return values if self._first is None else values[self._first]


def _order(number: Int64, lane: Int64 | None) -> Int64 | None:
    """Return the order by lane and bin; None where the rows are in it."""
    order = None if (number[1:] >= number[:-1]).all() else np.argsort(_small(number), kind="stable")
    if lane is None or (lane == lane[:1]).all():
        return order
    if order is None:
        return np.argsort(_small(lane), kind="stable")
    return order[np.argsort(_small(lane[order]), kind="stable")]


def _small(values: Int64) -> npt.NDArray[np.integer]:
    low = int(values.min())
    return (values - low).astype(np.uint16) if int(values.max()) - low < _FEW_VALUES else values
