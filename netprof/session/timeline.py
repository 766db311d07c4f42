"""A Horovod timeline file as a trace: marks, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from netprof.files import OutputPlace
from netprof.model import Clock, Meta, SkippedProbe, StartedProbe, Target
from netprof.probes.imported.horovod_timeline import PID, read_timeline
from netprof.trace import TraceWriter
from netprof.version import __version__


def import_timeline(timeline: Path, out: Path | OutputPlace, *, force: bool) -> Meta:
    """Write the trace `out` from a timeline file. Raises TraceError for what is no timeline, or cannot be written."""
    read = read_timeline(timeline)
    warnings = [
        "imported from a Horovod timeline: only the coordinator (rank 0) is in it, and an operation counts as enqueued "
        "when the first rank asks for it"
    ]
    if read.truncated:
        warnings.append("the timeline is cut off or damaged: what comes after that is missing")
    warnings += [f"left out of the timeline: {each}" for each in read.left_out]
    meta = imported_meta(
        command=("netprof", "timeline", timeline.name),
        clock=Clock(0, read.start_realtime_ns),
        bin_ns=1_000_000,
        stopped_ns=read.last_ns,
        stop_reason="the end of the timeline",
        targets=(Target(PID, 0, "horovod", rank=0, world_size=read.ranks, frameworks=("horovod",)),),
        probes_started=(StartedProbe("marks:horovod", "imported from a timeline"),),
        probes_skipped=(SkippedProbe("flows", "a timeline holds no bytes of the wire", "record with netprof attach"),),
        warnings=tuple(warnings),
        stalled=read.stalled,
    )
    with TraceWriter(out, meta, force=force) as writer:
        writer.append("marks", read.marks)
        writer.close(meta)
    return meta


def imported_meta(*, command: tuple[str, ...], clock: Clock, bin_ns: int, **known: Any) -> Meta:
    """Return the description of a trace that was made of another program's file; what is `known` goes into it, too."""
    return Meta(
        netprof_version=__version__,
        host="unknown: imported",
        boot_id="",
        kernel="unknown: imported",
        clock=clock,
        command=command,
        bin_ns=bin_ns,
        started_ns=0,
        **known,
    )
