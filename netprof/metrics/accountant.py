"""One job's account while it is recorded, also by another netprof: a thread that concludes now and then, and the
samples that it leaves.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from netprof.analysis.evidence import Evidence
from netprof.analysis.live.budget import Budget
from netprof.analysis.live.in_step import InStep
from netprof.analysis.live.inbox import Inbox
from netprof.analysis.totals.growing import GrowingAccount
from netprof.errors import NetprofError, TraceError
from netprof.metrics.families import Labels, Samples, label_value, rank_labels, samples_of
from netprof.model import Losses, Meta
from netprof.probes.job.jobs import label_of
from netprof.session.live_follow import FollowedTrace, recent_rows
from netprof.session.recorder import Recorder

SHARE = 0.004
"""Of a core, at most, for eight ranks; for more ranks proportionally more."""
_RANKS, _LEAST_S, _MOST_S, _LOOK_S = 8, 5.0, 60.0, 0.5
LINGER_S = 60.0
"""For how long series of processes that are gone stay, so that the last values are still scraped."""
_STALLED_S, _STALLED_STEPS = 10.0, 5


@dataclass(frozen=True)
class Now:
    """How a job stands after a look: what rules are held against. `piece` is what was concluded since the last one."""

    meta: Meta
    through_ns: int
    piece: Evidence | None
    stalled_s: float
    """For how long no step has ended while far shorter ones are usual; 0 where steps go on."""


class Accountant:
    """Makes the account of one recording: `feed` in the recording's thread; a thread of its own concludes.

    `on_look` is called from that thread after every look; whatever it raises is shown by `failure`, and ends nothing.
    """

    def __init__(self, on_look: Sequence[Callable[[Now], None]] = ()) -> None:
        self.samples = Samples()
        self.version = 0
        self.failure: Exception | None = None
        self.ended_s: float | None = None
        self.cpu_s = 0.0
        self._on_look = list(on_look)
        self._job: Labels = ()
        self._meta: Meta | None = None
        self._inbox: Inbox | None = None
        self._account: GrowingAccount | None = None
        self._budget = Budget(SHARE, _LEAST_S)
        self._gone_since_s: dict[int, float] = {}
        self._stop = threading.Event()
        self._steps_s: list[float] = []
        self._is_first = True
        self._thread = threading.Thread(target=self._run, name="netprof-account", daemon=True)

    def feed(self, recorder: Recorder) -> None:
        """Call before the first tick and after every one."""
        if self._inbox is None:
            recorder.observe(self.begin(recorder.meta).add)
        self.reached(recorder.meta, recorder.collected_ns)

    def begin(self, meta: Meta) -> Inbox:
        """Start the thread, and return what takes the rows of the recording."""
        self._meta = meta
        self._inbox = inbox = Inbox(meta)
        self._account = GrowingAccount(meta.bin_ns)
        self._thread.start()
        return inbox

    def reached(self, meta: Meta, through_ns: int) -> None:
        """Say that everything until then has been handed over, and how the recording describes itself."""
        assert self._inbox is not None
        self._meta = meta
        self._inbox.describe(meta)
        self._inbox.reached(through_ns)

    def close(self, meta: Meta | None = None) -> None:
        """Conclude from what is left, described by the final `meta`, and stop."""
        if self._inbox is not None:
            if meta is not None:
                self.reached(meta, meta.stopped_ns or 0)
            self._stop.set()
            self._thread.join()
        self.ended_s = time.monotonic()

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_S):
            self._safely(final=False)
        self._safely(final=True)

    def _safely(self, *, final: bool) -> None:
        try:
            self._look(final=final)
        except Exception as error:  # whatever it is, the recording goes on, and the last samples stay
            self.failure = error
        self.cpu_s = time.thread_time()

    def _look(self, *, final: bool) -> None:
        assert self._inbox is not None
        assert self._account is not None
        meta, through_ns, fresh = self._inbox.fetch()
        for table, rows in fresh:
            self._account.add(table, rows)
        if not final and not (self._budget.is_due and through_ns > meta.started_ns):
            return
        added = False
        with self._budget.spending():
            try:
                added = self._account.conclude(meta, through_ns, final=final)
            except NetprofError as error:
                self.failure = error
            self._note_gone()
            piece = self._account.last if added else None
            stalled_s = self._stalled_s(piece, through_ns)
            self._expose(meta, through_ns, stalled_s)
        self._budget.times = max(1.0, len(self._account.last_step_ns) / _RANKS)
        if self._is_first:  # most of its cost was importing what concludes
            self._is_first, self._budget.next_s = not added, time.monotonic() + _LEAST_S
        self._budget.next_s = min(self._budget.next_s, time.monotonic() + _MOST_S)
        for each in self._on_look:
            each(Now(meta, through_ns, piece, stalled_s))

    def _stalled_s(self, piece: Evidence | None, through_ns: int) -> float:
        assert self._account is not None
        if piece is not None and len(piece.iterations):
            self._steps_s = [*self._steps_s, float(np.median(piece.iterations.duration_ns)) / 1e9][-20:]
        last_ns = self._account.last_step_ns
        if not self._steps_s or not last_ns:
            return 0.0
        quiet_s = (through_ns - max(last_ns.values())) / 1e9
        return quiet_s if quiet_s > _STALLED_S + _STALLED_STEPS * max(self._steps_s) else 0.0

    def _note_gone(self) -> None:
        """Forget processes that have been gone for long, unless another one goes on under the same labels."""
        assert self._account is not None
        now_s, totals = time.monotonic(), self._account.totals
        pids = set(totals.ranks) | {lane.pid for lane in totals.moved_bytes}
        for pid in pids:
            if _is_alive(pid):
                self._gone_since_s.pop(pid, None)
            else:
                self._gone_since_s.setdefault(pid, now_s)
        meta = self._meta
        assert meta is not None
        targets = {target.pid: target for target in meta.targets}
        labels = {pid: rank_labels((), targets.get(pid), self._ranks(meta).get(pid)) for pid in pids}
        kept = {labels[pid] for pid in pids if now_s - self._gone_since_s.get(pid, now_s) <= LINGER_S}
        if gone := {pid for pid in pids if labels[pid] not in kept}:
            self._account.forget(gone)
            self._gone_since_s = {pid: s for pid, s in self._gone_since_s.items() if pid not in gone}

    def _ranks(self, meta: Meta) -> Mapping[int, int]:
        assert self._account is not None
        last = self._account.last
        return last.ranks if last is not None else {target.pid: target.rank for target in meta.targets}

    def _labels(self, meta: Meta) -> Labels:
        """Return what all series of the job are labelled with: what to call it, the same on all hosts, and the host.

        Its processes' environment may be needed for that, which is gone with them: so once it is known, it stays.
        """
        if not self._job:
            named = label_of(meta.targets)
            labels = ("job", label_value(named or "unknown")), ("host", label_value(meta.host))
            self._job = labels if named else ()
            return labels
        return self._job

    def _expose(self, meta: Meta, through_ns: int, stalled_s: float) -> None:
        """Make the samples of what is known now."""
        assert self._account is not None
        job, ranks = self._labels(meta), self._ranks(meta)
        samples = samples_of(job, self._account.totals, ranks, meta)
        targets = {target.pid: target for target in meta.targets}
        for pid, at_ns in self._account.last_step_ns.items():
            labels = rank_labels(job, targets.get(pid), ranks.get(pid))
            samples.set_latest("netprof_last_step_timestamp_seconds", labels, _unix_s(meta, at_ns))
        alive = [target for target in meta.targets if target.frameworks and target.pid not in self._gone_since_s]
        samples.add("netprof_ranks", job, 0 if self._stop.is_set() else len(alive))
        samples.add("netprof_stalled", job, float(stalled_s > 0))
        if (until_ns := self._account.through_ns) is not None:
            samples.add("netprof_accounted_timestamp_seconds", job, _unix_s(meta, min(until_ns, through_ns)))
        for each in fields(Losses):
            samples.add("netprof_lost_events", (*job, ("what", each.name)), float(getattr(meta.losses, each.name)))
        samples.add("netprof_recorder_cpu_seconds", job, meta.cost.cpu_s)
        samples.add("netprof_recorder_memory_bytes", job, meta.cost.peak_memory_bytes)
        samples.add("netprof_trace_bytes", job, meta.cost.trace_bytes)
        samples.add("netprof_account_cpu_seconds", job, self.cpu_s)
        self.samples, self.version = samples, self.version + 1


def _unix_s(meta: Meta, at_ns: int) -> float:
    return (at_ns - meta.clock.monotonic_ns + meta.clock.realtime_ns) / 1e9


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


_EVERY_S = 1.0


class FollowedAccount:
    """Follows one trace in a thread of its own, until the recording ends. Raises TraceError where there is none."""

    def __init__(self, path: Path, accountant: Accountant) -> None:
        self._trace, self._accountant = FollowedTrace(path), accountant
        self._inbox = accountant.begin(self._trace.meta)
        self._in_step, self._is_first = InStep(1), True
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="netprof-follow", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Follow no more; what was read is concluded from."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not (self._stop.wait(_EVERY_S) or self._trace.ended):
            try:
                self._look()
            except TraceError as error:
                self._accountant.failure = error
                break
        self._accountant.close(self._trace.meta if self._trace.meta.stopped_ns is not None else None)

    def _look(self) -> None:
        self._trace.describe()
        for name, batch in self._trace.fresh():
            self._in_step.add(0, name, recent_rows(name, batch))
        if self._is_first:
            self._is_first = False
            self._in_step.settle()
        through_ns, tables = self._in_step.take()
        for name, rows in tables:
            self._inbox.add(name, rows)
        if through_ns is not None:
            self._accountant.reached(self._trace.meta, through_ns)
