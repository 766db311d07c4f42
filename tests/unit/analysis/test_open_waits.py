"""Waits in which a recording ends."""

from __future__ import annotations

import pytest

from netprof.analysis.account.causes import LATE_RANK, LOSS, UNSEEN, WAIT_CAUSES
from netprof.analysis.findings.waiting.open_waits import OpenWaits, OpenWaitsOfHost, open_waits_of_job
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


@pytest.mark.parametrize(
    ("flow", "pids", "cause", "culprit"),
    [("a → b", (1, 2), LOSS, None), ("", (1, 2), UNSEEN, None), ("", (1, 2, 3), LATE_RANK, 3)],
)
def test_what_hosts_know_apart_is_put_together(flow, pids, cause, culprit) -> None:
    found = open_waits_of_job([OpenWaitsOfHost({1: 5}), OpenWaitsOfHost({2: 7}, flow)], pids)
    assert found is not None
    assert (found.waited_ns, found.cause, found.culprit) == ({1: 5, 2: 7}, cause, culprit)
    assert open_waits_of_job([], pids) is None


def test_a_rank_whose_recorder_died_is_not_blamed() -> None:
    ends = [OpenWaitsOfHost({1: 5})]
    assert open_waits_of_job(ends, [1, 2]) == OpenWaits({1: 5}, LATE_RANK, culprit=2)
    assert open_waits_of_job(ends, [1, 2], unseen={2}) == OpenWaits({1: 5}, UNSEEN)
    assert open_waits_of_job(ends, [1, 2, 3], unseen={2}) == OpenWaits({1: 5}, LATE_RANK, culprit=3)
