"""A link's bytes by time, coarse enough to draw: sums and peaks, so that no burst is lost by looking from afar."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.tables.columns import Int64
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.wire.bins import Bins
from netprof.analysis.wire.lanes import Lanes


@dataclass(frozen=True, eq=False)
class Cells:
    """One direction of a link: cell i begins at `first_ns + i * cell_ns` and holds whole bins of `bin_ns`.

    `total_bytes` is the sum over the cell, `peak_bytes` the largest of its bins; both shape (cells,). A cell of one
    bin has the same in both.
    """

    bin_ns: int
    cell_ns: int
    first_ns: int
    total_bytes: Int64
    peak_bytes: Int64

    def __len__(self) -> int:
        return len(self.total_bytes)


def link_cells(lanes: Lanes, link: LinkKey, direction: int, most_cells: int) -> Cells | None:
    """Return all that the job moved over a link in one direction, in at most `most_cells` cells; None: nothing.

    A cell is one bin where that suffices, else the smallest power of two of bins that does.
    """
    bins = lanes.of_link(link, direction)
    return None if bins is None else aggregate(bins, bins_per_cell(bins.span, most_cells))


def bins_per_cell(count: int, most_cells: int) -> int:
    """Return the smallest power of two by which `count` bins fit into `most_cells` cells (one is lost to the edge)."""
    factor = 1
    while count > factor * max(most_cells - 1, 1):
        factor *= 2
    return factor


def aggregate(bins: Bins, factor: int) -> Cells:
    """Put `factor` bins into a cell; cells begin at multiples of their width, so that links share their edges."""
    cell = bins.number // factor
    first, last = int(cell[0]), int(cell[-1])
    opens = np.flatnonzero(np.diff(cell, prepend=first - 1))
    total, peak = (np.zeros(last - first + 1, np.int64) for _ in range(2))
    total[cell[opens] - first] = np.add.reduceat(bins.wire_bytes, opens, dtype=np.int64)
    peak[cell[opens] - first] = np.maximum.reduceat(bins.wire_bytes, opens)
    width = factor * bins.bin_ns
    return Cells(bins.bin_ns, width, first * width, total, peak)
