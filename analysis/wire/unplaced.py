"""Rows of the wire whose packets passed at times that are not known: the recorder was held up and its ring was full."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from netprof.analysis.tables.columns import Bool, Int64, int64_column
from netprof.analysis.wire.parts import fair_parts

MOST_PARTS = 1 << 20
"""Into how many bins the unplaced rows of one recording are spread: each takes memory for as long as it is analyzed."""

_AT_ONCE = 1 << 17
_AMOUNTS = ("payload_bytes", "wire_bytes", "retransmitted_bytes", "packets")

Rows = dict[str, npt.NDArray[Any]]
"""Columns of table `wire`."""


def is_unplaced(rows: Rows, bin_ns: int) -> Bool:
    """Say which rows hold more than one bin: the last packet is later, and when the others passed is not known."""
    return int64_column(rows, "last_ns") - int64_column(rows, "bin_start_ns") > bin_ns


def spread(rows: Rows, bin_ns: int, most: int = MOST_PARTS) -> Iterator[tuple[Rows, Int64]]:
    """Yield unplaced rows as rows of one bin each, and which row each is a part of; some at a time.

    Their bytes are spread evenly from the first packet to the last: no rate that never was, and no silence. Where that
    takes more than `most` bins, long rows are spread over some of theirs only.
    """
    first, last = (int64_column(rows, name) for name in ("first_ns", "last_ns"))
    count = last // bin_ns - first // bin_ns + 1
    parts = fair_parts(count, most)
    ends = np.cumsum(parts)
    for begin in range(0, int(ends[-1]) if len(ends) else 0, _AT_ONCE):
        number = np.arange(begin, min(begin + _AT_ONCE, int(ends[-1])))
        row = np.searchsorted(ends, number, side="right")
        yield _parts(rows, row, number - (ends - parts)[row], parts, count, bin_ns), row


def _parts(rows: Rows, row: Int64, turn: Int64, parts: Int64, count: Int64, bin_ns: int) -> Rows:
    """Return the parts `turn` of the rows `row`, of which there are `parts`, in `count` bins."""
    first, last = (int64_column(rows, name)[row] for name in ("first_ns", "last_ns"))
    start = (first // bin_ns + turn * count[row] // parts[row]) * bin_ns
    of_turn, divisor = turn.astype(np.uint64), parts[row].astype(np.uint64)
    evenly = {name: _share(rows[name].astype(np.uint64)[row], divisor, of_turn) for name in _AMOUNTS}
    edges = {"first_ns": np.maximum(first, start), "last_ns": np.minimum(last, start + bin_ns - 1)}
    same = {name: values[row] for name, values in rows.items() if name not in (*_AMOUNTS, *edges, "bin_start_ns")}
    return {**same, **evenly, **edges, "bin_start_ns": start}


def _share(
    amount: npt.NDArray[np.uint64], parts: npt.NDArray[np.uint64], turn: npt.NDArray[np.uint64]
) -> npt.NDArray[np.uint64]:
    """Return a part of each amount, so that the parts of one add up to it."""
    return np.asarray(amount // parts + (turn < amount % parts))
