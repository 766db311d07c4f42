"""How much of the recording was used, and what of it could not be: what the sections on the recording rest on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from netprof.analysis.declared import added
from netprof.analysis.evidence import Evidence
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.columns import UNKNOWN
from netprof.schema import RECEIVE, TRANSMIT


@dataclass(frozen=True)
class Recorded:
    """Time and rows of a recording.

    `total_ns` is its length, `unknown_bytes` belong to flows that the trace does not describe, `unpaired` are begins
    and ends of collectives without a partner, `wire_rows` the rows of that table. Of the `moved_bytes` that processes
    that train exchanged, `lone_bytes` are with peers that are not recorded, by address. `truncated` says that the end
    of the recording is missing.
    """

    total_ns: int
    unknown_bytes: int
    unpaired: int
    wire_rows: int
    moved_bytes: int
    lone_bytes: Mapping[str, int]
    truncated: bool


def _conclude(analysis: Analysis) -> Recorded:
    evidence = analysis.evidence
    moved_bytes, lone_bytes = _exchanged(evidence)
    return Recorded(
        total_ns=evidence.recording.total_ns,
        unknown_bytes=evidence.fold.unknown_bytes,
        unpaired=int(evidence.piece.owns(evidence.found_collectives.unpaired_ns).sum()),
        wire_rows=evidence.fold.rows,
        moved_bytes=moved_bytes,
        lone_bytes=lone_bytes,
        truncated=evidence.truncated,
    )


def _exchanged(evidence: Evidence) -> tuple[int, dict[str, int]]:
    """Return the payload that processes that train moved, and by peer, with whom nobody is seen at the other end."""
    flows = evidence.fold.flows
    moved = evidence.fold.totals(TRANSMIT).payload_bytes + evidence.fold.totals(RECEIVE).payload_bytes
    of_job = np.isin(flows.pid, list(evidence.workers))
    here = set(zip(flows.local_addr.tolist(), flows.local_port.tolist(), strict=True))
    lone: Counter[str] = Counter()
    for row in np.flatnonzero(of_job & (moved > 0) & (evidence.paths.peer == UNKNOWN)).tolist():
        peer = str(flows.remote_addr[row])
        if (peer, int(flows.remote_port[row])) not in here:
            lone[peer] += int(moved[row])
    return int(moved[of_job].sum()), dict(lone)


def _merge(parts: Sequence[Recorded], whole: Analysis) -> Recorded:
    return Recorded(
        **added(parts, "total_ns unknown_bytes unpaired wire_rows moved_bytes"),
        lone_bytes=dict(sum((Counter(part.lone_bytes) for part in parts), Counter())),
        truncated=parts[-1].truncated,
    )


RECORDED = Section("recorded", _conclude, ("wire", "flows", "marks"), merge=_merge)
