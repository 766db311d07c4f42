"""The part of the diagnosis that is about GPUs: is there a driver, and which GPUs does the job use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from netprof.errors import NetprofError
from netprof.model import Target
from netprof.probes.doctor.check import DoctorCheck, Status
from netprof.probes.gpu.nvml import open_gpus, open_nvml, text_of
from netprof.probes.gpu.of_job import gpus_of_job
from netprof.probes.gpu.sampled import SampledGpu

_NAME = "GPUs"


def check_gpus() -> Iterator[DoctorCheck]:
    """Say whether NVML works here, and what each kind of GPU cannot give. Without one, nothing is amiss."""
    try:
        nvml = open_nvml()
    except NetprofError as error:
        yield DoctorCheck("machine", _NAME, Status.INFO, f"{error.message}: GPU activity is not sampled", error.hint)
        return
    try:
        gpus, failed = open_gpus(nvml)
        names = ", ".join(dict.fromkeys(gpu.name or "no name" for gpu in gpus)) or "none"
        yield DoctorCheck("machine", _NAME, Status.OK, f"{len(gpus)} ({names}), driver {_driver(nvml)}")
        for sentence in failed:
            yield DoctorCheck("machine", _NAME, Status.LIMITED, sentence, "see dmesg for the driver's Xid messages")
        if gpus:
            yield from _try_metrics(SampledGpu(nvml, gpus[0], ()))
    except NetprofError as error:
        yield DoctorCheck("machine", _NAME, Status.LIMITED, error.message, error.hint)
    finally:
        nvml.nvmlShutdown()


def check_gpus_of(targets: Sequence[Target]) -> Iterator[DoctorCheck]:
    """Say which GPUs the processes of the job use, where there are any."""
    try:
        nvml = open_nvml()
    except NetprofError:
        return  # said of the machine
    try:
        uses = gpus_of_job(nvml, open_gpus(nvml)[0], [target.pid for target in targets])
        for index, use in uses.items():
            pids = ", ".join(map(str, use.pids))
            yield DoctorCheck("target", f"GPU {index}", Status.OK, f"used by {pids}: {use.found_by}")
        if not uses:
            yield DoctorCheck("target", _NAME, Status.INFO, "the job uses none of this machine's")
    except NetprofError as error:
        yield DoctorCheck("target", _NAME, Status.LIMITED, error.message, error.hint)
    finally:
        nvml.nvmlShutdown()


def _try_metrics(gpu: SampledGpu) -> Iterator[DoctorCheck]:
    """Read everything of one GPU twice (rates need two readings) and say what is missing."""
    for slow in (False, True, True):
        list(gpu.read(slow=slow))
    gpu.close()
    name = f"metrics of GPU {gpu.gpu.index}"
    if gpu.lost:
        yield DoctorCheck("machine", name, Status.LIMITED, gpu.lost, "see dmesg for the driver's Xid messages")
    for missing in gpu.missing:
        yield DoctorCheck("machine", name, Status.LIMITED, f"no {missing.what}: {missing.reason}", missing.remedy)
    if not gpu.lost and not gpu.missing:
        yield DoctorCheck("machine", name, Status.OK, "all can be read")


def _driver(nvml: Any) -> str:
    try:
        return text_of(nvml.nvmlSystemGetDriverVersion())
    except nvml.NVMLError:
        return "unknown"
