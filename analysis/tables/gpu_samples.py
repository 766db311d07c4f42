"""The `gpu` table as columns, and means of it over sets of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from netprof.analysis.tables.columns import Columns, Float64, Int64, column, int64_column
from netprof.analysis.tables.intervals import Intervals, overlap

_LONGEST_GAP = 4
"""In median intervals: a value stands for no more than this before it; beyond is a gap in the sampling."""


@dataclass(frozen=True, eq=False)
class GpuSamples(Columns):
    """Samples in the order of time: `value` is the mean over the `period_ns` before `time_ns`, an instant if 0."""

    gpu: Int64
    pid: Int64
    metric: Int64
    time_ns: Int64
    period_ns: Int64
    value: Float64


def read_gpu_samples(table: Any) -> GpuSamples:
    """Return the `gpu` table (Arrow, DataFrame or mapping of columns, rows in any order) sorted by time.

    Rows that no sampler writes (no finite value, a negative period) are left out.
    """
    names = ("gpu", "pid", "metric", "time_ns", "period_ns")
    value = column(table, "value").astype(np.float64, copy=False)
    samples = GpuSamples(**{name: int64_column(table, name) for name in names}, value=value)
    return samples.where(np.isfinite(samples.value) & (samples.period_ns >= 0)).sorted_by("time_ns")


@dataclass(frozen=True, eq=False)
class GpuSeries:
    """The samples of one metric of one GPU (and process), in the order of time; at least one."""

    time_ns: Int64
    period_ns: Int64
    value: Float64

    @property
    def interval_ns(self) -> int | None:
        """The median time from a sample to the next, None with only one."""
        return int(np.median(np.diff(self.time_ns))) if len(self.time_ns) > 1 else None

    @property
    def mean_over_ns(self) -> int:
        """The median time that a value is the mean of; 0 where values are instants."""
        return int(np.median(self.period_ns))

    def held_ns(self) -> int:
        """Return the median time between changes of the value; 0 where it changes with every sample, or never.

        A sensor that is read more often than it measures repeats itself.
        """
        changes = self.time_ns[1:][np.diff(self.value) != 0]
        held = int(np.median(np.diff(changes))) if len(changes) > 1 else 0
        return held if held > 1.5 * (self.interval_ns or 0) else 0

    def spans(self) -> tuple[Int64, Int64]:
        """Return from when to when each value stands: for its period, an instant since the sample before."""
        interval_ns = self.interval_ns or 0
        since = np.diff(self.time_ns, prepend=self.time_ns[0] - interval_ns)
        standing = np.where(self.period_ns > 0, self.period_ns, np.minimum(since, _LONGEST_GAP * interval_ns))
        return self.time_ns - standing, self.time_ns

    def weights(self, times: Intervals) -> Int64:
        """Return for how many nanoseconds of `times` each value stands."""
        return overlap(times, *self.spans())

    def inside(self, times: Intervals, held_ns: int = 0) -> Float64:
        """Return the values that are of `times` and nothing else: the whole period, or the instant, lies in there.

        An instant's value may be as old as `held_ns`: that time must lie in there too.
        """
        begin = np.where(self.period_ns > 0, self.time_ns - self.period_ns, self.time_ns - max(held_ns, 1))
        covered = overlap(times, begin, self.time_ns)
        return np.asarray(self.value[covered == self.time_ns - begin], np.float64)
