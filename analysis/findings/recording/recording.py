"""The recording itself: what it lost, what it left out, and what it cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from netprof.analysis.declared import Column, json_of, plain, share_of, table
from netprof.analysis.events.iterations import Dropped
from netprof.analysis.findings.flows.reconciliation import RECONCILIATION, ReconciliationFinding, in_words
from netprof.analysis.findings.iterations.iterations import ITERATIONS
from netprof.analysis.findings.recorded import RECORDED, Recorded
from netprof.analysis.findings.recording.checks import CHECKS, OF_THE_JOB
from netprof.analysis.form import Grid, Pairs, Part
from netprof.analysis.section import Analysis, Section
from netprof.model import Host, Meta
from netprof.schema import RDMA_PROBE
from netprof.units import count, duration, share, size


@dataclass(frozen=True)
class RecordingFinding:
    """How much was recorded, what of it could not be used, and which checks fail.

    `still_recording` says that the end is to come, `damage` what of the tables no recorder can have written;
    `reconciliation` is None where TCP's own totals are not at hand.
    """

    meta: Meta
    recorded: Recorded
    dropped: Dropped
    failed_checks: frozenset[str]
    damage: tuple[str, ...]
    still_recording: bool
    reconciliation: ReconciliationFinding | None
    hosts: Sequence[Host]


def _conclude(analysis: Analysis) -> RecordingFinding:
    recorded = analysis.of(RECORDED)
    elsewhere = {"peers"} if analysis.evidence.is_whole_job else set()  # a data set, a log: no part of the job
    return RecordingFinding(
        meta=analysis.meta,
        recorded=recorded,
        dropped=analysis.of(ITERATIONS).dropped,
        failed_checks=frozenset(check.name for check in analysis.of(CHECKS) if check.holds is False) - elsewhere,
        damage=tuple(analysis.evidence.damage),
        still_recording=analysis.evidence.still_recording,
        reconciliation=analysis.of(RECONCILIATION),
        hosts=analysis.evidence.hosts,
    )


def _document(finding: RecordingFinding) -> dict[str, Any]:
    meta, recorded = finding.meta, finding.recorded
    return {
        **json_of(meta, "netprof_version host kernel command stop_reason bin_s"),
        "still_recording": finding.still_recording,
        "recording_s": recorded.total_ns / 1e9,
        "losses": plain(meta.losses) | {"truncated": recorded.truncated, "damage": list(finding.damage)},
        "cost": _cost(meta),
        "probes": json_of(meta, "started=probes_started skipped=probes_skipped"),
    }


def _cost(meta: Meta) -> dict[str, Any]:
    cost: dict[str, Any] = plain(meta.cost)
    for program in cost["programs"]:
        program["run_time_ns_per_run"] = share_of(program["run_time_ns"], program["runs"])
    return cost | {"cpu_share": meta.cost.cpu_share}


def _parts(finding: RecordingFinding) -> Sequence[Part]:
    rows = [("lost", _losses(finding))]
    if finding.meta.losses.healed_bytes:
        recovered = size(finding.meta.losses.healed_bytes)
        how = "in packets that were not seen: counted by TCP's sequence numbers, a little later"
        rows.append(("recovered", f"{recovered} {how}"))
    if finding.reconciliation is not None:
        rows.append(("unseen", in_words(finding.reconciliation)))
    rows += [("left out", _left_out(finding)), ("cost", _cost_in_words(finding.meta))]
    rows += [("RDMA ports", probe.detail) for probe in finding.meta.probes_started if probe.name == RDMA_PROBE]
    return [Part("Recording", bodies=[Pairs(rows)]), *_details(finding)]


def _details(finding: RecordingFinding) -> Iterator[Part]:
    """Yield what a person looks up: the machine, the processes, the losses, the programs and the probes."""
    meta, going_on = finding.meta, finding.still_recording
    not_stopped = "not yet: it is still being recorded" if going_on else "unknown: the recorder did not finish"
    machine = [
        ("host", meta.host),
        ("kernel", meta.kernel),
        ("command", " ".join(meta.command)),
        ("stopped", meta.stop_reason or not_stopped),
        ("time bin", duration(meta.bin_ns / 1e9)),
        ("netprof", meta.netprof_version),
    ]
    yield Part("Machine", bodies=[Pairs(machine)], detail=True)
    yield Part("Processes", bodies=[_processes(finding.hosts)], detail=True)
    yield Part("Losses", bodies=[Pairs(_each_loss(finding))], detail=True)
    if programs := [program for program in meta.cost.programs if program.runs]:
        yield Part("Programs in the kernel", bodies=[table(_PROGRAMS, programs)], detail=True)
    probes = [(probe.name, "started", probe.detail) for probe in meta.probes_started]
    probes += [(probe.name, "skipped", f"{probe.reason} {probe.remedy}".strip()) for probe in meta.probes_skipped]
    about = Grid(("probe", "state", "about"), probes, frozenset({"state", "about"}))
    yield Part("Probes", bodies=[about], detail=True)


_PROGRAMS = (
    Column("program", "name"),
    Column("runs sampled", "runs"),
    Column("a run", lambda program: f"{program.run_time_ns / program.runs:.0f} ns"),
)


def _processes(hosts: Sequence[Host]) -> Grid:
    """Return all processes under their hosts' own numbers."""
    rows = [
        (host.name, str(target.pid), "?" if target.rank < 0 else str(target.rank), target.command)
        for host in hosts
        for target in host.meta.targets
    ]
    grid = Grid(("host", "pid", "rank", "command"), rows, frozenset({"command"}))
    return grid if len(hosts) > 1 else grid.without({"host"})


