"""What each process of a job does: which are ranks that train, which are launchers, data loaders and other helpers.

Launchers differ. torchrun, mpirun and their like start all ranks and train nothing; the ranks' variables tell them.
Lightning's own launcher is the first rank of its host and starts the others. `torch.multiprocessing.spawn` sets no
variables that anybody could see, and its parent only waits: there it is the connections that tell who trains.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from netprof.model import Target
from netprof.probes.job import cgroups, procfs, ranks
from netprof.probes.job.tree import Process
from netprof.probes.kernel.pids import numbers_inside
from netprof.schema import RANK_OF_ENVIRONMENT, UNKNOWN_RANK


def as_targets(job: dict[int, Process], known_launchers: Collection[int] = ()) -> list[Target]:
    """Turn the job's processes into targets, by rank (unknown ones last) and pid."""
    above = {pid: _parents(process, job) for pid, process in job.items()}
    launchers = _launchers(job, above).union(known_launchers)
    training: set[int] = set()
    targets = []
    for process in sorted(job.values(), key=lambda process: len(above[process.stat.pid])):  # parents come first
        parents = above[process.stat.pid]
        if process.stat.pid not in launchers and _trains(process, [p for p in parents if p.stat.pid in training]):
            training.add(process.stat.pid)
        targets.append(_target(process, parents, process.stat.pid in training, process.stat.pid in launchers))
    return sorted(targets, key=lambda target: (target.rank < 0, target.rank, not target.frameworks, target.pid))


def may_train(targets: Sequence[Target]) -> list[Target]:
    """Return the processes with a framework; where none has one, all: what they train with is not known."""
    return [target for target in targets if target.frameworks] or list(targets)


def is_first_of(process: Process, started: Iterable[Process]) -> bool:
    """Tell whether a process is the first rank of its host, and started the others: they lack local rank 0."""
    others = [each for each in started if not each.is_data_loader and _is_another_rank(process, each)]
    numbers = {ranks.place_on_host(each.environment) for each in others}
    if not numbers or any(ranks.RUN in each.environment for each in others) or numbers & {None, 0}:
        return False
    return bool(process.frameworks) and ranks.place_on_host(process.environment) in (None, 0)


def _is_another_rank(process: Process, candidate: Process) -> bool:
    variables = ranks.rank_variables(candidate.environment)
    return bool(variables) and variables != ranks.rank_variables(process.environment)


def _target(process: Process, parents: list[Process], trains: bool, launches: bool) -> Target:
    place = ranks.place_of(process.environment)
    not_its_own = place.inherited and any(
        parent.frameworks and ranks.place_of(parent.environment) == place for parent in parents
    )
    if launches or not_its_own:
        place = ranks.RankPlace(world_size=None if launches else place.world_size)
    inner_pid, pid_namespace = numbers_inside(process.stat.pid, process.stat.start_ticks)
    return Target(
        pid=process.stat.pid,
        start_ticks=process.stat.start_ticks,
        command=procfs.command_line(process.stat.pid),
        netns=process.netns,
        rank=place.rank,
        world_size=place.world_size,
        frameworks=process.frameworks if trains else (),
        rank_source=RANK_OF_ENVIRONMENT if place.rank != UNKNOWN_RANK else "",
        inner_pid=inner_pid,
        pid_namespace=pid_namespace,
        cgroup=cgroups.cgroup_of(process.stat.pid, process.environment),
    )


def _launchers(job: dict[int, Process], above: dict[int, list[Process]]) -> set[int]:
    """Return the processes that started ranks and are none themselves."""
    below: defaultdict[int, list[Process]] = defaultdict(list)
    for pid, parents in above.items():
        for parent in parents:
            below[parent.stat.pid].append(job[pid])
    return {pid for pid, started in below.items() if _launches(job[pid], started)}


def _launches(process: Process, below: Sequence[Process]) -> bool:
    """Tell a launcher by what is below it: ranks with variables of their own, or without any, that are connected."""
    if any(_is_another_rank(process, each) for each in below if not each.is_data_loader):
        return not is_first_of(process, below)
    if ranks.rank_variables(process.environment) or not process.frameworks:
        return False
    workers = [each for each in below if each.frameworks and not each.is_data_loader]
    return (
        bool(workers)
        and not procfs.connections(process.stat.pid)
        and any(procfs.connections(worker.stat.pid) for worker in workers)
    )


def _trains(process: Process, training_parents: Sequence[Process]) -> bool:
    """Tell a rank from its data loaders: those have the rank variables of a process above them that trains."""
    variables = ranks.rank_variables(process.environment)
    inherited = variables and any(ranks.rank_variables(parent.environment) == variables for parent in training_parents)
    return not process.is_data_loader and not inherited and bool(process.frameworks)


def _parents(process: Process, job: dict[int, Process]) -> list[Process]:
    """Return the processes of the job above a process, nearest first."""
    parents: list[Process] = []
    parent = job.get(process.stat.parent)
    while parent is not None and parent not in parents:
        parents.append(parent)
        parent = job.get(parent.stat.parent)
    return parents
