"""How ranks and processes are called: the same in every sentence and table."""

from __future__ import annotations

from collections.abc import Iterable

from netprof.analysis.evidence import Evidence
from netprof.analysis.tables.flow_table import LinkKey


def rank_or_pid(rank: int | None, pid: int, process: str = "pid") -> str:
    """Return 'rank 3', or 'pid 4711' where nothing says its rank; `process` is how one is called."""
    return f"{process} {pid}" if rank is None else f"rank {rank}"


def rank_number(rank: int | None, pid: int) -> str:
    """Return a rank as a column headed so has it."""
    return f"pid {pid}" if rank is None else str(rank)


def own_pid(pid: int, evidence: Evidence) -> int:
    """Return the number that a process has on its own host; a recording of several hosts may give it another one."""
    host = evidence.host_of.get(pid)
    return pid if host is None else host.pids.get(pid, pid)


def name_and_pid(pid: int, evidence: Evidence) -> str:
    """Return 'rank 3 (pid 4711)', of several hosts 'rank 3 (pid 4711 on node1)'."""
    rank, number = evidence.ranks.get(pid), f"pid {own_pid(pid, evidence)}{_on_host(pid, evidence)}"
    return number if rank is None else f"rank {rank} ({number})"


def name_on_host(pid: int, evidence: Evidence, process: str = "pid") -> str:
    """Return how a process is called: its rank, or its number on its host, and the host where there are several."""
    return rank_or_pid(evidence.ranks.get(pid), own_pid(pid, evidence), process) + _on_host(pid, evidence)


def _on_host(pid: int, evidence: Evidence) -> str:
    host = evidence.host_of.get(pid)
    return "" if host is None else f" on {host.name}"


def gpu_on_host(index: int, evidence: Evidence) -> str:
    """Return '3 of node1' for the number of a GPU in a job of several hosts; "" where one host recorded it."""
    names = (f"{host.gpus[index]} of {host.name}" for host in evidence.hosts if index in host.gpus)
    return next(names, "") if len(evidence.hosts) > 1 else ""


def ranks_of(pids: Iterable[int], evidence: Evidence) -> tuple[int, ...]:
    """Return the ranks of some processes, ascending, as far as they have any."""
    return tuple(sorted({evidence.ranks[pid] for pid in pids if pid in evidence.ranks}))


def link_on_host(link: LinkKey, evidence: Evidence) -> str:
    """Return ' on node1' for a device of a job of several hosts; "" where one host recorded it."""
    host = evidence.host_of_link(link)
    return f" on {host}" if host else ""


def ranks_named(ranks: tuple[int, ...], pids: Iterable[int]) -> str:
    """Return how some ranks are called, or the processes if nothing says which ranks they are."""
    numbers = ranks or tuple(pids)
    one, several = ("rank", "ranks") if ranks else ("process", "processes")
    return f"{several if len(numbers) > 1 else one} {', '.join(map(str, numbers))}"
