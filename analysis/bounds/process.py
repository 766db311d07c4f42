"""What is seen of one process that is only seen to launch."""

from __future__ import annotations

from dataclasses import dataclass

from netprof.analysis.bounds.launches import LaunchedSteps
from netprof.analysis.tables.columns import Int64
from netprof.analysis.tables.intervals import Intervals
from netprof.analysis.wire.bins import Bins


@dataclass(frozen=True, eq=False)
class Process:
    """What is seen of one process: its launches by step, what it sent and received, and what else tells of its ends.

    `period_ns` is how far apart its bytes are known (RDMA ports; 0 for packets). `goes_on_ns` are signs that a host
    that computes by itself goes on, ascending; `blocked` is when the host of a GPU waits for it, and `computes` when
    the GPU is seen to compute. `sees_waits` says whether such waits are recorded, `is_ddp` that the launches are DDP's
    buckets.
    """

    pid: int
    steps: LaunchedSteps
    sent: Bins | None
    received: Bins | None
    on_gpu: bool
    is_ddp: bool
    period_ns: int
    goes_on_ns: Int64
    blocked: Intervals
    sees_waits: bool
    computes: Intervals
