"""`netprof exporter`: waits for jobs on this host, records each as it comes, and shows the totals of all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from netprof.metrics.accountant import Accountant
from netprof.metrics.board import MOST_JOBS, Board
from netprof.model import Target
from netprof.probes.job.jobs import LocalJob, find_jobs
from netprof.session.attach import Rights, StopRequest, record
from netprof.session.options import RecordingOptions
from netprof.session.recorder import Recorder
from netprof.session.which_job import JobChoice

LOOK_S = 5.0
_TRY_AGAIN_S = 60.0

_Identity = tuple[int, int]
"""A process by its pid and start: a pid of one that ended may be another job's."""


@dataclass(frozen=True)
class Task:
    """How a job is recorded: its account, what the recording's loop calls, and what is called at its end."""

    options: RecordingOptions
    accountant: Accountant
    watch: Callable[[Recorder], None]
    close: Callable[[], None]


@dataclass(eq=False)
class _Recording:
    """A job's recording, in a thread of its own."""

    job: LocalJob
    thread: threading.Thread = field(init=False)
    recorder: Recorder | None = None

    @property
    def processes(self) -> set[_Identity]:
        """The processes that are recorded by now."""
        recorder = self.recorder
        return _identities(self.job.training) | _identities(recorder.job.targets if recorder is not None else ())


def _identities(targets: Iterable[Target]) -> set[_Identity]:
    return {target.identity for target in targets}


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
        self._recordings: list[_Recording] = []
        self._not_before_s: dict[_Identity, float] = {}
        self._stop = StopRequest()

    def run(self, request: StopRequest) -> None:
        """Look for jobs until something asks to stop; then end all recordings well."""
        next_s = 0.0
        while not request.reason():
            if time.monotonic() >= next_s:
                self._look()
                next_s = time.monotonic() + LOOK_S
            time.sleep(0.2)
        self._stop.signal_number = request.signal_number
        for each in self._recordings:
            each.thread.join()

    def _look(self) -> None:
        self._recordings = [each for each in self._recordings if each.thread.is_alive()]
        now_s = time.monotonic()
        self._not_before_s = {process: s for process, s in self._not_before_s.items() if s > now_s}
        known = {process for each in self._recordings for process in each.processes} | self._not_before_s.keys()
        try:
            jobs = find_jobs()
        except Exception as error:  # whatever it is, those that are recorded go on
            self._say(f"jobs cannot be looked for: {error}")
            return
        for job in jobs:
            if (
                job.is_sure
                and self._choice.fits(job)
                and not known & _identities(job.training)
                and len(self._recordings) < MOST_JOBS
            ):
                self._begin(job)

    def _begin(self, job: LocalJob) -> None:
        recording = _Recording(job)
        recording.thread = threading.Thread(
            target=self._record, args=(recording,), name=f"netprof-{job.pids[0]}", daemon=True
        )
        try:
            recording.thread.start()
        except RuntimeError as error:  # no more threads are allowed: later, perhaps
            self._hold_back(recording)
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
            self._hold_back(recording)
            self._say(f"cannot record {job.sentence}: {error}")
            return
        recording.recorder = recorder
        self._board.add(task.accountant)
        self._say(f"recording {job.sentence}")
        outcome = record(recorder, self._stop, task.watch)
        task.close()
        if outcome.failure is not None:  # a full disk, say: it would end so again
            self._hold_back(recording)
        self._say(f"{outcome.failure or outcome.meta.stop_reason}: {job.sentence}")

    def _hold_back(self, recording: _Recording) -> None:
        """Count a recording that failed, and do not begin it again for a while."""
        held = dict.fromkeys(recording.processes, time.monotonic() + _TRY_AGAIN_S)
        self._not_before_s = self._not_before_s | held  # another one, as the loop may be reading it
        self._board.attach_failures += 1
