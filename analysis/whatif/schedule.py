"""What a what-if starts from: when gradients are ready, and what a trace measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.tables.columns import Float64
from netprof.analysis.whatif.buckets import Buckets
from netprof.analysis.whatif.recording import Recording
from netprof.errors import NetprofError


@dataclass(frozen=True)
class Observation:
    """What a trace measured, for the `measured` transport and the point marked in the table.

    Times are means over `iterations` typical ones. `workers_per_host` share a network namespace (a host of the job),
    `workers_on_a_machine` were recorded by one recorder and share CPUs and memory. `pace` holds the buckets of the rank
    that waits least, whose gradients other fusion policies start from; `wait_s` is when it waits for them after the
    iteration's begin, and `tail_s` what follows the last arrival (unpacking). `wire_bytes_per_byte` is the wire bytes
    that one host sent or received (whichever is more) per byte of buffer, and `overhead` those per byte that the
    algorithm has to send; both None where no wire bytes were seen.
    """

    iteration_s: float
    iterations: int
    workers: int
    workers_per_host: int
    workers_on_a_machine: int
    pace: Buckets
    wait_s: float
    tail_s: float
    line_rate_bps: float | None = None
    line_rate_source: str = "unknown"
    wire_bytes_per_byte: float | None = None
    overhead: float | None = None
    has_ddp_buckets: bool = True


@dataclass(frozen=True)
class GradientSchedule:
    """What a what-if starts from: one iteration's gradients in the order they are ready, and what a trace recorded.

    `ready_s` and `bytes` have shape (G,), empty where a trace holds no gradient marks; `compute_s` is the iteration
    without exposed communication (the paper's batch time), of the rank that computes longest. `recorded` is what the
    trace's ranks did, iteration by iteration. `notes` says what about it is assumed, `gradient_notes` what about
    `ready_s` and `bytes`.
    """

    ready_s: Float64
    bytes: Float64
    compute_s: float
    observed: Observation | None = None
    recorded: Recording | None = None
    notes: tuple[str, ...] = ()
    gradient_notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.ready_s.shape != self.bytes.shape:
            raise ValueError("one size per gradient")
        if not (np.isfinite(self.compute_s) and self.compute_s > 0):
            raise NetprofError(f"a batch time of {self.compute_s} s is not a time", "give --batch-time in seconds")

    @property
    def last_ready_s(self) -> float:
        """When the last gradient is ready and waiting begins: overhead counts from here."""
        if self.observed is not None:
            return self.observed.wait_s
        return float(self.ready_s[-1]) if len(self.ready_s) else 0.0
