"""One job's account while it is recorded, also by another netprof: a thread that concludes now and then, and the
samples that it leaves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.bounds.bounds import BoundsFinding
from netprof.analysis.live.budget import Budget
from netprof.analysis.live.in_step import InStep
from netprof.analysis.live.inbox import Inbox
from netprof.analysis.totals.growing import GrowingAccount
from netprof.errors import NetprofError
from netprof.metrics.families import Labels, MetricSamples, label_value, pids_of, rank_labels, samples_of
from netprof.model import Clock, Losses, Meta, Target
from netprof.probes.job import procfs
from netprof.probes.job.jobs import label_of
from netprof.probes.job.processes import is_same
from netprof.session import this_host
from netprof.session.live_follow import FollowedTrace, recent_rows
from netprof.session.recorder import Recorder

SHARE = 0.004
"""Of a core, at most, for eight ranks; for more ranks proportionally more."""
_RANKS, _LEAST_S, _MOST_S, _LOOK_S = 8, 5.0, 60.0, 0.5
LINGER_S = 60.0
"""For how long series of processes that are gone stay, so that the last values are still scraped."""
_STALLED_S, _STALLED_STEPS = 10.0, 5
_BYTES = {"healed_bytes": "netprof_recovered_bytes", "late_bytes": "netprof_late_bytes"}
"""Of `Losses`, what are bytes and no events, with their families."""
_SET_NS = 100_000_000
"""Clocks that come apart by more were set, or the machine slept."""


@dataclass(frozen=True)
class Now:
    """How a job stands after a look: what rules are held against. `piece` is what was concluded since the last one."""

    meta: Meta
    through_ns: int
    piece: Evidence | None
    stalled_s: float
    """For how long no step has ended while far shorter ones are usual; 0 where steps go on."""
    bounds: BoundsFinding | None = None
    """Bounds of the waiting of launch-only ranks in the piece; None without such ranks."""


class Accountant:
    """Makes the account of one recording: `feed` in the recording's thread; a thread of its own concludes.

    `on_look` is called from that thread after every look; whatever it raises is shown by `failure`, and ends nothing.
    """

    def __init__(self, on_look: Sequence[Callable[[Now], None]] = ()) -> None:
        self.samples = MetricSamples()
        self.version = 0
        self.failure: Exception | None = None
        self.ended_s: float | None = None
        self.apart: Labels = ()
        """Further labels, of a job that would have the series of another one."""
        self.cpu_s = 0.0
        self._on_look = on_look
        self._job: Labels = ()
        self._clock: Clock | None = None
        self._meta: Meta | None = None  # until it begins
        self._budget = Budget(SHARE, _LEAST_S)
        self._gone_since_s: dict[int, float] = {}
        self._stop = threading.Event()
        self._steps_s: list[float] = []
        self._is_first = True
        self._thread = threading.Thread(target=self._run, name="netprof-account", daemon=True)

    _inbox: Inbox
    _account: GrowingAccount
    """Both from `begin` on."""

    @property
    def first_pid(self) -> int:
        """The first process that trains; 0 before there is one."""
        targets = self._meta.targets if self._meta is not None else ()
        return next((target.pid for target in targets if target.frameworks), 0)

    def feed(self, recorder: Recorder) -> None:
        """Call before the first tick and after every one."""
        if self._meta is None:
            recorder.observe(self.begin(recorder.meta).add)
        self.reached(recorder.meta, recorder.collected_ns)

    def begin(self, meta: Meta) -> Inbox:
        """Start the thread, and return what takes the rows of the recording."""
        self._meta = meta
        self._inbox, self._account = Inbox(meta), GrowingAccount(meta.bin_ns)
        self._thread.start()
        return self._inbox

    def reached(self, meta: Meta, through_ns: int) -> None:
        """Say that everything until then has been handed over, and how the recording describes itself."""
        self._meta = meta
        self._inbox.describe(meta)
        self._inbox.reached(through_ns)

    def close(self, meta: Meta | None = None) -> None:
        """Conclude from what is left, described by the final `meta`, and stop."""
        if self._meta is not None:
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
        meta, through_ns, fresh = self._inbox.fetch()
        for table, rows in fresh:
            self._account.add(table, rows)
        if not final and not (self._budget.is_due and through_ns > meta.started_ns):
            return
        added = False
        with self._budget.spending():
            try:
                added = self._account.conclude(meta, through_ns, final=final)
                self.failure = self.failure if final else None
            except NetprofError as error:
                self.failure = error
            self._note_gone(meta)
            piece = self._account.last if added else None
            stalled_s = self._stalled_s(piece, through_ns)
            self._expose(meta, through_ns, stalled_s)
        self._budget.times = max(1.0, len(self._account.last_step_ns) / _RANKS)
        if self._is_first:  # most of its cost was importing what concludes
            self._is_first, self._budget.next_s = not added, time.monotonic() + _LEAST_S
        self._budget.next_s = min(self._budget.next_s, time.monotonic() + _MOST_S)
        for act in self._on_look:
            act(Now(meta, through_ns, piece, stalled_s, self._account.totals.bounds))

    def _stalled_s(self, piece: Evidence | None, through_ns: int) -> float:
        if piece is not None and len(piece.iterations):
            self._steps_s = [*self._steps_s, float(np.median(piece.iterations.duration_ns)) / 1e9][-20:]
        last_ns = self._account.last_step_ns
        if not self._steps_s or not last_ns:
            return 0.0
        quiet_s = (through_ns - max(last_ns.values())) / 1e9
        return quiet_s if quiet_s > _STALLED_S + _STALLED_STEPS * max(self._steps_s) else 0.0

    def _note_gone(self, meta: Meta) -> None:
        """Forget processes that have been gone for long, unless another one goes on under the same labels."""
        now_s, pids = time.monotonic(), pids_of(self._account.totals)
        targets = {target.pid: target for target in meta.targets}
        for pid in pids:
            if self._is_alive(targets.get(pid), pid):
                self._gone_since_s.pop(pid, None)
            else:
                self._gone_since_s.setdefault(pid, now_s)
        labels = {pid: rank_labels((), targets.get(pid), self._ranks(meta).get(pid)) for pid in pids}
        kept = {labels[pid] for pid in pids if now_s - self._gone_since_s.get(pid, now_s) <= LINGER_S}
        if gone := {pid for pid in pids if labels[pid] not in kept}:
            self._account.forget(gone)
            self._gone_since_s = {pid: s for pid, s in self._gone_since_s.items() if pid not in gone}

    def _is_alive(self, target: Target | None, pid: int) -> bool:
        """Say whether a process is there; those of another host are, until its recorder says that all is over."""
        if not self._is_here:
            return True
        return procfs.read_stat(pid) is not None if target is None else is_same(target)

    @property
    def _is_here(self) -> bool:
        """Whether the recording is of this host: pids of others' are other processes here."""
        return self._meta is not None and self._meta.boot_id == this_host.boot_id()

    def _ranks(self, meta: Meta) -> Mapping[int, int]:
        last = self._account.last
        return last.ranks if last is not None else {target.pid: target.rank for target in meta.targets}

    def _labels(self, meta: Meta) -> Labels:
        """Return what all series of the job are labelled with: what to call it, the same on all hosts, and the host.

        Its processes' environment may be needed for that, which is gone with them: so once it is known, it stays.
        """
        if not self._job:
            named = label_of(meta.targets, has_environment=self._is_here)
            labels = ("job", label_value(named or "unknown")), ("host", label_value(meta.host))
            self._job = labels if named else ()
            return labels
        return self._job

    def _expose(self, meta: Meta, through_ns: int, stalled_s: float) -> None:
        """Make the samples of what is known now."""
        job, ranks = self._labels(meta), self._ranks(meta)
        clock = self._clock_of_now(meta)
        samples = samples_of(job, self._account.totals, ranks, meta)
        targets = {target.pid: target for target in meta.targets}
        for pid, at_ns in self._account.last_step_ns.items():
            labels = rank_labels(job, targets.get(pid), ranks.get(pid))
            samples.set_latest("netprof_last_step_timestamp_seconds", labels, _unix_s(clock, at_ns))
        ended = self._stop.is_set()
        training = [] if ended else [target for target in meta.targets if target.frameworks]
        samples.add("netprof_ranks", job, sum(self._is_alive(target, target.pid) for target in training))
        if self._steps_s and self._account.last_step_ns:  # else whether it stalls is unknown
            samples.add("netprof_stalled", job, float(stalled_s > 0 and not ended))
        if (until_ns := self._account.through_ns) is not None:
            samples.add("netprof_accounted_timestamp_seconds", job, _unix_s(clock, min(until_ns, through_ns)))
        for name in [loss.name for loss in fields(Losses) if loss.name not in _BYTES]:
            samples.add("netprof_lost_events", (*job, ("what", name)), float(getattr(meta.losses, name)))
        for name, family in _BYTES.items():
            samples.add(family, job, getattr(meta.losses, name))
        samples.add("netprof_lost_events", (*job, ("what", "account_rows")), self._inbox.dropped)
        samples.add("netprof_recorder_cpu_seconds", job, meta.cost.cpu_s)
        samples.add("netprof_recorder_memory_bytes", job, meta.cost.peak_memory_bytes)
        samples.add("netprof_trace_bytes", job, meta.cost.trace_bytes)
        samples.add("netprof_account_cpu_seconds", job, self.cpu_s)
        self.samples, self.version = samples, self.version + 1

    def _clock_of_now(self, meta: Meta) -> Clock:
        """Return what both clocks read at an instant since realtime was last set; of another host as it began."""
        now = Clock.now() if self._is_here else meta.clock
        if self._clock is None or abs(_apart_ns(now) - _apart_ns(self._clock)) > _SET_NS:
            self._clock = now
        return self._clock


def _apart_ns(clock: Clock) -> int:
    return clock.realtime_ns - clock.monotonic_ns


def _unix_s(clock: Clock, at_ns: int) -> float:
    return (at_ns + _apart_ns(clock)) / 1e9


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
            except Exception as error:  # damage, or a file system that is gone: the last samples stay
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
