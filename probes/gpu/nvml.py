"""NVML opened through `pynvml`, its clock on ours, and what its errors mean for the sampling.

`pynvml` is imported here only, and only where the driver's library can be loaded: a machine without GPUs pays nothing.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from netprof.errors import NetprofError
from netprof.probes.job.procfs import printable

LIBRARY = "libnvidia-ml.so.1"
Value = TypeVar("Value")

NOT_FOUND = 6
"""NVML has nothing new to tell: no error."""

_NO_SUCH_DRIVER, _NO_LIBRARY, _OTHER_MODULE, _NO_PERMISSION = 9, 12, 18, 4
GPU_GONE = frozenset((1, _NO_SUCH_DRIVER, 15, 16, 28))
"""Uninitialized, driver not loaded, GPU is lost, reset required, GPU not found: nothing more comes from this GPU."""

UNSUPPORTED = frozenset((2, 3, _NO_PERMISSION, 13, 25, 26))
"""Invalid argument, not supported, no permission, function not found, argument version, deprecated: asking again does
not help."""

_LOOK_AT_SMI = "see whether nvidia-smi works"
_REMEDIES = {
    _NO_SUCH_DRIVER: "load the nvidia kernel module, or give the container the device files (--gpus all)",
    _NO_LIBRARY: "where there are GPUs: install the NVIDIA driver, or give the container its libraries (--gpus all)",
    _OTHER_MODULE: "the driver was updated while its kernel module runs: reload the module or restart the machine",
    _NO_PERMISSION: "run as root, and in a container with the device files (--gpus all)",
}


@dataclass(frozen=True)
class OpenGpu:
    """A GPU of this machine: NVML's index and handle, and what tells it from others."""

    index: int
    handle: Any
    name: str
    uuid: str
    minor: int | None
    memory_bytes: int


def open_nvml() -> Any:
    """Load and initialise NVML and return the module `pynvml`. Raises NetprofError; may take seconds.

    Every call must be matched by one of `pynvml.nvmlShutdown`.
    """
    try:
        ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise NetprofError(f"no NVIDIA driver: {LIBRARY} cannot be loaded", _REMEDIES[_NO_LIBRARY]) from error
    try:
        import pynvml
    except ImportError as error:
        raise NetprofError("the Python module pynvml is missing", "pip install nvidia-ml-py") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        remedy = _REMEDIES.get(error.value, _LOOK_AT_SMI)
        raise NetprofError(f"NVML does not start: {error}", remedy) from error
    return pynvml


def open_gpus(nvml: Any) -> tuple[list[OpenGpu], list[str]]:
    """Return the GPUs of this machine, and a sentence about each one that cannot be opened. Raises NetprofError."""
    try:
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        raise NetprofError(f"NVML does not count the GPUs: {error}", _LOOK_AT_SMI) from error
    gpus, failed = [], []
    for index in range(count):
        try:
            gpus.append(_open_gpu(nvml, index))
        except nvml.NVMLError as error:
            failed.append(f"GPU {index} cannot be opened: {error}")
    return gpus, failed


def remedy_for(code: int) -> str:
    """Return what to do about an error code of a metric; "" where nothing can be done."""
    if code == _NO_PERMISSION:
        return "run as root; profiling metrics also need NVreg_RestrictProfilingToAdminUsers=0 for other users"
    return "a newer driver may have it" if code == 13 else ""


def realtime_offset_ns() -> int:
    """Return CLOCK_REALTIME minus CLOCK_MONOTONIC as of now.

    NVML stamps its samples with the CPU's real time in microseconds; taking the pair of clocks at every reading keeps
    a step of the system clock out of all samples but those in flight.
    """
    before = time.monotonic_ns()
    real = time.time_ns()
    return real - (before + time.monotonic_ns()) // 2


def to_monotonic_ns(realtime_us: int) -> int:
    """Put a time stamp of NVML (CPU real time, microseconds) on CLOCK_MONOTONIC, in nanoseconds."""
    return realtime_us * 1000 - realtime_offset_ns()


def realtime_us() -> int:
    """Return the CPU's real time in microseconds, as NVML counts it."""
    return time.time_ns() // 1000


def _open_gpu(nvml: Any, index: int) -> OpenGpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    return OpenGpu(
        index=index,
        handle=handle,
        name=_asked(nvml, lambda: text_of(nvml.nvmlDeviceGetName(handle)), ""),
        uuid=_asked(nvml, lambda: text_of(nvml.nvmlDeviceGetUUID(handle)), ""),
        minor=_asked(nvml, lambda: int(nvml.nvmlDeviceGetMinorNumber(handle)), None),
        memory_bytes=_asked(nvml, lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total), 0),
    )


def _asked(nvml: Any, ask: Callable[[], Value], otherwise: Value) -> Value:
    """Return what NVML answers, and something else where it does not. Raises NVMLError for a GPU that is gone."""
    try:
        return ask()
    except nvml.NVMLError as error:
        if error.value in GPU_GONE:
            raise
        return otherwise


def text_of(value: Any) -> str:
    """Return a text of NVML; older versions of pynvml return bytes."""
    return printable(value if isinstance(value, bytes) else str(value).encode())
