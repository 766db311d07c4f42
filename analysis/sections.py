"""What is concluded from a recording: the one list of sections, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from netprof.analysis.findings.reconciliation import RECONCILIATION, TCP_TOTALS
from netprof.analysis.findings.recorded import RECORDED
from netprof.analysis.findings.recording import RECORDING
from netprof.analysis.findings.scaling import SCALING
from netprof.analysis.findings.seen_flows import SEEN_FLOWS
from netprof.analysis.findings.stall import STALLED_AT_END
from netprof.analysis.findings.verdict import VERDICT
from netprof.analysis.findings.waiting import WAITING
from netprof.analysis.pieces import Pieces, PieceSize
from netprof.analysis.section import Analysis, Section

if TYPE_CHECKING:
    from netprof.trace import TraceReader

OnPiece = Callable[[int, int], None]
"""Is told how many pieces of a recording are concluded from, and of how many."""

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
    RECONCILIATION,
    CHECKS,
    RECORDING,
    SEEN_FLOWS,
    TCP_TOTALS,
    RECORDED,
    STALLED_AT_END,
)


def conclude(evidence: Evidence, pieces: dict[Section[Any], Sequence[Any]] | None = None) -> Analysis:
    """Run every section over the evidence, or put together what they found in its `pieces`.

    Raises TraceError for what cannot be believed.
    """
    analysis = Analysis(evidence, SECTIONS, pieces=pieces)
    for section in SECTIONS:
        analysis.of(section)
    return analysis


def analyze(
    reader: TraceReader,
    *,
    baseline_s: float | None = None,
    size: PieceSize | None = None,
    on_piece: OnPiece | None = None,
) -> Analysis:
    """Conclude from a whole trace; a long one piece by piece, as `size` says, each of which is told to `on_piece`.

    `baseline_s` is a measured iteration time of one worker alone, in seconds, for the scaling factor.
    Raises TraceError when the trace is damaged beyond its end.
    """
    pieces = Pieces(reader, size)
    if len(pieces) == 1:
        return conclude(Evidence.of_trace(reader, baseline_s=baseline_s))
    return conclude_in_pieces(Evidence.of_trace(reader, baseline_s=baseline_s, known=pieces.known), pieces, on_piece)


def conclude_in_pieces(whole: Evidence, pieces: Pieces, on_piece: OnPiece | None = None) -> Analysis:
    """Run every section over each piece of a long recording, and put together what they find.

    The evidence of the whole is only read if somebody asks for more of it than was concluded.
    """
    found: dict[Section[Any], Any] = {section: [] for section in SECTIONS if section.merge is not None}
    for done, findings in enumerate(map(_findings, pieces), 1):  # a piece is let go of before the next one is read
        for section, parts in found.items():
            parts.append(findings[section])
        if on_piece is not None:
            on_piece(done, len(pieces))
    return conclude(whole, found)


def _findings(piece: Evidence) -> dict[Section[Any], Any]:
    analysis = Analysis(piece, SECTIONS)
    return {section: analysis.of(section) for section in SECTIONS if section.merge is not None}
