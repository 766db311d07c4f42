"""The report as JSON: `netprof report TRACE --json`.

Units are in the names: `_s` seconds, `_ns` nanoseconds, `_bps` bits per second, `_us` microseconds, `bytes`. Shares and
utilizations are fractions of 1. **null means unknown**, never zero. Keys are only added while `schema` stays the same.

| key | meaning |
|---|---|
| `schema` | version of this document, 1 |
| `netprof_version`, `host`, `kernel`, `command`, `stop_reason` | where, how and with what was recorded |
| `still_recording` | true: a recorder is at work on the trace, and this is the report so far |
| `recording_s`, `bin_s` | length of the recording, width of a time bin |
| `world_size` | number of ranks of the job |
| `verdict` | `headline` and `sentence` in one |
| `family` | held_up, network, compute, stalled, unseen or unknown: what costs most of a step |
| `headline` | the verdict in at most 78 columns |
| `sentence` | what a step takes without that, and what costs most after it |
| `next[].text`, `.command` | what to do, the most helpful first, and a command that does or confirms it, or null |
| `seen.steps`, `.once`, `.pattern`, `.late_steps`, `.warming_up` | steps that the verdict rests on; whether the cause \
happened once; how often a rank is late (always, once, in_turn, together, sometimes; null: not counted); in how many \
steps each rank that is named held the others up for a twentieth of it; whether `steps` are too few |
| `step.seconds`, `.steps`, `.ranks` | the mean step, how many were seen, of how many ranks; null: phases unknown |
| `step.parts[].name`, `.title`, `.seconds`, `.share`, `.saves_s`, `.who` | a phase of computing, or waiting by \
cause; add up to the step. `saves_s` is how much shorter a step is without it, `who` is behind it; null: unknown |
| `collectives_by_size[].kind`, `.bytes`, `.count`, `.ranks`, `.time_s`, `.{algorithm,bus}_bandwidth_bps` | \
collectives whose sizes share a power of two: mean size and time, count over all ranks |
| `exits[].rank`, `.pid`, `.time_ns`, `.signal`, `.code` | ranks that ended, by which signal or with which exit code |
| `stops[].rank`, `.pid`, `.begin_ns`, `.length_s` | times in which a rank was stopped (state T) |
| `verdict_case` | its kind: no_data, iterations_unknown, compute_bound, stalled, or the largest cause of waiting |
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
| `iterations.exposed_communication_share_of_all_time` | of all whole iterations together, also those that are not \
typical |
| `iterations.incomplete` | steps cut off by the edges of the recording, all ranks |
| `iterations.damaged` | steps left out because marks are missing, all ranks |
| `links[].device`, `.netns`, `.ranks`, `.pids` | the device, its network namespace's inode, whose flows it carries |
| `links[].line_rate_bps`, `.line_rate_source` | line rate and where it came from; the one that held for the longest \
of the window, while utilization and idle time are of the one of the time |
| `links[].history[]` | what the device was like `from_s` seconds of the recording on: `name`, `state` (up, down, \
gone), `line_rate_bps`, `line_rate_source`, `qdisc`, `mtu_bytes` |
| `links[].path[]` | the devices below it that its packets pass, in order: `way` (of what is sent or received by \
the link), `device`, `netns`, `direction` (of the packets there), `kind` (other_end, below, member, port, route, \
redirect, tunnel, assumed; unseen: `about` says why the path is not known further), `about`, `on_path` (its own \
counters confirm it), `line_rate_bps` and `line_rate_source` of that direction |
| `links[].below`, `.about` | only of such a device: the links above it, and what leads to it. Its bytes are those of \
the flows that pass it |
| `links[].window`, `.window_s` | what is averaged over: "iterations" of the link's ranks, or the whole "recording" |
| `links[].outstanding_s` | time in it in which a bucket is outstanding |
| `links[].unknown_s`, `.unknown_{tx,rx}_s` | time in it in which bytes moved of which it is not known when: they \
count as spread evenly, and no part of it is idle |
| `links[].{tx,rx}_bytes` | the job's bytes on the link in the window |
| `links[].{tx,rx}_bytes_outstanding` | the part of it while a bucket is outstanding |
| `links[].utilization_{tx,rx}` | over the window |
| `links[].utilization_outstanding_{tx,rx}` | while a bucket is outstanding |
| `links[].idle_total_s`, `.idle_tx_total_s`, `.idle_rx_total_s` | idle in both directions, in one |
| `links[].{idle,idle_tx,idle_rx}_s.{no_gradient,gradients_waiting,nothing_outstanding,after_last_byte}` | \
idle time by cause; adds up to the total |
| `links[].idle_basis` | "utilization below 1 %", or without a line rate "bins without a packet" |
| `links[].nic` | increase of the device's own counters from its first to its last sample: `window_s`, `samples`, \
`{tx,rx}_{bytes,packets,drops,errors}`, `qdisc_drops`, and `job_{tx,rx}_bytes`, the job's part of the bytes (many \
devices count a packet that is segmented later with one header, some 4 % less than the wire); null: not sampled |
| `links[].period_s` | only of an RDMA port, whose bytes are those of its counters: how often they are seen at best. \
Of one of which nothing tells what it moved, bytes, utilization and idle time are null |
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
| `nccl_network` | what NCCL posted to its network (`definitions`): `found[]`, how its functions were found, and \
`processes[]` |
| `nccl_network.processes[]` | `pid`, `rank`, `network` (socket, infiniband, plugin); of what is sent `posts`, \
`posted_bytes`, `mean_bytes`, `posted_bps`, `sending` (connections), `refused` (times that it was asked for again), of \
receives `receives`, `receiving` and `room_bytes`, the room that was posted for them; of sockets `sent_bytes`, the \
payload that the TCP flows of the process sent, and `sent_to_posted` |
| `nccl_network.processes[].connections[]` | `connection` (its address in the process), `direction` (send, receive), \
`posts`, `posted_bytes`, `refused`, `first_s` and `last_s` of the recording at which something was posted |
| `nccl_communicators[]` | as NCCL's RAS said last: `name`, `size`, `missing[]`, `failed[]` and `behind[]` (ranks), \
`most_collectives`, and `members[]`: `rank`, `host`, `process` (its number there), `pid` (of this recording; null: it \
is not of this host), `state` (running, beginning, ending, failed, missing, dead), `collectives` |
| `nccl[]` | per process, of what was enqueued: `operations`, `launches` that were followed by packets, \
`communicators`, `ranks` and `ranks_source`, `bytes`, `median_wire_time_s`, `wire_bandwidth_bps`, \
`wire_to_algorithm_ratio`, `wire_bytes` in `wire_time_s`, and `needed_bytes`, which the algorithm has to send |
| `flow_properties` | `iterations` looked at, and medians: `data_flows`, `start_skew_s`, `size_equality`, \
`completion` (`definitions`); `per_collective` the same over `windows` in which any collective runs, `alone` of which \
hold just one; `port_pairs` in use and `port_entropy_bits` |
| `waiting` | where all exposed time of all ranks went (`definitions.waiting`); null without iterations |
| `waiting.exposed_s`, `.exposed_share_of_all_time` | summed over ranks; its share of the whole iterations |
| `waiting.unknown_s` | what was recorded but lies in no whole iteration, summed over ranks |
| `waiting.unclosed_s` | the part of `exposed_s` that is in no iteration, since the recording ends in it |
| `waiting.causes[]` | the largest first, `seconds` adding up to `exposed_s`: `cause`, `seconds`, `share`, `saves_s` \
(by which the iterations would be shorter together without it), `sentence`, `advice`, and where it names one, \
`rank`, `ranks` behind `link`, `flow` |
| `waiting.by_rank[]` | `rank`, `pid`, `window_s`, `exposed_s`, `exposed_share`, `causes_s`, by cause |
| `waiting.worst_iterations[]` | those that wait for much longer than the median one: `number`, `begin_ns`, \
`duration_s`, `exposed_s`, `cause`, `rank`, `causes_s`, `sentence` |
| `hang` | of a job that stands and of whose steps hardly any was seen, else null: `since_ns`, `seconds`, and \
`ranks[]` with `rank`, `pid`, `state`, and whether it `waits`, as for another rank |
| `failed_connects[]` | addresses (`remote`) to which connections never came to be, after how many `tries`, and \
whether they were `refused` or not answered |
| `cpu_shortage[]` | by `rank`, `pid`: `quota_periods` of its cgroup's CPU quota, in how many it was throttled \
(`throttled_periods`), and for how many CPUs all of its threads wait in the mean (`threads_wait_for_cpus`) |
| `stacks[]` | with --stacks, of each process (`pid`, `name`) in the `seconds` in which others waited for it: \
innermost `lines[].{line,share}`, and whole stacks, `folded[].{frames,seconds}` |
| `bubbles[].rank`, `.for_rank`, `.seconds`, `.share`, `.late_s`, `.late_share` | how long a rank waits for messages \
of another one, as a stage of a pipeline does, and for how long of that the other one has not come to them |
| `collective_checks` | `count` and `seconds` of the comparisons of TORCH_DISTRIBUTED_DEBUG=DETAIL, without waiting \
for late ranks, and `step_s`, of a rank's step; null without it |
| `out_of_data[]` | ranks that only shadow the others' collectives (DDP's join), and `since_step` of the others |
| `thread_time[]` | where the time of the threads that train goes, by the kernel: `rank`, `pid`, `seconds`, and \
`parts_s`, which add up to them: marked_wait, unmarked_communication, computing, and what they are blocked in |
| `waiting_bounds` | where no mark tells when what is launched is done (NCCL on GPUs): what is waited `at_least` and \
`at_most` (`definitions`), all values being such pairs; null where it is known, or not even that is. \
`waiting` is null then, and so are phases, exposed shares and `scaling_factor` |
| `waiting_bounds.{exposed_s,exposed_share_of_all_time,iteration_exposed_s,scaling_factor}` | over `iterations` of the \
rank that has the most: summed over ranks, its share, medians of an iteration's bounds, 1 less the share |
| `waiting_bounds.causes[]`, `.by_rank[]` | as of `waiting`, with `seconds`, `saves_s`, `exposed_s`, `exposed_share`, \
`causes_s` in pairs; `on_gpu`: any of the ranks is known to compute on a GPU; of all `steps` of all ranks, \
`exact_steps` are told by profiles of the job, whose median is `exact_iteration_exposed_s` |
| `stragglers[]` | who or what holds the job up (`definitions`), what costs most first; null without iterations of two \
ranks: `kind` (rank, link, path), `name`, `rank`, `ranks`, `link`, `host`, `cause` as in `waiting`, `doing` of a rank \
(paused, cpu_taken, compute, checkpoint, data, between_steps; null: unknown), `held_up_s` and `share` of the time, the \
number of `iterations` and of `episodes`, `first_iteration`, `since_ns`, `until_ns`, `known_ns` (when it could be \
said), `confidence`, `sentence`, `advice` |
| `paths[]` | what went from one rank to another: `from`, `to`, `device`, `payload_bytes`, `rate_bps` while there was \
something to send and `rate_to_siblings` (null: TCP's clocks were not recorded), `resent_share`, `rtt_s` |
| `scaling_factor`, `scaling_basis` | of the typical iteration, and what it rests on: "single trace" (the \
estimate), or with `--baseline` "single-worker baseline" (measured) |
| `scaling_factor_estimate` | the largest compute of any rank (iteration less exposed communication) over the \
iteration |
| `scaling_factor_measured` | an iteration of one worker alone over the typical one; null without `--baseline` |
| `paces[]` | sets of ranks that keep step with each other, the slowest first, of most jobs one: `ranks` (null: \
unknown), `iteration_s`, `scaling_factor`; the job's is the mean over all ranks; null without iterations |
| `straggler_share` | how much more the rank with the most compute computes than the mean of all, over the iteration |
| `ranks[]` | per process: `rank`, `pid`, `device`, `iterations.*` as above, `collectives.*` as above and with \
`{wire,payload,algorithm}_bytes`, what the ratios are of, `tx_bytes` |
| `flows[]` | per flow, the largest first: `flow_id`, `local`, `remote`, `device`, `netns`, `pid`, `rank`, \
`congestion_control` (TCP's, null: unknown), \
`{tx,rx}.{payload_bytes,wire_bytes,retransmitted_bytes,packets,rate_bps,share,first_ns,last_ns}`, \
`tcp.{retransmits,rtt_us,cwnd,mss_bytes,samples}`; with what `reconciliation` recovers |
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
| `audit[]` | what could be set otherwise: `kind` (faster_device, mtu, bond, offloads, receive_cpu, buffers), \
`subject`, `sentence`, `advice` |
| `lost_flows[]` | flows that sent something again: `flow`, `resent_bytes`, `needless_packets` of it that the \
receiver had already (DSACK), `where` they were lost as far as can be told, `advice`, and `waited_s` of all ranks |
| `stuck_flows[]` | connections that stand when the recording ends: `flow`, for `lasted_s` nothing was acknowledged, \
packets of `mss_bytes` were `resent` so often |
| `queue_pairs[]` | of each process on each RDMA port: `device`, `netns`, `pid`, `rank`, `pairs` (numbers `local` and \
`remote`, null where nothing says it; `sent_bytes` and `received_bytes`, always null: ports are counted, queue pairs \
are not), and `peers`, the ranks at the other ends that are recorded too |
| `counters[]` | other counters of the host, by source and quantity, all subjects (CPUs, ports) together: `source`, \
`name`, `unit`, `kind` ("count", "level"), `meaning`, `subjects`; of a count `total`, `per_second`, \
`busiest_per_second`, and what has most of it: `worst_subject`, `worst_total`; of a level its last value and mean |
| `reconciliation` | TCP's own totals of every flow beside what was counted until the same instant (`definitions`), \
and the devices' counters beside the job's bytes |
| `reconciliation.beyond_report` | true: TCP's totals and what is counted beside them are of all that each host \
recorded, the rest of the report of the time that all did; nothing recovered is then part of `flows[]` |
| `reconciliation.holds` | true: every byte that TCP moved is accounted for; null: it cannot be told |
| `reconciliation.tcp_{sent,resent,received}_bytes` | TCP's totals over all flows, since each is counted; null: the \
trace is of an older netprof and has none, and so for the following |
| `reconciliation.{unseen,unrecorded,counted_beyond,on_its_way,recovered_resent}_bytes`, `.recovered_segments` | \
payload that is missing; of that, what was counted and came into no row (null: not compared, the trace is not all that \
one recorder wrote); counted more than TCP moved; sent and not yet at the device at the last look; sent again or moved \
unseen: part of `flows[]`, not of anything over time |
| `reconciliation.flows[]` | by `flow_id`: `closed` (the socket ended), `settled` (nothing was on its way), \
`tcp.{sent_bytes,resent_bytes,received_bytes,sent_segments,received_segments}` and \
`counted.{sent_bytes,resent_bytes,received_bytes,sent_packets,received_packets}` (both with what was sent again), and \
of the difference `on_its_way_bytes`, `unseen_{sent,received}_bytes`, `recovered_resent_bytes`, \
`recovered_{sent,received}_segments`, `beyond_bytes`, `unrecorded_bytes`; `earlier_{sent,received}_bytes`: moved \
before a connection that came late was found |
| `reconciliation.flows_not_read` | flows that moved bytes but whose totals could not be read |
| `reconciliation.devices[]` | `device`, `netns`, `{tx,rx}_bytes` of its own counters, `job_{tx,rx}_bytes` in the same \
time, `difference_{tx,rx}_bytes`; null: not sampled |
| `checks[]` | what has to hold for the numbers to be true: `name` (payload_of_collectives, line_rate, \
device_counters, tcp_totals, peers, members, account), `holds` (null: nothing tells), and `sentence`, what does not |
| `hosts[]` | those that recorded the job, the reference first: `host`, `boot_id`, `trace`, `ranks`, `losses`, \
`cpu_share` of its recorder, and `clock` |
| `digest` | only of digests: the number of `hosts`, those that are `missing` of what was made in one go, why \
others were `left_out`, and what is `not_told` |
| `last_ones` | only of digests whose report was not kept: of `iterations`, in how many it is `unsure` who was last, \
and `ranks[]` (`rank`, `host`, last in `iterations`, in `matters` by much, by `late_s` in those together) |
| `hosts[].clock` | `offset_s` is what its monotonic clock reads more than the reference's at the middle of the \
recording, `drift_ppm` what it gains; both are true to `bound_s` over all of the recording, and to `drift_bound_ppm` \
(null: nobody knows); `source`: reference, same host, flows, collectives, realtime; `residual_s` and `pairs` of what \
they were got from (`definitions.clocks`) |
| `links[].host`, `ranks[].host`, `ranks[].own_pid` | only with several hosts: whose device, where the process runs \
and its number there (`pid` is its number in this document: two hosts may have the same) |
| `processes[]` | all processes of the job: `pid` (and `host`, `own_pid`, as of ranks), `inner_pid` (its number in its \
own PID namespace, as in a container), `rank`, and what it runs in, null where it does not or nothing tells: \
`container.{id,runtime}`, `pod.{uid,name,namespace}` of Kubernetes, `slurm.{job,step}` |
| `losses` | what the recording missed: `merged_bins`, `lost_marks`, `untracked_flows`, `healed_bytes`, `truncated`; \
`damage[]`: what its tables hold that no recorder writes, and is left out; \
`unseen_packets`: of RoCE, by the sequence numbers of those that a capture holds; \
`late_flows`, `late_bytes`: flows found after the attach, and what they had moved by then, in no time bin |
| `cost` | what recording cost: `wall_s`, `cpu_s`, the part of both until the probes were attached (`start_s`, \
`start_cpu_s`), `cpu_share` of a core since, `peak_memory_bytes`, `trace_bytes`, `bpf_sampled_s`, \
`programs[].{name,runs,run_time_ns,run_time_ns_per_run}`, `probes[].{name,cpu_s}` |
| `probes.started[]`, `.skipped[]` | `name`, `detail`; `name`, `reason`, `remedy` |
| `notes[]` | what one must know to trust the numbers, a sentence each |
| `definitions.*` | every term in prose |
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

from netprof.analysis import definitions
from netprof.views.json_text import json_text

if TYPE_CHECKING:
    from netprof.analysis import Analysis
    from netprof.views.reporter import Report

SCHEMA = 1


def write(report: Report, out: IO[bytes]) -> None:
    """Write the document. Raises OSError."""
    out.write(json_text(to_json(report.analysis)).encode() + b"\n")


def to_json(analysis: Analysis) -> dict[str, Any]:
    """Return the report as a document of plain dicts, lists, strings and finite numbers; see the module for keys."""
    return {
        "schema": SCHEMA,
        **analysis.document(),
        "notes": list(analysis.notes),
        "definitions": {term.name or term.term: term.text for term in definitions.ALL},
    }
