"""Waits in which a recording ends."""

from __future__ import annotations

from netprof.analysis.account.causes import LATE_RANK, LOSS, UNSEEN, WAIT_CAUSES
from netprof.analysis.findings.waiting.open_waits import OpenWaits
from netprof.analysis.findings.waiting.waiting_finding import RankWaiting


def test_they_lengthen_the_window_and_the_waiting_by_as_much() -> None:
    before = RankWaiting(1, 0, 1000, 70, tuple(10 * number for number in range(len(WAIT_CAUSES))))
    after = OpenWaits({1: 500}, LOSS).added_to(before)
    assert (after.window_ns, after.exposed_ns) == (1500, 570)
    assert after.causes_ns[WAIT_CAUSES.index(LOSS)] == before.causes_ns[WAIT_CAUSES.index(LOSS)] + 500
    assert sum(after.causes_ns) == sum(before.causes_ns) + 500
    assert OpenWaits({2: 500}, LOSS).added_to(before) == before


def test_without_a_cause_all_that_wait_would_end_sooner_by_the_least_that_any_waits() -> None:
    waits = OpenWaits({1: 500, 2: 300}, LOSS)
    assert waits.spared_ns(LOSS, 2) == 300
    assert waits.spared_ns(LOSS, 3) == 0, "one rank does not wait"
    assert waits.spared_ns(UNSEEN, 2) == 0
    assert OpenWaits({1: 500}, LATE_RANK, culprit=2).spared_ns(LATE_RANK, 2) == 500