def _each_loss(finding: RecordingFinding) -> list[tuple[str, str]]:
    losses = finding.meta.losses
    end = "missing" if finding.recorded.truncated else "still to come" if finding.still_recording else "complete"
    return [
        ("lost marks", str(losses.lost_marks)),
        ("merged bins", str(losses.merged_bins)),
        ("flows that found the table full", str(losses.untracked_flows)),
        ("flows found late", str(losses.late_flows)),
        ("their bytes until then, in no time bin", size(losses.late_bytes)),
        ("bytes recovered from TCP sequence numbers", size(losses.healed_bytes)),
        ("iterations cut off by the recording's edges", str(finding.dropped.incomplete)),
        ("iterations with lost marks", str(finding.dropped.damaged)),
        ("end of the trace", end),
    ]


def _losses(finding: RecordingFinding) -> str:
    if lost := ", ".join(lost_parts(finding)):
        return lost
    if not is_checked(finding):
        return "nothing known to the recorder"
    if finding.failed_checks - set(OF_THE_JOB):
        return "nothing known to the recorder, but the numbers do not fit together: see the notes"
    return "nothing; a part of the job is not recorded: see the notes" if finding.failed_checks else "nothing"


def is_checked(finding: RecordingFinding) -> bool:
    """Tell whether anything but the recorder itself can say that something was lost: TCP's totals, or the checks."""
    reconciled = finding.reconciliation
    return bool(finding.failed_checks) or (reconciled is not None and reconciled.holds is not None)


def lost_parts(finding: RecordingFinding) -> list[str]:
    """Return what was lost, a part each."""
    losses, reconciled = finding.meta.losses, finding.reconciliation
    unseen = 0 if reconciled is None else reconciled.unseen_bytes
    late = count(losses.late_flows, "flow that was found late", "flows that were found late")
    parts = [
        count(losses.lost_marks, "mark") if losses.lost_marks else "",
        count(losses.merged_bins, "merged bin") if losses.merged_bins else "",
        f"the times of {size(losses.late_bytes)} of {late}" if losses.late_flows else "",
        count(losses.untracked_flows, "untracked flow") if losses.untracked_flows else "",
        "the end of the trace" if finding.recorded.truncated else "",
        count(len(finding.damage), "damaged table") if finding.damage else "",
        f"{size(unseen)} unseen" if unseen else "",
        f"about {count(losses.unseen_packets, 'packet')} of RoCE" if losses.unseen_packets else "",
    ]
    return [part for part in parts if part]


def _left_out(finding: RecordingFinding) -> str:
    cut, damaged, half = finding.dropped.incomplete, finding.dropped.damaged, finding.recorded.unpaired
    parts = [
        f"{count(cut, 'iteration')} cut off by the edges of the recording" if cut else "",
        f"{count(damaged, 'iteration')} with lost marks" if damaged else "",
        f"{count(half, 'collective')} of which only the begin or the end was seen" if half else "",
    ]
    return ", ".join(part for part in parts if part) or "nothing"


def _cost_in_words(meta: Meta) -> str:
    cost = meta.cost
    cpu = f" ({share(cost.cpu_share)} of a core)" if cost.cpu_share is not None else ""
    start = f" and {duration(cost.start_cpu_s)} to start" if cost.start_cpu_s else ""
    parts = [f"{duration(cost.cpu_s - cost.start_cpu_s)} CPU{cpu}{start}", f"{size(cost.peak_memory_bytes)} memory"]
    parts.append(f"{size(cost.trace_bytes)} of trace")
    runs, spent = sum(p.runs for p in cost.programs), sum(p.run_time_ns for p in cost.programs)
    if runs:
        sampled = f"{duration(cost.bpf_sampled_s)} sampled"
        parts.append(f"{duration(spent / 1e9)} in {count(runs, 'BPF run')} ({spent / runs:.0f} ns each, {sampled})")
    return ", ".join(parts)


def _notes(finding: RecordingFinding) -> Iterator[str]:
    losses = finding.meta.losses
    if finding.still_recording:
        yield "the recording goes on: this is the report of what there is so far"
    if finding.recorded.truncated:
        yield "the recorder did not finish: the end of the trace is missing"
    yield from finding.damage
    if losses.lost_marks:
        yield f"{losses.lost_marks} marks were lost: steps that miss one are left out"
    if losses.merged_bins:
        yield f"{losses.merged_bins} time bins were merged into a neighbour: no byte is lost, but its time is blurred"
    if losses.untracked_flows:
        full = count(losses.untracked_flows, "flow")
        yield f"{full} found the table of flows full: what they moved until there was room again is in no time bin"
    if losses.late_flows:
        which, moved = count(losses.late_flows, "flow was", "flows were"), size(losses.late_bytes)
        yield (
            f"{which} found after the recording had begun, on sockets that the job was given or of ranks that started "
            f"elsewhere: when their {moved} until then moved, and how much of it before the recording, is unknown"
        )
    if finding.recorded.unknown_bytes:
        unknown = finding.recorded.unknown_bytes
        yield f"{unknown} bytes belong to flows that the trace does not describe, and are left out"
    for probe in finding.meta.probes_skipped:
        remedy = f" ({probe.remedy})" if probe.remedy else ""
        yield f"probe {probe.name} was skipped: {probe.reason}{remedy}"
    yield from finding.meta.warnings


RECORDING = Section("recording", _conclude, ("wire", "flows", "marks"), _document, _parts, _notes)
