"""The metrics: names, types and meanings, and the samples that a job's totals make."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import Metric

from netprof.analysis.account.causes import HOST, LATE_RANK, WAIT_CAUSES
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.totals.sums import PHASES, STEP_BUCKETS_S, RankTotals, Totals
from netprof.model import Meta, Target
from netprof.schema import RECEIVE, TRANSMIT, UNKNOWN_RANK
from netprof.views.safe import safe_text

Labels = tuple[tuple[str, str], ...]
SampleKey = tuple[str, str, Labels]
"""Family, suffix and labels."""

MOST_DEVICES = 16
"""Devices that a rank is shown with; what goes over others is added up as device "other"."""
_LONGEST_LABEL = 128


FAMILIES: Mapping[str, tuple[str, str]] = {
    "netprof_waiting_seconds": ("counter", "Time in which a rank only waited for communication, by cause."),
    "netprof_waiting_at_least_seconds": ("counter", "Lower bound of it where only NCCL launches are visible."),
    "netprof_waiting_at_most_seconds": ("counter", "Upper bound of it where only NCCL launches are visible."),
    "netprof_blamed_seconds": ("counter", "Time that other ranks of this host waited for this rank, by cause."),
    "netprof_phase_seconds": ("counter", "Time in whole steps, by phase; the phases add up to the step."),
    "netprof_steps": ("counter", "Whole steps (training iterations)."),
    "netprof_step_duration_seconds": ("histogram", "Duration of whole steps."),
    "netprof_last_step_timestamp_seconds": ("gauge", "Unix time at which the rank's last whole step ended."),
    "netprof_collectives": ("counter", "Collectives by kind."),
    "netprof_collective_bytes": ("counter", "Buffer bytes of collectives by kind."),
    "netprof_collective_seconds": ("counter", "Time from begin to end of collectives by kind."),
    "netprof_link_bytes": ("counter", "Bytes of a rank on a device's wire, headers included, by direction."),
    "netprof_link_busy_seconds": ("counter", "Time in which a device served bytes of the job, by direction."),
    "netprof_link_line_rate_bytes_per_second": ("gauge", "Line rate of a device, where known."),
    "netprof_retransmitted_bytes": ("counter", "Payload bytes that TCP sent again."),
    "netprof_stalled": ("gauge", "1 while a job that made steps makes none for far longer than a step takes."),
    "netprof_ranks": ("gauge", "Training processes of the job on this host that are alive."),
    "netprof_accounted_timestamp_seconds": ("gauge", "Unix time up to which the totals are complete."),
    "netprof_lost_events": ("counter", "What the recording did not get, by what."),
    "netprof_recovered_bytes": ("counter", "Payload whose packet no hook saw: from TCP's sequence numbers."),
    "netprof_late_bytes": ("counter", "Payload of flows that netprof came to know of late: of no known time."),
    "netprof_recorder_cpu_seconds": ("counter", "CPU time of the recorder's process."),
    "netprof_recorder_memory_bytes": ("gauge", "Peak resident memory of the recorder's process."),
    "netprof_account_cpu_seconds": ("counter", "CPU time of that which making these totals took."),
    "netprof_trace_bytes": ("gauge", "Size of the trace on disk."),
    "netprof_events": ("counter", "Events that --save-when fired, by rule."),
    "netprof_saved_bytes": ("counter", "Bytes of the traces that events saved."),
    "netprof_attach_failures": ("counter", "Recordings of the exporter that could not begin, or failed."),
    "netprof_jobs": ("gauge", "Jobs that are being recorded."),
    "netprof_jobs_left_out": ("gauge", "Jobs that are not recorded or not shown, by user and why."),
    "netprof_build": ("info", "Version of netprof."),
}
"""By the name of a metric family its type as in OpenMetrics, and what its values mean."""


class MetricSamples:
    """Samples of all families, added up by their labels."""

    def __init__(self, values: Mapping[SampleKey, float] | None = None) -> None:
        self.values: dict[SampleKey, float] = defaultdict(float, values or {})

    def add(self, family: str, labels: Labels, value: float, suffix: str = "") -> None:
        """Add to a sample. A counter's suffix is _total, given or not."""
        suffix = suffix or ("_total" if FAMILIES[family][0] == "counter" else "")
        self.values[family, suffix, labels] += value

    def set_latest(self, family: str, labels: Labels, value: float) -> None:
        """Set a gauge to the largest value given."""
        key = family, "", labels
        self.values[key] = max(self.values.get(key, value), value)


def metrics_of(parts: Iterable[MetricSamples]) -> Iterator[Metric]:
    """Yield the families of several jobs' samples, for prometheus-client to write."""
    metrics = {name: Metric(name, meaning, kind) for name, (kind, meaning) in FAMILIES.items()}
    for part in parts:
        for (name, suffix, labels), value in part.values.items():
            metrics[name].add_sample(name + suffix, dict(labels), value)
    yield from (metric for metric in metrics.values() if metric.samples)


def label_value(text: str) -> str:
    """Return a text from outside as a label's value: printable, and of bounded length."""
    return safe_text(text, _LONGEST_LABEL)


def rank_labels(job: Labels, target: Target | None, rank: int | None) -> Labels:
    """Return the labels of a process's series: those of its job, its rank, and what its cgroup says."""
    known = "unknown" if rank is None or rank == UNKNOWN_RANK else str(rank)
    return (*job, ("rank", known), *cgroup_labels([target] if target else []))


