"""An analysed trace as the start of a replay: its own buckets, transport, gradients and measured iteration.

A thin adapter on `netprof.analysis.Analysis`. It follows one rank, the one that waits least for the network: the
others wait for it too, and what they wait for it is not the network's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.events.buckets import Buckets as BucketTable
from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.iterations import Iterations
from netprof.analysis.events.typical import middle_half
from netprof.analysis.findings.links import LINKS, LinkSummary
from netprof.analysis.section import Analysis
from netprof.analysis.tables.columns import UNKNOWN, Int64
from netprof.analysis.whatif.gradients import gradients_of
from netprof.analysis.whatif.samples import own_seconds
from netprof.analysis.whatif.schedule import Buckets, CollectiveSamples, GradientSchedule, Observation
from netprof.errors import NetprofError, TraceError

_NS = 1e-9


def from_trace(
    analysis: Analysis, *, compute_s: float | None = None, line_rate_bps: float | None = None
) -> GradientSchedule:
    """Return the schedule and the observation that a trace holds.

    `compute_s` replaces the trace's own iteration without exposed communication, `line_rate_bps` the line rate that it
    recorded. Raises TraceError or NetprofError, with a remedy, where the trace cannot serve.
    """
    iterations = analysis.evidence.iterations
    if len(iterations) == 0:
        raise TraceError(
            "the trace holds no whole iteration of a DDP job, so there is none to replay",
            "record some iterations of the training, or give a gradient log with --batch-time",
        )
    workers, notes = _workers(analysis)
    pid = _pace_setter(iterations)
    buckets, assumed = _buckets(analysis, pid)
    notes += assumed
    rank = _typical(pid, iterations, buckets)
    link = _busiest(analysis.of(LINKS))
    rate = (line_rate_bps, "--line-rate") if line_rate_bps is not None else _rate(link)
    observation = Observation(
        iteration_s=float(np.mean(rank.iterations.duration_ns)) * _NS,
        iterations=len(rank.iterations),
        workers=workers,
        workers_per_host=_per_host(analysis),
        buckets=rank.mean_buckets(),
        wait_s=rank.wait_s(),
        tail_s=rank.tail_s(),
        collectives=rank.samples(),
        line_rate_bps=rate[0],
        line_rate_source=rate[1],
        wire_bytes_per_byte=_wire_ratio(link, analysis),
    )
    ready, size, assumed = gradients_of(analysis.evidence.marks, iterations, pid, observation.buckets)
    if compute_s is None:
        compute_s = observation.iteration_s - float(np.mean(rank.iterations.exposed_phase_ns)) * _NS
    return GradientSchedule(ready, size, compute_s, observation, notes, gradient_notes=assumed)


@dataclass(frozen=True)
class _Typical:
    """A rank's typical iterations, shape (I,), and their buckets, shape (I, K) in row-major order."""

    iterations: Iterations
    buckets: BucketTable

    def mean_buckets(self) -> Buckets:
        """Return when each bucket could begin after the iteration's begin, and its bytes, averaged.

        That is its launch plus the time it takes to reach the collective's thread: of the first bucket, since a later
        one may also wait there for the ones before it, which the replay accounts for.
        """
        shape = (len(self.iterations), -1)
        launch_ns = self.buckets.launch_ns.reshape(shape)
        hand_over_ns = (self.buckets.begin_ns.reshape(shape) - launch_ns)[:, :1]
        launch_s = (launch_ns + hand_over_ns - self.iterations.begin_ns[:, None]) * _NS
        return Buckets(launch_s.mean(axis=0), self.buckets.bytes.reshape(shape).mean(axis=0))

    def samples(self) -> CollectiveSamples:
        """Return the buckets' collectives, each with the share of time that was its own."""
        own = own_seconds(self.buckets.begin_ns, self.buckets.end_ns)
        return CollectiveSamples(self.buckets.bytes.astype(np.float64), own)

    def wait_s(self) -> float:
        """Return when the last gradient is ready, after the iteration's begin, averaged."""
        return float(np.mean(self.iterations.wait_ns - self.iterations.begin_ns)) * _NS

    def tail_s(self) -> float:
        """Return the time between the last bucket's arrival and the end of the wait, averaged."""
        arrived = self.buckets.end_ns.reshape(len(self.iterations), -1).max(axis=1)
        waited = np.maximum(arrived, self.iterations.wait_ns)
        return max(float(np.mean(self.iterations.done_ns - waited)) * _NS, 0.0)


def _typical(pid: int, iterations: Iterations, buckets: BucketTable) -> _Typical:
    """Return the middle half, by duration, of a rank's iterations with the usual number of buckets."""
    rows = np.flatnonzero(iterations.pid == pid)
    counts = np.bincount(buckets.iteration, minlength=len(iterations))[rows]
    usual = np.bincount(counts[counts > 0]).argmax()
    rows = rows[counts == usual]
    rows = np.sort(rows[middle_half(iterations.duration_ns[rows])])
    chosen = buckets.where(np.isin(buckets.iteration, rows))
    order = np.lexsort((chosen.launch_ns, chosen.iteration))
    return _Typical(iterations.where(rows), chosen.where(order))


