"""Readers: each asks NVML for one metric of one GPU, and says over what time the answer is the mean.

Costs of single calls, as others measured them on data-centre GPUs: field 186 (power) microseconds, PCIe counters 0.2
to 0.4 ms, `nvmlDeviceGetPcieThroughput` 20 ms each way because it counts for so long. Hence the different rates.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from netprof.probes.gpu.nvml import OpenGpu, realtime_us, to_monotonic_ns
from netprof.schema import GpuMetric

SHORTEST_MEAN_NS = 1_000_000_000 // 6
"""NVML: the sample period of utilization may be between 1 second and 1/6 second, depending on the product."""

_GPU_SAMPLES, _MEMORY_SAMPLES = 1, 2  # nvmlSamplingType_t
_POWER_INSTANT = 186  # NVML_FI_DEV_*
_PCIE_TX, _PCIE_RX = 197, 198
_NVLINK_TX, _NVLINK_RX = 138, 139
_ALL_LINKS = 0xFFFFFFFF
_UNSIGNED_INT = 1  # nvmlValueType_t
_VALUE_FIELDS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
_WRAP = 1 << 32
_WRAPS_AFTER_NS = 60_000_000  # a 32-bit counter of bytes at the 63 GB/s of PCIe 5.0 x16 wraps after 68 ms
_MEAN = "mean over 1/6 to 1 s (NVML's statement)"


@dataclass(frozen=True)
class Reading:
    """A value of a metric: the mean over the `period_ns` before `time_ns` (CLOCK_MONOTONIC), or an instant if 0."""

    metric: GpuMetric
    time_ns: int
    period_ns: int
    value: float
    pid: int = 0


class Reader(ABC):
    """Reads one metric of one GPU. `every` is in ticks of its thread; a `slow` one belongs to the slow thread."""

    what: str  # the metric, for people
    source: str  # where it comes from and what it is the mean of, for people
    slow = False
    every = 1

    def __init__(self, nvml: Any, gpu: OpenGpu) -> None:
        self.nvml, self.gpu = nvml, gpu

    @abstractmethod
    def read(self) -> list[Reading]:
        """Return what is new. Raises NVMLError."""

    def fields(self, *ids: tuple[int, int]) -> list[Any]:
        """Return the values of NVML fields, given as (field, scope). Raises the first one's NVMLError."""
        values = list(self.nvml.nvmlDeviceGetFieldValues(self.gpu.handle, list(ids)))
        for value in values:
            if value.nvmlReturn:
                raise self.nvml.NVMLError(value.nvmlReturn)
        return values


class Samples(Reader):
    """Utilization as NVML itself samples it: every sample since the last call, with NVML's own time stamps.

    A call takes 1.6 ms of CPU on an H100 (driver 580, `gpu_sampling.py`), and gives all of them when it comes twice a
    second too, five a second there: so it does.
    """

    slow = True
    every = 5

    def __init__(self, nvml: Any, gpu: OpenGpu, *, memory: bool) -> None:
        super().__init__(nvml, gpu)
        self._kind = _MEMORY_SAMPLES if memory else _GPU_SAMPLES
        self._metric = GpuMetric.MEMORY_BUSY_PERCENT if memory else GpuMetric.BUSY_PERCENT
        self.what = "memory utilization" if memory else "GPU utilization"
        self.source = f"nvmlDeviceGetSamples, {_MEAN}"
        self._seen_us = realtime_us()
        self._previous_us = 0

    def read(self) -> list[Reading]:
        """Return what is new. Raises NVMLError."""
        kind, samples = self.nvml.nvmlDeviceGetSamples(self.gpu.handle, self._kind, self._seen_us)
        readings = []
        for sample in sorted(samples, key=lambda sample: int(sample.timeStamp)):
            if sample.timeStamp > self._seen_us:  # the driver may hand out empty or old slots of its buffer
                readings.append(self._reading(sample, kind))
        return readings

    def _reading(self, sample: Any, kind: int) -> Reading:
        since_us = sample.timeStamp - self._previous_us if self._previous_us else 0
        self._previous_us = self._seen_us = int(sample.timeStamp)
        period_ns = max(min(since_us * 1000, 1_000_000_000), SHORTEST_MEAN_NS)
        return Reading(self._metric, to_monotonic_ns(self._seen_us), period_ns, _value(sample.sampleValue, kind))


