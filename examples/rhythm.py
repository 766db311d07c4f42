"""Traffic of made-up training jobs whose iterations are known, to judge the inference of iterations against."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from netprof.analysis.wire.bins import Bins

MS = 1_000_000
START_NS = 1_000_000 * MS


@dataclass(frozen=True)
class Rhythm:
    """A job: per iteration it computes, then sends its buckets, the next when it is ready and the last is sent.

    `compute_ms` is what an iteration computes before its first bucket, `between_ms` between two buckets; `jitter` is
    the standard deviation of an iteration's time as a share of it, put on the compute time (`shape`: normal, uniform
    or lognormal). `pause_ms` is spent in the middle, as an evaluation would.
    """

    iterations: int = 100
    buckets_mb: tuple[float, ...] = (1.0, 6.0, 3.0)
    compute_ms: float = 60.0
    between_ms: float = 15.0
    rate_bps: float = 1e9
    jitter: float = 0.0
    shape: str = "normal"
    pause_ms: float = 0.0
    heartbeat_ms: float = 0.0  # a packet of 200 bytes so often
    background_share: float = 0.0  # steady other traffic of the same process, of the line rate
    stall_share: float = 0.0  # share of busy bins in which the transport stands still
    bin_ns: int = MS
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Played:
    """What the job did: truth (`begin_ns` of every iteration and the end of the last), the wire, and every bucket."""

    begin_ns: npt.NDArray[np.int64]
    bins: Bins
    bucket_begin_ns: npt.NDArray[np.int64]
    bucket_end_ns: npt.NDArray[np.int64]
    bucket_bytes: npt.NDArray[np.int64]


def play(job: Rhythm) -> Played:
    """Play the job; the truth begins with an iteration's compute time."""
    rng = np.random.default_rng(job.seed)
    count, size = job.iterations, np.array(job.buckets_mb) * 1e6
    send_ns = size * 8e9 / job.rate_bps
    compute = _compute_ns(job, rng, float(send_ns.sum()))
    begin, now = np.zeros(count + 1), 0.0
    bursts: list[tuple[float, float, float]] = []
    for step in range(count):
        begin[step] = now
        ready = now + compute[step]
        for bucket, length in enumerate(send_ns):
            start = max(ready + bucket * job.between_ms * MS, bursts[-1][1] if bucket else 0.0)
            bursts.append((start, start + length, size[bucket]))
        now = bursts[-1][1] + 2 * MS
        if step == count // 2:
            now += job.pause_ms * MS
    begin[count] = now
    spans = np.array(bursts)
    bins = _bins(job, rng, spans, now)
    bucket_begin_ns, bucket_end_ns = (START_NS + np.rint(spans[:, column]).astype(np.int64) for column in (0, 1))
    begin_ns = START_NS + np.rint(begin).astype(np.int64)
    return Played(begin_ns, bins, bucket_begin_ns, bucket_end_ns, spans[:, 2].astype(np.int64))


def _compute_ns(job: Rhythm, rng: np.random.Generator, sending_ns: float) -> npt.NDArray[np.float64]:
    """Return each iteration's time before its first bucket; at least 2 ms, however it jitters."""
    mean = job.compute_ms * MS
    spread = job.jitter * (mean + max(sending_ns, (len(job.buckets_mb) - 1) * job.between_ms * MS))
    if job.shape == "uniform":
        drawn = rng.uniform(-1, 1, job.iterations) * spread
    elif job.shape == "lognormal":
        sigma = np.sqrt(np.log1p(job.jitter**2))
        drawn = spread / max(job.jitter, 1e-9) * (np.exp(rng.normal(-(sigma**2) / 2, sigma, job.iterations)) - 1)
    else:
        drawn = rng.normal(0, spread, job.iterations)
    return np.maximum(mean + drawn, 2 * MS)


def _bins(job: Rhythm, rng: np.random.Generator, spans: npt.NDArray[np.float64], end_ns: float) -> Bins:
    """Return the wire: every burst at line rate, stretched where the transport stalls, and what else there is."""
    count = int(end_ns // job.bin_ns) + 2
    edges = np.arange(count + 1, dtype=np.float64) * job.bin_ns
    if job.stall_share:
        edges = _stalled(rng, edges, job.stall_share, spans)
    knots = np.column_stack((spans[:, 0], spans[:, 1])).ravel()
    sent = np.column_stack((np.cumsum(spans[:, 2]) - spans[:, 2], np.cumsum(spans[:, 2]))).ravel()
    payload = np.diff(np.rint(np.interp(edges, knots, sent)))
    if job.background_share:
        payload += rng.poisson(job.background_share * job.rate_bps * job.bin_ns / 8e9 / 1448, count) * 1448
    if job.heartbeat_ms:
        at = np.cumsum(rng.exponential(job.heartbeat_ms * MS, int(end_ns / job.heartbeat_ms / MS)))
        at = at[at < end_ns]
        payload += np.bincount((at // job.bin_ns).astype(np.int64), minlength=count)[:count] * 200
    return full_bins(payload, START_NS // job.bin_ns, job.bin_ns)


def full_bins(payload: npt.ArrayLike, first_bin: int, bin_ns: int = MS) -> Bins:
    """Return a lane from the bytes of each bin from `first_bin` on: those that hold any, full from end to end."""
    amounts = np.asarray(payload).astype(np.uint64)
    held = np.flatnonzero(amounts)
    edge = np.full(len(held), bin_ns, np.uint32)
    return Bins(bin_ns, first_bin + held, amounts[held], amounts[held], amounts[held] * 0, edge, edge)


def _stalled(
    rng: np.random.Generator, edges: npt.NDArray[np.float64], share: float, spans: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the edges moved so that in `share` of the busy bins nothing is sent, and is made up for in the next."""
    moved = edges.copy()
    busy = np.zeros(len(edges), bool)
    index = np.searchsorted(spans[:, 0], edges, "right") - 1
    inside = index >= 0
    busy[inside] = edges[inside] < spans[index[inside], 1]
    stall = busy & (rng.random(len(edges)) < share)
    stall[0] = False
    moved[1:][stall[1:]] = moved[:-1][stall[1:]]
    return np.maximum.accumulate(moved)
