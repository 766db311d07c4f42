"""`netprof exporter`: waits for jobs on this host, records each as it comes, and shows the totals of all.

Jobs are other users', and anybody can start what looks like one. So each user has shares (`budget`): what is over them
is left out, counted and said, and the other users' jobs are recorded.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from netprof.metrics.accountant import Accountant
from netprof.metrics.board import MEMORY, PROCESSES, Board
from netprof.metrics.budget import CPUS, Budget, Need, Pace, Taken, level
from netprof.model import Target
from netprof.probes.job.jobs import LocalJob, find_jobs
from netprof.probes.job.owners import user_name
from netprof.probes.job.processes import is_same
from netprof.session.attach import Rights, StopRequest, record
from netprof.session.options import RecordingOptions
from netprof.session.recorder import Recorder
from netprof.session.which_job import JobChoice

LOOK_S = 5.0
_LOOK_SHARE = 0.05
"""Of a core, for looking for jobs: where a look takes long, the next one waits."""
_TRY_AGAIN_S = 60.0
_LEFT_OUT_S = 20.0
"""For so long a job that was left out is not looked at again."""
_AT_ONCE = 2
"""Recordings that are being begun: each takes up to a second of CPU time."""
_BURST_S = 1.5
_MOST_USERS = 32  # with jobs left out that are named
_OTHERS = "others"

_Identity = tuple[int, int]
"""A process by its pid and start: a pid of one that ended may be another job's."""


@dataclass(frozen=True)
class Task:
    """How a job is recorded: its account, what the recording's loop calls, and what is called at its end."""

    options: RecordingOptions
    accountant: Accountant
    watch: Callable[[Recorder], None]
    close: Callable[[], None]


class _Stop(StopRequest):
    """Ends one recording: `why`, or what ends all."""

    why = ""

    def reason(self) -> str:
        """Return why to stop, or nothing."""
        return self.why or super().reason()


@dataclass(eq=False)
class _Recording:
    """A job's recording, in a thread of its own."""

    job: LocalJob
    stop: _Stop = field(default_factory=_Stop)
    thread: threading.Thread = field(init=False)
    recorder: Recorder | None = None
    accountant: Accountant | None = None
    pace: Pace | None = None
    counted_s: float = 0.0

    @property
    def processes(self) -> set[_Identity]:
        """The processes that are recorded by now."""
        recorder = self.recorder
        return _identities(self.job.training) | _identities(recorder.job.targets if recorder is not None else ())

    @property
    def need(self) -> Need:
        """What it takes now."""
        recorder = self.recorder
        if recorder is None:
            return _need(self.job)
        training, followed = sum(bool(target.frameworks) for target in recorder.job.targets), recorder.job.followed
        return Need.of(min(training, followed), followed)

    def cpu_s(self) -> float:
        """Return the CPU time that it has taken since the last call."""
        used_s = (self.pace.used_s if self.pace else 0.0) + (self.accountant.cpu_s if self.accountant else 0.0)
        took_s, self.counted_s = used_s - self.counted_s, used_s
        return max(0.0, took_s)


@dataclass(frozen=True)
class _LeftOut:
    """A job that is not recorded, why not, and until when that is not looked at again."""

    job: LocalJob
    reason: str
    until_s: float


def _identities(targets: Iterable[Target]) -> set[_Identity]:
    return {target.identity for target in targets}


def _need(job: LocalJob) -> Need:
    return Need.of(len(job.training), len(job.targets))


