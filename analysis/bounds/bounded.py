"""Bounds of what a rank waits for in each step: between what is launched and when the last byte has passed.

The last bucket cannot begin before the last gradient exists, and the next forward pass cannot begin before the
optimizer, which needs all of them: what is between is exposed. A launch is never later than the step's last gradient,
the last bucket's first byte never earlier. The last byte that a rank receives is never later than the end, and the host
that goes on, or the last byte and what is left to be done with it, never earlier.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from netprof.analysis.bounds.ends import SeenProcess, done_at_most, left_ns
from netprof.analysis.bounds.launches import LaunchedSteps
from netprof.analysis.bounds.new_bytes import LastBytes, NewBytes, last_bytes, moved
from netprof.analysis.events.typical import is_ahead
from netprof.analysis.inference.infer import InferredIterations, infer_from_bins
from netprof.analysis.tables.columns import UNKNOWN, Columns, Int64

_QUIET_NS = 5_000_000
_AHEAD = 0.005
"""Share of a step's bytes that moves just before its first launch, beyond which that is not where the step begins."""
_SELDOM = 0.05
_JUST_BEFORE_NS = 2_000_000
_HARDLY_ANY = 0.05
_LEAST_BYTES = 0.5
"""Share of what a step usually moves, below which something of it was not seen."""
_PACK_NS, _PACK_NS_PER_BYTE, _BUSY = 1_000_000, 0.5, 0.05
"""How long before a bucket is launched its last gradient may exist: it is copied, at 2 GB/s or more, by a machine that
is busy with the buckets before, for a share of the wait at most."""
_LAST_GRADIENT = 0.01
"""Share of a step's bytes by which the last bucket may begin later than its size tells: headers, protocols."""


@dataclass(frozen=True, eq=False)
class Bounds(Columns):
    """What a rank waits for at the end of each step, at least and at most: [gradient_ns, received_ns] in
    [launch_ns, done_ns]; ns. A row a step of a process, from `begin_ns` to `end_ns`, in which it received `bytes`.

    `buffers` are the bytes of its collectives' buffers, UNKNOWN where nothing says it. `exact` is 1 where a profile of
    the job tells it: both bounds are the same then.
    """

    pid: Int64
    begin_ns: Int64
    end_ns: Int64
    launch_ns: Int64
    gradient_ns: Int64
    received_ns: Int64
    done_ns: Int64
    bytes: Int64
    buffers: Int64
    exact: Int64

    @property
    def least_ns(self) -> Int64:
        """How long the rank waits at least."""
        return np.asarray(np.maximum(self.received_ns - self.gradient_ns, 0))

    @property
    def most_ns(self) -> Int64:
        """How long it waits at most."""
        return self.done_ns - self.launch_ns


def bounds_of(process: SeenProcess) -> Bounds | str:
    """Return the bounds of each whole step of a process, or why it has none."""
    sent, received = moved(process.sent), moved(process.received)
    steps = _edges_on_wire(process)
    if len(steps) == 0:
        return "no whole step of it was seen to be launched"
    if len(received) == 0 or len(sent) == 0:
        return "its bytes pass no wire that is watched"
    quiet_ns = _QUIET_NS + 2 * max(process.period_ns, process.sent.bin_ns if process.sent is not None else 0)
    if process.on_gpu and (_runs_ahead(steps, received) or not _keeps_step(process)):
        return _by_bytes(process, sent, received, quiet_ns)
    into = last_bytes(received, steps.first_ns, steps.next_ns, quiet_ns)
    out = last_bytes(sent, steps.first_ns, steps.next_ns, quiet_ns)
    if _went_another_way(steps, into):
        return "hardly any of its bytes pass a wire that is watched"
    gradient_ns = _gradient_ns(process, steps, sent, into.earliest_ns)
    launch_ns = _launch_ns(process, steps, into, gradient_ns)
    done_ns = done_at_most(process, steps, into, np.maximum(into.latest_ns, out.latest_ns), (sent, received))
    return _kept(_rows(process, steps, launch_ns, gradient_ns, into, done_ns))


def _went_another_way(steps: LaunchedSteps, into: LastBytes) -> bool:
    """Tell whether far less was received than any algorithm needs for the buffers: shared memory has the rest."""
    known = steps.bytes > 0
    return bool(known.any() and np.median(into.bytes[known]) < _HARDLY_ANY * np.median(steps.bytes[known]))


def _edges_on_wire(process: SeenProcess) -> LaunchedSteps:
    """Return the steps from first launch to first launch where forward passes are only launched too."""
    steps = process.steps
    return replace(steps, begin_ns=steps.first_ns, end_ns=steps.next_ns) if process.on_gpu else steps


def _runs_ahead(steps: LaunchedSteps, received: NewBytes) -> bool:
    """Tell whether bytes of one step still pass while the next is launched: a host that is far ahead of its GPU."""
    usual = float(np.median(received.bytes_between(steps.first_ns, steps.next_ns)))
    before = received.bytes_between(steps.first_ns - _JUST_BEFORE_NS, steps.first_ns)
    return bool((before > _AHEAD * max(usual, 1.0)).mean() > _SELDOM)


def _keeps_step(process: SeenProcess) -> bool:
    """Tell whether a host waits for its GPU between steps: else it may be several of them ahead, unseen.

    Where such waits were not recorded it is taken to, unless it launches many steps at once.
    """
    steps, released = process.steps, process.blocked.end_ns
    if len(steps) < 2:
        return True
    if not process.sees_waits:
        return not is_ahead(np.diff(steps.first_ns))
    between = np.searchsorted(released, steps.first_ns[1:]) - np.searchsorted(released, steps.last_ns[:-1])
    return bool((between > 0).mean() >= 1 - _SELDOM)


