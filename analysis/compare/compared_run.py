"""A run as it is compared: what kind of job it was, and its iterations, all ranks' beside each other."""

from __future__ import annotations

from collections import Counter
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
_NOTABLE = 0.01  # of the bytes; what carries less is a barrier or a checkpoint that the other run need not have had


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
    carried = Counter[int]()
    parts = []
    for done, piece in enumerate(pieces if len(pieces) > 1 else [whole], 1):
        parts.append(steps_of(piece))
        for collectives in (piece.collectives, piece.posted):
            for backend in np.unique(collectives.backend).tolist():
                carried[backend] += int(np.maximum(collectives.bytes[collectives.backend == backend], 1).sum())
        if on_piece is not None and len(pieces) > 1:
            on_piece(done, len(pieces))
    backends = (each for each, amount in carried.items() if amount >= _NOTABLE * carried.total())
    return run_of(reader.path.name, whole, joined(parts), frozenset(map(Backend.name_of, backends)))


def run_of(name: str, whole: Evidence, steps: Steps, backends: frozenset[str]) -> Run:
    """Lay the ranks' iterations beside each other. Raises TraceError where there are too few."""
    by_rank = _by_rank(steps.pid, whole.ranks)
    rows = _together(steps, by_rank)
    if rows.shape[1] < FEWEST:
        amount = "no" if rows.shape[1] == 0 else f"only {rows.shape[1]}"
        raise TraceError(
            f"{name} has {amount} whole iterations of all ranks, which is too few to compare",
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
        ranks=tuple(whole.ranks.get(pids[0]) for pids in by_rank),
        values=values,
        line_rates_bps=np.median(rates, axis=1),
        damage=(*(["its end is missing"] if whole.truncated else []), *whole.damage),
    )


def _by_rank(pid: Int64, ranks: Mapping[int, int]) -> list[list[int]]:
    """Return the processes of each rank, in their order: several where it was restarted; without ranks, each."""
    pids_of: dict[int, list[int]] = {}
    for each in np.unique(pid).tolist():
        if (rank := ranks.get(each)) is not None:
            pids_of.setdefault(rank, []).append(each)
    return [pids_of[rank] for rank in sorted(pids_of)] or [[each] for each in np.unique(pid).tolist()]


def _together(steps: Steps, by_rank: list[list[int]]) -> Int64:
    """Return the rows of the same iteration of all ranks, shape (ranks, iterations): those that begin nearest."""
    rows_of = [np.flatnonzero(np.isin(steps.pid, pids)) for pids in by_rank]
    if not rows_of:
        return np.zeros((0, 0), np.int64)
    rows_of = [rows[np.argsort(steps.begin_ns[rows], kind="stable")] for rows in rows_of]
    reference = max(rows_of, key=len)
    indexes = [nearest(steps.begin_ns[rows], steps.begin_ns[reference]) for rows in rows_of]
    half_ns = steps.values["iteration"][reference] * 1e9 / 2
    known = np.ones(len(reference), bool)
    for rows, index in zip(rows_of, indexes, strict=True):
        known &= np.abs(steps.begin_ns[rows[index]] - steps.begin_ns[reference]) < half_ns
    return np.stack([rows[index][known] for rows, index in zip(rows_of, indexes, strict=True)])
