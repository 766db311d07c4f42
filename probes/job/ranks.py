"""Which rank of which job a process is, from the environment that its launcher gave it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from netprof.schema import UNKNOWN_RANK

# Rank, world size, local rank: by launcher, the innermost first (torchrun runs inside a Slurm step, not around it).
_RANKS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),  # torchrun, and everything that uses PyTorch's env://
    ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
)
# Slurm also gives these to a batch script, whose processes then all look like rank 0.
_STEP_RANK = ("SLURM_PROCID", "SLURM_NTASKS")

# What all ranks of one job share, and no other job does.
_JOBS = (
    ("MASTER_ADDR", "MASTER_PORT"),
    ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"),
    ("PMIX_NAMESPACE",),
    ("OMPI_MCA_ess_base_jobid",),
    ("SLURM_JOB_ID", "SLURM_STEP_ID"),
)
RUN = "TORCHELASTIC_RUN_ID"
"""Of what torchrun's agent started: that one starts all ranks, and again what ends too early."""

VARIABLES = tuple(dict.fromkeys(name for group in (*_RANKS, _STEP_RANK, *_JOBS, (RUN,)) for name in group))
"""Every variable that the functions here look at."""


@dataclass(frozen=True)
class RankPlace:
    """A process's place in its job; UNKNOWN_RANK and None where nothing says it."""

    rank: int = UNKNOWN_RANK
    world_size: int | None = None
    inherited: bool = False  # from Slurm's step: children of the process have it too, and it is not theirs


def place_of(environment: Mapping[str, str]) -> RankPlace:
    """Return the place in the job that `environment` names."""
    for names in (*_RANKS, _STEP_RANK):
        rank, world_size = (_count(environment.get(name, "")) for name in names[:2])
        if rank is not None:
            return RankPlace(rank, world_size, inherited=names is _STEP_RANK)
    return RankPlace()


def rank_variables(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values by which launchers tell one rank from another; () where there are none.

    A data loader has those of its rank; a rank has others than the launcher it was started by.
    """
    values = tuple(environment.get(name, "") for names in _RANKS for name in names)
    return values if any(values) else ()


def place_on_host(environment: Mapping[str, str]) -> int | None:
    """Return the number among the ranks of its host that a launcher gave a process; None where it gave none."""
    return next((number for *_, name in _RANKS if (number := _count(environment.get(name, ""))) is not None), None)


def run_of(environment: Mapping[str, str]) -> str:
    """Return the name of the run that torchrun's agent gave the process; "" where none started it."""
    return environment.get(RUN, "")


def job_of(environment: Mapping[str, str], netns: int) -> tuple[str, ...] | None:
    """Return what all ranks of a job, and only they, have in common; None where the environment names no job.

    It begins with the name and the value of a variable.
    A rendezvous on a loopback address tells a job apart only within its network namespace `netns`.
    """
    for names in _JOBS:
        values = tuple(environment.get(name, "") for name in names)
        if all(values):
            place = str(netns) if _is_loopback(values[0]) else ""
            return (names[0], *values, environment.get(RUN, ""), place)
    return None


def _count(text: str) -> int | None:
    """Read a small whole number; None for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
