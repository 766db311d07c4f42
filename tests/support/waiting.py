"""An account of waiting made by hand, for tests of what draws it."""

from __future__ import annotations

import numpy as np

from netprof.analysis.account.causes import HOST, LATE_RANK, LINK_FULL, WAIT_CAUSES, Cause
from netprof.analysis.findings.waiting.waiting_finding import (
    CauseShare,
    RankWaiting,
    WaitingFinding,
    WaitingParts,
    WorstIteration,
)
from support.synthetic import ITERATION_NS, START_NS

MS = 1_000_000


def causes_ns(**known_ms: int) -> tuple[int, ...]:
    """Return times by cause, in the order of WAIT_CAUSES."""
    return tuple(known_ms.get(cause.name, 0) * MS for cause in WAIT_CAUSES)


def cause(which: Cause, ms: int, of_ms: int, **named: object) -> CauseShare:
    sentence, advice = f"{which.title} cost {ms} ms", f"do something about {which.title}"
    return CauseShare(which, ms * MS, ms / of_ms, ms / 2000, sentence, advice, **named)  # type: ignore[arg-type]


def account(link: str = "eth0", ranks: int = 2) -> WaitingFinding:
    """Rank 0 waits 600 ms for rank 1 and 300 for a link, rank 1 waits 100 ms for a host; ten iterations of 200 ms."""
    window_ns = 10 * ITERATION_NS
    first = RankWaiting(100, 0, window_ns, 900 * MS, causes_ns(late_rank=600, link_full=300))
    others = [RankWaiting(100 + k, k, window_ns, 100 * MS, causes_ns(host=100)) for k in range(1, ranks)]
    total_ms = 900 + 100 * (ranks - 1)
    worst = WorstIteration(
        4, START_NS + 4 * ITERATION_NS, ITERATION_NS, 180 * MS, causes_ns(late_rank=180), LATE_RANK, 1, "for rank 1"
    )
    return WaitingFinding(
        exposed_ns=total_ms * MS,
        window_ns=ranks * window_ns,
        exposed_share=total_ms * MS / (ranks * window_ns),
        unknown_ns=0,
        causes=(
            cause(LATE_RANK, 600, total_ms, rank=1),
            cause(LINK_FULL, 300, total_ms, link=link, ranks=(0, 1)),
            cause(HOST, 100 * (ranks - 1), total_ms, rank=1),
        ),
        by_rank=(first, *others),
        worst=(worst,),
        made_of=WaitingParts((first, *others), window_ns, {}, (0,) * len(WAIT_CAUSES), np.zeros(0, np.int64), (worst,)),
    )
