"""The part of the report about what a job communicates by, where that is more than DDP's all-reduces over gloo."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from netprof.analysis import Analysis
from netprof.analysis.definitions import HOROVOD, KINDS, NCCL, Definition
from netprof.analysis.findings.collective_kinds import ENQUEUED, MEASURED, POSTED
from netprof.views.format import count, duration, rate, ratio, share, size
from netprof.views.grid import Grid, pairs, show, title

_ORDINARY = {("gloo", "all-reduce"), ("gloo", "barrier"), ("gloo", "unknown")}

_HOW_SEEN = {MEASURED: "", ENQUEUED: " enqueued", POSTED: " posted"}


def communication(analysis: Analysis, console: Console) -> None:
    """Print collectives by kind, Horovod's stages and NCCL's launches, each where the job has them."""
    if _has_kinds(analysis):
        _kinds(analysis, console)
    _horovod(analysis, console)
    _nccl(analysis, console)


def definitions(analysis: Analysis) -> Sequence[Definition]:
    """Return the definitions that this part of the report needs."""
    needed = (
        (KINDS, _has_kinds(analysis)),
        (HOROVOD, bool(analysis.communication.horovod)),
        (NCCL, bool(analysis.communication.nccl)),
    )
    return [definition for definition, shown in needed if shown]


def _has_kinds(analysis: Analysis) -> bool:
    return any((each.backend, each.kind) not in _ORDINARY for each in analysis.communication.kinds)


def _kinds(analysis: Analysis, console: Console) -> None:
    title(console, "Collectives by kind", "of one rank, over the recording")
    rows = [
        (
            each.kind,
            each.backend,
            f"{each.count}{_HOW_SEEN[each.timing]}",
            size(each.bytes) if each.bytes is not None else "unknown",
            duration(each.running_ns / 1e9) if each.running_ns is not None else each.timing,
            rate(each.bus_bandwidth_bps) if each.running_ns is not None else "-",
        )
        for each in analysis.communication.kinds
    ]
    headings = ("kind", "backend", "seen", "buffers", "running", "bus bandwidth")
    show(console, Grid(headings, rows, left=frozenset({"backend"}), optional=("backend", "running")))


def _horovod(analysis: Analysis, console: Console) -> None:
    found = analysis.communication.horovod
    if not found:
        return
    title(console, "Horovod", "share of the time in which something is enqueued and not done")
    names = {rank.pid: "?" if rank.rank is None else str(rank.rank) for rank in analysis.ranks}
    rows = []
    for each in found:
        stages = (each.negotiating_ns, each.packing_ns, each.transferring_ns, each.unpacking_ns)
        whole = each.outstanding_ns
        parts = [share(stage / whole) if whole else "-" for stage in stages]
        fused = f"{each.tensors_per_response:.1f}" if each.tensors_per_response is not None else "-"
        rows.append((names.get(each.pid, "?"), str(each.enqueued), str(each.responses), fused, *parts))
    headings = ("rank", "enqueued", "responses", "tensors each", "negotiating", "packing", "transfer", "unpacking")
    show(console, Grid(headings, rows, optional=("enqueued", "tensors each", "unpacking", "packing")))


def _nccl(analysis: Analysis, console: Console) -> None:
    for each in analysis.communication.nccl:
        title(
            console, "NCCL", f"process {each.pid}: what was enqueued, and what its flows carried until the next launch"
        )
        ranks = ", ".join(map(str, each.ranks)) or "an unknown number"
        wire = f"{duration(each.median_wire_time_s)} a launch" if each.median_wire_time_s is not None else "no packets"
        pairs(
            console,
            [
                ("enqueued", f"{count(each.operations, 'operation')} in {count(each.communicators, 'communicator')}"),
                ("ranks", f"{ranks}  ({each.ranks_source})"),
                ("buffers", size(each.bytes) if each.bytes is not None else "unknown"),
                ("on the wire", Text(f"{wire}, {rate(each.wire_bandwidth_bps)} meanwhile")),
                ("wire/algorithm", ratio(each.wire_to_algorithm_ratio)),
            ],
        )
