"""The part of the diagnosis that is about one process: can it be looked at, what is it, and what can be recorded."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from netprof.errors import NetprofError
from netprof.model import Target
from netprof.probes.doctor.check import DoctorCheck, Status, verdict
from netprof.probes.doctor.gpus import check_gpus_of
from netprof.probes.doctor.marks import check_marks
from netprof.probes.doctor.paths import check_paths
from netprof.probes.job import procfs
from netprof.probes.job.processes import find_job, kinship_of
from netprof.probes.job.tree import mapped_frameworks
from netprof.probes.kernel.rights import (
    DAC_READ_SEARCH,
    SYS_PTRACE,
    effective_capabilities,
    not_permitted,
    remedy_for_rights,
)

_AREA = "target"
_LOADED_LATER = "attach once training runs: libraries are looked for again while recording"


def check_target(pid: int) -> list[DoctorCheck]:
    """Check what a recording of the job of process `pid` would get."""
    try:
        targets = find_job([pid])
    except NetprofError as error:
        return [DoctorCheck(_AREA, "process", Status.BLOCKED, error.message, error.hint)]
    try:
        process = procfs.process_of(pid)
        target = next(target for target in targets if target.pid == process)
    except (OSError, StopIteration):
        return [DoctorCheck(_AREA, "process", Status.BLOCKED, f"process {pid} has ended", "give a pid that runs")]
    return [
        *_process(target),
        *_namespaces(target),
        *_job(targets),
        *_late_ranks(targets),
        *_frameworks(targets),
        *check_marks(targets),
        *check_paths(targets),
        *check_gpus_of(targets),
    ]


def _process(target: Target) -> Iterator[DoctorCheck]:
    uid = procfs.owner(target.pid)
    yield DoctorCheck(_AREA, "process", Status.OK, f"{target.pid} of uid {uid}: {target.command or 'no command line'}")
    readers: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
        "memory map": (lambda: Path(f"/proc/{target.pid}/maps").read_bytes(), (SYS_PTRACE,)),
        "environment": (lambda: procfs.read_environment(target.pid, ()), (SYS_PTRACE, DAC_READ_SEARCH)),
        "files (root)": (lambda: Path(f"/proc/{target.pid}/root").readlink(), (SYS_PTRACE,)),
    }
    for name, (read, needed) in readers.items():
        try:
            read()
        except OSError:
            refused = not_permitted("read it", *needed)
            yield DoctorCheck(_AREA, name, Status.BLOCKED, refused.message, refused.hint)
        else:
            yield DoctorCheck(_AREA, name, Status.OK, "readable")


def _namespaces(target: Target) -> Iterator[DoctorCheck]:
    allowed, detail = True, "netprof's own"
    if target.netns != procfs.namespace(os.getpid(), "net"):
        allowed = "CAP_SYS_ADMIN" in effective_capabilities()
        detail = f"another one ({target.netns}): flows and counters can be recorded; the line rate needs CAP_SYS_ADMIN"
    remedy = f"{remedy_for_rights(('CAP_SYS_ADMIN',))}, or give --line-rate"
    yield verdict(allowed, _AREA, "network namespace", detail, remedy, Status.LIMITED)
    otherwise = {
        "mnt": ("mount namespace", "another one: libraries are opened by way of the process"),
        "pid": ("PID namespace", f"another one, in which it is process {target.inner_pid or '?'}"),
    }
    for kind, (name, another) in otherwise.items():
        same = procfs.namespace(target.pid, kind) == procfs.namespace(os.getpid(), kind)
        yield DoctorCheck(_AREA, name, Status.OK, "netprof's own" if same else another)
    yield DoctorCheck(_AREA, "container, pod, Slurm job", Status.INFO, target.cgroup.label or "none told by its cgroup")


def _job(targets: list[Target]) -> Iterator[DoctorCheck]:
    training = [target for target in targets if target.frameworks]
    helpers = len(targets) - len(training)
    detail = f"{len(training)} training, {helpers} other (launchers, data loaders, helpers)"
    yield DoctorCheck(_AREA, "processes of the job", Status.OK, detail)
    ranks = sorted({target.rank for target in training if target.rank >= 0})
    sizes = {target.world_size for target in training if target.world_size is not None}
    if ranks:
        known = f"{', '.join(map(str, ranks))} of {max(sizes, default=0) or 'an unknown number'}"
        yield DoctorCheck(_AREA, "ranks here", Status.OK, known)
    else:
        detail = "the environment names none: while recording, gloo's groups do, and NCCL's that are made meanwhile"
        remedy = "else give them with --rank PID=N and --world-size N"
        yield DoctorCheck(_AREA, "ranks here", Status.LIMITED, detail, remedy)


def _late_ranks(targets: list[Target]) -> Iterator[DoctorCheck]:
    variables = sorted(kinship_of(targets).variables)
    if variables:
        detail = f"found as they start: by {', '.join(variables)}, or as children of the job's processes"
        yield DoctorCheck(_AREA, "ranks that start later", Status.OK, detail)
    else:
        detail = "found only as children of the job's processes: nothing in the environment names the job"
        remedy = "where ranks start one by one, set MASTER_ADDR and MASTER_PORT for all, or attach when all run"
        yield DoctorCheck(_AREA, "ranks that start later", Status.LIMITED, detail, remedy)


def _frameworks(targets: list[Target]) -> Iterator[DoctorCheck]:
    names = sorted({name for target in targets for name in target.frameworks})
    if names:
        yield DoctorCheck(_AREA, "frameworks", Status.OK, ", ".join(names))
        return
    loaded = any(mapped_frameworks(target.pid) for target in targets)
    detail = "only a launcher or a helper has one loaded" if loaded else "none loaded: flows and NIC, no iterations"
    yield DoctorCheck(_AREA, "frameworks", Status.LIMITED, detail, _LOADED_LATER)
