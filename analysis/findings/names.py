"""How ranks and processes are called: the same in every sentence and table."""

from __future__ import annotations

from collections.abc import Iterable

from netprof.analysis.evidence import Evidence


def rank_or_pid(rank: int | None, pid: int, process: str = "pid") -> str:
    """Return 'rank 3', or 'pid 4711' where nothing says its rank; `process` is how one is called."""
    return f"{process} {pid}" if rank is None else f"rank {rank}"


def rank_and_pid(rank: int | None, pid: int) -> str:
    """Return 'rank 3 (pid 4711)'."""
    return f"pid {pid}" if rank is None else f"rank {rank} (pid {pid})"


def rank_number(rank: int | None, pid: int) -> str:
    """Return a rank as a column headed so has it."""
    return f"pid {pid}" if rank is None else str(rank)


def name_on_host(pid: int, evidence: Evidence, process: str = "pid") -> str:
    """Return how a process is called: its rank, or its number on its host, and the host where there are several."""
    host = evidence.host_of.get(pid)
    own = pid if host is None else host.pids.get(pid, pid)
    return rank_or_pid(evidence.ranks.get(pid), own, process) + (f" on {host.name}" if host is not None else "")


def ranks_named(ranks: tuple[int, ...], pids: Iterable[int]) -> str:
    """Return how some ranks are called, or the processes if nothing says which ranks they are."""
    numbers = ranks or tuple(pids)
    one, several = ("rank", "ranks") if ranks else ("process", "processes")
    return f"{several if len(numbers) > 1 else one} {', '.join(map(str, numbers))}"
