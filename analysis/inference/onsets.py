"""What a job's communication looks like from outside: bursts, the silences between them, and what each one moved."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.tables.columns import UNKNOWN, Bool, Columns, Float64, Int64
from netprof.analysis.tables.intervals import Intervals
from netprof.analysis.wire.bins import Bins

BUSY_SHARES = (0.05, 0.25, 0.5)
"""A bin is silent below a share of the bin in which a byte typically travels (the byte-weighted mean bin).

Which share is to be tried: the least shows short silences best, the others see over a background."""
_BACKGROUND = 0.005  # a mean silent bin above this share of the typical one is a background


@dataclass(frozen=True, eq=False)
class Onsets(Columns):
    """Beginnings of bursts, by time. The first row is the first burst seen: what came before it is unknown.

    `moved` is what was moved before the onset, in bytes, or in collectives where their sizes are unknown; `silence_ns`
    is how long nothing moved before it (0 for the first row). Time in which a job computes varies, what it
    exchanges does not: on the axis of `moved`, the silences of a training job repeat exactly, however its time jitters.
    """

    onset_ns: Int64
    silence_ns: Int64
    moved: Float64

    def at_least(self, silence_ns: float) -> Onsets:
        """Return the first onset and those after a silence of at least so long; shorter ones become part of a burst."""
        kept = self.silence_ns >= silence_ns
        kept[0] = True
        return self.where(kept)

    def time_at(self, moved: Float64) -> Float64:
        """Return when so much had been moved, ns, as if each burst moved at a constant rate."""
        ends = np.maximum(self.onset_ns[1:] - self.silence_ns[1:], self.onset_ns[:-1])
        times = np.empty(2 * len(self) - 1)
        times[0::2], times[1::2] = self.onset_ns, ends
        amounts = np.empty(2 * len(self) - 1)
        amounts[0::2], amounts[1::2] = self.moved, self.moved[1:]
        return np.asarray(np.interp(moved, amounts, times))


NO_ONSETS = Onsets(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


def onsets_of_bins(bins: Bins, busy_share: float = BUSY_SHARES[0]) -> Onsets:
    """Return the bursts of one lane of the wire, by its payload (new bytes: a retransmission moves nothing).

    A burst is a run of bins that are not silent. Where a background trickles through the silence, its mean is taken
    off every bin, so that it does not count as the job's exchange.
    """
    payload = bins.payload_bytes.astype(np.float64)
    total = float(payload.sum())
    if total == 0:
        return NO_ONSETS
    typical = float((payload * payload).sum()) / total
    busy = payload >= busy_share * typical
    floor = _background(bins, payload, busy)
    amount = np.where(busy, payload - floor, 0.0) if floor > _BACKGROUND * typical else payload
    rows = np.flatnonzero(busy)
    apart = np.diff(bins.number[rows]) > 1
    starts, stops = rows[np.append(True, apart)], rows[np.append(apart, True)]
    # counted up to the middle of the silence, so that bins that a burst fills in part belong to that burst
    first, after = bins.number[starts] - bins.number[0], bins.number[stops] - bins.number[0] + 1
    middles = bins.number[0] + np.concatenate((first[:1], (after[:-1] + first[1:]) // 2))
    moved = np.concatenate(([0.0], np.cumsum(amount)))[np.searchsorted(bins.number, middles)]
    onset_ns = (bins.begin_ns + bins.bin_ns - bins.lead_ns)[starts]
    end_ns = (bins.begin_ns + bins.last_ns)[stops]
    silence_ns = np.concatenate(([0], np.maximum(onset_ns[1:] - end_ns[:-1], 0)))
    return Onsets(onset_ns, silence_ns, moved)


def _background(bins: Bins, payload: Float64, busy: Bool) -> float:
    """Return what the mean silent bin holds, if most hold something; bins beside a burst may hold part of it."""
    taken = bins.number[busy]
    near = np.concatenate((taken - 1, taken, taken + 1))
    near = np.sort(near[(near >= bins.number[0]) & (near <= bins.number[-1])])
    silent = bins.span - int((np.diff(near, prepend=near[0] - 1) > 0).sum())
    index = np.minimum(np.searchsorted(near, bins.number), len(near) - 1)
    amounts = payload[near[index] != bins.number]
    mostly_something = 2 * np.count_nonzero(amounts) >= silent > 0
    return float(amounts.sum()) / silent if mostly_something else 0.0


def onsets_of_waits(waits: Intervals, bins: Bins) -> Onsets:
    """Return each wait of a process as a burst, and what it does in between as the silence: also where bytes go on.

    The amount is what `bins` had moved when the wait began.
    """
    if len(waits) == 0:
        return NO_ONSETS
    between_ns = np.concatenate(([0], waits.begin_ns[1:] - waits.end_ns[:-1]))
    return Onsets(waits.begin_ns, between_ns, bins.payload_until(waits.begin_ns))


def onsets_of_collectives(begin_ns: Int64, end_ns: Int64, sizes: Int64) -> Onsets:
    """Return the bursts of one process's collectives; overlapping ones are one burst. Rows in any order.

    `end_ns` is `begin_ns` where only launches are known. Amounts are the sizes in bytes if at least half of the
    collectives have one (those without are then barriers and the like, and left out); else each counts as one.
    """
    sized = sizes != UNKNOWN
    if len(sizes) and sized.mean() >= 0.5:
        return _from_spans(begin_ns[sized], end_ns[sized], sizes[sized].astype(np.float64))
    return _from_spans(begin_ns, end_ns, np.ones(len(begin_ns)))


def _from_spans(begin_ns: Int64, end_ns: Int64, amount: Float64) -> Onsets:
    if len(begin_ns) == 0:
        return NO_ONSETS
    order = np.argsort(begin_ns, kind="stable")
    begin, end, amount = begin_ns[order], np.maximum.accumulate(end_ns[order]), amount[order]
    silence = np.concatenate(([0], np.maximum(begin[1:] - end[:-1], 0)))
    moved = np.concatenate(([0.0], np.cumsum(amount)[:-1]))
    opens = silence > 0
    opens[0] = True
    return Onsets(begin[opens], silence[opens], moved[opens])
