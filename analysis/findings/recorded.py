"""How much of the recording was used, and what of it could not be: what the sections on the recording rest on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netprof.analysis.section import Analysis, Section


@dataclass(frozen=True)
class Recorded:
    """Time and rows of a recording.

    `total_ns` is its length, `unknown_bytes` belong to flows that the trace does not describe, `unpaired` are begins
    and ends of collectives without a partner, `wire_rows` the rows of that table. `truncated` says that its end is
    missing.
    """

    total_ns: int
    unknown_bytes: int
    unpaired: int
    wire_rows: int
    truncated: bool


def _conclude(analysis: Analysis) -> Recorded:
    evidence = analysis.evidence
    return Recorded(
        total_ns=evidence.recording.total_ns,
        unknown_bytes=evidence.fold.unknown_bytes,
        unpaired=int(evidence.piece.owns(evidence.found_collectives.unpaired_ns).sum()),
        wire_rows=evidence.fold.rows,
        truncated=evidence.truncated,
    )


def _merge(parts: Sequence[Recorded], whole: Analysis) -> Recorded:
    return Recorded(
        total_ns=sum(part.total_ns for part in parts),
        unknown_bytes=sum(part.unknown_bytes for part in parts),
        unpaired=sum(part.unpaired for part in parts),
        wire_rows=sum(part.wire_rows for part in parts),
        truncated=parts[-1].truncated,
    )


RECORDED = Section("recorded", _conclude, ("wire", "flows", "marks"), merge=_merge)
