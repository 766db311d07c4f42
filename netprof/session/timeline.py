"""A Horovod timeline file as a trace: marks, and nothing else."""

from __future__ import annotations

from pathlib import Path

from netprof.files import Place
from netprof.model import Clock, Meta, SkippedProbe, StartedProbe, Target
from netprof.probes.imported.horovod_timeline import PID, read_timeline
from netprof.trace import TraceWriter
from netprof.version import __version__


def import_timeline(timeline: Path, out: Path | Place, *, force: bool) -> Meta:
    """Write the trace `out` from a timeline file. Raises TraceError for what is no timeline, or cannot be written."""
    read = read_timeline(timeline)
    warnings = [
        "imported from a Horovod timeline: only the coordinator (rank 0) is in it, and an operation counts as enqueued "
        "when the first rank asks for it"
    ]
    if read.truncated:
        warnings.append("the timeline is cut off or damaged: what comes after that is missing")
    meta = Meta(
        netprof_version=__version__,
        host="unknown: imported",
        boot_id="",
        kernel="unknown: imported",
        clock=Clock(0, read.start_realtime_ns),
        command=("netprof", "timeline", timeline.name),
        bin_ns=1_000_000,
        started_ns=0,
        stopped_ns=read.last_ns,
        stop_reason="the end of the timeline",
        targets=(Target(PID, 0, "horovod", rank=0, world_size=read.ranks, frameworks=("horovod",)),),
        probes_started=(StartedProbe("marks:horovod", "imported from a timeline"),),
        probes_skipped=(SkippedProbe("flows", "a timeline holds no bytes of the wire", "record with netprof attach"),),
        warnings=tuple(warnings),
        stalled=read.stalled,
    )
    writer = TraceWriter(out, meta, force=force)
    writer.append("marks", read.marks)
    writer.close(meta)
    return meta
