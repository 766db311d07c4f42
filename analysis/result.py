"""What the analysis returns: everything a view draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from netprof.analysis.events.buckets import Buckets
from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.flows_by_iteration import FlowProperties
from netprof.analysis.events.iterations import Dropped, Iterations
from netprof.analysis.events.typical import Durations
from netprof.analysis.findings.all_reduces import CollectiveSummary
from netprof.analysis.findings.communication import Communication
from netprof.analysis.findings.flows import FlowSummary
from netprof.analysis.findings.gpus import GpuSummary
from netprof.analysis.findings.inferred import InferredSummary
from netprof.analysis.findings.links import LinkSummary
from netprof.analysis.findings.ranks import RankSummary
from netprof.analysis.findings.scaling import Scaling
from netprof.analysis.findings.verdict import Verdict
from netprof.analysis.tables.flow_table import LaneKey
from netprof.analysis.tables.intervals import Intervals
from netprof.analysis.tables.marks import Marks
from netprof.analysis.wire.bins import Bins
from netprof.model import Meta


@dataclass(frozen=True, eq=False)
class Tables:
    """The rows behind the summaries, for views and models that need more than those.

    `outstanding` is per pid; `lanes` are the bins of each (netns, device, pid) and direction.
    """

    marks: Marks
    iterations: Iterations
    buckets: Buckets
    collectives: Collectives
    outstanding: Mapping[int, Intervals]
    lanes: Mapping[tuple[LaneKey, int], Bins]


@dataclass(frozen=True, eq=False)
class Analysis:
    """The conclusions from one trace. None means unknown, everywhere.

    `durations` are over the iterations of all ranks together; `iteration_count` is that of the rank with the most,
    None where no process has DDP marks.
    `inferred` are iterations where no mark tells of any: everything that rests on marks stays unknown then.
    `stepped` are the processes whose iterations are told by optimizer steps, since they have no DDP marks.
    `recording_ns` is the length of the recording, `truncated` whether its end is missing, `notes` are sentences about
    what the reader must know to trust the rest. `wire_rows` are the rows of the wire table that were read.
    """

    meta: Meta
    truncated: bool
    recording_ns: int
    verdict: Verdict
    iteration_count: int | None
    durations: Durations | None
    inferred: InferredSummary | None
    dropped: Dropped
    ranks: tuple[RankSummary, ...]
    links: tuple[LinkSummary, ...]
    collectives: CollectiveSummary
    communication: Communication
    stepped: tuple[int, ...]
    scaling: Scaling | None
    flows: tuple[FlowSummary, ...]
    flow_properties: FlowProperties | None
    wire_rows: int
    notes: tuple[str, ...]
    tables: Tables
    gpus: tuple[GpuSummary, ...] = ()
