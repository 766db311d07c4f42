"""What the replay starts from: when gradients are ready, the buckets made of them, and what a trace measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from netprof.errors import NetprofError

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Buckets:
    """Buckets in the order they are launched: `launch_s` (seconds, any origin) and `bytes`, both of shape (K,)."""

    launch_s: FloatArray
    bytes: FloatArray

    def __len__(self) -> int:
        return len(self.launch_s)


@dataclass(frozen=True)
class CollectiveSamples:
    """Measured collectives, shape (M,): each one's buffer in bytes, and the seconds of link time that were its own.

    Where collectives overlap, a moment with k outstanding counts 1/k for each, so that `seconds` adds up to the time
    in which any was outstanding.
    """

    bytes: FloatArray
    seconds: FloatArray

    def __len__(self) -> int:
        return len(self.bytes)


@dataclass(frozen=True)
class Observation:
    """What a trace measured, for the `observed` buckets, the `measured` transport and the point marked in the table.

    Times of an iteration count from its begin; they are means over `iterations` typical ones.
    `wire_bytes_per_byte` is the wire bytes that one host sent or received (whichever is more) per byte of bucket, None
    where no wire bytes were seen; `tail_s` runs from the last collective's end to the end of the wait (unpacking).
    """

    iteration_s: float
    iterations: int
    workers: int
    workers_per_host: int
    buckets: Buckets
    wait_s: float
    tail_s: float
    collectives: CollectiveSamples
    line_rate_bps: float | None = None
    line_rate_source: str = "unknown"
    wire_bytes_per_byte: float | None = None


@dataclass(frozen=True)
class GradientSchedule:
    """One iteration's gradients in the order they are ready.

    `ready_s` and `bytes` have shape (G,), empty where a trace holds no gradient marks; `compute_s` is the iteration
    without exposed communication (the paper's batch time). `notes` says what about it is assumed, `gradient_notes` what
    about `ready_s` and `bytes`.
    """

    ready_s: FloatArray
    bytes: FloatArray
    compute_s: float
    observed: Observation | None = None
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
