"""Which GPUs the job uses: those that its processes compute on, else those that they hold open.

NVML names the processes that compute on a GPU by pid. In a container its pids may mean nothing; then what counts are
the device files that a process holds open, narrowed by the CUDA_VISIBLE_DEVICES that it was started with: CUDA opens
the files of all GPUs that it can see, also of those that the program never uses.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from netprof.probes.gpu.nvml import OpenGpu
from netprof.probes.job import procfs

COMPUTES = "NVML lists the processes as computing on it"
HOLDS_OPEN = "inferred: the processes hold its device file open"
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_DEVICE_FILE = re.compile(r"/dev/nvidia(\d+)")


@dataclass(frozen=True)
class GpuUse:
    """The processes of the job that use a GPU, and how that is known."""

    pids: tuple[int, ...]
    found_by: str


def gpus_of_job(nvml: Any, gpus: Sequence[OpenGpu], pids: Collection[int]) -> dict[int, GpuUse]:
    """Return, by GPU index, which of the processes `pids` use each GPU."""
    listed = {gpu.index: sorted(computing(nvml, gpu).intersection(pids)) for gpu in gpus}
    if any(listed.values()):  # the pids mean the same to NVML as to us: who is not listed does not compute
        return {index: GpuUse(tuple(users), COMPUTES) for index, users in listed.items() if users}
    return _held_open(gpus, pids)


def computing(nvml: Any, gpu: OpenGpu) -> set[int]:
    """Return the pids that NVML says compute on a GPU; none where it cannot say."""
    try:
        return {int(process.pid) for process in nvml.nvmlDeviceGetComputeRunningProcesses(gpu.handle)}
    except nvml.NVMLError:
        return set()


def visible_gpus(value: str | None, gpus: Sequence[OpenGpu]) -> set[int] | None:
    """Return the indices that a CUDA_VISIBLE_DEVICES names; None where it is not set or names MIG slices.

    As CUDA does, stop at the first entry that names nothing. A number is taken for NVML's index, which it is where
    all GPUs are alike or CUDA_DEVICE_ORDER is PCI_BUS_ID.
    """
    if value is None:
        return None
    visible: set[int] = set()
    for entry in map(str.strip, value.split(",")):
        if entry.startswith("MIG"):
            return None
        is_uuid = entry.startswith("GPU-")
        named = {gpu.index for gpu in gpus if entry == str(gpu.index) or (is_uuid and gpu.uuid.startswith(entry))}
        if len(named) != 1:
            break
        visible |= named
    return visible


def _held_open(gpus: Sequence[OpenGpu], pids: Iterable[int]) -> dict[int, GpuUse]:
    users: dict[int, list[int]] = {}
    narrowed: set[int] = set()
    for pid in sorted(pids):
        minors = {int(match[1]) for name in procfs.open_files(pid) if (match := _DEVICE_FILE.fullmatch(name))}
        held = {gpu.index for gpu in gpus if gpu.minor in minors}
        visible = visible_gpus(procfs.environment(pid, (_VISIBLE,)).get(_VISIBLE), gpus) if held else None
        if visible is not None:
            held &= visible
            narrowed |= held
        for index in held:
            users.setdefault(index, []).append(pid)
    found_by = dict.fromkeys(narrowed, f"{HOLDS_OPEN} and {_VISIBLE} names it")
    return {index: GpuUse(tuple(pids), found_by.get(index, HOLDS_OPEN)) for index, pids in sorted(users.items())}
