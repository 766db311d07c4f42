"""The parts of the GPU probe that need no NVML: which GPUs a job sees, counters that wrap, readers that take over."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from netprof.errors import NetprofError
from netprof.model import Target
from netprof.probes.gpu import probe as gpu
from netprof.probes.gpu.nvml import OpenGpu, to_monotonic_ns
from netprof.probes.gpu.of_job import COMPUTES, GpuUse, gpus_of_job, visible_gpus
from netprof.probes.gpu.readers import Counters, InstantPower
from netprof.probes.gpu.sampled import ReaderChain
from netprof.schema import GpuMetric

GPUS = [OpenGpu(index, None, "GPU", f"GPU-{index:08d}-aa", 10 + index, 0) for index in range(4)]


class Error(Exception):
    """As pynvml's."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value


class Nvml:
    """As much of pynvml as the readers below call."""

    NVMLError = Error

    def __init__(self, *answers: Any) -> None:
        self._answers: list[list[Any]] = list(answers)

    def nvmlDeviceGetFieldValues(self, handle: object, ids: list[Any]) -> list[Any]:
        return self._answers.pop(0)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: object) -> list[Any]:
        return self._answers.pop(0)


def field(value: int, time_us: int, *, wide: bool = False, error: int = 0) -> Any:
    union = SimpleNamespace(uiVal=value, ullVal=value)
    return SimpleNamespace(nvmlReturn=error, timestamp=time_us, valueType=3 if wide else 1, value=union)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("", set()),
        ("2", {2}),
        ("1, 3", {1, 3}),
        ("0,1,2,3", {0, 1, 2, 3}),
        ("0,9,1", {0}),  # CUDA stops at the first that is none
        ("-1", set()),
        ("NoDevFiles", set()),
        ("GPU-00000002", {2}),
        ("GPU-00000001-aa,GPU-00000003-aa", {1, 3}),
        ("GPU-0", set()),  # names several
        ("MIG-GPU-00000001/1/0", None),
        ("\x1b[2J", set()),
    ],
)
def test_visible_gpus(value: str | None, expected: set[int] | None) -> None:
    assert visible_gpus(value, GPUS) == expected


def test_only_processes_of_the_job_make_a_gpu_the_jobs() -> None:
    listed = [[], [SimpleNamespace(pid=5), SimpleNamespace(pid=6)], [SimpleNamespace(pid=7)], [SimpleNamespace(pid=6)]]
    assert gpus_of_job(Nvml(*listed), GPUS, {6, 8}) == {1: GpuUse((6,), COMPUTES), 3: GpuUse((6,), COMPUTES)}


@pytest.mark.parametrize(
    ("before", "after", "elapsed_us", "wide", "rate"),
    [
        (1000, 41_000, 40_000, False, 1e6),
        ((1 << 32) - 10_000, 30_000, 40_000, False, 1e6),  # wrapped
        ((1 << 40), 1 << 20, 40_000, True, None),  # set to zero
        (1000, 2000, 61_000, False, None),  # may have wrapped more than once
        (1000, 62_000, 61_000, True, 1e6),
        (1000, 2000, 0, False, None),
    ],
)
def test_counters(before: int, after: int, elapsed_us: int, wide: bool, rate: float | None) -> None:
    now_us = time.time_ns() // 1000
    answers = [[field(count, at, wide=wide)] * 2 for count, at in ((before, now_us), (after, now_us + elapsed_us))]
    counters = Counters(Nvml(*answers), GPUS[0], nvlink=False)
    assert counters.read() == []
    readings = counters.read()
    assert [reading.value for reading in readings] == ([] if rate is None else [pytest.approx(rate, rel=1e-3)] * 2)
    if rate is not None:
        assert [reading.metric for reading in readings] == [
            GpuMetric.PCIE_TX_BYTES_PER_S,
            GpuMetric.PCIE_RX_BYTES_PER_S,
        ]


def test_an_error_of_a_field_is_raised() -> None:
    with pytest.raises(Error) as raised:
        Counters(Nvml([field(0, 0), field(0, 0, error=3)]), GPUS[0], nvlink=True).read()
    assert raised.value.value == 3


def test_power_that_nvml_repeats_is_kept_once() -> None:
    now_us = time.time_ns() // 1000
    power = InstantPower(Nvml(*([field(1500, at)] for at in (now_us, now_us, now_us + 5))), GPUS[0])
    counts = [len(power.read()) for _ in range(3)]
    assert counts == [1, 0, 1]


def test_nvmls_clock_is_put_on_ours() -> None:
    before = time.monotonic_ns()
    converted = to_monotonic_ns(time.time_ns() // 1000)
    assert before - 10_000_000 <= converted <= time.monotonic_ns() + 10_000_000


def test_a_chain_gives_up_at_once_what_is_unsupported_and_late_what_may_pass() -> None:
    first, second = object(), object()
    chain = ReaderChain(first, second)  # type: ignore[arg-type]
    for _ in range(24):
        assert not chain.failed(999)
    assert chain.reader is first
    chain.succeeded()
    for _ in range(24):
        assert not chain.failed(999)
    assert chain.reader is first
    assert not chain.failed(999)
    assert chain.reader is second
    assert chain.failed(3)
    assert chain.reader is None


def test_a_machine_without_a_driver_is_one_line_however_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver() -> None:
        raise NetprofError("no NVIDIA driver", "install one")

    monkeypatch.setattr(gpu, "open_nvml", no_driver)
    monkeypatch.setattr(gpu, "_STUCK_S", 0.0)
    with gpu.GpuProbe() as probe:
        probe.follow([Target(1, 0)])
        until_s = time.monotonic() + 20
        while [line.reason for line in probe.describe().skipped] != ["no NVIDIA driver"]:
            assert time.monotonic() < until_s, probe.describe().skipped


def test_a_gpu_that_is_found_while_the_probe_describes_itself_has_its_processes() -> None:
    """The slow thread writes down who uses a GPU, then begins to sample it: both are read the other way round."""
    with gpu.GpuProbe() as probe:

        class FoundMeanwhile(dict[int, Any]):
            def copy(self) -> dict[int, Any]:
                probe._uses = {0: GpuUse((7,), COMPUTES)}
                return {0: SimpleNamespace(gpu=GPUS[0], sources=(), missing=[])}

        probe._sampled = FoundMeanwhile()
        (described,) = probe.describe().gpus
    assert described.pids == (7,)
