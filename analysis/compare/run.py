"""A run as it is compared: what kind of job it was, and its iterations, all ranks' beside each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from netprof.analysis.compare.quantities import Quantity
from netprof.analysis.compare.run_steps import LINE_RATE, Steps, joined, steps_of
from netprof.analysis.evidence import Evidence
from netprof.analysis.pieces import Pieces, PieceSize
from netprof.analysis.sections import OnPiece
from netprof.analysis.tables.columns import Float64, Int64, nearest
from netprof.errors import TraceError
from netprof.model import Meta
from netprof.schema import Backend
from netprof.trace import TraceSource

FEWEST = 10
"""Iterations below which nothing is said of a run."""


@dataclass(frozen=True, eq=False)
class Run:
    """One run of a job.

    `values` are by quantity, shape (ranks, iterations): the same iterations of all ranks, NaN where unknown. `ranks`
    are in the order of the rows, None for processes of which nothing says the rank. `line_rates_bps` are the medians
    over a rank's iterations, NaN where unknown. `damage` is what of the recording could not be read.
    """

    name: str
    meta: Meta
    hosts: tuple[str, ...]
    world_size: int | None
    backends: frozenset[str]
    ranks: tuple[int | None, ...]
    values: Mapping[str, Float64]
    line_rates_bps: Float64
    damage: tuple[str, ...] = ()

    @property
    def inferred(self) -> bool:
        """Whether no mark tells of its iterations: where their phases lie is unknown then."""
        return "compute" not in self.values

    @property
    def iterations(self) -> int:
        """How many iterations of all ranks there are."""
        return int(self.values["iteration"].shape[1])

    def of(self, quantity: Quantity, row: int | None = None) -> Float64:
        """Return a quantity iteration by iteration, of the job or of one rank; none where one is unknown."""
        values = self.values.get(quantity.source)
        if values is None:
            return np.zeros(0)
        chosen = values[row] if row is not None else values.sum(axis=0) if quantity.summed else values.mean(axis=0)
        return np.asarray(chosen[np.isfinite(chosen)])


def read_run(reader: TraceSource, on_piece: OnPiece | None = None, size: PieceSize | None = None) -> Run:
    """Read a run from its recording, a long one piece by piece. Raises TraceError where it has too few iterations."""
    pieces = Pieces(reader, size)
    whole = Evidence.of_trace(reader, known=pieces.known if len(pieces) > 1 else None)
    backends: set[int] = set()
    parts = []
    for done, piece in enumerate(pieces if len(pieces) > 1 else [whole], 1):
        parts.append(steps_of(piece))
        for found in (piece.collectives, piece.posted):
            backends.update(np.unique(found.backend).tolist())
        if on_piece is not None and len(pieces) > 1:
            on_piece(done, len(pieces))
    return run_of(reader.path.name, whole, joined(parts), frozenset(Backend.name_of(each) for each in backends))


def run_of(name: str, whole: Evidence, steps: Steps, backends: frozenset[str]) -> Run:
    """Lay the ranks' iterations beside each other. Raises TraceError where there are too few."""
    pids = _pids(steps.pid, whole.ranks)
    rows = _together(steps, pids)
    if rows.shape[1] < FEWEST:
        found = "no" if rows.shape[1] == 0 else f"only {rows.shape[1]}"
        raise TraceError(
            f"{name} has {found} whole iterations of all ranks, which is too few to compare",
            f"record at least {FEWEST}, better 50, of a job whose iterations are marked (DDP, or optimizer steps)",
        )
    values = {key: column[rows] for key, column in steps.values.items()}
    rates = values.pop(LINE_RATE, np.full(rows.shape, np.nan))
    return Run(
        name=name,
        meta=whole.meta,
        hosts=tuple(host.name for host in whole.hosts),
        world_size=whole.world_size,
        backends=backends,
        ranks=tuple(whole.ranks.get(pid) for pid in pids),
        values=values,
        line_rates_bps=np.median(rates, axis=1),
        damage=(*(["its end is missing"] if whole.truncated else []), *whole.damage),
    )


def _pids(pid: Int64, ranks: Mapping[int, int]) -> list[int]:
    """Return a process for each rank, in their order, the one with the most iterations; without ranks, all."""
    found, counts = np.unique(pid, return_counts=True)
    most: dict[int, tuple[int, int]] = {}
    for each, count in zip(found.tolist(), counts.tolist(), strict=True):
        rank = ranks.get(each)
        if rank is not None:
            most[rank] = max(most.get(rank, (0, 0)), (count, each))
    return [each for _, (_, each) in sorted(most.items())] if most else [int(each) for each in found]


def _together(steps: Steps, pids: list[int]) -> Int64:
    """Return the rows of the same iteration of all ranks, shape (ranks, iterations): those that begin nearest."""
    own = [np.flatnonzero(steps.pid == pid) for pid in pids]
    if not own:
        return np.zeros((0, 0), np.int64)
    reference = max(own, key=len)
    indexes = [nearest(steps.begin_ns[rows], steps.begin_ns[reference]) for rows in own]
    half_ns = steps.values["iteration"][reference] * 1e9 / 2
    known = np.ones(len(reference), bool)
    for rows, index in zip(own, indexes, strict=True):
        known &= np.abs(steps.begin_ns[rows[index]] - steps.begin_ns[reference]) < half_ns
    return np.stack([rows[index][known] for rows, index in zip(own, indexes, strict=True)])
