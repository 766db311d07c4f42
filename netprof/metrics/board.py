"""All that is shown at one address: the jobs that are recorded, and what concerns the process itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from netprof.metrics.accountant import LINGER_S, Accountant
from netprof.metrics.families import Labels, MetricSamples, SampleKey, label_value, metrics_of
from netprof.version import __version__

MOST_JOBS = 64
_MOST_FORMATS = 8
"""Texts that are kept: a scraper may name any version of OpenMetrics, and gets it echoed."""


class Board(Collector):
    """Collects the samples of several accountants. A job's series go a minute after its end."""

    def __init__(self) -> None:
        self._accountants: list[Accountant] = []
        self._lock = threading.Lock()
        self._texts: dict[str, tuple[object, bytes]] = {}  # by content type
        self.attach_failures = 0
        self.failure = ""
        """Why what shows it cannot; "" where it can."""
        self.events = MetricSamples()

    def add(self, accountant: Accountant) -> None:
        """Show one more job."""
        with self._lock:
            self._accountants.append(accountant)

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
        process.add("netprof_jobs_left_out", (), max(0, len(shown) - MOST_JOBS))
        process.add("netprof_attach_failures", (), self.attach_failures)
        _tell_apart(shown)
        jobs = [_labelled(each.samples, each.apart) for each in shown[:MOST_JOBS]]
        return metrics_of([process, self.events, *_without_twins(jobs)])

    def text(self, accept: str) -> tuple[bytes, str]:
        """Return the exposition in the format that a scraper accepts, and that format."""
        encode, content_type = choose_encoder(accept)
        state = self._state()
        made_of, text = self._texts.get(content_type, (None, b""))
        if made_of != state:
            text = encode(self)
            if len(self._texts) >= _MOST_FORMATS:
                self._texts.clear()
            self._texts[content_type] = state, text
        return text, content_type

    def _state(self) -> object:
        """Return what the text depends on: totals change every few seconds, and scrapes may come more often."""
        jobs = [(id(each), each.version, each.ended_s is None) for each in self._shown()]
        return jobs, self.attach_failures, self.events

    def _shown(self) -> list[Accountant]:
        gone_s = time.monotonic() - LINGER_S
        with self._lock:
            self._accountants = [each for each in self._accountants if each.ended_s is None or each.ended_s > gone_s]
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
