"""All that is shown at one address: the jobs that are recorded, and what concerns the process itself."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from netprof.metrics.accountant import LINGER_S, Accountant
from netprof.metrics.families import Labels, MetricSamples, SampleKey, label_value, metrics_of
from netprof.metrics.shares import Shares
from netprof.version import __version__

MOST_JOBS = 64
MOST_SERIES = 60_000
"""Series that are shown; of a user's jobs a share."""
_OPENMETRICS = "application/openmetrics-text"
_SHARE = 0.05
"""Of a core, for making texts: one is served again until it would take no more."""

LeftOut = Mapping[tuple[str, str], int]
"""Jobs by user and reason."""

RECORDINGS, PROCESSES, FILES, MEMORY, SERIES = "recordings", "processes", "files", "memory", "series"
REASONS = {
    RECORDINGS: "the share of recordings of their user is taken",
    PROCESSES: "they have more processes than an exporter follows",
    FILES: "the share of open files of their user is taken",
    MEMORY: "the share of memory of their user is taken",
    SERIES: "they are recorded, but the share of series of their user is taken",
}
"""Why a job is left out: what the metric's label says, and what /healthz does."""


class Board(Collector):
    """Collects the samples of several accountants. A job's series go a minute after its end."""

    def __init__(self) -> None:
        self._accountants: list[Accountant] = []
        self._users: dict[int, str] = {}  # by id of the accountant
        self._lock = threading.Lock()
        self._texts: dict[bool, tuple[object, float, bytes, str]] = {}  # by whether it is OpenMetrics
        self._not_shown: LeftOut = {}
        self.attach_failures = 0
        self.left_out: LeftOut = {}
        """Jobs that are not recorded."""
        self.failure = ""
        """Why what shows it cannot; "" where it can."""
        self.events = MetricSamples()

    def add(self, accountant: Accountant, user: str = "") -> None:
        """Show one more job, of a user."""
        with self._lock:
            self._accountants.append(accountant)
            self._users[id(accountant)] = user

    def count(self, family: str, labels: Labels, amount: float) -> None:
        """Add to a counter of events, from any thread: what is shown meanwhile does not change."""
        with self._lock:
            counted = MetricSamples(self.events.values)
            counted.add(family, labels, amount)
            self.events = counted

    @property
    def problem(self) -> str:
        """What is wrong with what is shown; "" for nothing."""
        failures = (each.failure for each in self._shown() if each.ended_s is None)
        sentences = (f"{type(error).__name__}: {error}" for error in failures if error is not None)
        return self.failure or next(sentences, "")

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families as of now."""
        shown = self._shown()
        process = MetricSamples()
        process.add("netprof_build", (("version", label_value(__version__)),), 1, "_info")
        process.add("netprof_jobs", (), sum(each.ended_s is None for each in shown))
        process.add("netprof_attach_failures", (), self.attach_failures)
        _tell_apart(shown)
        chosen, self._not_shown = self._chosen(shown)
        for (user, reason), number in self._every_left_out.items():
            process.add("netprof_jobs_left_out", (("user", label_value(user)), ("reason", reason)), number)
        jobs = [_labelled(each.samples, each.apart) for each in chosen]
        return metrics_of([process, self.events, *_without_twins(jobs)])

    @property
    def left_out_sentences(self) -> list[str]:
        """How many jobs are left out, and why; nobody's name."""
        by_reason = Counter[str]()
        for (_, reason), number in self._every_left_out.items():
            by_reason[reason] += number
        return [f"{number} jobs left out: {REASONS[reason]}" for reason, number in by_reason.items() if number]

    @property
    def _every_left_out(self) -> dict[tuple[str, str], int]:
        """Return how many jobs are left out by user and reason; "" and 0 where none is for a reason."""
        counted = {**self.left_out, **self._not_shown}
        return {("", reason): 0 for reason in REASONS if reason not in {why for _, why in counted}} | counted

    def _chosen(self, shown: list[Accountant]) -> tuple[list[Accountant], LeftOut]:
        """Return the jobs that are shown, in their order, and how many are not: those that go on come first."""
        shares, left_out, chosen = Shares(MOST_SERIES), Counter[tuple[str, str]](), list[Accountant]()
        for each in sorted(shown, key=lambda each: (each.ended_s is not None, -(each.ended_s or 0))):
            user, number = self._users.get(id(each), ""), len(each.samples.values)
            if len(chosen) < MOST_JOBS and shares.has_room(user, number):
                shares.take(user, number)
                chosen.append(each)
            else:
                left_out[user, SERIES] += 1
        return [each for each in shown if each in chosen], left_out

    def text(self, accept: str) -> tuple[bytes, str]:
        """Return the exposition in the format that a scraper accepts, and that format.

        It may be older, where making it is dear.
        """
        is_open, state, now_s = _OPENMETRICS in accept, self._state(), time.monotonic()
        made_of, until_s, text, kind = self._texts.get(is_open, (None, 0.0, b"", ""))
        if made_of is None or (made_of != state and now_s >= until_s):
            encode, kind = choose_encoder(f"{_OPENMETRICS}; version=1.0.0" if is_open else "")
            began_s = time.thread_time()
            text = encode(self)
            took_s = time.thread_time() - began_s
            self._texts[is_open] = state, now_s + took_s / _SHARE, text, kind
        return text, kind

    def _state(self) -> object:
        """Return what the text depends on: totals change every few seconds, and scrapes may come more often."""
        jobs = [(id(each), each.version, each.ended_s is None) for each in self._shown()]
        return jobs, self.attach_failures, self.events, self.left_out

    def _shown(self) -> list[Accountant]:
        gone_s = time.monotonic() - LINGER_S
        with self._lock:
            self._accountants = [each for each in self._accountants if each.ended_s is None or each.ended_s > gone_s]
            ended = [each for each in self._accountants if each.ended_s is not None]
            for each in ended[:-MOST_JOBS]:  # of many short ones the last
                self._accountants.remove(each)
            self._users = {id(each): self._users.get(id(each), "") for each in self._accountants}
            return list(self._accountants)


def _tell_apart(accountants: list[Accountant]) -> None:
    """Label a job that has the series of an earlier one that is recorded too, as of two runs of one script."""
    taken: set[SampleKey] = set()
    for each in accountants:
        if each.ended_s is None:
            if not each.apart and not taken.isdisjoint(each.samples.values):
                each.apart = (("pid", str(each.first_pid)),)
            taken.update(_labelled(each.samples, each.apart).values)


def _labelled(samples: MetricSamples, more: Labels) -> MetricSamples:
    if not more:
        return samples
    return MetricSamples({(*key[:2], (*key[2], *more)): value for key, value in samples.values.items()})


def _without_twins(jobs: list[MetricSamples]) -> list[MetricSamples]:
    """Return jobs without those samples that a later job has under the same labels: the newer recording counts."""
    seen: set[SampleKey] = set()
    kept = []
    for job in reversed(jobs):
        kept.append(MetricSamples({key: value for key, value in job.values.items() if key not in seen}))
        seen.update(job.values)
    return kept[::-1]
