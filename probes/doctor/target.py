"""The part of the diagnosis that is about one process: can it be looked at, what is it, and what can be recorded."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from netprof.errors import NetprofError
from netprof.model import Target
from netprof.probes.doctor.check import Check, Status, verdict
from netprof.probes.doctor.gpus import check_gpus_of
from netprof.probes.doctor.marks import check_marks
from netprof.probes.doctor.paths import check_paths
from netprof.probes.job import procfs
from netprof.probes.job.processes import find_job, kinship_of
from netprof.probes.job.ranks import RUN
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


def check_target(pid: int) -> list[Check]:
    """Check what a recording of the job of process `pid` would get."""
    try:
        targets = find_job([pid])
        process = procfs.process_of(pid)
    except NetprofError as error:
        return [Check(_AREA, "process", Status.BLOCKED, error.message, error.hint)]
    except OSError:
        return [Check(_AREA, "process", Status.BLOCKED, f"process {pid} has ended", "give a pid that runs")]
    target = next((target for target in targets if target.pid == process), None)
    if target is None:
        return [Check(_AREA, "process", Status.BLOCKED, f"process {pid} has ended", "give a pid that runs")]
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


def _process(target: Target) -> Iterator[Check]:
    uid = procfs.owner(target.pid)
    yield Check(_AREA, "process", Status.OK, f"{target.pid} of uid {uid}: {target.command or 'no command line'}")
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
            yield Check(_AREA, name, Status.BLOCKED, refused.message, refused.hint)
        else:
            yield Check(_AREA, name, Status.OK, "readable")


def _namespaces(target: Target) -> Iterator[Check]:
    own = procfs.namespace(os.getpid(), "net")
    if target.netns == own:
        yield Check(_AREA, "network namespace", Status.OK, "netprof's own")
    else:
        yield verdict(
            "CAP_SYS_ADMIN" in effective_capabilities(),
            _AREA,
            "network namespace",
            f"another one ({target.netns}): flows and counters can be recorded; the line rate needs CAP_SYS_ADMIN",
            f"{remedy_for_rights(('CAP_SYS_ADMIN',))}, or give --line-rate",
            Status.LIMITED,
        )
    same = procfs.namespace(target.pid, "mnt") == procfs.namespace(os.getpid(), "mnt")
    detail = "netprof's own" if same else "another one: libraries are opened by way of the process"
    yield Check(_AREA, "mount namespace", Status.OK, detail)
    same = procfs.namespace(target.pid, "pid") == procfs.namespace(os.getpid(), "pid")
    detail = "netprof's own" if same else f"another one, in which it is process {target.inner_pid or '?'}"
    yield Check(_AREA, "PID namespace", Status.OK, detail)
    yield Check(_AREA, "container, pod, Slurm job", Status.INFO, target.cgroup.label or "none told by its cgroup")


def _job(targets: list[Target]) -> Iterator[Check]:
    training = [target for target in targets if target.frameworks]
    helpers = len(targets) - len(training)
    detail = f"{len(training)} training, {helpers} other (launchers, data loaders, helpers)"
    yield Check(_AREA, "processes of the job", Status.OK, detail)
    ranks = sorted({target.rank for target in training if target.rank >= 0})
    sizes = {target.world_size for target in training if target.world_size is not None}
    if ranks:
        known = f"{', '.join(map(str, ranks))} of {max(sizes, default=0) or 'an unknown number'}"
        yield Check(_AREA, "ranks here", Status.OK, known)
    else:
        detail = "the environment names none: while recording, gloo's groups do, and NCCL's that are made meanwhile"
        remedy = "else give them with --rank PID=N and --world-size N"
        yield Check(_AREA, "ranks here", Status.LIMITED, detail, remedy)


def _late_ranks(targets: list[Target]) -> Iterator[Check]:
    kinship = kinship_of(targets)
    names = sorted(
        {f"{name}={value}" for name, value, *_ in kinship.rendezvous} | {f"{RUN}={r}" for _, r in kinship.agents}
    )
    if names:
        detail = f"found as they start: by {', '.join(names)}, or as children of the job's processes"
        yield Check(_AREA, "ranks that start later", Status.OK, detail)
    else:
        detail = "found only as children of the job's processes: nothing in the environment names the job"
        remedy = "where ranks start one by one, set MASTER_ADDR and MASTER_PORT for all, or attach when all run"
        yield Check(_AREA, "ranks that start later", Status.LIMITED, detail, remedy)


def _frameworks(targets: list[Target]) -> Iterator[Check]:
    names = sorted({name for target in targets for name in target.frameworks})
    if names:
        yield Check(_AREA, "frameworks", Status.OK, ", ".join(names))
        return
    loaded = any(mapped_frameworks(target.pid) for target in targets)
    detail = "only a launcher or a helper has one loaded" if loaded else "none loaded: flows and NIC, no iterations"
    yield Check(_AREA, "frameworks", Status.LIMITED, detail, _LOADED_LATER)
