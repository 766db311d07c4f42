"""Who is behind a cause, by digests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from netprof.analysis.account.causes import OTHER_TRAFFIC
from netprof.analysis.digest.blames import _blame
from netprof.analysis.digest.spans import What
from netprof.analysis.digest.wires_of_job import Side
from netprof.schema import RECEIVE, TRANSMIT


@pytest.mark.parametrize(("own", "others", "share"), [(300, 100, 0.25), (1, 3, 0.75), (0, 0, None)])
def test_the_share_of_other_traffic_is_that_of_the_link_and_direction(
    own: int, others: int, share: float | None
) -> None:
    def span(what: What, direction: int, own_ns: int, others_ns: int) -> Any:
        return SimpleNamespace(what=what, link=1, direction=direction, own_ns=own_ns, others_ns=others_ns)

    host = SimpleNamespace(
        spans=[
            span(What.FULL, TRANSMIT, 7, 7),
            span(What.OTHERS, RECEIVE, 7, 7),
            span(What.OTHERS, TRANSMIT, own, others),
        ]
    )
    link = SimpleNamespace(period_ns=0, line_rate_bps=1e9, ranks=(1,), device="eth0")
    names: Any = SimpleNamespace(hosts={0: host}, link=lambda side: (link, "eth0"), has_siblings=lambda side: False)
    side = Side(0, 1, TRANSMIT)
    found = _blame(OTHER_TRAFFIC, side.number, 1.0, SimpleNamespace(), names)  # type: ignore[arg-type]
    assert (found.others, found.link, found.at_least) == (share, "eth0", True)
