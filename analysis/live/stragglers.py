"""Who holds a job up right now: the same test as the report's, over the last seconds, looked at often."""

from __future__ import annotations

from netprof.analysis.account.episodes import LEAST_ITERATIONS, LEAST_NS
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.stragglers.stragglers import Straggler, find_stragglers
from netprof.analysis.findings.stragglers.stragglers_parts import gather


def span_ns(typical_ns: int) -> int:
    """Return how far back to look: a window of the test, and an iteration that is cut."""
    return max(LEAST_NS, LEAST_ITERATIONS * typical_ns) + 2 * typical_ns


def stragglers_now(evidence: Evidence) -> tuple[Straggler, ...]:
    """Return who holds the job up in the last window, what costs most first."""
    parts = gather(evidence)
    return () if parts is None else tuple(each for each in find_stragglers(parts).stragglers if each.still)
