"""An analysed trace as the start of a replay: what its ranks did, its links, its gradients.

A thin adapter on `netprof.analysis.Analysis`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from netprof.analysis.events.collectives import group_sizes
from netprof.analysis.events.factors import sent_per_byte
from netprof.analysis.events.split import splits_of
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.collectives.ranks import RANKS
from netprof.analysis.findings.collectives.scaling import SCALING
from netprof.analysis.findings.iterations.iterations import ITERATIONS
from netprof.analysis.findings.links.alternatives import alternatives
from netprof.analysis.findings.links.link_summary import LinkSummary
from netprof.analysis.findings.links.links import LINKS
from netprof.analysis.section import Analysis
from netprof.analysis.tables.columns import UNKNOWN, Float64
from netprof.analysis.tables.flow_table import LOOPBACK
from netprof.analysis.tables.intervals import row_at
from netprof.analysis.tables.process_counts import CPU_WAIT, THREADS_CPU_WAIT, THREADS_ON_CPU, cpus
from netprof.analysis.whatif import text
from netprof.analysis.whatif.recorded_steps import RecordedSteps, find_recording
from netprof.analysis.whatif.schedule import (
    CpuTime,
    GradientSchedule,
    Observation,
    OtherDevices,
    gradients_of,
    pace_of,
    with_tensors,
)
from netprof.errors import NetprofError, TraceError
from netprof.schema import MarkKind
from netprof.units import duration


def from_trace(
    analysis: Analysis, *, compute_s: float | None = None, line_rate_bps: float | None = None
) -> GradientSchedule:
    """Return what a trace recorded, and the schedule of the gradients of the rank that waits least.

    Of sets of ranks that do not keep step with each other, what the slowest one recorded; of a recording that is
    concluded from in pieces, what the most typical one holds.
    `compute_s` replaces the trace's own iteration without exposed communication, `line_rate_bps` the line rate that it
    recorded. Raises TraceError or NetprofError, with a remedy, where the trace cannot serve.
    """
    whole, analysis = analysis, analysis.typical
    evidence = analysis.evidence
    if len(evidence.iterations) == 0:
        raise _no_iteration(evidence)
    pids, workers, notes = _ranks_to_replay(analysis)
    recording = find_recording(evidence, pids, workers)
    _check(recording, evidence)
    link = _busiest(analysis.of(LINKS), pids)
    rate_bps, source = (line_rate_bps, "--line-rate") if line_rate_bps is not None else _rate(link)
    if line_rate_bps is None:
        recording = replace(recording, link_bps=_link_rates(analysis, recording, rate_bps))
    else:
        recording = replace(recording, link_bps=np.full(len(recording.pids), line_rate_bps))
    pace, wait_s, tail_s = pace_of(recording)
    observation = Observation(
        iteration_s=recording.iteration_s,
        iterations=recording.iterations,
        workers=workers,
        workers_per_host=_per_host(analysis, pids),
        workers_on_a_machine=-(-len(pids) // len(evidence.hosts)),
        pace=pace,
        wait_s=wait_s,
        tail_s=tail_s,
        line_rate_bps=rate_bps,
        line_rate_source=source,
        wire_bytes_per_byte=_wire_ratio(link, analysis, workers, algorithm=False),
        overhead=_wire_ratio(link, analysis, workers, algorithm=True),
        has_ddp_buckets=not set(evidence.found_iterations.stepped) & set(recording.pids),
        other_devices=_other_devices(analysis, recording),
        cpu_time=_cpu_time(evidence, recording),
        mean_s=None if (durations := whole.of(ITERATIONS).durations) is None else durations.mean_s,
    )
    pid = recording.pids[recording.pace_setter()]
    sampled = evidence if len(evidence.marks.of(MarkKind.GRADIENT_READY)) else whole.beginning
    ready, size, assumed = gradients_of(sampled.marks, sampled.iterations, pid, pace)
    compute = recording.compute_s if compute_s is None else compute_s
    notes += (*_of_a_part(whole), *recording.notes)
    return GradientSchedule(
        ready, size, compute, observation, with_tensors(recording, ready), notes, gradient_notes=assumed
    )


def _of_a_part(analysis: Analysis) -> tuple[str, ...]:
    """Say which part of a long recording is replayed."""
    if analysis.typical is analysis:
        return ()
    part, started_ns = analysis.typical.evidence.iterations, analysis.meta.started_ns
    begin, end = (duration((at - started_ns) / 1e9) for at in (int(part.begin_ns.min()), int(part.end_ns.max())))
    return (f"of a long recording its most typical part is replayed, from {begin} to {end} after its begin",)


_LOG = "give a gradient log with --batch-time"


def _no_iteration(evidence: Evidence) -> TraceError:
    """Say why there is nothing to replay, and what would help."""
    if _only_launched(evidence):
        return TraceError(_NOT_SEEN_TO_END, f"{_LOG}, or record the job with gloo")
    if len(evidence.workers) == 0:
        return TraceError(
            "no framework's marks were recorded, so nothing says what a step does",
            f"'netprof doctor PID' says why there are none; or {_LOG}",
        )
    return TraceError(
        "the trace holds no whole step, so there is none to replay",
        f"record some steps of the training (--iterations 50, say), or {_LOG}",
    )


_NOT_SEEN_TO_END = (
    "no mark tells when the job's collectives are done (NCCL only enqueues them): the report bounds what is waited for "
    "them, but a replay needs the gradients' own times, which those bounds do not hold"
)


def _only_launched(evidence: Evidence) -> bool:
    return bool(evidence.only_launch) and len(evidence.collectives) == 0


def _check(recording: RecordedSteps, evidence: Evidence) -> None:
    """Raise TraceError where nothing of known size is exchanged."""
    if any(bool((program.bytes > 0).any()) for program in recording.programs):
        return
    if _only_launched(evidence):
        raise TraceError(_NOT_SEEN_TO_END, f"{_LOG}, or record the job with gloo")
    if len(evidence.buckets) and any(probe.name == "marks:gloo" for probe in evidence.meta.probes_started):
        raise TraceError(
            "no collective was seen to carry the gradients: they go another way, or a communication hook exchanges "
            "them by itself",
            _LOG,
        )
    raise TraceError(
        "no collective of known size was recorded in the typical steps, so nothing says what they send",
        "record with the collective library's marks ('netprof doctor PID' says whether they are available)",
    )


def _busiest(links: tuple[LinkSummary, ...], pids: Sequence[int]) -> LinkSummary | None:
    """Return the link of some processes, loopback aside, that was busiest during the iterations.

    Of links without a known rate only the one that carried most, and only if all those carried most of the bytes.
    """
    of_job = [link for link in links if not set(link.pids).isdisjoint(pids)]
    real = [link for link in of_job if link.device != LOOPBACK and link.window == "iterations" and not link.above]
    rated, unrated = ([link for link in real if bool(link.path_rate_bps) is known] for known in (True, False))
    most = rated if sum(map(_busier_way, rated)) >= sum(map(_busier_way, unrated)) else unrated
    return max(most, key=lambda link: _busier_way(link) / (link.path_rate_bps or 1.0), default=None)


def _busier_way(link: LinkSummary) -> float:
    return max(link.tx_bytes, link.rx_bytes)


def _rate(link: LinkSummary | None) -> tuple[float | None, str]:
    if link is None or link.path_rate_bps is None:
        return None, "unknown"
    return link.path_rate_bps, f"{link.device}: {link.path_rate_source}"


def _link_rates(analysis: Analysis, recording: RecordedSteps, otherwise_bps: float | None) -> Float64:
    """Return the line rate of the device that carries each rank's traffic; `otherwise_bps` where that is unknown."""
    rates = {link.key: link.path_rate_bps for link in analysis.of(LINKS) if link.device != LOOPBACK}
    known = {rank.pid: rates.get(rank.link) for rank in analysis.of(RANKS) if rank.link is not None}
    unknown = np.inf if otherwise_bps is None else otherwise_bps
    return np.array([unknown if (bps := known.get(pid)) is None else bps for pid in recording.pids], dtype=np.float64)


