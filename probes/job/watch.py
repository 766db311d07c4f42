"""Watching the job's processes: which still live, and which have joined since; the kernel reports each start."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterable

import numpy as np

from netprof.closing import Closing, all_or_nothing
from netprof.errors import NetprofError
from netprof.model import Target
from netprof.probes.job import procfs
from netprof.probes.job.kinship import Kinship
from netprof.probes.job.processes import find_more, is_same, kinship_of
from netprof.probes.job.tree import ancestors
from netprof.probes.kernel.loader import BpfObject, RingBuffer
from netprof.probes.kernel.types import for_this_kernel

THOROUGH_EVERY_S = 2.0
LISTEN_EVERY_S = 0.1
_CANDIDATE_FOR_S = 60.0  # a program that was started as one of the job's may still be importing its framework


class Watch(Closing):
    """Holds a pid descriptor of each process, so that a pid given to another process cannot be mistaken for it.

    With `starts`, which it closes, it also knows of ranks at once that start elsewhere than below the job. Of more than
    `most` processes at a time the others are left out. A context manager. Raises NetprofError when the process may not
    open so many files.
    """

    def __init__(self, targets: Iterable[Target], starts: Starts | None = None, most: int | None = None) -> None:
        self._poll = select.poll()
        self._starts = starts
        self._most = most
        self.left_out = False
        """Whether there were ever more processes."""
        self._candidates: dict[int, float] = {}  # pids that may be ranks, and until when
        self._heard = False
        self._listen_at_s = 0.0
        self._not_the_job = ancestors([os.getpid()])  # perhaps the shell from which the job was started, too
        self._kinship: Kinship | None = None
        self._alive: dict[int, Target] = {}  # by pid descriptor
        self._above_ranks: set[int] = set()  # whatever started something that trains, and what started that
        self._known: dict[tuple[int, int], Target] = {}  # as last seen
        self._thorough_at_s = 0.0
        with all_or_nothing() as opened:
            opened.callback(self.close)
            for target in targets:
                self._add(target)
            if starts is not None:  # what began while the job was looked for, and before the kernel was asked to tell
                self._listen(set(procfs.processes()) - {pid for pid, _ in self._known}, complete=True)

    def alive(self) -> list[Target]:
        """Return the processes that have not ended."""
        self._reap(0)
        return list(self._alive.values())

    @property
    def followed(self) -> int:
        """How many there are; asks nothing of the kernel, so that any thread may."""
        return len(self._alive)

    def training(self) -> list[Target]:
        """Return the processes that have not ended and that train, as far as one can tell."""
        return [target for target in self.alive() if target.frameworks]

    def launchers(self) -> list[Target]:
        """Return the processes that have not ended, do not train, and are above one that did: they may start others."""
        return [target for target in self.alive() if not target.frameworks and target.pid in self._above_ranks]

    def wait(self, timeout_s: float) -> bool:
        """Wait until a process ends, at most `timeout_s` seconds; tell whether one did."""
        return self._reap(max(0, round(timeout_s * 1000)))

    def heard(self) -> bool:
        """Tell whether processes were started, since the last refresh, that may be ranks of the job."""
        now_s = time.monotonic()
        if self._starts is not None and now_s >= self._listen_at_s:
            self._listen_at_s = now_s + LISTEN_EVERY_S
            pids, complete = self._starts.drain()
            if pids:
                self._listen(pids, complete)
        return self._heard

    def _listen(self, pids: set[int], complete: bool) -> None:
        """Take note of programs that were started: a refresh will tell which of those that may be ranks are."""
        if not complete:
            self._thorough_at_s = 0.0
        if pids and self._kinship is None:
            self._kinship = kinship_of(self._alive.values())
        pids -= self._not_the_job
        claimed = [pid for pid in pids if self._kinship is not None and self._kinship.may_claim(pid)]
        self._candidates.update(dict.fromkeys(claimed, time.monotonic() + _CANDIDATE_FOR_S))
        self._heard |= bool(claimed) or not complete

    def refresh(self) -> list[Target]:
        """Look at the job again, and return the processes that have joined or changed: executed, loaded a framework.

        Cheap enough for several times a second: ranks elsewhere that join unheard, and a second framework in a process,
        are looked for only every `THOROUGH_EVERY_S` seconds.
        """
        now_s, self._heard = time.monotonic(), False
        thorough = now_s >= self._thorough_at_s
        if thorough:
            self._thorough_at_s = now_s + THOROUGH_EVERY_S
        self._candidates = {pid: until_s for pid, until_s in self._candidates.items() if now_s < until_s}
        launchers = {target.pid for target in self.launchers()}
        every = find_more(self.alive(), thorough=thorough, started=self._candidates, launchers=launchers)
        news = [target for target in every if self._is_news(target)]
        for target in every:
            self._candidates.pop(target.pid, None)
        return [target for target in news if self._add(target)]

    def forget(self, identity: tuple[int, int]) -> None:
        """Remember no more of a process that has ended, by its pid and start."""
        self._known.pop(identity, None)

    def close(self) -> None:
        """Close every descriptor."""
        while self._alive:
            os.close(self._alive.popitem()[0])
        if self._starts is not None:
            self._starts.close()

    def _is_news(self, target: Target) -> bool:
        """Tell whether a process is not known, or not as it is now; one that is ending says nothing more of itself."""
        known = self._known.get(_identity(target))
        is_ending = known is not None and bool(known.command) and not target.command
        return known != target and not is_ending

    def _add(self, target: Target) -> bool:
        """Watch a process, or note how one has changed; tell whether it is (still) there."""
        known = _identity(target) in self._known
        if not known and self._most is not None and len(self._alive) >= self._most:
            self.left_out = True
            return False
        self._known[_identity(target)] = target
        if target.frameworks:
            self._above_ranks |= ancestors([target.pid]) - {target.pid}
        if known:
            watched = next((at for at, before in self._alive.items() if _identity(before) == _identity(target)), None)
            if watched is not None:
                self._alive[watched] = target
            return watched is not None
        try:
            descriptor = os.pidfd_open(target.pid)
        except ProcessLookupError:
            return False
        except OSError as error:
            raise NetprofError(
                f"cannot watch process {target.pid}: {error.strerror}", "allow more open files with 'ulimit -n 65536'"
            ) from error
        self._alive[descriptor] = target
        if not is_same(target):  # checked with the descriptor open: from here on it cannot become another process
            del self._alive[descriptor]
            os.close(descriptor)
            return False
        self._kinship = None
        self._poll.register(descriptor, select.POLLIN)
        return True

    def _reap(self, timeout_ms: int) -> bool:
        """Forget the processes that have ended; tell whether there were any."""
        ended = self._poll.poll(timeout_ms)
        for descriptor, _ in ended:
            self._poll.unregister(descriptor)
            del self._alive[descriptor]
            os.close(descriptor)
        return bool(ended)


def _identity(target: Target) -> tuple[int, int]:
    return target.pid, target.start_ticks


class Starts(Closing):
    """Learns of every program that is started, from now on. Raises NotPermittedError or NetprofError."""

    def __init__(self) -> None:
        with all_or_nothing() as opened:
            self._object = opened.enter_context(BpfObject(for_this_kernel("job")))
            self._ring = opened.enter_context(RingBuffer(self._object, "starts", np.dtype("u8")))
            self._object.attach("program_started")
        self._missed = 0

    def drain(self) -> tuple[set[int], bool]:
        """Return the processes that were started as programs since the last call, and whether those are all."""
        records = self._ring.drain()
        if not len(records):
            return set(), True
        pids = set(records.tolist())
        before, self._missed = self._missed, self._object.counters("missed")["missed"]
        return pids, self._missed == before

    def close(self) -> None:
        """Detach. May be called twice."""
        self._ring.close()
        self._object.close()
