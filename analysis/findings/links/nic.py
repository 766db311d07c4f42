"""The interface's own counters: what the device moved in all, the job's share of it, drops and errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from netprof.analysis.account.wait_pieces import contains
from netprof.analysis.piece import ALL, Piece
from netprof.analysis.tables.columns import Columns, Int64, int64_column
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.tables.intervals import NOTHING, Intervals, interval
from netprof.analysis.tables.nic_counters import rows_by_device
from netprof.analysis.wire.bins import Bins
from netprof.analysis.wire.lanes import Lanes
from netprof.schema import NIC_COUNTERS, RECEIVE, TRANSMIT


@dataclass(frozen=True)
class NicTotals:
    """Differences of a device's counters between its first and its last sample, for the whole device.

    `job_tx_bytes` and `job_rx_bytes` are the wire bytes of the job's flows in the same time, `qdisc_drops` what the
    device's queues dropped, which some drivers count among `tx_drops` too.
    """

    first_ns: int
    last_ns: int
    samples: int
    tx_bytes: int
    rx_bytes: int
    tx_packets: int
    rx_packets: int
    tx_drops: int
    rx_drops: int
    tx_errors: int
    rx_errors: int
    job_tx_bytes: float
    job_rx_bytes: float
    qdisc_drops: int = 0

    def __add__(self, later: NicTotals) -> NicTotals:
        """Return both together, the other being the later."""
        sums = {name: getattr(self, name) + getattr(later, name) for name in _SUMS}
        return NicTotals(self.first_ns, later.last_ns, **sums)


_SUMS = tuple(name for name in NicTotals.__dataclass_fields__ if name not in ("first_ns", "last_ns"))


def nic_totals(
    table: Any, lanes: Lanes, piece: Piece = ALL, recording: Intervals = NOTHING
) -> dict[LinkKey, NicTotals]:
    """Return the totals of every sampled device; a counter reset between two samples counts from zero again.

    `table` is the `nic` table: Arrow, DataFrame or mapping of columns, rows in any order. Of a `piece` of a recording,
    from the last sample before it: what was counted between two samples is of the piece of the later one. Samples from
    outside of the `recording`, where the job's flows are not counted, are left out if there are two inside.
    """
    time_ns = int64_column(table, "time_ns")
    counters = {name: int64_column(table, name) for name in (*NIC_COUNTERS, "qdisc_drops")}
    totals = {}
    for key, samples in rows_by_device(table, time_ns).items():
        inside = samples[contains(recording, time_ns[samples])]
        rows, count = since_before(inside if len(inside) > 1 else samples, time_ns, piece)
        if count == 0:
            continue
        moved = {name: max(int(increases(values[rows]).sum()), 0) for name, values in counters.items()}
        first, last = int(time_ns[rows[0]]), int(time_ns[rows[-1]])
        job = [bytes_in(lanes.of_link(key, direction), interval(first, last)) for direction in (TRANSMIT, RECEIVE)]
        totals[key] = NicTotals(first, last, count, **moved, job_tx_bytes=job[0], job_rx_bytes=job[1])
    return totals


def since_before(rows: Int64, time_ns: Int64, piece: Piece) -> tuple[Int64, int]:
    """Return of samples (rows by time) those of a piece and the one before it, and how many are of the piece."""
    inside = np.flatnonzero(piece.owns(time_ns[rows]))
    if len(inside) == 0:
        return rows[:0], 0
    return rows[max(inside[0] - 1, 0) : inside[-1] + 1], len(inside)


def bytes_in(bins: Bins | None, times: Intervals) -> float:
    """Return the bytes of bins in some time, headers included; 0 where there are none."""
    return bins.wire_bytes_in(times) if bins is not None else 0.0


def increases(samples: Int64) -> Int64:
    """Return by how much a count grew up to each sample but the first; one that begins anew counts from zero."""
    steps = np.diff(samples)
    return np.where(steps >= 0, steps, samples[1:])


@dataclass(frozen=True, eq=False)
class Drops(Columns):
    """Packets that a device dropped either way between a sample of its counters and the next one, where any was."""

    begin_ns: Int64
    end_ns: Int64
    packets: Int64


def drops_by_device(table: Any) -> dict[LinkKey, Drops]:
    """Return the drops of every device that had any, by time.

    `table` is the `nic` table: Arrow, DataFrame or mapping of columns, rows in any order. A counter reset between two
    samples counts from zero again.
    """
    time_ns, by_device = int64_column(table, "time_ns"), {}
    counted = [int64_column(table, name) for name in ("tx_drops", "rx_drops")]
    for key, rows in rows_by_device(table, time_ns).items():
        packets = sum((increases(values[rows]) for values in counted), np.zeros(max(0, len(rows) - 1), np.int64))
        drops = Drops(time_ns[rows[:-1]], time_ns[rows[1:]], packets).where(packets > 0)
        if len(drops):
            by_device[key] = drops
    return by_device
