"""How often a live view concludes: by what it costs, by how many ranks there are, sooner when something happens."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from netprof.analysis.live import budget as module
from netprof.analysis.live.budget import Budget
from netprof.analysis.live.inbox import Inbox
from netprof.analysis.live.live_state import LiveState
from netprof.analysis.live.past_iterations import PastIterations, has_changed
from netprof.analysis.tables.columns import empty

S, MS = 10**9, 10**6


class Clock:
    def __init__(self) -> None:
        self.now_s = self.cpu_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def thread_time(self) -> float:
        return self.cpu_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(module, "time", made := Clock())
    return made


def spend(budget: Budget, clock: Clock, cpu_s: float) -> float:
    """Return how long after work that took so long it is due again."""
    with budget.spending():
        clock.cpu_s += cpu_s
    return budget.next_s - clock.now_s


def test_work_takes_no_more_than_its_share_and_for_more_ranks_so_many_times_that(clock: Clock) -> None:
    budget = Budget(0.01, least_s=0.5)
    assert spend(budget, clock, 0.02) == pytest.approx(2.0)
    assert spend(budget, clock, 0.001) == 0.5
    budget.times = 4.0
    assert spend(budget, clock, 0.08) == pytest.approx(2.0)


def test_who_hurries_does_it_sooner_but_not_at_once(clock: Clock) -> None:
    budget = Budget(0.01)
    clock.now_s = 100.0
    assert spend(budget, clock, 0.03) == pytest.approx(3.0)
    clock.now_s = 100.4
    budget.hurry(1.0)
    assert not budget.is_due
    clock.now_s = 101.0
    assert budget.is_due
    assert spend(budget, clock, 0.005) == pytest.approx(0.5)
    budget.hurry(1.0)
    assert budget.next_s == pytest.approx(101.5), "no later than it would be anyway"
    assert spend(budget, clock, 0.4) == pytest.approx(40.0)
    budget.hurry(1.0)
    assert budget.next_s == pytest.approx(111.0), "at no more than four times its share"


@pytest.mark.parametrize(("ranks", "times"), [(2, 1.0), (4, 1.0), (8, 2.0), (48, 12.0), (500, 12.0)])
def test_the_shares_grow_with_the_ranks_up_to_a_limit(ranks: int, times: float) -> None:
    state = LiveState(cast(Inbox, SimpleNamespace()), MS)
    state._allow_for(ranks)
    assert {each.times for each in (state._closer, state._straggler_looks, state._conclusions)} == {times}


def past(*durations_ms: float, ranks: int = 2) -> PastIterations:
    """Iterations of some ranks, one after the other."""
    columns: dict[str, Any] = {name: [] for name in PastIterations.__dataclass_fields__}
    end_ns = np.cumsum(np.array(durations_ms) * MS).astype(np.int64)
    for pid in range(ranks):
        known = {"pid": np.full(len(end_ns), pid), "end_ns": end_ns, "begin_ns": np.append(0, end_ns[:-1])}
        for name, parts in columns.items():
            parts.append(known.get(name, np.zeros(len(end_ns), np.int64)))
    return PastIterations(**{name: np.concatenate(parts) for name, parts in columns.items()})


@pytest.mark.parametrize(
    ("durations_ms", "changed"),
    [
        ([200] * 50, False),
        ([200] * 40 + [204] * 15, False),
        ([200] * 40 + [220] * 8, True),  # more than half of the last three seconds
        ([200] * 40 + [220] * 4, False),  # less
        ([200] * 40 + [180] * 12, True),
        ([200] * 40 + [220] * 50, False),  # that is how it is now
        ([20] * 70 + [22] * 30, True),  # of short ones not many are remembered
        ([200], False),
    ],
)
def test_when_iterations_take_another_time_than_just_before(durations_ms: list[float], changed: bool) -> None:
    made = past(*durations_ms)
    assert has_changed(made, int(made.end_ns.max())) == changed


def spent(made: PastIterations, pid: int, since: int, exposed_ms: float) -> PastIterations:
    """Let a process spend that much more of each iteration from one on waiting, and of those before it."""
    usual = np.where(np.arange(len(made)) % 5 == 4, 50 * MS, 20 * MS)  # every fifth waits longer, as ever
    own = (made.pid == pid) & (np.cumsum(made.pid == pid) > since)
    return replace(made, exposed_phase_ns=usual + np.where(own, round(exposed_ms * MS), 0))


@pytest.mark.parametrize(
    ("since", "exposed_ms", "changed"),
    [
        (40, 0, False),
        (40, 8, False),  # less than a twentieth of an iteration
        (40, 15, False),  # no longer than now and then before
        (40, 40, True),
        (46, 40, False),  # in less than half of the last three seconds
        (0, 40, False),  # always
    ],
)
@pytest.mark.parametrize("pid", [0, 1])
def test_when_one_process_spends_its_iterations_otherwise(
    pid: int, since: int, exposed_ms: float, changed: bool
) -> None:
    made = spent(past(*[200] * 50), pid, since, exposed_ms)
    assert has_changed(made, int(made.end_ns.max())) == changed


def test_a_process_that_came_or_went_is_no_change() -> None:
    made = past(*[200] * 50)
    came = made.where((made.pid == 0) | (made.end_ns > 47 * 200 * MS))
    went = made.where((made.pid == 0) | (made.end_ns < 47 * 200 * MS))
    assert not has_changed(came, int(came.end_ns.max()))
    assert not has_changed(went, int(went.end_ns.max()))


def test_without_iterations_nothing_has_changed() -> None:
    assert not has_changed(empty(PastIterations), 5 * S)
