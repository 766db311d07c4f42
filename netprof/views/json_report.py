"""The report as JSON: `netprof report TRACE --json`.

Units are in the names: `_s` seconds, `_ns` nanoseconds, `_bps` bits per second, `_us` microseconds, `bytes`. Shares and
utilizations are fractions of 1. **null means unknown**, never zero. Keys are only added while `schema` stays the same.

| key | meaning |
|---|---|
| `schema` | version of this document, 1 |
| `netprof_version`, `host`, `kernel`, `command`, `stop_reason` | where, how and with what was recorded |
| `recording_s`, `bin_s` | length of the recording, width of a time bin |
| `world_size` | number of ranks of the job |
| `verdict` | the conclusion in one sentence |
| `verdict_case` | its kind: no_data, iterations_unknown, no_traffic, compute_bound, line_rate_unknown, at_line_rate, \
link_idle, below_line_rate |
| `iterations.count` | whole iterations of the rank that has the most; null: no marks |
| `iterations.inferred` | false: found from the framework's own marks; true: inferred (`definitions`), phases null |
| `iterations.{confidence,period_s,method}` | of inferred ones: how surely the count is right within 1 % (0 to 1), \
mean duration without pauses, what they were inferred from |
| `iterations.source` | what tells them: "ddp", "optimizer steps" (`phases_s.forward` is then null: it is part \
of `rest`), "inferred"; null: unknown |
| `iterations.{median,mean,p10,p90,min,max}_s` | duration, over all ranks |
| `iterations.typical_s` | mean duration of the middle half of the iterations |
| `iterations.phases_s.{forward,backward,exposed_communication,rest}` | of the typical one; add up to `typical_s` |
| `iterations.exposed_communication_share` | of the typical iteration |
| `iterations.incomplete` | steps cut off by the edges of the recording, all ranks |
| `iterations.damaged` | steps left out because marks are missing, all ranks |
| `links[].device`, `.netns`, `.ranks`, `.pids` | the device, its network namespace's inode, whose flows it carries |
| `links[].line_rate_bps`, `.line_rate_source` | line rate and where it came from |
| `links[].window`, `.window_s` | what is averaged over: "iterations" of the link's ranks, or the whole "recording" |
| `links[].outstanding_s` | time in it in which a bucket is outstanding |
| `links[].{tx,rx}_bytes` | the job's bytes on the link in the window |
| `links[].{tx,rx}_bytes_outstanding` | the part of it while a bucket is outstanding |
| `links[].utilization_{tx,rx}` | over the window |
| `links[].utilization_outstanding_{tx,rx}` | while a bucket is outstanding |
| `links[].idle_total_s`, `.idle_tx_total_s`, `.idle_rx_total_s` | idle in both directions, in one |
| `links[].{idle,idle_tx,idle_rx}_s.{no_gradient,gradients_waiting,nothing_outstanding,after_last_byte}` | \
idle time by cause; adds up to the total |
| `links[].idle_basis` | "utilization below 1 %", or without a line rate "bins without a packet" |
| `links[].nic` | increase of the device's own counters from its first to its last sample: `window_s`, `samples`, \
`{tx,rx}_{bytes,packets,drops,errors}`, and `job_{tx,rx}_bytes`, the job's part of the bytes (many \
devices count a packet that is segmented later with one header, some 4 % less than the wire); null: not sampled |
| `collectives.count`, `.bytes` | all-reduces and the sum of their buffers, of the rank that has the most; inside \
whole iterations where those are known |
| `collectives.running_s` | time in which any all-reduce runs, mean of the ranks |
| `collectives.{algorithm,bus}_bandwidth_bps` | aggregate: all bytes over `running_s` |
| `collectives.median_{algorithm,bus}_bandwidth_bps` | of a single all-reduce |
| `collectives.line_rate_share` | aggregate bus bandwidth over line rate |
| `collectives.{wire,payload}_to_algorithm_ratio` | bytes sent over the 2(n-1)/n x S that the algorithm needs |
| `collectives.wire_bytes_per_iteration` | sent per iteration and rank |
| `collectives.other_count` | collectives that are no all-reduces, or may not be |
| `collectives.unpaired_marks` | begins and ends without a partner |
| `collectives.by_kind[]` | over the whole recording: `backend`, `kind`, `count` and `bytes` of the process with the \
most, `timing` ("measured", "enqueue times only", "times of posting only"), and where it is measured `running_ns`, \
`{algorithm,bus}_bandwidth_bps` |
| `horovod[]` | per process: `enqueued`, `responses`, `tensors_per_response`, and `outstanding_ns` as the sum of \
`{negotiating,packing,transferring,unpacking}_ns` |
| `nccl[]` | per process, of what was enqueued: `operations`, `launches` that were followed by packets, \
`communicators`, `ranks` and `ranks_source`, `bytes`, `median_wire_time_s`, `wire_bandwidth_bps`, \
`wire_to_algorithm_ratio` |
| `flow_properties` | `iterations` looked at, and medians: `data_flows`, `start_skew_s`, `size_equality`, `completion` |
| `scaling_factor`, `scaling_basis` | compute share of the typical iteration, and what it rests on |
| `ranks[]` | per process: `rank`, `pid`, `device`, `iterations.*` as above, `collectives.*` as above and with \
`{wire,payload,algorithm}_bytes`, what the ratios are of, `tx_bytes` |
| `flows[]` | per flow, the largest first: `flow_id`, `local`, `remote`, `device`, `netns`, `pid`, `rank`, \
`{tx,rx}.{payload_bytes,wire_bytes,retransmitted_bytes,packets,rate_bps,share}`, \
`tcp.{retransmits,rtt_us,cwnd,mss_bytes}` |
| `gpus[]` | the GPUs that the job uses and that were sampled: `gpu` (NVML's index), `name`, `uuid`, `memory_bytes`, \
`pids`, `ranks`, `found_by`, `sources` of the metrics, `window` and `window_s` as of links |
| `gpus[].metrics.{busy_percent,power_w,...}` | by metric, its unit in the name: `mean` over the window weighted by \
time, `min`, `max`, `samples`; a sample every `interval_s` that is the mean over `mean_over_s` (0: an instant; \
power that NVML repeats between its own measurements: `held_s`), so \
nothing shorter than `resolution_s` can be told apart; `bytes` that a rate moved in the time sampled; \
`phases.{forward,backward,exposed_communication,rest}.{mean,samples}` of the samples that lie wholly in one phase \
(fewer than 3: null) |
| `gpus[].processes[]` | `pid` and the same `metrics` of that process alone |
| `gpus[].throttled` | share of samples that give each reason for lower clocks |
| `losses` | what the recording missed: `merged_bins`, `lost_marks`, `untracked_flows`, `healed_bytes`, `truncated` |
| `cost` | what recording cost: `wall_s`, `cpu_s`, `cpu_share`, `peak_memory_bytes`, `trace_bytes`, `bpf_sampled_s`, \
`programs[].{name,runs,run_time_ns,run_time_ns_per_run}`, `probes[].{name,cpu_s}` |
| `probes.started[]`, `.skipped[]` | `name`, `detail`; `name`, `reason`, `remedy` |
| `notes[]` | what one must know to trust the numbers, a sentence each |
| `definitions.*` | every term in prose |
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from netprof.analysis import definitions
from netprof.views.json_gpu import gpu_to_json

if TYPE_CHECKING:
    from netprof.analysis.account.idle import IdleTime
    from netprof.analysis.events.iterations import Dropped
    from netprof.analysis.events.typical import Durations
    from netprof.analysis.findings.all_reduces import CollectiveSummary
    from netprof.analysis.findings.bandwidth import Bandwidths
    from netprof.analysis.findings.flows import FlowSummary
    from netprof.analysis.findings.inferred import InferredSummary
    from netprof.analysis.findings.links import LinkSummary
    from netprof.analysis.findings.nic import NicTotals
    from netprof.analysis.findings.ranks import RankSummary
    from netprof.analysis.result import Analysis

SCHEMA = 1

_CAUSES = ("no_gradient", "gradients_waiting", "nothing_outstanding", "after_last_byte")
_PHASES = ("forward", "backward", "exposed_communication", "rest")
_STATISTICS = ("median_s", "mean_s", "p10_s", "p90_s", "min_s", "max_s")


def to_json(analysis: Analysis) -> dict[str, Any]:
    """Return the report as a document of plain dicts, lists, strings and finite numbers; see the module for keys."""
    meta = analysis.meta
    return {
        "schema": SCHEMA,
        "netprof_version": meta.netprof_version,
        "host": meta.host,
        "kernel": meta.kernel,
        "command": list(meta.command),
        "stop_reason": meta.stop_reason,
        "recording_s": analysis.recording_ns / 1e9,
        "bin_s": meta.bin_ns / 1e9,
        "world_size": analysis.collectives.world_size,
        "verdict": analysis.verdict.sentence,
        "verdict_case": analysis.verdict.case.value,
        "iterations": _iterations(analysis.iteration_count, analysis.durations, analysis.dropped, analysis.inferred)
        | {"source": _source(analysis)}
        | _phases(analysis.durations, forward=not analysis.stepped),
        "links": [_link(link) for link in analysis.links],
        "collectives": _collectives(analysis.collectives) | {"by_kind": _all(analysis.communication.kinds)},
        "horovod": _all(analysis.communication.horovod),
        "nccl": _all(analysis.communication.nccl),
        "flow_properties": _as_dict(analysis.flow_properties),
        "scaling_factor": analysis.scaling.factor if analysis.scaling else None,
        "scaling_basis": analysis.scaling.basis if analysis.scaling else None,
        "ranks": [_rank(rank, forward=rank.pid not in analysis.stepped) for rank in analysis.ranks],
        "flows": [_flow(flow) for flow in analysis.flows],
        "gpus": [gpu_to_json(gpu) for gpu in analysis.gpus],
        "losses": dataclasses.asdict(meta.losses) | {"truncated": analysis.truncated},
        "cost": _cost(analysis),
        "probes": {
            "started": [dataclasses.asdict(probe) for probe in meta.probes_started],
            "skipped": [dataclasses.asdict(probe) for probe in meta.probes_skipped],
        },
        "notes": list(analysis.notes),
        "definitions": {d.term: d.text for d in (*definitions.ALL, definitions.INFERRED, *definitions.BY_FRAMEWORK)},
    }


def _source(analysis: Analysis) -> str | None:
    """Return what tells the iterations."""
    if analysis.inferred is not None:
        return "inferred"
    if analysis.durations is None:
        return None
    return "optimizer steps" if analysis.stepped else "ddp"


def _phases(durations: Durations | None, *, forward: bool) -> dict[str, Any]:
    """Return the phases; without marks of the forward pass, that is unknown and part of the rest."""
    phases = durations.phases if durations else None
    known = {name: getattr(phases, name) if phases else None for name in _PHASES}
    return {"phases_s": known if forward else known | {"forward": None}}


def _all(summaries: Sequence[Any]) -> list[dict[str, Any]]:
    return [dataclasses.asdict(summary) for summary in summaries]


def _iterations(
    count: int | None, durations: Durations | None, dropped: Dropped, inferred: InferredSummary | None = None
) -> dict[str, Any]:
    phases = durations.phases if durations else None
    statistics = durations or inferred
    return {
        "count": inferred.count if inferred else count,
        "inferred": inferred is not None,
        **{name: getattr(inferred, name) if inferred else None for name in ("confidence", "period_s", "method")},
        **{name: getattr(statistics, name) if statistics else None for name in _STATISTICS},
        "typical_s": phases.total if phases else None,
        "exposed_communication_share": durations.exposed_share if durations else None,
        **dataclasses.asdict(dropped),
    }


def _link(link: LinkSummary) -> dict[str, Any]:
    same = (
        "device",
        "netns",
        "line_rate_bps",
        "line_rate_source",
        "window",
        "tx_bytes",
        "rx_bytes",
        "tx_bytes_outstanding",
        "rx_bytes_outstanding",
        "utilization_tx",
        "utilization_rx",
        "utilization_outstanding_tx",
        "utilization_outstanding_rx",
        "idle_basis",
    )
    idle = {"idle": link.idle, "idle_tx": link.idle_tx, "idle_rx": link.idle_rx}
    return {
        **{name: getattr(link, name) for name in same},
        "ranks": list(link.ranks),
        "pids": list(link.pids),
        "window_s": link.window_ns / 1e9,
        "outstanding_s": _seconds(link.outstanding_ns),
        **{f"{name}_total_s": time.total_ns / 1e9 for name, time in idle.items()},
        **{f"{name}_s": _idle(time) for name, time in idle.items()},
        "nic": _nic(link.nic),
    }


def _idle(idle: IdleTime) -> dict[str, float | None]:
    return {cause: _seconds(getattr(idle, f"{cause}_ns")) for cause in _CAUSES}


def _nic(nic: NicTotals | None) -> dict[str, Any] | None:
    if nic is None:
        return None
    document = dataclasses.asdict(nic)
    return {"window_s": (document.pop("last_ns") - document.pop("first_ns")) / 1e9, **document}


def _collectives(summary: CollectiveSummary) -> dict[str, Any]:
    document = dataclasses.asdict(summary)
    del document["world_size"]
    return document | {"running_s": document.pop("running_ns") / 1e9}


def _rank(rank: RankSummary, *, forward: bool) -> dict[str, Any]:
    return {
        "rank": rank.rank,
        "pid": rank.pid,
        "device": rank.link.device if rank.link else None,
        "iterations": _iterations(rank.durations.count if rank.durations else None, rank.durations, rank.dropped)
        | _phases(rank.durations, forward=forward),
        "collectives": _bandwidths(rank.bandwidths),
        "tx_bytes": rank.tx_bytes,
    }


def _bandwidths(bandwidths: Bandwidths) -> dict[str, Any]:
    document = dataclasses.asdict(bandwidths)
    return document | {
        "running_s": document.pop("running_ns") / 1e9,
        "wire_to_algorithm_ratio": bandwidths.wire_to_algorithm_ratio,
        "payload_to_algorithm_ratio": bandwidths.payload_to_algorithm_ratio,
    }


def _flow(flow: FlowSummary) -> dict[str, Any]:
    return dataclasses.asdict(flow)


def _cost(analysis: Analysis) -> dict[str, Any]:
    cost = dataclasses.asdict(analysis.meta.cost)
    for program in cost["programs"]:
        program["run_time_ns_per_run"] = program["run_time_ns"] / program["runs"] if program["runs"] else None
    return cost | {"cpu_share": cost["cpu_s"] / cost["wall_s"] if cost["wall_s"] else None}


def _as_dict(value: Any) -> dict[str, Any] | None:
    return None if value is None else dataclasses.asdict(value)


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9
