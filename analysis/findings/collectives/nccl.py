"""NCCL: what was enqueued, and what the wire carried between one launch and the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from netprof.analysis.declared import json_of, put_together
from netprof.analysis.definitions import NCCL as DEFINITION
from netprof.analysis.events.nccl import NcclSummary, Operations, nccl_operations, summarize_nccl
from netprof.analysis.findings.names import name_on_host
from netprof.analysis.form import Pairs, Part
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.columns import empty
from netprof.schema import TRANSMIT
from netprof.units import count, duration, rate, ratio, size


@dataclass(frozen=True, eq=False)
class NcclFinding:
    """Everything that was enqueued (of a long recording, nothing is kept of that), and each process's summary.

    `collectives_seen` says that collectives of the job are seen to begin and end, `is_used` that it uses NCCL, or may.
    `names` are what its processes are called.
    """

    operations: Operations
    processes: tuple[NcclSummary, ...]
    collectives_seen: bool
    is_used: bool
    names: Mapping[int, str] = field(default_factory=dict)

    @property
    def only_enqueues(self) -> bool:
        """Whether no collective of the job is seen to begin and end, since NCCL performs them."""
        return self.is_used and not self.collectives_seen


def _conclude(analysis: Analysis) -> NcclFinding:
    evidence = analysis.evidence
    operations = nccl_operations(evidence.marks, evidence.world_size)
    operations = operations.where(evidence.piece.owns(operations.time_ns))
    sent = {pid: evidence.links.lanes.of_process(pid, TRANSMIT) for pid in np.unique(operations.pid).tolist()}
    end_ns = int(evidence.recording.end_ns[-1]) if len(evidence.recording) else evidence.meta.started_ns
    has_nccl = {target.pid for target in evidence.meta.targets if "nccl" in target.frameworks}
    return NcclFinding(
        operations,
        summarize_nccl(operations, evidence.marks, sent, end_ns),
        collectives_seen=len(evidence.collectives) > 0,
        # most builds of torch load NCCL on any machine, so a process has to compute on a GPU, too
        is_used=len(operations) > 0 or not has_nccl.isdisjoint(evidence.with_gpu),
        names={pid: name_on_host(pid, evidence, "process") for pid in sent},
    )


def _merge(parts: Sequence[NcclFinding], whole: Analysis) -> NcclFinding:
    processes = put_together((part.processes for part in parts), lambda each: each.pid)
    return NcclFinding(
        empty(Operations),
        tuple(sorted(processes, key=lambda each: each.pid)),
        collectives_seen=any(part.collectives_seen for part in parts),
        is_used=any(part.is_used for part in parts),
        names={pid: name for part in parts for pid, name in part.names.items()},
    )


def _part(each: NcclSummary, name: str) -> Part:
    ranks = ", ".join(map(str, each.ranks)) or "an unknown number"
    wire = f"{duration(each.median_wire_time_s)} a launch" if each.median_wire_time_s is not None else "no packets"
    rows = [
        ("enqueued", f"{count(each.operations, 'operation')} in {count(each.communicators, 'communicator')}"),
        ("ranks", f"{ranks}  ({each.ranks_source})"),
        ("buffers", size(each.bytes)),
        ("on the wire", f"{wire}, {rate(each.wire_bandwidth_bps)} meanwhile"),
        ("wire / algorithm", ratio(each.wire_to_algorithm_ratio)),
    ]
    about = f"{name}: what was enqueued, and what its flows carried until the next launch"
    return Part("NCCL", about, [Pairs(rows)])


def _notes(finding: NcclFinding) -> Iterator[str]:
    for each in finding.processes:
        if each.bytes is None:
            yield (
                f"{finding.names[each.pid]}: some of NCCL's sizes are unknown, since nothing says how many ranks a "
                "communicator has (it was created before the recording, or by a split): they are left out"
            )
    if finding.only_enqueues:
        yield "NCCL only enqueues: the host's times are launch times, so phases and scaling factor are not the GPU's"


_JSON = (
    "pid operations launches communicators ranks ranks_source bytes median_wire_time_s wire_bandwidth_bps "
    "wire_to_algorithm_ratio wire_bytes wire_time_s needed_bytes"
)
NCCL = Section(
    "nccl",
    _conclude,
    ("marks", "wire", "flows"),
    lambda finding: {"nccl": [json_of(process, _JSON) for process in finding.processes]},
    lambda finding: tuple(_part(each, finding.names[each.pid]) for each in finding.processes),
    _notes,
    lambda finding: (DEFINITION,) if finding.processes else (),
    merge=_merge,
)