def _cpu_time(evidence: Evidence, recording: RecordedSteps) -> CpuTime | None:
    """Return what a step took of the CPUs of the machine with the most to do; None where nothing says it."""
    compute_s = np.concatenate([program.compute_s for program in recording.programs], axis=1).mean(axis=1)
    rows: dict[str, list[int]] = {}
    for row, pid in enumerate(recording.pids):
        host = evidence.host_of.get(pid)
        rows.setdefault("" if host is None else evidence.machine_of(host.name), []).append(row)
    machines = []
    for name, here in rows.items():
        pids = [recording.pids[row] for row in here]
        names = (THREADS_ON_CPU, CPU_WAIT, THREADS_CPU_WAIT)
        busy_s, *waits_s = (_of_a_step(evidence, pids, counted, recording) for counted in names)
        count = cpus(evidence.meta.series, name)
        if count and np.isfinite(busy_s).all():
            compute = np.minimum(busy_s, compute_s[here]).sum()
            longest_s = [float(np.nan_to_num(wait_s).max()) for wait_s in waits_s]
            machines.append(CpuTime(float(busy_s.sum() / count), float(compute / count), *longest_s))
    return max(machines, default=None)


def _of_a_step(evidence: Evidence, pids: Sequence[int], name: str, recording: RecordedSteps) -> Float64:
    """Return what was counted of each process in a step, in the mean over its recording, s; NaN where nothing was."""
    shares = np.array([evidence.process_counts.share(pid, name) for pid in pids])
    return np.asarray(shares * recording.iteration_s)


