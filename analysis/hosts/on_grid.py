"""Time bins of one host's clock as bins of the job's: those that lie across an edge of a bin are cut there."""

from __future__ import annotations

from typing import Any

import numpy as np

from netprof.analysis.tables.columns import Int64

_AMOUNTS = ("payload_bytes", "wire_bytes", "retransmitted_bytes", "packets")

Rows = dict[str, Any]
"""Columns of table `wire`, or some of them; None for one that is not known."""


def on_grid(rows: Rows, bin_ns: int) -> tuple[Rows, Int64]:
    """Return rows of which each lies in one bin of the grid, and which of `rows` each is a part of.

    Bytes are spread evenly from the first packet to the last, as they are wherever a bin is cut
    (`definitions.UTILIZATION`); the last new byte of the stream is of the later part. A row that holds several bins
    (it was merged while the recorder was held up) stays one: when its bytes passed is unknown.
    """
    first, last, start = rows["first_ns"], rows["last_ns"], rows["bin_start_ns"]
    merged = last - start > bin_ns
    edge = (first // bin_ns + 1) * bin_ns
    cut = np.flatnonzero((last > edge) & ~merged)
    share = (edge[cut] - first[cut]) / np.maximum(last[cut] - first[cut], 1)
    parts = {name: np.rint(rows[name][cut] * share).astype(np.int64) for name in _AMOUNTS if name in rows}
    row = np.concatenate((np.arange(len(first)), cut))
    found: Rows = {name: None if values is None else values[row] for name, values in rows.items()}
    for name, early in parts.items():
        found[name] = found[name].astype(np.int64)
        found[name][len(first) :] -= early
        found[name][cut] = early
    found["bin_start_ns"] = np.where(merged[row], start[row], first[row] // bin_ns * bin_ns)
    found["bin_start_ns"][len(first) :] = edge[cut]
    found["first_ns"][len(first) :] = edge[cut]
    found["last_ns"][cut] = edge[cut]
    for name in ("stream_position", "stream_position_ns"):
        if found.get(name) is not None:
            found[name][cut] = 0
    order = np.argsort(row, kind="stable")
    return {name: None if values is None else values[order] for name, values in found.items()}, row[order]