def _buckets(analysis: Analysis, pid: int) -> tuple[BucketTable, tuple[str, ...]]:
    """Return a rank's buckets of known size, or its collectives where no bucket marks were recorded."""
    tables = analysis.evidence
    if bool(np.any(tables.buckets.pid == pid)):
        mine = tables.buckets.where((tables.buckets.pid == pid) & (tables.buckets.bytes != UNKNOWN))
        notes: tuple[str, ...] = ()
    else:
        mine = _from_collectives(pid, tables.iterations, tables.collectives)
        notes = ("the trace holds no bucket marks: its collectives stand for the buckets",)
    if len(mine) == 0:
        raise TraceError(
            "no bucket could be matched with a collective of known size, so nothing says what an iteration sends",
            "record with the collective library's marks ('netprof doctor PID' says whether they are available)",
        )
    return mine, notes


def _from_collectives(pid: int, iterations: Iterations, collectives: Collectives) -> BucketTable:
    """Return the all-reduces that begin and end between an iteration's begin and its `ddp_done` as its buckets."""
    rows = np.flatnonzero(iterations.pid == pid)
    own, reduces = iterations.where(rows), collectives.all_reduces()
    reduces = reduces.where(reduces.pid == pid)
    index = np.searchsorted(own.begin_ns, reduces.begin_ns, "right") - 1
    inside = (index >= 0) & (reduces.end_ns <= own.done_ns[np.maximum(index, 0)])
    mine, index = reduces.where(inside), index[inside]
    begin, end = mine.begin_ns, mine.end_ns
    return BucketTable(mine.pid, rows[index], begin, end, begin, end, mine.bytes, np.ones(len(index), np.int64))


def _pace_setter(iterations: Iterations) -> int:
    """Return the pid of the rank whose exposed communication is shortest."""
    pids = np.unique(iterations.pid)
    exposed = [float(np.median(iterations.where(iterations.pid == pid).exposed_phase_ns)) for pid in pids]
    return int(pids[int(np.argmin(exposed))])


def _busiest(links: tuple[LinkSummary, ...]) -> LinkSummary | None:
    """Return the link, loopback aside, that was busiest during the iterations."""
    real = [link for link in links if link.device != "lo" and link.window == "iterations"]
    return max(real, key=_load, default=None)


def _load(link: LinkSummary) -> float:
    """Return a link's bytes in its busier direction, as a share of its line rate where that is known."""
    return max(link.tx_bytes, link.rx_bytes) / (link.line_rate_bps or 1.0)


def _rate(link: LinkSummary | None) -> tuple[float | None, str]:
    if link is None or link.line_rate_bps is None:
        return None, "unknown"
    return link.line_rate_bps, f"{link.device}: {link.line_rate_source}"


def _wire_ratio(link: LinkSummary | None, analysis: Analysis) -> float | None:
    """Return the link's wire bytes, in its busier direction, per byte of one rank's buckets in the same iterations."""
    if link is None:
        return None
    buckets = [_bucket_bytes(analysis, pid) for pid in link.pids]
    wire = max(link.tx_bytes, link.rx_bytes)
    return wire / max(buckets) if wire > 0 and max(buckets, default=0.0) > 0 else None


def _bucket_bytes(analysis: Analysis, pid: int) -> float:
    """Return the bytes of the all-reduces that a rank began in its whole iterations."""
    iterations = analysis.evidence.iterations
    own = iterations.where(iterations.pid == pid)
    reduces = analysis.evidence.collectives.all_reduces()
    reduces = reduces.where(reduces.pid == pid)
    index = np.searchsorted(own.begin_ns, reduces.begin_ns, "right") - 1
    inside = (index >= 0) & (reduces.begin_ns < own.end_ns[np.maximum(index, 0)]) if len(own) else index < -1
    return float(reduces.bytes[inside].sum())


def _workers(analysis: Analysis) -> tuple[int, tuple[str, ...]]:
    """Return the worker count, from the job's environment or else as many ranks as were seen.

    Raises NetprofError for a job of one worker, or where only one was recorded and nothing says how many there are.
    """
    stated = analysis.evidence.world_size
    if stated == 1:
        raise NetprofError(
            "this job has one worker: it exchanges nothing, so no network changes anything for it",
            "record a job of two or more ranks",
        )
    if stated is not None:
        return stated, ()
    seen = len(np.unique(analysis.evidence.iterations.pid))
    if seen < 2:
        raise NetprofError(
            "nothing says how many workers the job has, and only one was recorded",
            "record all ranks, or a job whose environment holds WORLD_SIZE",
        )
    return seen, (f"the job's world size is unknown: the {seen} ranks recorded are taken to be all",)


def _per_host(analysis: Analysis) -> int:
    """Return the most ranks seen in one network namespace, which stands for a host."""
    training: Int64 = np.unique(analysis.evidence.iterations.pid)
    hosts = [target.netns for target in analysis.meta.targets if target.pid in training]
    return max((hosts.count(host) for host in set(hosts)), default=1)