def _launch_ns(process: SeenProcess, steps: LaunchedSteps, into: LastBytes, gradient_ns: Int64) -> Int64:
    """Return since when a rank waits at most: since its last launch, or since its GPU was still seen to compute.

    The last gradient is copied into its bucket before that is launched. Only DDP is known to wait for nothing before
    its last bucket.
    """
    waited_ns = np.maximum(into.latest_ns - steps.last_ns, 0)
    packing_ns = np.asarray(_PACK_NS + _PACK_NS_PER_BYTE * into.bytes / steps.launches + _BUSY * waited_ns, np.int64)
    since = steps.last_ns if process.is_ddp else steps.first_ns
    since = np.maximum(since - packing_ns, np.where(steps.launches > 1, steps.first_ns, steps.begin_ns))
    if process.on_gpu and len(process.computes):
        row = np.searchsorted(process.computes.begin_ns, gradient_ns, "left") - 1
        seen = np.where(row >= 0, process.computes.begin_ns[np.maximum(row, 0)], since)
        since = np.minimum(np.maximum(since, seen), gradient_ns)
    return np.asarray(since)


def _gradient_ns(process: SeenProcess, steps: LaunchedSteps, sent: NewBytes, end_ns: Int64) -> Int64:
    """Return when the last gradient existed at the latest.

    A host that computes by itself launches a bucket when that is so. A GPU may be far behind its host; its last
    bucket's first byte is told by how much was sent before, and where no size says that, nothing is.
    """
    if not process.on_gpu:
        waits = np.where(steps.wait_ns != UNKNOWN, steps.wait_ns, steps.last_ns)
        return np.where(waits < end_ns, waits, steps.last_ns)
    return np.minimum(_first_of_last_bucket(steps, steps.first_ns, steps.next_ns, sent, end_ns), end_ns)


def _first_of_last_bucket(
    steps: LaunchedSteps, begin_ns: Int64, next_ns: Int64, sent: NewBytes, end_ns: Int64
) -> Int64:
    share = steps.last_share
    low, high = sent.rows_between(begin_ns, next_ns)
    total = sent.before(high) - sent.before(low)
    earlier = np.clip(1 - np.nan_to_num(share, nan=0.0) + _LAST_GRADIENT, 0.0, 1.0)
    return np.where(np.isnan(share), end_ns, sent.when(np.asarray(sent.before(low) + earlier * total)))


def _by_bytes(process: SeenProcess, sent: NewBytes, received: NewBytes, quiet_ns: int) -> Bounds | str:
    """Return the bounds where the launches tell no step's begin: steps are told by the silences between their bytes.

    Each begins with the end of the one before. When the last gradient exists is then not known from below.
    """
    if process.received is None:
        return "its bytes pass no wire that is watched"
    # as many steps are launched as are performed, a little earlier
    inferred = infer_from_bins(process.received, about=float(received.through[-1]) / len(process.steps))
    if not isinstance(inferred, InferredIterations) or len(inferred) < 2:
        return "its host runs ahead of its GPU, and its bytes tell no steps either"
    into = last_bytes(received, inferred.begin_ns, inferred.end_ns, quiet_ns)
    out = last_bytes(sent, inferred.begin_ns, inferred.end_ns, quiet_ns)
    launched = _alike(process.steps, len(inferred))
    latest_ns = np.maximum(into.latest_ns, out.latest_ns)
    done_ns = latest_ns + left_ns(process, launched, into.bytes, latest_ns - inferred.begin_ns)
    before_ns = np.append(done_ns[0], done_ns[:-1])
    steps = replace(launched, begin_ns=before_ns, end_ns=done_ns)
    gradient_ns = _first_of_last_bucket(steps, inferred.begin_ns, inferred.end_ns, sent, into.earliest_ns)
    rows = _rows(process, steps, before_ns, gradient_ns, into, done_ns)
    return _kept(rows.where(np.arange(1, len(rows))))


def _alike(steps: LaunchedSteps, count: int) -> LaunchedSteps:
    """Return as many steps as `count`, all like the median one in what they launch."""
    middle = np.argsort(steps.bytes, kind="stable")[len(steps) // 2]
    return steps.where(np.full(count, middle))


def _rows(
    process: SeenProcess,
    steps: LaunchedSteps,
    launch_ns: Int64,
    gradient_ns: Int64,
    into: LastBytes,
    done_ns: Int64,
) -> Bounds:
    """Return the rows, each bound on its side of the other whatever the clocks and bins say."""
    received_ns = into.earliest_ns - process.period_ns
    gradient_ns = np.maximum(gradient_ns + (process.period_ns if process.on_gpu else 0), launch_ns)
    return Bounds(
        pid=np.full(len(steps), process.pid),
        begin_ns=steps.begin_ns,
        end_ns=steps.end_ns,
        launch_ns=launch_ns,
        gradient_ns=gradient_ns,
        received_ns=np.maximum(received_ns, gradient_ns),
        done_ns=np.maximum(done_ns, np.maximum(received_ns, gradient_ns)),
        bytes=into.bytes,
        buffers=steps.bytes,
        exact=np.zeros(len(steps), np.int64),
    )


def _kept(bounds: Bounds) -> Bounds:
    """Leave out steps in which far less moved than in others: something of them was not seen."""
    return bounds.where(bounds.bytes >= max(1.0, _LEAST_BYTES * float(np.median(bounds.bytes))))
