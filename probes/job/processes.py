"""Finding the job: from any of its pids to all of its processes on this host.

The job is the given processes, their descendants, and every process of the same user that was started with the same
rendezvous (MASTER_ADDR and MASTER_PORT and the like) as one of them. Descendants come from /proc/PID/task/*/children
and the others' environments are read only where the user is the same: 5 µs of CPU for a stranger's process, 19 µs for
one of the user's own.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence

from netprof.errors import NetprofError, NotPermittedError, UsageError
from netprof.model import Target
from netprof.probes.job import procfs, ranks
from netprof.probes.job.roles import Process, as_targets, is_first_of
from netprof.schema import UNKNOWN_RANK

_MAX_PROCESSES = 100_000


def find_job(pids: Sequence[int]) -> list[Target]:
    """Return every process of the job that the given pids (or thread ids) belong to, by rank and pid.

    A target's `frameworks` are those it trains with: a launcher, a data loader and other helpers have none.
    Raises NetprofError for a pid of no process that can be profiled, NotPermittedError where one may not be looked at.
    """
    return as_targets(_gather([_given(pid) for pid in dict.fromkeys(pids)]))


def find_more(targets: Iterable[Target], *, thorough: bool = True) -> list[Target]:
    """Return every process of the job as it is now, from those of `targets` that are still there.

    Without `thorough` only descendants are looked for, and a target that has a framework is taken to have no other:
    a fraction of the cost, to be asked several times a second.
    """
    job: dict[int, Process] = {}
    found = []
    for target in targets:
        process = _look(target.pid)
        if process is not None and process.stat.start_ticks == target.start_ticks:
            process.known_frameworks = None if thorough else target.frameworks or None
            found.append(process)
    _add_trees(found, job)
    if thorough:
        _add_same_rendezvous(job)
    return as_targets(job)


def is_same(target: Target) -> bool:
    """Tell whether the target's pid still is the process that it was, alive."""
    stat = procfs.read_stat(target.pid)
    return stat is not None and not stat.ended and stat.start_ticks == target.start_ticks


def check_same(targets: Iterable[Target]) -> None:
    """Raise NetprofError if a target has ended, or its pid was given to another process, since it was found."""
    for target in targets:
        stat = procfs.read_stat(target.pid)
        if stat is None or stat.ended:
            raise NetprofError(
                f"process {target.pid} ended while netprof was attaching", "attach again while the job is training"
            )
        if stat.start_ticks != target.start_ticks:
            raise NetprofError(
                f"process {target.pid} ended, and its pid now belongs to another process ({stat.name})",
                "look up the job's pid again",
            )


def _given(pid: int) -> Process:
    """Look at a process that the person named. Raises what find_job raises."""
    if pid <= 0 or pid > 1 << 22:
        raise UsageError(f"{pid} is not a pid")
    try:
        process = procfs.process_of(pid)
    except OSError as error:
        raise _no_such_process(pid) from error
    stat = procfs.read_stat(process)
    if stat is None:
        raise _no_such_process(pid)
    if stat.kernel_thread:
        raise NetprofError(f"process {pid} ({stat.name}) is a thread of the kernel", "give a pid of the training job")
    if stat.ended:
        raise NetprofError(f"process {pid} ({stat.name}) has ended", "give a pid of a job that is running")
    if process == os.getpid():
        raise UsageError(f"process {pid} is netprof itself", "give a pid of the training job")
    try:
        environment = procfs.read_environment(process, ranks.VARIABLES)
    except PermissionError as error:
        raise NotPermittedError(
            f"not permitted to look into process {pid}: CAP_SYS_PTRACE is missing",
            "run as root, or add CAP_SYS_PTRACE",
        ) from error
    except OSError as error:
        raise _no_such_process(pid) from error
    return Process(stat, procfs.network_namespace(process), environment)


def _no_such_process(pid: int) -> NetprofError:
    return NetprofError(
        f"there is no process {pid}", "find the job with 'pgrep -f'; from a container, hosts' pids need --pid=host"
    )


def _look(pid: int) -> Process | None:
    """Look at a process that nobody named; None if it is gone or is no program."""
    stat = procfs.read_stat(pid)
    if stat is None or stat.ended or stat.kernel_thread:
        return None
    try:
        environment = procfs.read_environment(pid, ranks.VARIABLES)
    except OSError:
        environment = {}
    return Process(stat, procfs.network_namespace(pid), environment)


def _gather(given: Sequence[Process]) -> dict[int, Process]:
    """Return the whole job, by pid."""
    job: dict[int, Process] = {}
    for process in given:
        tree: dict[int, Process] = {}
        _add_trees([_first_rank(process) or process], tree)
        if not _rendezvous(tree):
            _add_trees([_main_process(process)], tree)
        job.update(tree)
    _add_same_rendezvous(job)
    return job


