"""One GPU being sampled: its readers, what takes over where one is not supported, and its end if it is lost."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from netprof.probes.gpu.gpm import NVLINK, PCIE, Gpm
from netprof.probes.gpu.nvml import GPU_GONE, NOT_FOUND, UNSUPPORTED, OpenGpu, remedy_for
from netprof.probes.gpu.readers import (
    Counters,
    Instant,
    InstantPower,
    PcieThroughput,
    ProcessUtilization,
    Rates,
    Reader,
    Reading,
    Samples,
)
from netprof.schema import GpuMetric

_SM_CLOCK, _MEMORY_CLOCK = 1, 2  # nvmlClockType_t
_THROTTLE = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")  # the older last
_PATIENCE = 25
"""Failures in a row of a kind that may pass, before a reader is given up."""


@dataclass(frozen=True)
class Missing:
    """A metric that this GPU does not give (any more), in NVML's words why, and what would help."""

    what: str
    reason: str
    remedy: str


class ReaderChain:
    """Readers of the same metric, the best one first."""

    def __init__(self, *readers: Reader) -> None:
        self._readers = list(readers)
        self._failures = 0
        self.proven = False  # it has answered

    @property
    def reader(self) -> Reader | None:
        """The reader in use, None when all were given up."""
        return self._readers[0] if self._readers else None

    def succeeded(self) -> None:
        """Note that the reader answered."""
        self._failures, self.proven = 0, True

    def failed(self, code: int) -> bool:
        """Note an error of the reader in use; return whether that was the end of the last one."""
        self._failures += 1
        if code not in UNSUPPORTED and self._failures < _PATIENCE:
            return False
        self._readers.pop(0)
        self._failures, self.proven = 0, False
        return not self._readers


class SampledGpu:
    """Reads all metrics of a GPU that the job uses. `lost` says in NVML's words why nothing comes any more."""

    def __init__(self, nvml: Any, gpu: OpenGpu, pids: Collection[int]) -> None:
        self.gpu = gpu
        self.lost = ""
        self.missing: list[Missing] = []
        self._nvml = nvml
        self._ticks = {False: 0, True: 0}
        instant, gpm = partial(Instant, nvml, gpu), partial(Gpm, nvml, gpu)
        self._chains = (
            ReaderChain(Samples(nvml, gpu, memory=False), Rates(nvml, gpu)),
            ReaderChain(Samples(nvml, gpu, memory=True)),
            ReaderChain(ProcessUtilization(nvml, gpu, pids)),
            ReaderChain(gpm()),
            ReaderChain(
                InstantPower(nvml, gpu),
                instant(
                    "power",
                    "nvmlDeviceGetPowerUsage",
                    GpuMetric.POWER_W,
                    take=lambda milliwatts: milliwatts / 1000,
                    period_ns=1_000_000_000,
                    about="from Ampere on the mean over 1 s",
                ),
            ),
            ReaderChain(
                instant(
                    "memory in use",
                    "nvmlDeviceGetMemoryInfo",
                    GpuMetric.MEMORY_USED_BYTES,
                    take=lambda memory: float(memory.used),
                )
            ),
            ReaderChain(instant("SM clock", "nvmlDeviceGetClockInfo", GpuMetric.SM_CLOCK_MHZ, _SM_CLOCK, every=1)),
            ReaderChain(instant("memory clock", "nvmlDeviceGetClockInfo", GpuMetric.MEMORY_CLOCK_MHZ, _MEMORY_CLOCK)),
            ReaderChain(
                *(instant("throttle reasons", name, GpuMetric.THROTTLE_REASONS, every=1) for name in _THROTTLE)
            ),
            ReaderChain(Counters(nvml, gpu, nvlink=False), gpm("PCIe bytes", PCIE), PcieThroughput(nvml, gpu)),
            ReaderChain(Counters(nvml, gpu, nvlink=True), gpm("NVLink bytes", NVLINK)),
        )

    @property
    def sources(self) -> tuple[str, ...]:
        """Where each metric that this GPU gives comes from."""
        used = (chain.reader for chain in self._chains if chain.proven)
        return tuple(f"{reader.what}: {reader.source}" for reader in used if reader is not None)

    def read(self, *, slow: bool) -> Iterable[Reading]:
        """Yield what the slow readers, or the fast ones, have at this tick. Raises nothing of NVML's."""
        tick = self._ticks[slow]
        self._ticks[slow] += 1
        for chain in self._chains:
            reader = chain.reader
            if self.lost or reader is None or reader.slow != slow or tick % reader.every:
                continue
            try:
                yield from reader.read()
                chain.succeeded()
            except self._nvml.NVMLError as error:
                self._failed(chain, reader, error)

    def close(self) -> None:
        """Free what NVML allocated for the readers in use."""
        for chain in self._chains:
            if isinstance(chain.reader, Gpm):
                chain.reader.close()

    def _failed(self, chain: ReaderChain, reader: Reader, error: Any) -> None:
        code = int(error.value)
        if code == NOT_FOUND:  # nothing new
            chain.succeeded()
        elif code in GPU_GONE:
            self.lost = str(error)
        elif chain.failed(code):
            self.missing.append(Missing(reader.what, str(error), remedy_for(code)))
