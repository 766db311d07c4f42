"""The samples of one job: which ranks are alive, and whether it stands still."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest
from support.synthetic import Job

from netprof.analysis.live.inbox import Inbox
from netprof.analysis.totals.growing import GrowingAccount
from netprof.errors import TraceError
from netprof.metrics import accountant as module
from netprof.metrics.accountant import Accountant
from netprof.model import Clock, Meta, Target
from netprof.session import this_host

PIDS = (11, 12, 13, 14)
HERE = "this host, since it was started"


class Jobs:
    """An accountant of four ranks, those of their processes that have ended, and the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dead: set[int] = set()
        self.now_s = 1000.0
        clock = SimpleNamespace(monotonic=lambda: self.now_s, thread_time=time.thread_time)
        monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(module, "is_same", lambda target: target.pid not in self.dead)
        monkeypatch.setattr(module, "label_of", lambda targets, *, has_environment: "train")
        monkeypatch.setattr(this_host, "boot_id", lambda: HERE)
        ranks = (Target(pid, 1, rank=rank, frameworks=("ddp",)) for rank, pid in enumerate(PIDS))
        self.meta: Meta = replace(Job(ranks=1).meta(), targets=tuple(ranks), boot_id=HERE)
        self.accountant = Accountant()
        self.accountant._inbox = Inbox(self.meta)
        self.account = self.accountant._account = GrowingAccount(10**6)
        for pid in PIDS:
            self.account.totals.of(pid).steps = 5

    def sample(self, name: str, stalled_s: float = 0.0) -> float | None:
        self.accountant._meta = self.meta
        self.accountant._note_gone(self.meta)
        self.accountant._expose(self.meta, self.meta.started_ns, stalled_s)
        found = [value for key, value in self.accountant.samples.values.items() if key[0] == name]
        return found[0] if found else None


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Jobs:
    return Jobs(monkeypatch)


def test_a_rank_that_ended_stays_ended(jobs: Jobs) -> None:
    assert jobs.sample("netprof_ranks") == 4
    jobs.dead.add(14)
    for passed_s in (0, 61, 600):
        jobs.now_s += passed_s
        assert jobs.sample("netprof_ranks") == 3
    assert set(jobs.account.totals.ranks) == {11, 12, 13}


def test_pids_of_another_host_are_not_looked_up_here(jobs: Jobs) -> None:
    jobs.dead.update(PIDS)
    jobs.meta = replace(jobs.meta, boot_id="another host")
    assert jobs.sample("netprof_ranks") == 4
    jobs.now_s += 600
    jobs.sample("netprof_ranks")
    assert set(jobs.account.totals.ranks) == set(PIDS)


def test_a_job_without_known_steps_is_not_called_stalled_or_not(jobs: Jobs) -> None:
    assert jobs.sample("netprof_stalled") is None
    jobs.account.last_step_ns = {11: 1}
    jobs.accountant._steps_s = [0.1]
    assert jobs.sample("netprof_stalled") == 0
    assert jobs.sample("netprof_stalled", 30.0) == 1


def test_a_job_that_has_ended_does_not_stall(jobs: Jobs) -> None:
    jobs.account.last_step_ns = {11: 1}
    jobs.accountant._steps_s = [0.1]
    jobs.accountant._stop.set()
    assert jobs.sample("netprof_stalled", 30.0) == 0
    assert jobs.sample("netprof_ranks") == 0


def test_a_failure_is_forgotten_once_a_look_succeeds(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: Iterator[TraceError | bool] = iter([TraceError("damaged"), False])

    def conclude(*_: object, **__: object) -> bool:
        answer = next(answers)
        if isinstance(answer, TraceError):
            raise answer
        return answer

    monkeypatch.setattr(jobs.account, "conclude", conclude)
    jobs.accountant._meta, jobs.accountant._inbox = jobs.meta, Inbox(jobs.meta)
    jobs.accountant.reached(jobs.meta, jobs.meta.started_ns + 1)
    jobs.accountant._safely(final=False)
    assert str(jobs.accountant.failure) == "damaged"
    jobs.accountant._budget.next_s = 0.0
    jobs.accountant._safely(final=False)
    assert jobs.accountant.failure is None


def test_times_are_of_the_clock_as_it_is_set_now(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prometheus compares them with its own time. Readings differ a little, and then nothing has changed."""
    jobs.account.last_step_ns = {11: 10**9}
    for ahead_s, seen_s in ((5000, 5001), (5000.01, 5001), (8600, 8601), (8599.99, 8601)):
        monkeypatch.setattr(Clock, "now", lambda ahead_s=ahead_s: Clock(7, 7 + round(ahead_s * 1e9)))
        assert jobs.sample("netprof_last_step_timestamp_seconds") == seen_s
    jobs.accountant._clock = None
    jobs.meta = replace(jobs.meta, boot_id="another host", clock=Clock(0, 42 * 10**9))
    assert jobs.sample("netprof_last_step_timestamp_seconds") == 43