class Exporter:
    """Looks for jobs, and records those that are not recorded yet, as `task_of` says. `say` is told a line about each.

    Of some jobs only, where a `choice` is made.
    """

    def __init__(
        self,
        board: Board,
        task_of: Callable[[LocalJob], Task],
        say: Callable[[str], None],
        choice: JobChoice = JobChoice(),  # noqa: B008 - frozen
    ) -> None:
        self._board, self._task_of, self._say, self._choice = board, task_of, say, choice
        self._rights = Rights.here()
        if self._rights.refused is not None:
            say(f"{self._rights.refused.message}: bytes are sampled, and there are no marks")
        self._budget = Budget()
        say(self._budget.sentence)
        self._recordings: list[_Recording] = []
        self._waiting: list[LocalJob] = []
        self._left_out: list[_LeftOut] = []
        self._untried = Counter[tuple[str, str]]()
        self._not_before_s: dict[_Identity, float] = {}
        self._credit_s, self._credit_at_s, self._used_s = _BURST_S, time.monotonic(), time.process_time()
        self._levelled_s, self._levelled_used_s = time.monotonic(), time.process_time()

    def run(self, request: StopRequest) -> None:
        """Look for jobs until something asks to stop; then end all recordings well."""
        next_s = 0.0
        while not request.reason():
            if time.monotonic() >= next_s:
                began_s = time.thread_time()
                self._look()
                self._level()
                next_s = time.monotonic() + max(LOOK_S, (time.thread_time() - began_s) / _LOOK_SHARE)
            self._begin_next()
            time.sleep(0.2)
        for each in self._recordings:
            each.stop.signal_number = request.signal_number
        for each in self._recordings:
            each.thread.join()

    def _look(self) -> None:
        """Find jobs, and who is over a share by now."""
        self._recordings = [each for each in self._recordings if each.thread.is_alive()]
        now_s = time.monotonic()
        self._not_before_s = {process: s for process, s in self._not_before_s.items() if s > now_s}
        self._left_out = [each for each in self._left_out if each.until_s > now_s and _lives(each.job)]
        left_out = {process for each in self._left_out for process in _identities(each.job.training)}
        recorded = {process for each in self._recordings for process in each.processes}
        known = recorded | left_out | self._not_before_s.keys()
        try:
            found = find_jobs(known)
        except Exception as error:  # whatever it is, those that are recorded go on
            self._say(f"jobs cannot be looked for: {error}")
            return
        self._waiting = [
            job
            for job in found.jobs
            if job.is_sure and self._choice.fits(job) and not known & _identities(job.training)
        ]
        self._untried = Counter({(user_name(user), PROCESSES): number for user, number in found.untried.items()})
        self._end_what_is_too_much()
        taken = self._taken()
        for job in list(self._waiting):
            if reason := taken.take(job.owner, _need(job), len(job.targets)):
                self._leave_out(job, reason)
        self._tell_left_out()

    def _taken(self) -> Taken:
        """Return what the recordings have."""
        taken = self._budget.shares()
        for each in self._recordings:
            taken.take(each.job.owner, each.need, 0)
        return taken

    def _end_what_is_too_much(self) -> None:
        """End recordings that have grown beyond their user's share, the newest first; and one where memory is short."""
        taken, fitting = self._budget.shares(), list[_Recording]()
        for each in self._recordings:
            if reason := taken.take(each.job.owner, each.need, 0):
                self._end(each, reason)
            else:
                fitting.append(each)
        if self._budget.is_exceeded and fitting:
            most = taken.size_bytes.largest
            self._end(next(each for each in reversed(fitting) if each.job.owner == most), MEMORY)

    def _end(self, recording: _Recording, reason: str) -> None:
        recording.stop.why = f"its user's share of {reason} is taken"
        self._hold_back(recording.processes)
        self._left_out.append(_LeftOut(recording.job, reason, time.monotonic() + _TRY_AGAIN_S))

    def _leave_out(self, job: LocalJob, reason: str) -> None:
        self._waiting.remove(job)
        self._left_out.append(_LeftOut(job, reason, time.monotonic() + _LEFT_OUT_S))

    def _tell_left_out(self) -> None:
        counted = Counter((user_name(each.job.owner), each.reason) for each in self._left_out) + self._untried
        named = {user for user, _ in sorted(counted, key=lambda key: -counted[key])[:_MOST_USERS]}
        told = Counter[tuple[str, str]]()
        for (user, reason), number in counted.items():
            told[user if user in named else _OTHERS, reason] += number
        if told != self._board.left_out:
            self._board.left_out = told

    def _begin_next(self) -> None:
        """Begin a job that waits, of the user with the fewest; if that has any, only where there is CPU time for it."""
        now_s, used_s = time.monotonic(), time.process_time()
        self._credit_s = min(_BURST_S, self._credit_s + (now_s - self._credit_at_s) * CPUS - (used_s - self._used_s))
        self._credit_at_s, self._used_s = now_s, used_s
        opening = sum(each.recorder is None and each.thread.is_alive() for each in self._recordings)
        if not self._waiting or opening >= _AT_ONCE:
            return
        taken = self._taken()
        job = min(self._waiting, key=lambda job: taken.recordings.taken(job.owner))
        if self._credit_s < 0 and taken.recordings.taken(job.owner):
            return
        if reason := taken.take(job.owner, _need(job), len(job.targets)):
            self._leave_out(job, reason)
            self._tell_left_out()
            return
        self._waiting.remove(job)
        self._begin(job)

    def _level(self) -> None:
        """Slow down recordings of the users who use most, where all together use more CPU time than there is."""
        now_s, used_s = time.monotonic(), time.process_time()
        passed_s, process_s = max(1e-3, now_s - self._levelled_s), used_s - self._levelled_used_s
        self._levelled_s, self._levelled_used_s = now_s, used_s
        used = Counter[int]()
        for each in self._recordings:
            used[each.job.owner] += each.cpu_s() / passed_s  # type: ignore[assignment]
        others = max(0.0, process_s / passed_s - used.total())
        most = level(used, max(CPUS / 2, CPUS - others))
        number = Counter(each.job.owner for each in self._recordings)
        for each in self._recordings:
            if each.pace is None:
                continue
            if most is not None and used[each.job.owner] >= most:
                each.pace.cpus = most / number[each.job.owner]
            else:
                each.pace.ease()

    def _begin(self, job: LocalJob) -> None:
        recording = _Recording(job)
        recording.thread = threading.Thread(
            target=self._record, args=(recording,), name=f"netprof-{job.pids[0]}", daemon=True
        )
        try:
            recording.thread.start()
        except RuntimeError as error:  # no more threads are allowed: later, perhaps
            self._fails(recording)
            self._say(f"cannot record {job.sentence}: {error}")
            return
        self._recordings.append(recording)

    def _record(self, recording: _Recording) -> None:
        job = recording.job
        try:
            task = self._task_of(job)
            recorder = self._rights.recorder(job.targets, task.options, ["netprof", "exporter"])
            recorder.start()
        except Exception as error:  # of one job: the others go on
            self._fails(recording)
            self._say(f"cannot record {job.sentence}: {error}")
            return
        recording.recorder, recording.accountant = recorder, task.accountant
        recording.pace = pace = Pace()
        self._board.add(task.accountant, user_name(job.owner))
        self._say(f"recording {job.sentence}")

        def watch(recorder: Recorder) -> None:
            task.watch(recorder)
            pace()

        outcome = record(recorder, recording.stop, watch)
        task.close()
        if outcome.failure is not None:  # a full disk, say: it would end so again
            self._fails(recording)
        self._say(f"{outcome.failure or outcome.meta.stop_reason}: {job.sentence}")

    def _fails(self, recording: _Recording) -> None:
        """Count a recording that failed, and do not begin it again for a while."""
        self._hold_back(recording.processes)
        self._board.attach_failures += 1

    def _hold_back(self, processes: Iterable[_Identity]) -> None:
        held = dict.fromkeys(processes, time.monotonic() + _TRY_AGAIN_S)
        self._not_before_s = self._not_before_s | held  # another one, as the loop may be reading it


def _lives(job: LocalJob) -> bool:
    return any(map(is_same, job.training))
