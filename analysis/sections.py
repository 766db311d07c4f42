"""What is concluded from a recording: the one list of sections, in the order of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.checks import CHECKS
from netprof.analysis.findings.collectives import COLLECTIVES
from netprof.analysis.findings.counters import COUNTERS
from netprof.analysis.findings.flow_properties import FLOW_PROPERTIES
from netprof.analysis.findings.flows import FLOWS
from netprof.analysis.findings.gpus import GPUS
from netprof.analysis.findings.horovod import HOROVOD
from netprof.analysis.findings.iterations import ITERATIONS
from netprof.analysis.findings.links import LINKS
from netprof.analysis.findings.nccl import NCCL
from netprof.analysis.findings.ranks import RANKS
from netprof.analysis.findings.recording import RECORDING
from netprof.analysis.findings.scaling import SCALING
from netprof.analysis.findings.verdict import VERDICT
from netprof.analysis.findings.waiting import WAITING
from netprof.analysis.section import Analysis, Section

if TYPE_CHECKING:
    from netprof.trace import TraceReader

SECTIONS: tuple[Section[Any], ...] = (
    VERDICT,
    ITERATIONS,
    WAITING,
    RANKS,
    LINKS,
    COLLECTIVES,
    SCALING,
    FLOW_PROPERTIES,
    HOROVOD,
    NCCL,
    FLOWS,
    GPUS,
    COUNTERS,
    CHECKS,
    RECORDING,
)


def conclude(evidence: Evidence) -> Analysis:
    """Run every section over the evidence. Raises TraceError for what cannot be believed."""
    analysis = Analysis(evidence, SECTIONS)
    for section in SECTIONS:
        analysis.of(section)
    return analysis


def analyze(reader: TraceReader, *, baseline_s: float | None = None) -> Analysis:
    """Conclude from a whole trace.

    `baseline_s` is a measured iteration time of one worker alone, in seconds, for the scaling factor.
    Raises TraceError when the trace is damaged beyond its end.
    """
    return conclude(Evidence.of_trace(reader, baseline_s=baseline_s))
