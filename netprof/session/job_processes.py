"""The job while it is recorded: its processes come and go, and take up PyTorch late."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from netprof.errors import NetprofError
from netprof.model import Target
from netprof.probes.job.watch import Starts, Watch
from netprof.schema import UNKNOWN_RANK, MarkKind
from netprof.session.options import GivenRanks

_LOOK_AGAIN_S = 0.25
_LOOK_UNTOLD_S = 0.8  # where the kernel does not tell of programs that are started, or nothing trains yet
_BEGINNINGS = (MarkKind.PROCESS_FORK, MarkKind.PROCESS_EXEC)
RESTART_S = 60.0
"""For how long a launcher may start no rank: torchrun's agents meet first, which takes them half a minute."""
_LAUNCHERS_NAMED = 2
_MOST_ENDED = 1024
"""Processes without a framework that are remembered after their end."""
EXPECT_FOR_S = 60.0  # a process that was just started may still be importing its framework


class Job:
    """The job's processes, by identity: those found when attaching and those that joined since.

    `given` are the ranks that a person named. Without `asks_kernel`, which is for programs that are started, the job is
    looked at again and again. At most `most` processes at a time are followed. Raises UsageError where the ranks
    contradict the job.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        given: GivenRanks = GivenRanks(),  # noqa: B008 - frozen
        *,
        asks_kernel: bool = True,
        most: int | None = None,
    ) -> None:
        given.check(targets)
        self._given = given
        self._targets = {target.identity: given.of(target) for target in targets}
        self._starts = _starts() if asks_kernel else None
        self._watch = Watch(targets, self._starts, most)
        self._news: list[Target] = []
        self._next_look_s = 0.0
        self._expect_until_s = 0.0
        self._ended_s: float | None = None  # since when nothing trains that has done so
        self._joined_s = 0.0
        self.waiting = ""
        """What is waited for where nothing trains any more, for a person; "" where something does."""

    @property
    def targets(self) -> tuple[Target, ...]:
        """Every process that was ever part of the job, except the oldest helpers once many have ended."""
        return tuple(self._targets.values())

    @property
    def followed(self) -> int:
        """How many processes are followed, from any thread."""
        return self._watch.followed

    @property
    def left_out(self) -> bool:
        """Whether the job ever had more processes than are followed."""
        return self._watch.left_out

    def wait(self, timeout_s: float) -> None:
        """Sleep until a process ends or the time is up."""
        self._watch.wait(timeout_s)

    def over(self) -> bool:
        """Say whether the job is over: every process that trains has ended or, if none ever did, every process.

        While what started them lives, it may start others, as torchrun does after a failure: it is waited for, until it
        ends or nothing new has come for RESTART_S seconds.
        """
        if not self._trains():
            return not self._watch.alive()
        launchers = [] if self._watch.training() else self._watch.launchers()
        if not launchers:
            self._ended_s, self.waiting = None, ""
            return not self._watch.training()
        now_s = time.monotonic()
        self._ended_s = now_s if self._ended_s is None else self._ended_s
        self.expect_changes()
        pids = " and ".join(str(target.pid) for target in launchers[:_LAUNCHERS_NAMED])
        self.waiting = f"every rank has ended; waiting up to {RESTART_S:.0f} s for process {pids} to start others"
        return now_s >= max(self._ended_s, self._joined_s) + RESTART_S

    def notice(self, table: str, columns: Mapping[str, Any]) -> None:
        """Learn from rows of any table that processes were forked or executed."""
        if table == "marks" and np.isin(columns["kind"], _BEGINNINGS).any():
            self.expect_changes()

    def expect_changes(self, for_s: float = EXPECT_FOR_S) -> None:
        """Look out for processes that join and for frameworks that get loaded: something was forked or executed."""
        self._expect_until_s = max(self._expect_until_s, time.monotonic() + for_s)

    def changed(self) -> list[Target]:
        """Return the processes that joined, or loaded a framework, since the last call."""
        if self._watch.heard():
            self._next_look_s = 0.0
            self.expect_changes()
        if time.monotonic() <= self._expect_until_s or self._starts is None or not self._trains():
            self._look()
        news, self._news = self._news, []
        return news

    def rank_of(self, pid: int) -> int:
        """Return the rank of the process that has (or last had) `pid`; one that is new to us is looked at now."""
        ranks = self._ranks(pid)
        if not ranks:
            with suppress(NetprofError):  # `changed` will say so
                self._look()
            ranks = self._ranks(pid)
        return ranks[-1] if ranks else UNKNOWN_RANK

    def close(self) -> None:
        """Let go of the processes."""
        self._watch.close()

    def _trains(self) -> bool:
        """Say whether anything trains, or ever did."""
        return any(target.frameworks for target in self._targets.values())

    def _ranks(self, pid: int) -> list[int]:
        return [target.rank for target in self._targets.values() if target.pid == pid]

    def _look(self) -> None:
        """Look at the job again, unless that was done just now."""
        now_s = time.monotonic()
        if now_s >= self._next_look_s:
            joined = [self._given.of(target) for target in self._watch.refresh()]
            self._next_look_s = now_s + (_LOOK_AGAIN_S if now_s <= self._expect_until_s else _LOOK_UNTOLD_S)
            self._targets.update({target.identity: target for target in joined})
            self._news += joined
            if joined:
                self._forget_helpers()
                self._joined_s = now_s

    def _forget_helpers(self) -> None:
        """Forget those that helped and ended, but for the last ones: epochs of data loaders would fill `meta.json`."""
        alive = {target.identity for target in self._watch.alive()}
        ended = [key for key, target in self._targets.items() if not target.frameworks and key not in alive]
        for key in ended[:-_MOST_ENDED]:
            del self._targets[key]
            self._watch.forget(key)


def _starts() -> Starts | None:
    try:
        return Starts()
    except NetprofError:  # not permitted, or not by this kernel: then the job is looked at again and again
        return None