class Rates(Reader):
    """Utilization as a single number, where NVML keeps no samples of it."""

    slow = True
    what = "GPU utilization"
    source = f"nvmlDeviceGetUtilizationRates, polled, {_MEAN}"

    def read(self) -> list[Reading]:
        """Return what is new. Raises NVMLError."""
        rates = self.nvml.nvmlDeviceGetUtilizationRates(self.gpu.handle)
        now = time.monotonic_ns()
        return [
            Reading(GpuMetric.BUSY_PERCENT, now, SHORTEST_MEAN_NS, float(rates.gpu)),
            Reading(GpuMetric.MEMORY_BUSY_PERCENT, now, SHORTEST_MEAN_NS, float(rates.memory)),
        ]


class InstantPower(Reader):
    """Power draw by the field that does not average; a value that NVML repeats is kept once.

    It changes every 100 ms on H100 and H200 (driver 580), whatever its time stamps say.
    """

    what = "power"
    source = "field POWER_INSTANT, NVML's time stamps"
    every = 5
    _stamp_us = 0

    def read(self) -> list[Reading]:
        """Return what is new. Raises NVMLError."""
        (value,) = self.fields((_POWER_INSTANT, 0))
        stamp_us = int(value.timestamp)
        if stamp_us and stamp_us == self._stamp_us:
            return []
        self._stamp_us = stamp_us
        time_ns = to_monotonic_ns(stamp_us) if stamp_us else time.monotonic_ns()
        return [Reading(GpuMetric.POWER_W, time_ns, 0, _value(value.value, value.valueType) / 1000)]


class Instant(Reader):
    """One number by a `function` of NVML, as it is now; with `period_ns` it is the mean over so long.

    What is returned for the GPU and the `arguments` is `take`n as a number.
    """

    def __init__(
        self,
        nvml: Any,
        gpu: OpenGpu,
        what: str,
        function: str,
        metric: GpuMetric,
        *arguments: int,
        every: int = 5,
        take: Callable[[Any], float] = float,
        period_ns: int = 0,
        about: str = "an instant",
    ) -> None:
        super().__init__(nvml, gpu)
        self.what, self.source, self.every = what, f"{function}, {about}", every
        self._function, self._arguments, self._take = function, arguments, take
        self._metric, self._period_ns = metric, period_ns

    def read(self) -> list[Reading]:
        """Return what is new. Raises NVMLError."""
        function = getattr(self.nvml, self._function, None)
        if function is None:
            raise self.nvml.NVMLError(13)  # function not found: an old pynvml
        value = self._take(function(self.gpu.handle, *self._arguments))
        return [Reading(self._metric, time.monotonic_ns(), self._period_ns, value)]


class Counters(Reader):
    """Bytes moved both ways since the last reading, from counters that only grow (and may wrap)."""

    def __init__(self, nvml: Any, gpu: OpenGpu, *, nvlink: bool) -> None:
        super().__init__(nvml, gpu)
        if nvlink:
            self.what, self.source = "NVLink bytes", "fields NVLINK_THROUGHPUT_DATA, counters"
            self._ids, self._bytes, self.every = ((_NVLINK_TX, _ALL_LINKS), (_NVLINK_RX, _ALL_LINKS)), 1024, 1
            self._metrics = (GpuMetric.NVLINK_TX_BYTES_PER_S, GpuMetric.NVLINK_RX_BYTES_PER_S)
        else:
            self.what, self.source = "PCIe bytes", "fields PCIE_COUNT_BYTES, counters"
            self._ids, self._bytes, self.every = ((_PCIE_TX, 0), (_PCIE_RX, 0)), 1, 2
            self._metrics = (GpuMetric.PCIE_TX_BYTES_PER_S, GpuMetric.PCIE_RX_BYTES_PER_S)
        self._before: list[_Count] = []

    def read(self) -> list[Reading]:
        """Return what is new. Raises NVMLError."""
        values = self.fields(*self._ids)
        polled_ns = time.monotonic_ns()
        now = [_count(value, polled_ns) for value in values]
        if not self._before:
            self._before = now
            return []
        readings = []
        for place, (metric, old, new) in enumerate(zip(self._metrics, self._before, now, strict=True)):
            elapsed_ns = new.stamp_ns - old.stamp_ns
            if elapsed_ns <= 0:
                continue  # NVML repeats its last answer
            self._before[place] = new
            moved = self._moved(old, new, elapsed_ns)
            if moved is not None:
                readings.append(Reading(metric, new.time_ns, elapsed_ns, moved * 1e9 / elapsed_ns))
        return readings

    def _moved(self, old: _Count, new: _Count, elapsed_ns: int) -> int | None:
        """Return the bytes; None where the counter was set to zero, or may have wrapped more than once."""
        if new.narrow and self._bytes == 1 and elapsed_ns > _WRAPS_AFTER_NS:
            return None
        moved = new.units - old.units
        if moved < 0 and not new.narrow:
            return None
        return (moved if moved >= 0 else moved + _WRAP) * self._bytes


