"""GPM, the performance monitors of Hopper and later: how much of the GPU was used, not only whether it was.

Each reading is the mean between two samples of the hardware's counters that we take, so its period is ours to choose.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from netprof.probes.gpu.nvml import OpenGpu
from netprof.probes.gpu.readers import Reader, Reading
from netprof.schema import GpuMetric

_MIB = float(1 << 20)
_METRICS = {  # nvmlGpmMetricId_t: the metric and the factor to its unit
    2: (GpuMetric.SM_ACTIVE_PERCENT, 1.0),
    3: (GpuMetric.SM_OCCUPANCY_PERCENT, 1.0),
    5: (GpuMetric.TENSOR_ACTIVE_PERCENT, 1.0),
    10: (GpuMetric.DRAM_BANDWIDTH_PERCENT, 1.0),
}
PCIE = {20: (GpuMetric.PCIE_TX_BYTES_PER_S, _MIB), 21: (GpuMetric.PCIE_RX_BYTES_PER_S, _MIB)}
NVLINK = {61: (GpuMetric.NVLINK_TX_BYTES_PER_S, _MIB), 60: (GpuMetric.NVLINK_RX_BYTES_PER_S, _MIB)}
_ACTIVITY = "GPM (SM, tensor and memory bandwidth activity)"
_NOT_SUPPORTED = 3


Metrics = Mapping[int, tuple[GpuMetric, float]]


class Gpm(Reader):
    """Performance monitors, read on the slow thread at each of its ticks: also where the driver has no counters."""

    slow = True
    source = "GPM, mean between two readings"

    def __init__(self, nvml: Any, gpu: OpenGpu, what: str = _ACTIVITY, metrics: Metrics = _METRICS) -> None:
        super().__init__(nvml, gpu)
        self.what, self._wanted = what, metrics
        self._old: Any = None
        self._new: Any = None
        self._old_ns = 0
        self._request: Any = None

    def read(self) -> list[Reading]:
        """Return what is new. Raises NVMLError."""
        if self._request is None:
            self._prepare()
        self.nvml.nvmlGpmSampleGet(self.gpu.handle, self._new)
        now = time.monotonic_ns()
        before, self._old_ns = self._old_ns, now
        self._old, self._new = self._new, self._old
        return self._between(before, now) if before else []

    def close(self) -> None:
        """Give the two samples back."""
        for sample in (self._old, self._new):
            if sample is not None:
                self.nvml.nvmlGpmSampleFree(sample)
        self._old = self._new = None

    def _prepare(self) -> None:
        if not self.nvml.nvmlGpmQueryDeviceSupport(self.gpu.handle).isSupportedDevice:
            raise self.nvml.NVMLError(_NOT_SUPPORTED)
        self._old, self._new = self.nvml.nvmlGpmSampleAlloc(), self.nvml.nvmlGpmSampleAlloc()
        self._request = self.nvml.c_nvmlGpmMetricsGet_t()
        self._request.version = 1
        self._request.numMetrics = len(self._wanted)
        for place, number in enumerate(self._wanted):
            self._request.metrics[place].metricId = number

    def _between(self, begin_ns: int, end_ns: int) -> list[Reading]:
        """Return the means between the last two samples. Raises NVMLError where none of the metrics is there."""
        self._request.sample1, self._request.sample2 = self._new, self._old  # after the exchange: older, newer
        self.nvml.nvmlGpmMetricsGet(self._request)
        readings, errors = [], []
        for place, (metric, factor) in enumerate(self._wanted.values()):
            mean = self._request.metrics[place]
            if mean.nvmlReturn:
                errors.append(mean.nvmlReturn)
            elif math.isfinite(mean.value):
                readings.append(Reading(metric, end_ns, end_ns - begin_ns, mean.value * factor))
        if errors and not readings:
            raise self.nvml.NVMLError(errors[0])
        return readings