def _other_devices(analysis: Analysis, recording: RecordedSteps) -> OtherDevices | None:
    """Return the faster devices that idle and reach the same peers; None where a ring stays as slow without them."""
    known = alternatives(analysis.evidence)
    by_pid = {rank.pid: known.get(rank.link) for rank in analysis.of(RANKS) if rank.link is not None}
    rates = recording.link_bps.tolist()
    devices = []
    for row, pid in enumerate(recording.pids):
        if (device := by_pid.get(pid)) is not None:
            devices.append(device)
            rates[row] = device.nic.rate_bps or rates[row]
    if not devices or min(rates) <= min(recording.link_bps.tolist()):
        return None
    names = {(device.nic.name, device.link.device) for device in devices}
    name = "device {} in place of {}".format(*next(iter(names))) if len(names) == 1 else "the faster devices that idle"
    return OtherDevices(name, min(rates), devices[0].line)


def _wire_ratio(link: LinkSummary | None, analysis: Analysis, workers: int, *, algorithm: bool) -> float | None:
    """Return the link's wire bytes, in its busier direction, per byte of one rank's buffers in the same iterations.

    With `algorithm`, per byte that their algorithms have to send for them.
    """
    if link is None:
        return None
    carried = [_carried(analysis, pid, workers, algorithm) for pid in link.pids]
    wire = max(link.tx_bytes, link.rx_bytes)
    return wire / max(carried) if wire > 0 and max(carried, default=0.0) > 0 else None


def _carried(analysis: Analysis, pid: int, workers: int, algorithm: bool) -> float:
    """Return the bytes of the collectives that a rank began in its whole iterations, or what they have to send."""
    iterations = analysis.evidence.iterations.of_pid(pid)
    collectives = analysis.evidence.collectives.of_pid(pid)
    is_inside = row_at(iterations.begin_ns, iterations.end_ns, collectives.begin_ns) != UNKNOWN
    collectives = collectives.where(is_inside & (collectives.bytes > 0))
    share = sent_per_byte(collectives.kind, group_sizes(collectives, workers)) if algorithm else 1.0
    return float((collectives.bytes * share).sum())


def _ranks_to_replay(analysis: Analysis) -> tuple[list[int], int, tuple[str, ...]]:
    """Return the processes to replay, how many workers they are of, and what of that is assumed. Raises NetprofError.

    All that have iterations, where they keep step; else those of them whose iterations last longest.
    """
    scaling = analysis.of(SCALING)
    splits = splits_of(analysis.of(ITERATIONS).times)
    if scaling is None or len(splits) < 2:
        return np.unique(analysis.evidence.iterations.pid).tolist(), *_workers(analysis)
    pids, slowest = sorted(splits[0].compute_s), scaling.paces[0]
    collectives = analysis.evidence.collectives
    workers = max(int(collectives.ranks[np.isin(collectives.pid, pids)].max(initial=1)), len(pids))
    who, others = slowest.name, "others" if len(splits) > 2 else scaling.paces[1].name
    if workers == 1:
        raise NetprofError(
            f"the ranks do not keep step, and the slowest, {who}, exchanges nothing with any other one",
            "record ranks that train together ('netprof report' says which keep step)",
        )
    note = (
        f"this is of {who}, whose steps take {text.seconds(slowest.iteration_s)}: {others} "
        f"({text.seconds(scaling.paces[1].iteration_s)}) do not keep step with them"
    )
    return pids, workers, (note,)


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


def _per_host(analysis: Analysis, pids: Sequence[int]) -> int:
    """Return the most of some processes in one network namespace, which stands for a host."""
    hosts = [target.netns for target in analysis.meta.targets if target.pid in pids]
    return max((hosts.count(host) for host in set(hosts)), default=1)