def _add_same_rendezvous(job: dict[int, Process]) -> None:
    """Add the ranks that share a rendezvous with a process of the job, and their descendants."""
    names = _rendezvous(job)
    if names:
        owners = {procfs.owner(process.stat.pid) for process in job.values()}
        _add_trees(_one_of_each_rank(_same_rendezvous(names, owners, job), job), job)


def _rendezvous(job: dict[int, Process]) -> set[tuple[str, ...]]:
    """Return the rendezvous that the environments of a job's processes name."""
    return {name for process in job.values() if (name := ranks.job_of(process.environment, process.netns))}


def _main_process(process: Process) -> Process:
    """Climb from a process that was forked by a rank or with it, and names no rendezvous, to where its job began.

    A parent belongs to the job as long as it has PyTorch loaded as well, and is not what netprof was started by.
    """
    not_the_job = _ancestors([os.getpid()])
    while process.frameworks and process.stat.parent not in not_the_job:
        parent = _look(process.stat.parent)
        if parent is None or not parent.frameworks:
            break
        process = parent
    return _starter(process, not_the_job) or process


def _first_rank(process: Process) -> Process | None:
    """Return the process above a rank that is the first rank itself and has started the others."""
    not_the_job = _ancestors([os.getpid()])
    while (parent := _look(process.stat.parent)) is not None and parent.stat.pid not in not_the_job:
        started = [child for pid in procfs.children(parent.stat.pid) if (child := _look(pid)) is not None]
        if is_first_of(parent, started):
            return parent
        process = parent
    return None


def _starter(process: Process, not_the_job: Collection[int]) -> Process | None:
    """Return the parent of a rank and of others of its job: what MPICH starts ranks by, and names no rendezvous."""
    own, parent = ranks.place_of(process.environment), _look(process.stat.parent)
    if own.rank == UNKNOWN_RANK or own.inherited or parent is None or parent.stat.pid in not_the_job:
        return None
    started = [child for pid in procfs.children(parent.stat.pid) if (child := _look(pid)) is not None]
    places = [ranks.place_of(child.environment) for child in started]
    found = [place.rank for place in places if place.world_size == own.world_size]
    return parent if len(found) == len(places) == len(set(found)) > 1 else None


def _add_trees(roots: Iterable[Process], job: dict[int, Process]) -> None:
    """Add processes and all their descendants to the job, but not netprof."""
    waiting = list(roots)
    while waiting and len(job) < _MAX_PROCESSES:
        process = waiting.pop()
        if process.stat.pid in job or process.stat.pid == os.getpid():
            continue
        job[process.stat.pid] = process
        below = (_look(pid) for pid in procfs.children(process.stat.pid) if pid not in job)
        waiting += [child for child in below if child is not None]


def _same_rendezvous(
    names: Collection[tuple[str, ...]], owners: Collection[int], job: dict[int, Process]
) -> list[Process]:
    """Return the ranks outside `job` that were started with a rendezvous in `names`.

    The shell in which somebody exported MASTER_ADDR has it too, and so has a netprof started from there: only ranks
    and processes with a framework loaded count, and never netprof or what it was started by.
    """
    found = []
    own = _ancestors([os.getpid()])
    wanted = {f"{name[0]}={name[1]}".encode() for name in names}
    for pid in procfs.processes(owners):
        if pid in job or pid in own or not procfs.was_started_with(pid, wanted):
            continue
        process = _look(pid)
        if process is None or ranks.job_of(process.environment, process.netns) not in names:
            continue
        if ranks.rank_variables(process.environment) or process.frameworks:
            found.append(process)
    return found


def _one_of_each_rank(found: list[Process], job: dict[int, Process]) -> list[Process]:
    """Leave out the ranks of another job that happens to use the same address and port, in namespaces of its own.

    What the job descends from is its own. A rank that it has already is not; of several that could be a rank, it is
    the one that was started at about the same time. Descendants are left to the process that they descend from.
    """
    above = _ancestors(job)
    pids = {process.stat.pid for process in found}
    began = min(process.stat.start_ticks for process in job.values())
    taken = {_own_rank(process) for process in job.values()} - {UNKNOWN_RANK}
    chosen: dict[int, Process] = {}
    others = [process for process in found if process.stat.pid in above]
    for process in sorted(found, key=lambda process: abs(process.stat.start_ticks - began)):
        rank = _own_rank(process)
        if process.stat.parent in pids or process.stat.pid in above or rank in taken:
            continue
        if rank == UNKNOWN_RANK:
            others.append(process)
        else:
            chosen.setdefault(rank, process)
    return [*chosen.values(), *others]


def _own_rank(process: Process) -> int:
    place = ranks.place_of(process.environment)
    return UNKNOWN_RANK if place.inherited else place.rank


def _ancestors(pids: Iterable[int]) -> set[int]:
    """Return the processes that others descend from, themselves included."""
    found: set[int] = set()
    for pid in pids:
        while pid > 0 and pid not in found:
            found.add(pid)
            stat = procfs.read_stat(pid)
            pid = stat.parent if stat else 0
    return found