@dataclass(frozen=True)
class _Count:
    """A counter's state. `stamp_ns` is on whatever clock NVML stamps with: a difference of two has no error of ours."""

    units: int
    narrow: bool  # it has 32 bits
    stamp_ns: int
    time_ns: int  # on CLOCK_MONOTONIC


def _count(value: Any, polled_ns: int) -> _Count:
    """Return a counter from its field; its time is when we asked, where NVML does not say."""
    stamp_us = int(value.timestamp)
    stamp_ns, time_ns = (stamp_us * 1000, to_monotonic_ns(stamp_us)) if stamp_us else (polled_ns, polled_ns)
    return _Count(int(_value(value.value, value.valueType)), value.valueType == _UNSIGNED_INT, stamp_ns, time_ns)


class PcieThroughput(Reader):
    """PCIe traffic where there are no counters: NVML counts for 20 ms each way while the call waits."""

    what = "PCIe bytes"
    source = "nvmlDeviceGetPcieThroughput, mean over 20 ms (a KB taken for 1000 bytes), bytes in between not seen"
    slow = True
    every = 10
    _PERIOD_NS = 20_000_000

    def read(self) -> list[Reading]:
        """Return what is new. Raises NVMLError."""
        readings = []
        for counter, metric in ((0, GpuMetric.PCIE_TX_BYTES_PER_S), (1, GpuMetric.PCIE_RX_BYTES_PER_S)):
            kilobytes = self.nvml.nvmlDeviceGetPcieThroughput(self.gpu.handle, counter)
            readings.append(Reading(metric, time.monotonic_ns(), self._PERIOD_NS, kilobytes * 1000.0))
        return readings


class ProcessUtilization(Reader):
    """Utilization by each process of the job, as NVML itself samples it; asked once a second: a call costs as much."""

    what = "utilization by process"
    source = f"nvmlDeviceGetProcessUtilization, {_MEAN}"
    slow = True
    every = 10

    def __init__(self, nvml: Any, gpu: OpenGpu, pids: Collection[int]) -> None:
        super().__init__(nvml, gpu)
        self._pids = pids
        self._seen_us = realtime_us()

    def read(self) -> list[Reading]:
        """Return what is new. Raises NVMLError."""
        try:
            samples = self.nvml.nvmlDeviceGetProcessUtilization(self.gpu.handle, self._seen_us)
        except self.nvml.NVMLError as error:
            if error.value == 0:  # pynvml takes an empty list for an error
                return []
            raise
        new = [sample for sample in samples if sample.timeStamp > self._seen_us]
        self._seen_us = max((int(sample.timeStamp) for sample in new), default=self._seen_us)
        readings = []
        for sample in new:
            if sample.pid in self._pids:
                place = (to_monotonic_ns(int(sample.timeStamp)), SHORTEST_MEAN_NS)
                busy, memory = float(sample.smUtil), float(sample.memUtil)
                readings.append(Reading(GpuMetric.PROCESS_BUSY_PERCENT, *place, busy, sample.pid))
                readings.append(Reading(GpuMetric.PROCESS_MEMORY_BUSY_PERCENT, *place, memory, sample.pid))
        return readings


def _value(union: Any, kind: int) -> float:
    """Return a value of NVML by its type."""
    return float(getattr(union, _VALUE_FIELDS.get(int(kind), "ullVal")))
