"""What is concluded from a recording: the one list of sections, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.bounds.bounds import BOUNDS
from netprof.analysis.findings.collectives.collective_sizes import COLLECTIVE_SIZES
from netprof.analysis.findings.collectives.collectives import COLLECTIVES
from netprof.analysis.findings.collectives.communicators import COMMUNICATORS
from netprof.analysis.findings.collectives.detail_and_join import DETAIL_AND_JOIN
from netprof.analysis.findings.collectives.horovod import HOROVOD
from netprof.analysis.findings.collectives.nccl import NCCL
from netprof.analysis.findings.collectives.nccl_network import NCCL_NETWORK
from netprof.analysis.findings.collectives.ranks import RANKS
from netprof.analysis.findings.collectives.scaling import SCALING
from netprof.analysis.findings.flows.connects import CONNECTS
from netprof.analysis.findings.flows.flow_properties import FLOW_PROPERTIES
from netprof.analysis.findings.flows.flows import FLOWS
from netprof.analysis.findings.flows.reconciliation import OUTSIDE, RECONCILIATION, TCP_TOTALS
from netprof.analysis.findings.flows.seen_flows import SEEN_FLOWS
from netprof.analysis.findings.host.counters import COUNTERS
from netprof.analysis.findings.host.gpus import GPUS
from netprof.analysis.findings.host.hosts import HOSTS
from netprof.analysis.findings.host.placement import PROCESSES
from netprof.analysis.findings.iterations.iterations import ITERATIONS
from netprof.analysis.findings.links.audit import AUDIT
from netprof.analysis.findings.links.links import LINKS
from netprof.analysis.findings.links.paths import PATHS
from netprof.analysis.findings.links.queue_pairs import QUEUE_PAIRS
from netprof.analysis.findings.recorded import RECORDED
from netprof.analysis.findings.recording.checks import CHECKS
from netprof.analysis.findings.recording.digested import DIGESTED
from netprof.analysis.findings.recording.recording import RECORDING
from netprof.analysis.findings.stalls.exits import EXITS
from netprof.analysis.findings.stalls.hang import HANG, STILL
from netprof.analysis.findings.stalls.stall import STALL, STALLED_AT_END
from netprof.analysis.findings.stalls.stopped import STOPPED
from netprof.analysis.findings.start_up import START_UP
from netprof.analysis.findings.stragglers.cpu_shortage import CPU_SHORTAGE
from netprof.analysis.findings.stragglers.stacks import STACKS
from netprof.analysis.findings.stragglers.stragglers import STRAGGLERS
from netprof.analysis.findings.stragglers.thread_time import THREAD_TIME
from netprof.analysis.findings.transport.stuck import STUCK
from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.analysis.findings.waiting.bubbles import BUBBLES
from netprof.analysis.findings.waiting.losses import LOSSES
from netprof.analysis.findings.waiting.waiting import WAITING
from netprof.analysis.memory import give_back
from netprof.analysis.pieces import Pieces, PieceSize, typical_piece
from netprof.analysis.section import Analysis, Section

if TYPE_CHECKING:
    from netprof.trace import TraceSource

OnPiece = Callable[[int, int], None]
"""Is told how many pieces of a recording are concluded from, and of how many."""

SECTIONS: tuple[Section[Any], ...] = (
    VERDICT,
    HANG,
    ITERATIONS,
    WAITING,
    BOUNDS,
    STRAGGLERS,
    BUBBLES,
    STACKS,
    HOSTS,
    RANKS,
    THREAD_TIME,
    CPU_SHORTAGE,
    DETAIL_AND_JOIN,
    PROCESSES,
    LINKS,
    AUDIT,
    COLLECTIVES,
    COLLECTIVE_SIZES,
    SCALING,
    FLOW_PROPERTIES,
    HOROVOD,
    NCCL,
    NCCL_NETWORK,
    COMMUNICATORS,
    FLOWS,
    LOSSES,
    CONNECTS,
    START_UP,
    QUEUE_PAIRS,
    PATHS,
    GPUS,
    COUNTERS,
    RECONCILIATION,
    CHECKS,
    RECORDING,
    SEEN_FLOWS,
    TCP_TOTALS,
    OUTSIDE,
    EXITS,
    STOPPED,
    DIGESTED,
    RECORDED,
    STILL,
    STALL,
    STALLED_AT_END,
    STUCK,
)


_MOST_DRAWN = 16
"""Pieces of a recording whose events are held at once to be drawn: an hour of eight ranks, about half, took 0.95 GB."""


def conclude(
    evidence: Evidence,
    pieces: dict[Section[Any], Sequence[Any]] | None = None,
    sections: Sequence[Section[Any]] = SECTIONS,
    again: Pieces | None = None,
) -> Analysis:
    """Run every section over the evidence, or put together what they found in its `pieces`.

    `again` gives single ones of those to who looks at every event. Raises TraceError for what cannot be believed.
    """
    analysis = Analysis(
        evidence,
        sections,
        pieces=pieces,
        typical=None if again is None else partial(_most_typical, again),
        beginning=None if again is None else lambda: again.again(again.yielded[0]),
        is_too_long=again is not None and len(again) > _MOST_DRAWN,
    )
    for section in sections:
        analysis.of(section)
    return analysis


def analyze(
    reader: TraceSource,
    *,
    baseline_s: float | None = None,
    size: PieceSize | None = None,
    on_piece: OnPiece | None = None,
    more: Sequence[Section[Any]] = (),
) -> Analysis:
    """Conclude from a whole trace; a long one piece by piece, as `size` says, each of which is told to `on_piece`.

    `baseline_s` is a measured iteration time of one worker alone, in seconds, for the scaling factor. Of `more`
    sections the findings are kept, for who asks for them: they are no part of the report.
    Raises TraceError when the trace is damaged beyond its end.
    """
    pieces, sections = Pieces(reader, size), (*SECTIONS, *more)
    if len(pieces) == 1:
        return conclude(Evidence.of_trace(reader, baseline_s=baseline_s), sections=sections)
    whole = Evidence.of_trace(reader, baseline_s=baseline_s, known=pieces.known)
    return conclude_in_pieces(whole, pieces, on_piece, sections)


def conclude_in_pieces(
    whole: Evidence,
    pieces: Pieces,
    on_piece: OnPiece | None = None,
    sections: Sequence[Section[Any]] = SECTIONS,
) -> Analysis:
    """Run every section over each piece of a long recording, and put together what they find.

    The evidence of the whole is only read if somebody asks for more of it than was concluded.
    """
    merged: dict[Section[Any], Any] = {section: [] for section in sections if section.merge is not None}
    found = (findings_of(piece, sections) for piece in pieces)
    for done, findings in enumerate(found, 1):  # one is let go of before the next one is read
        for section, parts in merged.items():
            parts.append(findings[section])
        del findings
        give_back()
        if on_piece is not None:
            on_piece(done, len(pieces))
    analysis = conclude(whole, merged, sections, pieces)
    give_back()
    return analysis


def _most_typical(pieces: Pieces, analysis: Analysis) -> Analysis:
    piece = typical_piece(pieces.yielded, analysis.of(ITERATIONS).times)
    return Analysis(pieces.again(piece), analysis.sections)


def findings_of(piece: Evidence, sections: Sequence[Section[Any]] = SECTIONS) -> dict[Section[Any], Any]:
    """Return what the sections find in a piece of a recording that is put together with what they find in others."""
    analysis = Analysis(piece, sections)
    return {section: analysis.of(section) for section in sections if section.merge is not None}
