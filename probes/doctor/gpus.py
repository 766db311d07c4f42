"""The part of the diagnosis that is about GPUs: is there a driver, and which GPUs does the job use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from netprof.errors import NetprofError
from netprof.model import Target
from netprof.probes.doctor.check import Check, Status
from netprof.probes.gpu.nvml import open_gpus, open_nvml
from netprof.probes.gpu.of_job import gpus_of_job
from netprof.probes.gpu.sampled import SampledGpu

_NAME = "GPUs"


def check_gpus() -> Iterator[Check]:
    """Say whether NVML works here, and what each kind of GPU cannot give. Without one, nothing is amiss."""
    try:
        nvml = open_nvml()
    except NetprofError as error:
        yield Check("machine", _NAME, Status.INFO, f"{error.message}: GPU activity is not sampled", error.hint)
        return
    try:
        gpus, failed = open_gpus(nvml)
        names = ", ".join(dict.fromkeys(gpu.name or "no name" for gpu in gpus)) or "none"
        yield Check("machine", _NAME, Status.OK, f"{len(gpus)} ({names}), driver {_driver(nvml)}")
        for sentence in failed:
            yield Check("machine", _NAME, Status.LIMITED, sentence, "see dmesg for the driver's Xid messages")
        if gpus:
            yield from _try_metrics(SampledGpu(nvml, gpus[0], ()))
    except NetprofError as error:
        yield Check("machine", _NAME, Status.LIMITED, error.message, error.hint)
    finally:
        nvml.nvmlShutdown()


def check_gpus_of(targets: Sequence[Target]) -> Iterator[Check]:
    """Say which GPUs the processes of the job use, where there are any."""
    try:
        nvml = open_nvml()
    except NetprofError:
        return  # said of the machine
    try:
        found = gpus_of_job(nvml, open_gpus(nvml)[0], [target.pid for target in targets])
        for index, use in found.items():
            pids = ", ".join(map(str, use.pids))
            yield Check("target", f"GPU {index}", Status.OK, f"used by {pids}: {use.found_by}")
        if not found:
            yield Check("target", _NAME, Status.INFO, "the job uses none of this machine's")
    except NetprofError as error:
        yield Check("target", _NAME, Status.LIMITED, error.message, error.hint)
    finally:
        nvml.nvmlShutdown()


def _try_metrics(gpu: SampledGpu) -> Iterator[Check]:
    """Read everything of one GPU twice (rates need two readings) and say what is missing."""
    for slow in (False, True, True):
        list(gpu.read(slow=slow))
    gpu.close()
    name = f"metrics of GPU {gpu.gpu.index}"
    if gpu.lost:
        yield Check("machine", name, Status.LIMITED, gpu.lost, "see dmesg for the driver's Xid messages")
    for missing in gpu.missing:
        yield Check("machine", name, Status.LIMITED, f"no {missing.what}: {missing.reason}", missing.remedy)
    if not gpu.lost and not gpu.missing:
        yield Check("machine", name, Status.OK, "all can be read")


def _driver(nvml: Any) -> str:
    try:
        version = nvml.nvmlSystemGetDriverVersion()
    except nvml.NVMLError:
        return "unknown"
    return version.decode(errors="replace") if isinstance(version, bytes) else str(version)
