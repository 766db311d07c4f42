"""Until when a rank waits at most: what is left to be done after the last byte, and signs that it went on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.bounds.launches import LaunchedSteps
from netprof.analysis.bounds.new_bytes import LastBytes, NewBytes
from netprof.analysis.tables.columns import Int64
from netprof.analysis.tables.intervals import Intervals, row_at
from netprof.analysis.wire.bins import Bins


@dataclass(frozen=True, eq=False)
class SeenProcess:
    """What is seen of one process: its launches by step, what it sent and received, and other signs of its ends.

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


_NEVER = np.iinfo(np.int64).max
_ON_HOST = (2_000_000, 1.0, 0.05)
_ON_GPU = (2_000_000, 0.25, 0.02)
"""What is left to be done with the last bytes: ns in any case, ns a byte of the last bucket, and a share of the wait.

A host copies the bucket, at 1 GB/s or more; to a GPU it goes over PCIe, at 4 GB/s or more. A machine that was busy with
the bytes all along is late with the last ones too.
"""
_UNTIL_IT_GOES_ON = 0.15
"""The share of the wait for a host that is seen to go on: by then it is surely done."""


def done_at_most(
    process: SeenProcess, steps: LaunchedSteps, into: LastBytes, latest_ns: Int64, moved: tuple[NewBytes, NewBytes]
) -> Int64:
    """Return until when a process waits at most in each step, whose last byte is received or sent at `latest_ns`.

    `moved` is what it sent, and what it received.
    """
    done_ns = latest_ns + left_ns(process, steps, into.bytes, latest_ns - steps.last_ns)
    if process.on_gpu:
        return np.asarray(np.minimum(done_ns, _released_ns(process.blocked, into.earliest_ns)))
    done_ns = np.minimum(done_ns, np.maximum(steps.next_ns, latest_ns))
    return _gone_on(process, steps, into, done_ns, moved)


def left_ns(process: SeenProcess, steps: LaunchedSteps, size: Int64, waited_ns: Int64, share: float = 0.0) -> Int64:
    """Return how long what is left after the last of `size` bytes takes at most; `share` of the wait, or more."""
    fixed_ns, byte_ns, busy = _ON_GPU if process.on_gpu else _ON_HOST
    last_bucket_ns = byte_ns * size / steps.launches
    late_ns = max(busy, share) * np.maximum(waited_ns, 0)
    return np.asarray(process.period_ns + fixed_ns + last_bucket_ns + late_ns, np.int64)


def _gone_on(
    process: SeenProcess, steps: LaunchedSteps, into: LastBytes, done_ns: Int64, moved: tuple[NewBytes, NewBytes]
) -> Int64:
    """Return the same where marks tell that a host that computes by itself went on: whatever it waited for was before.

    What still moved until then may be what it waited for, however late it came; but what lies between may be its own.
    """
    row = np.searchsorted(process.goes_on_ns, into.earliest_ns, "right")
    goes_on = np.append(process.goes_on_ns, _NEVER)[row]
    known = goes_on <= np.maximum(steps.next_ns, into.earliest_ns)
    at = np.where(known, goes_on, done_ns)
    sent, received = moved
    latest_ns = np.maximum(sent.last_before(at), received.last_before(at))
    more_ns = left_ns(process, steps, into.bytes, latest_ns - steps.last_ns, _UNTIL_IT_GOES_ON)
    return np.where(known, np.minimum(goes_on, np.maximum(latest_ns + more_ns, done_ns)), done_ns)


def _released_ns(blocked: Intervals, at_ns: Int64) -> Int64:
    """Return when the host of a GPU came out of the wait for it that it was in at some instants; never if in none."""
    return np.append(blocked.end_ns, _NEVER)[row_at(blocked.begin_ns, blocked.end_ns, at_ns)]
