"""Finding the job: from any of its pids to all of its processes on this host.

The job is the given processes, their descendants, every process of the same user that was started with the same
rendezvous (MASTER_ADDR and MASTER_PORT and the like) as one of them, and torchrun's agents above them. Descendants come
from /proc/PID/task/*/children and the others' environments are read only where the user is the same: 5 µs of CPU for a
stranger's process, 19 µs for one of the user's own.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

from netprof.errors import NetprofError, UsageError
from netprof.model import Target
from netprof.probes.job import procfs, ranks
from netprof.probes.job.kinship import Kinship, add_agents, add_kin
from netprof.probes.job.roles import as_targets, is_first_of
from netprof.probes.job.tree import LIVE, VARIABLES, Process, View, add_trees, ancestors, look, look_at_all
from netprof.probes.kernel.rights import DAC_READ_SEARCH, SYS_PTRACE, not_permitted
from netprof.schema import UNKNOWN_RANK

_NAMED = 3


def find_job(pids: Sequence[int], view: View = LIVE) -> list[Target]:
    """Return every process of the job that the given pids (or thread ids) belong to, by rank and pid.

    A target's `frameworks` are those it trains with: a launcher, a data loader and other helpers have none.
    Raises NetprofError for a pid of no process that can be profiled, NotPermittedError where one may not be looked at.
    """
    return as_targets(_gather([_given(pid) for pid in dict.fromkeys(pids)], view))


def find_more(
    targets: Iterable[Target],
    *,
    thorough: bool = True,
    started: Collection[int] = (),
    launchers: Collection[int] = (),
) -> list[Target]:
    """Return every process of the job as it is now, from those of `targets` that are still there.

    Of the `launchers` it is known that they start ranks, and are none, also while none is there.
    Without `thorough` only descendants are looked for, and ranks among the `started`, and a target that has a framework
    is taken to have no other: a fraction of the cost, to be asked several times a second.
    """
    job: dict[int, Process] = {}
    living = []
    for target in targets:
        process = look(target.pid)
        if process is not None and process.stat.start_ticks == target.start_ticks:
            process.known_frameworks = None if thorough else target.frameworks or None
            living.append(process)
    add_trees(living, job)
    if thorough or started:
        add_kin(job, None if thorough else started)
    return as_targets(job, launchers)


def kinship_of(targets: Iterable[Target]) -> Kinship:
    """Return what the job's processes have in common, from those of `targets` that are still there."""
    return Kinship.of(look_at_all(target.pid for target in targets))


def is_same(target: Target) -> bool:
    """Tell whether the target's pid still is the process that it was, alive."""
    stat = procfs.read_stat(target.pid)
    return stat is not None and not stat.ended and stat.start_ticks == target.start_ticks


def _check_open_files() -> None:
    """Raise NetprofError where nothing can be read since no file can be opened any more."""
    try:
        os.close(os.open("/proc/self/stat", os.O_RDONLY))
    except OSError as error:
        raise NetprofError(
            f"cannot look at the job: {error.strerror}", "allow more open files with 'ulimit -n 65536'"
        ) from error


def check_same(targets: Iterable[Target]) -> None:
    """Raise NetprofError if a target has ended, or its pid was given to another process, since it was found."""
    for target in targets:
        stat = procfs.read_stat(target.pid)
        if stat is None:
            _check_open_files()
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
        raise NetprofError(
            f"process {pid} ({stat.name}) is a thread of the kernel", _hint(pid, "give a pid of the job")
        )
    if stat.ended:
        raise _has_ended(pid, stat)
    if process == os.getpid():
        raise UsageError(f"process {pid} is netprof itself", "give a pid of the training job")
    try:
        environment = procfs.read_environment(process, VARIABLES)
    except PermissionError as error:
        raise not_permitted(f"look into process {pid}", SYS_PTRACE, DAC_READ_SEARCH) from error
    except ProcessLookupError as error:  # it has no memory any more
        raise _has_ended(pid, stat) from error
    except OSError as error:
        raise _no_such_process(pid) from error
    return Process(stat, procfs.namespace(process, "net"), environment)


def _has_ended(pid: int, stat: procfs.Stat) -> NetprofError:
    return NetprofError(f"process {pid} ({stat.name}) has ended", "give a pid of a job that is running")


def _no_such_process(pid: int) -> NetprofError:
    """Return the error for a process that /proc does not show: there is none, or /proc hides it."""
    with suppress(ProcessLookupError):
        with suppress(PermissionError):
            os.kill(pid, 0)
        return not_permitted(f"see process {pid}, which /proc hides (hidepid)", SYS_PTRACE, DAC_READ_SEARCH)
    hint = "find the job with 'pgrep -f'; from a container, hosts' pids need --pid=host"
    return NetprofError(f"there is no process {pid}", _hint(pid, hint))


def _hint(pid: int, otherwise: str) -> str:
    """Return which process has the pid inside a container; where none has, what a person can do `otherwise`."""
    inside = [process for process in procfs.processes() if procfs.pid_inside(process) == pid]
    which = " or ".join(map(str, inside[:_NAMED]))
    return f"in a container process {which} has that pid: give that one" if inside else otherwise


def _gather(given: Sequence[Process], view: View) -> dict[int, Process]:
    """Return the whole job, by pid."""
    job: dict[int, Process] = {}
    for process in given:
        tree: dict[int, Process] = {}
        add_trees([_first_rank(process, view) or process], tree, view)
        if not Kinship.of(tree.values(), view).rendezvous:
            add_trees([_main_process(process, view)], tree, view)
        job.update(tree)
    add_kin(job, view=view)
    add_agents(job, view)
    return job


def _main_process(process: Process, view: View) -> Process:
    """Climb from a process that was forked by a rank or with it, and names no rendezvous, to where its job began.

    A parent belongs to the job as long as it has PyTorch loaded as well, and is not what netprof was started by.
    """
    not_the_job = ancestors([os.getpid()], view)
    while process.frameworks and process.stat.parent not in not_the_job:
        parent = view.look(process.stat.parent)
        if parent is None or not parent.frameworks:
            break
        process = parent
    return _starter(process, not_the_job, view) or process


def _first_rank(process: Process, view: View) -> Process | None:
    """Return the process above a rank that is the first rank itself and has started the others."""
    not_the_job = ancestors([os.getpid()], view)
    while (parent := view.look(process.stat.parent)) is not None and parent.stat.pid not in not_the_job:
        if parent.frameworks and is_first_of(parent, view.look_at_all(view.children(parent.stat.pid))):
            return parent
        process = parent
    return None


def _starter(process: Process, not_the_job: Collection[int], view: View) -> Process | None:
    """Return the parent of a rank and of others of its job: what MPICH starts ranks by, and names no rendezvous."""
    place, parent = ranks.place_of(process.environment), view.look(process.stat.parent)
    if place.rank == UNKNOWN_RANK or place.inherited or parent is None or parent.stat.pid in not_the_job:
        return None
    places = [ranks.place_of(child.environment) for child in view.look_at_all(view.children(parent.stat.pid))]
    peers = {each.rank for each in places if each.world_size == place.world_size}
    return parent if len(peers) == len(places) > 1 else None
