"""What a link did over time: a packet occupies it for its size over the line rate, not for the bin it was booked in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from netprof.analysis.definitions import IDLE_THRESHOLD
from netprof.analysis.tables.columns import Bool, Float64, Int64
from netprof.analysis.tables.intervals import Intervals, merge, union
from netprof.analysis.tables.link_history import RateOverTime
from netprof.analysis.wire.bins import Bins
from netprof.schema import RECEIVE

FULL = 0.9
"""A link is full where it serves at least this share of its line rate."""
MEASURING_ERROR = 1.05
"""A link that keeps up more than this of its line rate has another one."""
_WINDOW_NS = 5_000_000
_SUSTAINED_NS = 10**8
_FEWEST = 3
_BURST_BYTES = 256 << 10
_BLOCK = 1 << 18  # windows looked at at once
_WINDOW_BYTES = 4 << 20  # what a window holds on a fast link, where less than _WINDOW_NS is enough to tell


@dataclass(frozen=True, eq=False)
class Served:
    """One direction of a link: disjoint stretches, ascending; in each the link is busy for `busy_ns`, spread evenly.

    busy_ns <= end_ns - begin_ns, so what is served and what is idle, all time outside of stretches, are never more than
    the time. A stretch is busy for at least IDLE_THRESHOLD: a few packets far apart are stretches of their own length.
    """

    begin_ns: Int64
    end_ns: Int64
    busy_ns: Int64

    @property
    def busy(self) -> Intervals:
        """The time in which anything is served."""
        return merge(self.begin_ns, self.end_ns)

    def busy_until(self, at_ns: Int64) -> Float64:
        """Return for each instant for how many nanoseconds the link was busy before it."""
        if len(self.begin_ns) == 0:
            return np.zeros(np.shape(at_ns))
        index = np.maximum(np.searchsorted(self.begin_ns, at_ns, "right") - 1, 0)
        length = np.maximum(self.end_ns[index] - self.begin_ns[index], 1)
        share = np.clip((at_ns - self.begin_ns[index]) / length, 0.0, 1.0)
        return np.asarray(self._before[index] + self.busy_ns[index] * share)

    def busy_in(self, times: Intervals) -> float:
        """Return for how many nanoseconds of `times` the link was busy."""
        return float((self.busy_until(times.end_ns) - self.busy_until(times.begin_ns)).sum())

    @cached_property
    def _before(self) -> Int64:
        return np.concatenate(([0], np.cumsum(self.busy_ns)))[:-1]


NEVER = Served(*(np.zeros(0, np.int64) for _ in range(3)))
"""A link that served nothing."""


def served(bins: Bins | None, direction: int, line_rate: RateOverTime) -> Served:
    """Return when a link serves what was booked in `bins`, at the line rate of the time.

    The packets of a bin are spread evenly between its first and its last one. What was sent is served from then on, as
    fast as the line rate allows; what was received has been served before: the same, backward in time. Where the line
    rate is not known, the link is busy from a bin's first packet to its last.
    """
    if bins is None or len(bins) == 0:
        return NEVER
    bins = bins.where(bins.wire_bytes > 0)
    first = bins.begin_ns + bins.bin_ns - bins.lead_ns
    last = np.maximum(bins.begin_ns + bins.last_ns, first)
    needed_ns = bins.wire_bytes.astype(np.float64) * 8e9 / line_rate.at(bins.begin_ns)
    needed_ns = np.where(np.isnan(needed_ns), last - first, needed_ns)
    through = np.rint(np.cumsum(needed_ns)).astype(np.int64)
    work = np.diff(through, prepend=0)
    if direction == RECEIVE:
        end, begin = (-edge[::-1] for edge in _serve(-last[::-1], -first[::-1], work[::-1]))
        return Served(np.where(_is_idle(begin, end, work), end - work, begin), end, work)
    begin, end = _serve(first, last, work)
    return Served(begin, np.where(_is_idle(begin, end, work), begin + work, end), work)


def _is_idle(begin: Int64, end: Int64, work: Int64) -> Bool:
    return np.asarray(work < IDLE_THRESHOLD * (end - begin))


def _serve(first: Int64, last: Int64, work: Int64) -> tuple[Int64, Int64]:
    """Return from when to when each piece of `work` is done, one after the other.

    A piece begins when it comes, or when the one before is done, and ends when all of it has come, or later:
    end = max(last, max(first, end before) + work), solved for all at once by a running maximum.
    """
    through = np.cumsum(work)
    end = through + np.maximum.accumulate(np.maximum(last, first + work) - through)
    begin = np.maximum(first, np.concatenate((first[:1], end[:-1])))
    return begin, end


def sustained_bps(bins: Bins) -> float:
    """Return the rate that a lane keeps up: what it reaches in one of ten tenths of a second in which it is busiest.

    Without what a shaper lets through at once, so a link cannot sustain more than its line rate. What was counted late,
    after a hole in the recording, is rare and does not matter.
    """
    width = max(1, round(_SUSTAINED_NS / bins.bin_ns))
    tenth = (bins.number - bins.number[:1]) // width
    opens = np.flatnonzero(np.diff(tenth, prepend=-1))
    moved = np.add.reduceat(bins.wire_bytes, opens, dtype=np.int64) if len(opens) else np.zeros(0)
    moved = np.sort(moved[moved > 0])
    if len(moved) < _FEWEST:
        return 0.0
    kept_up = moved[-max(_FEWEST, len(moved) // 10)]
    return max(0.0, float(kept_up) - _BURST_BYTES) * 8e9 / (width * bins.bin_ns)


def window_ns(line_rate_bps: float) -> int:
    """Return over how long a link has to be full to be called so."""
    return max(1, min(_WINDOW_NS, round(_WINDOW_BYTES * 8e9 / line_rate_bps)))


def full_time(parts: list[Served], width_ns: int, within: Intervals | None = None) -> Intervals:
    """Return when what several parts serve together fills a link (FULL): the union of all windows in which it does.

    A window is `width_ns` long, or a stretch that is longer, or one of the intervals `within` that are shorter.
    """
    parts = [part for part in parts if len(part.begin_ns)] or [NEVER]
    begin = np.concatenate([part.begin_ns for part in parts])
    end = np.concatenate([part.end_ns for part in parts])
    long = end - begin > width_ns
    first, last = _may_fill(parts[0], width_ns) if len(parts) == 1 else (slice(None), slice(None))
    low = np.concatenate((begin[first], end[last] - width_ns, begin[long]))
    high = np.concatenate((begin[first] + width_ns, end[last], end[long]))
    if within is not None:
        short = within.end_ns - within.begin_ns < width_ns
        low, high = np.concatenate((low, within.begin_ns[short])), np.concatenate((high, within.end_ns[short]))
    blocks = range(0, len(low), _BLOCK)
    full = [_full(parts, low[begin : begin + _BLOCK], high[begin : begin + _BLOCK]) for begin in blocks]
    return union(full)


def _may_fill(part: Served, width_ns: int) -> tuple[Bool, Bool]:
    """Return which stretches may be the first, and which the last, of a window that is full: most are too far apart."""
    most_idle_ns = (1 - FULL) * width_ns + 1
    long = part.end_ns - part.begin_ns >= width_ns - most_idle_ns
    near = part.begin_ns[1:] - part.end_ns[:-1] <= most_idle_ns
    return long | np.append(near, False)[: len(long)], long | np.append(False, near)[: len(long)]


def _full(parts: list[Served], low: Int64, high: Int64) -> Intervals:
    busy = sum((part.busy_until(high) - part.busy_until(low) for part in parts), np.zeros(len(low)))
    full = busy >= FULL * (high - low)
    return merge(low[full], high[full])
