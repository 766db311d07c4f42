"""From a trace to its conclusions, in the order in which they rest on each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from netprof.analysis.events.buckets import find_buckets, outstanding_by_process
from netprof.analysis.events.collectives import FoundCollectives
from netprof.analysis.events.flows_by_iteration import FlowsByIteration, flow_properties
from netprof.analysis.events.iterations import FoundIterations, Iterations
from netprof.analysis.events.posted import all_posted
from netprof.analysis.events.steps import find_all_iterations
from netprof.analysis.events.typical import durations
from netprof.analysis.findings.all_reduces import dropped_in_all, summarize_collectives
from netprof.analysis.findings.communication import all_collectives, outstanding_without_ddp, summarize_communication
from netprof.analysis.findings.flows import summarize_flows
from netprof.analysis.findings.gpus import gpu_notes, summarize_gpus
from netprof.analysis.findings.inferred import InferenceOutcome, infer_iterations
from netprof.analysis.findings.links import Timeline, summarize_links
from netprof.analysis.findings.nic import nic_totals
from netprof.analysis.findings.notes import communication_notes, gap_notes, inference_notes, iteration_notes, loss_notes
from netprof.analysis.findings.ranks import RankSummary, ranks_by_pid, summarize_ranks, world_size
from netprof.analysis.findings.scaling import scaling
from netprof.analysis.findings.verdict import judge
from netprof.analysis.result import Analysis, Tables
from netprof.analysis.tables.columns import empty
from netprof.analysis.tables.flow_table import read_flows
from netprof.analysis.tables.gpu_samples import GpuSamples, read_gpu_samples
from netprof.analysis.tables.intervals import Intervals, interval
from netprof.analysis.tables.marks import Marks, read_marks
from netprof.analysis.wire.fold import WireFold
from netprof.errors import TraceError
from netprof.model import Meta
from netprof.schema import MarkKind

if TYPE_CHECKING:
    from netprof.trace import TraceReader

_MOST_EXPECTED_BINS = 1 << 24


def analyze(reader: TraceReader, *, baseline_s: float | None = None) -> Analysis:
    """Conclude from a trace. The `wire` table is read batch by batch, the others whole.

    `baseline_s` is a measured iteration time of one worker alone, in seconds, for the scaling factor.
    Raises TraceError when the trace is damaged beyond its end.
    """
    if reader.meta.bin_ns <= 0:
        raise TraceError(f"the trace names a bin width of {reader.meta.bin_ns} ns", "the trace is damaged")
    marks = read_marks(reader.table("marks"))
    found = find_all_iterations(marks)
    flows = read_flows(reader.table("flows"), ranks_by_pid(reader.meta.targets), workers(marks))
    cells = FlowsByIteration(reference_iterations(found.iterations), len(flows))
    fold = WireFold(flows, reader.meta.bin_ns, cells, _expected_bins(reader.meta))
    fold.add_all(reader.batches("wire"))
    tcp, nic = reader.table("tcp"), reader.table("nic")
    return conclude(
        reader.meta,
        marks,
        found,
        fold,
        cells,
        tcp,
        nic,
        truncated=reader.truncated,
        baseline_s=baseline_s,
        infer=True,
        gpu=reader.table("gpu"),
    )


def conclude(
    meta: Meta,
    marks: Marks,
    found: FoundIterations,
    fold: WireFold,
    cells: FlowsByIteration,
    tcp: Any,
    nic: Any,
    *,
    truncated: bool = False,
    baseline_s: float | None = None,
    infer: bool = False,
    gpu: Any = None,
) -> Analysis:
    """Conclude from tables that are in memory already; what `analyze` and a live view have in common.

    With `infer`, iterations are inferred where no mark tells of any; a live window is too short and too often for it.
    """
    collected = all_collectives(marks, world_size(meta.targets))
    collectives, iterations = collected.collectives, found.iterations
    buckets = find_buckets(marks, iterations, collectives)
    without_ddp = outstanding_without_ddp(marks, collectives, found.stepped)
    outstanding = outstanding_by_process(iterations, buckets, collectives, without_ddp)
    lanes = fold.lanes()
    recording = recording_interval(meta, marks, fold)
    timeline = Timeline(iterations, outstanding, ranks_by_pid(meta.targets), recording, meta.bin_ns)
    links = summarize_links(lanes, meta.devices, timeline, nic_totals(nic, lanes))
    ranks = summarize_ranks(found, collectives, all_posted(marks, collected), lanes, meta.targets)
    summary = summarize_collectives(ranks, links, world_size(meta.targets), _others(collected), collected.unpaired)
    recorded_until_ns = int(recording.end_ns[-1]) if len(recording) else meta.started_ns
    communication = summarize_communication(marks, lanes, world_size(meta.targets), recorded_until_ns)
    typical = durations(iterations)
    samples = empty(GpuSamples) if gpu is None else read_gpu_samples(gpu)
    gpus = summarize_gpus(samples, meta.gpus, iterations, ranks_by_pid(meta.targets), recording)
    outcome = InferenceOutcome(None)
    if infer and not found.dropped:
        outcome = infer_iterations(marks, collectives, lanes, ranks_by_pid(meta.targets))
    notes = (
        *loss_notes(meta.losses, truncated, fold.unknown_bytes),
        *iteration_notes(ranks, found.turns),
        *inference_notes(outcome),
        *communication_notes(communication, found.stepped),
        *gap_notes(meta, links, summary, buckets),
        *gpu_notes(gpus),
        *meta.warnings,
    )
    return Analysis(
        meta=meta,
        truncated=truncated,
        recording_ns=recording.total_ns,
        verdict=judge(typical, links, outcome.summary, summary.payload_to_algorithm_ratio),
        iteration_count=_most_iterations(ranks) if found.dropped else None,
        durations=typical,
        inferred=outcome.summary,
        dropped=dropped_in_all(ranks),
        ranks=ranks,
        links=links,
        collectives=summary,
        communication=communication,
        stepped=found.stepped,
        scaling=scaling(typical, baseline_s),
        flows=summarize_flows(fold, tcp),
        flow_properties=flow_properties(cells, collectives),
        wire_rows=fold.rows,
        notes=notes,
        tables=Tables(marks, iterations, buckets, collectives, outstanding, lanes),
        gpus=gpus,
    )


def workers(marks: Marks) -> frozenset[int]:
    """Return the processes that train: those with marks of a framework."""
    return frozenset(np.unique(marks.pid[marks.kind < MarkKind.PROCESS_FORK]).tolist())


def reference_iterations(iterations: Iterations) -> Iterations:
    """Return the iterations of the process that has the most: all ranks of a job keep step."""
    if len(iterations) == 0:
        return iterations
    pids, counts = np.unique(iterations.pid, return_counts=True)
    return iterations.where(iterations.pid == pids[np.argmax(counts)])


def recording_interval(meta: Meta, marks: Marks, fold: WireFold) -> Intervals:
    """Return when was recorded; up to the last event where the recorder did not get to say when it stopped."""
    if meta.stopped_ns is not None:
        return interval(meta.started_ns, meta.stopped_ns)
    span = fold.span_ns()
    last_mark = int(marks.time_ns[-1]) if len(marks) else meta.started_ns
    return interval(meta.started_ns, max(last_mark, span[1] if span else meta.started_ns))


def _expected_bins(meta: Meta) -> int:
    """Return how many time bins to make room for at once; more than meta.json is trusted with come by growing."""
    if meta.stopped_ns is None:
        return 0
    return min((meta.stopped_ns - meta.started_ns) // meta.bin_ns + 2, _MOST_EXPECTED_BINS)


def _most_iterations(ranks: Sequence[RankSummary]) -> int:
    return max((rank.durations.count for rank in ranks if rank.durations), default=0)


def _others(collected: FoundCollectives) -> int:
    return len(collected.collectives) - len(collected.collectives.all_reduces())
