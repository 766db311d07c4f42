"""Rows of the wire whose packets passed at times that are not known: the recorder was held up and its ring was full."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from netprof.analysis.tables.columns import Bool, Int64, int64_column

_MOST_PARTS = 1 << 22
_AMOUNTS = ("payload_bytes", "wire_bytes", "retransmitted_bytes", "packets")

Rows = dict[str, npt.NDArray[Any]]
"""Columns of table `wire`."""


def is_unplaced(rows: Rows, bin_ns: int) -> Bool:
    """Say which rows hold more than one bin: the last packet is later, and when the others passed is not known."""
    return int64_column(rows, "last_ns") - int64_column(rows, "bin_start_ns") > bin_ns


def spread(rows: Rows, bin_ns: int) -> tuple[Rows, Int64]:
    """Return unplaced rows as rows of one bin each, and which row each is a part of.

    Their bytes are spread evenly from the first packet to the last: no rate that never was, and no silence. Very long
    ones are spread over some of the bins only.
    """
    first, last = (int64_column(rows, name) for name in ("first_ns", "last_ns"))
    low, count = first // bin_ns, last // bin_ns - first // bin_ns + 1
    parts = np.clip(count, 1, max(1, _MOST_PARTS // max(1, len(first))))
    row = np.repeat(np.arange(len(first)), parts)
    turn = np.arange(len(row)) - np.repeat(np.cumsum(parts) - parts, parts)
    start = (low[row] + turn * (count // parts)[row]) * bin_ns
    divisor = parts[row].astype(np.uint64)
    evenly = {name: _share(rows[name].astype(np.uint64)[row], divisor, turn.astype(np.uint64)) for name in _AMOUNTS}
    edges = {"first_ns": np.maximum(first[row], start), "last_ns": np.minimum(last[row], start + bin_ns - 1)}
    same = {name: values[row] for name, values in rows.items() if name not in (*_AMOUNTS, *edges, "bin_start_ns")}
    return {**same, **evenly, **edges, "bin_start_ns": start}, row


def _share(
    amount: npt.NDArray[np.uint64], parts: npt.NDArray[np.uint64], turn: npt.NDArray[np.uint64]
) -> npt.NDArray[np.uint64]:
    """Return a part of each amount, so that the parts of one add up to it."""
    return np.asarray(amount // parts + (turn < amount % parts))
