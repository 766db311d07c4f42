"""All that is shown at one address: the jobs that are recorded, and what concerns the process itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from netprof.metrics.accountant import LINGER_S, Accountant
from netprof.metrics.families import Samples, label_value, metrics_of
from netprof.version import __version__

MOST_JOBS = 64


class Board(Collector):
    """Collects the samples of several accountants. A job's series go a minute after its end."""

    def __init__(self) -> None:
        self._accountants: list[Accountant] = []
        self._lock = threading.Lock()
        self._texts: dict[str, tuple[object, bytes]] = {}  # by content type; only formats that can be chosen
        self.attach_failures = 0
        self.events = Samples()

    def add(self, accountant: Accountant) -> None:
        """Show one more job."""
        with self._lock:
            self._accountants.append(accountant)

    @property
    def problem(self) -> str:
        """What is wrong with what is shown; "" for nothing."""
        failures = (each.failure for each in self._shown() if each.ended_s is None)
        return next((f"{type(error).__name__}: {error}" for error in failures if error is not None), "")

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families as of now."""
        shown = self._shown()
        own = Samples()
        own.add("netprof_build", (("version", label_value(__version__)),), 1, "_info")
        own.add("netprof_jobs", (), sum(each.ended_s is None for each in shown))
        own.add("netprof_jobs_left_out", (), max(0, len(shown) - MOST_JOBS))
        own.add("netprof_attach_failures", (), self.attach_failures)
        jobs = [each.samples for each in shown[:MOST_JOBS]]
        return metrics_of([own, self.events, *_without_twins(jobs)])

    def text(self, accept: str) -> tuple[bytes, str]:
        """Return the exposition in the format that a scraper accepts, and that format."""
        encode, content_type = choose_encoder(accept)
        state = self._state()
        made_of, text = self._texts.get(content_type, (None, b""))
        if made_of != state:
            text = encode(self)
            self._texts[content_type] = state, text
        return text, content_type

    def _state(self) -> object:
        """Return what the text depends on: totals change every few seconds, and scrapes may come more often."""
        jobs = [(id(each), each.version, each.ended_s is None) for each in self._shown()]
        return jobs, self.attach_failures, sum(self.events.values.values())

    def _shown(self) -> list[Accountant]:
        gone_s = time.monotonic() - LINGER_S
        with self._lock:
            self._accountants = [each for each in self._accountants if each.ended_s is None or each.ended_s > gone_s]
            return list(self._accountants)


def _without_twins(jobs: list[Samples]) -> list[Samples]:
    """Return jobs without those samples that a later job has under the same labels: the newer recording counts."""
    seen: set[tuple[str, str, object]] = set()
    found = []
    for job in reversed(jobs):
        kept = Samples()
        kept.values.update({key: value for key, value in job.values.items() if key not in seen})
        seen.update(job.values)
        found.append(kept)
    return found[::-1]
