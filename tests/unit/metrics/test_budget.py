"""What an exporter gives each user of what there is."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from netprof.metrics import budget as module
from netprof.metrics.board import FILES, MEMORY, PROCESSES, RECORDINGS
from netprof.metrics.budget import MOST_PROCESSES, Budget, Need, Pace, level
from netprof.metrics.shares import Shares


def test_a_user_takes_a_third_of_what_others_leave_and_there_is_always_room_for_the_next() -> None:
    shares = Shares(64)
    taken = []
    for user in range(12):
        while shares.has_room(user):
            shares.take(user)
        taken.append(shares.taken(user))
    assert taken[:3] == [21, 14, 9]
    assert all(taken)
    assert shares.total <= 64
    assert shares.largest == 0


def test_what_is_given_back_is_there_again() -> None:
    shares = Shares(3)
    shares.take("a")
    assert not shares.has_room("a")
    shares.give_back("a")
    assert shares.has_room("a")
    assert shares.largest is None


def test_each_resource_has_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = Budget()
    budget.files, budget.size_bytes = 6000, 6 << 30
    taken = budget.shares()
    assert taken.take(1, Need.of(1, 1), MOST_PROCESSES + 1) == PROCESSES
    assert taken.take(1, Need(2001, 1), 1) == FILES
    assert taken.take(1, Need(1, (2 << 30) + 1), 1) == MEMORY
    for _ in range(21):
        assert taken.take(1, Need(1, 1), 1) == ""
    assert taken.take(1, Need(1, 1), 1) == RECORDINGS
    assert taken.take(2, Need(1, 1), 1) == ""


def test_the_limit_of_open_files_is_raised_and_told() -> None:
    code = """
import resource
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
hard = min(hard, 3000)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
from netprof.metrics.budget import Budget
budget = Budget()
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
assert budget.files < hard - 128
assert f"{hard} open files" in budget.sentence, budget.sentence
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_budget_of_memory_holds_in_what_the_unit_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_cgroup_memory", lambda: [(2 << 30, 1 << 30)])
    budget = Budget()
    taken, recordings = budget.shares(), 0
    for user in range(100):
        while not taken.take(user, Need.of(1, 1), 1):
            recordings += 1
    assert recordings >= 16
    assert recordings * Need.of(1, 1).size_bytes + module._OWN_BYTES < 2 << 30
    monkeypatch.setattr(module, "_cgroup_memory", lambda: [(1 << 30, 950 << 20)])
    assert Budget().is_exceeded, "what the kernel holds for it counts"


@pytest.mark.parametrize(
    ("used", "most"),
    [({}, None), ({1: 0.2, 2: 0.2}, None), ({1: 0.9}, 0.4), ({1: 0.9, 2: 0.1}, 0.3), ({1: 0.9, 2: 0.9}, 0.2)],
)
def test_who_uses_little_is_not_slowed_down(used: dict[int, float], most: float | None) -> None:
    assert level(used, 0.4) == (None if most is None else pytest.approx(most))


def test_a_thread_rests_as_its_pace_says(monkeypatch: pytest.MonkeyPatch) -> None:
    rested = list[float]()
    pace = Pace()
    monkeypatch.setattr(time, "sleep", rested.append)
    pace()
    assert not rested
    pace.cpus = 0.01
    until_s = time.thread_time() + 0.02
    while time.thread_time() < until_s:
        pass
    pace()
    assert len(rested) == 1
    assert 0 < rested[0] <= module._LONGEST_REST_S
