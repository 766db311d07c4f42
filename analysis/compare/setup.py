"""What is not the same about two runs themselves: whether they can be compared, and what else one must know."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from netprof.analysis.compare.compared_run import Run
from netprof.units import count, duration, rate, size

_ANOTHER = 0.1
"""Difference of a job's buffers or line rates that no tuning explains: it is another model, or another link."""
_NOTICED = 0.001
_FEW = 50
"""Iterations by which a change of 3 % is found."""


def not_comparable(before: Run, after: Run) -> Iterator[str]:
    """Say why two runs are not of the same job, a sentence each."""
    if before.world_size != after.world_size:
        yield f"A is a job of {_ranks(before)}, B of {_ranks(after)}"
    elif before.ranks != after.ranks:
        lost = [f"; of {letter}, {run.damage[0]}" for letter, run in (("A", before), ("B", after)) if run.damage]
        yield f"A has the iterations of {_recorded(before)}, B of {_recorded(after)}{''.join(lost)}"
    if before.inferred != after.inferred:
        which = "A" if before.inferred else "B"
        yield f"no mark tells of the iterations of {which}: they are inferred, and begin elsewhere than the other run's"
    if before.backends != after.backends:
        yield f"A communicates by {_names(before.backends)}, B by {_names(after.backends)}"
    gpus = [sorted(_models(run)) for run in (before, after)]
    if all(gpus) and gpus[0] != gpus[1]:
        yield f"A runs on {_names(set(gpus[0]))}, B on {_names(set(gpus[1]))}"
    buffers = [_buffers(run) for run in (before, after)]
    if _apart(*buffers) > _ANOTHER:
        yield f"an iteration of a rank exchanges {size(buffers[0])} in A and {size(buffers[1])} in B: another model"


def other_links(before: Run, after: Run) -> Iterator[str]:
    """Say which ranks' links have another line rate, a sentence each: often it is the change to be compared."""
    for rank, rates in _line_rates(before, after):
        if _apart(*rates) > _ANOTHER:
            yield f"the line rate of {rank} is {rate(rates[0])} in A and {rate(rates[1])} in B"


def differences(before: Run, after: Run) -> Iterator[str]:
    """Say what is not the same and may explain a change, a sentence each."""
    for rank, rates in _line_rates(before, after):
        if _NOTICED < _apart(*rates) <= _ANOTHER:
            yield f"the line rate of {rank} is {rate(rates[0])} in A and {rate(rates[1])} in B"
    if set(before.hosts) != set(after.hosts):
        yield f"A was recorded on {', '.join(before.hosts)}, B on {', '.join(after.hosts)}"
    for name in ("netprof_version", "kernel"):
        if getattr(before.meta, name) != getattr(after.meta, name):
            what = name.removesuffix("_version")
            yield f"{what} is {getattr(before.meta, name)} in A and {getattr(after.meta, name)} in B"
    if before.meta.bin_ns != after.meta.bin_ns:
        widths = [duration(run.meta.bin_ns / 1e9) for run in (before, after)]
        yield f"time bins are {widths[0]} wide in A and {widths[1]} in B: times of bytes differ by as much"
    if before.inferred and after.inferred:
        yield (
            "no mark tells when an iteration of either is performed: they are inferred, or told by launches and bytes, "
            "and where their phases lie is unknown"
        )
    for letter, run in (("A", before), ("B", after)):
        if run.iterations < _FEW:
            yield f"{letter} has only {count(run.iterations, 'iteration')}: small changes may not be found"
        yield from (f"of {letter}, {damage}" for damage in run.damage)
        losses = run.meta.losses
        if losses.lost_marks or losses.untracked_flows:
            yield f"something went by unrecorded in {letter} (its report says what)"


def _models(run: Run) -> list[str]:
    """Return what the GPUs of a run are; of several hosts their names also say which one that is, at the end."""
    names = [gpu.name for gpu in run.meta.gpus]
    return [name.rpartition(" (")[0] for name in names] if len(run.hosts) > 1 else names


def _ranks(run: Run) -> str:
    return "an unknown number of ranks" if run.world_size is None else count(run.world_size, "rank")


def _recorded(run: Run) -> str:
    known = [str(rank) for rank in run.ranks if rank is not None]
    return (
        f"rank{'s' * (len(known) > 1)} {', '.join(known)}" if known else count(len(run.ranks), "process", "processes")
    )


def _names(names: set[str] | frozenset[str]) -> str:
    return ", ".join(sorted(name.lower() if name.isupper() else name for name in names)) or "nothing that was seen"


def _buffers(run: Run) -> float:
    values = run.values.get("collective_bytes")
    return float("nan") if values is None or np.isnan(values).all() else float(np.nanmedian(values))


def _line_rates(before: Run, after: Run) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield each rank that both have, and its line rates; all ranks as one where they are alike."""
    if len(before.ranks) != len(after.ranks):
        return
    pairs = list(zip(before.line_rates_bps.tolist(), after.line_rates_bps.tolist(), strict=True))
    if len(set(pairs)) == 1:
        yield "all ranks", pairs[0]
        return
    for number, (rank, rates) in enumerate(zip(before.ranks, pairs, strict=True)):
        yield (f"process {number}" if rank is None else f"rank {rank}"), rates


def _apart(before: float, after: float) -> float:
    """Return by how much two amounts differ, as a share of the smaller one; 0 where one is unknown."""
    low, high = min(before, after), max(before, after)
    return high / low - 1 if low > 0 else 0.0