def cgroup_labels(targets: Sequence[Target]) -> Labels:
    """Return what all of some processes are of: container, pod, namespace, Slurm job; nothing where they differ."""
    labels = []
    for name, values in (
        ("container", {target.cgroup.short_container for target in targets}),
        ("pod", {target.cgroup.pod or target.cgroup.pod_uid for target in targets}),
        ("namespace", {target.cgroup.pod_namespace for target in targets}),
        ("slurm_job_id", {target.cgroup.slurm_job for target in targets}),
    ):
        if len(values) == 1 and (value := values.pop()):
            labels.append((name, label_value(value)))
    return tuple(labels)


def samples_of(job: Labels, totals: Totals, ranks: Mapping[int, int], meta: Meta) -> MetricSamples:
    """Return the samples of a job's totals. Processes with the same labels, as a restarted rank, are added up."""
    samples, targets = MetricSamples(), {target.pid: target for target in meta.targets}
    labels_of = {pid: rank_labels(job, targets.get(pid), ranks.get(pid)) for pid in pids_of(totals)}
    for pid, rank in totals.ranks.items():
        _add_rank(samples, labels_of[pid], rank)
    devices: dict[int, set[str]] = defaultdict(set)
    for lane, moved in totals.moved_bytes.items():
        shown = devices[lane.pid]
        device = lane.link.device if lane.link.device in shown or len(shown) < MOST_DEVICES else "other"
        shown.add(device)
        for direction, name in ((TRANSMIT, "transmit"), (RECEIVE, "receive")):
            labels = (*labels_of[lane.pid], ("device", label_value(device)), ("direction", name))
            samples.add("netprof_link_bytes", labels, moved[direction])
    _add_links(samples, job, totals, ranks, meta)
    return samples


def pids_of(totals: Totals) -> set[int]:
    """Return the processes that totals are of."""
    return set(totals.ranks) | {lane.pid for lane in totals.moved_bytes}


def _add_rank(samples: MetricSamples, labels: Labels, rank: RankTotals) -> None:
    samples.add("netprof_retransmitted_bytes", labels, rank.retransmitted_bytes)
    for kind, number in rank.collectives.items():
        of_kind = (*labels, ("kind", kind))
        samples.add("netprof_collectives", of_kind, number)
        samples.add("netprof_collective_bytes", of_kind, rank.collective_bytes[kind])
        samples.add("netprof_collective_seconds", of_kind, rank.collective_ns[kind] / 1e9)
    for cause, blamed_ns in zip(WAIT_CAUSES, rank.blamed_ns.tolist(), strict=True):
        if blamed_ns or (rank.phases_ns.any() and cause in (LATE_RANK, HOST)):
            samples.add("netprof_blamed_seconds", (*labels, ("cause", cause.name)), blamed_ns / 1e9)
    if not rank.steps and not rank.bounded_ns:
        return
    _add_steps(samples, labels, rank)
    waits = [("netprof_waiting_seconds", rank.waiting_ns)] if rank.phases_ns.any() else []
    if rank.bounded_ns:
        waits.append(("netprof_waiting_at_least_seconds", rank.at_least_ns))
        waits.append(("netprof_waiting_at_most_seconds", rank.at_most_ns))
    for family, causes_ns in waits:
        for cause, ns in zip(WAIT_CAUSES, causes_ns.tolist(), strict=True):
            samples.add(family, (*labels, ("cause", cause.name)), ns / 1e9)


def _add_steps(samples: MetricSamples, labels: Labels, rank: RankTotals) -> None:
    samples.add("netprof_steps", labels, rank.steps)
    if rank.phases_ns.any():
        for phase, ns in zip(PHASES, rank.phases_ns.tolist(), strict=True):
            samples.add("netprof_phase_seconds", (*labels, ("phase", phase)), ns / 1e9)
    below = 0
    for edge, number in zip((*map(str, STEP_BUCKETS_S), "+Inf"), rank.step_buckets.tolist(), strict=True):
        below += number
        samples.add("netprof_step_duration_seconds", (*labels, ("le", edge)), below, "_bucket")
    samples.add("netprof_step_duration_seconds", labels, below, "_count")
    samples.add("netprof_step_duration_seconds", labels, rank.step_ns / 1e9, "_sum")


def _add_links(samples: MetricSamples, job: Labels, totals: Totals, ranks: Mapping[int, int], meta: Meta) -> None:
    targets = {target.pid: target for target in meta.targets}
    users: dict[LinkKey, set[int]] = defaultdict(set)
    for lane in totals.moved_bytes:
        users[lane.link].add(lane.pid)
    rates = {LinkKey(device.netns, device.device): device.line_rate.bps for device in meta.devices}
    for link, busy in totals.busy_ns.items():
        pids = users.get(link, set())
        behind = {ranks[pid] for pid in pids if ranks.get(pid, UNKNOWN_RANK) != UNKNOWN_RANK}
        whose = (("rank", str(behind.pop())),) if len(behind) == 1 else ()
        known = [targets[pid] for pid in pids if pid in targets and targets[pid].frameworks]
        labels = (*job, *whose, *cgroup_labels(known), ("device", label_value(link.device)))
        for direction, name in ((TRANSMIT, "transmit"), (RECEIVE, "receive")):
            samples.add("netprof_link_busy_seconds", (*labels, ("direction", name)), busy[direction] / 1e9)
        if (bps := rates.get(link)) is not None:
            samples.set_latest("netprof_link_line_rate_bytes_per_second", labels, bps / 8)
