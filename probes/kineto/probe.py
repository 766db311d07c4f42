"""The Kineto probe: asks each rank once for a profile of some iterations, where a person wants that and the job may."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from netprof.errors import NetprofError, TraceError
from netprof.model import Clock, SkippedProbe, StartedProbe, Target
from netprof.probes.job.processes import is_same
from netprof.probes.job.procfs import read_environment
from netprof.probes.kernel.netns import NetworkNamespace
from netprof.probes.kineto import fabric
from netprof.probes.kineto.desk import Desk
from netprof.probes.probe import Description, Probe, Shared, Tables
from netprof.units import duration

if TYPE_CHECKING:
    from netprof.probes.kineto.files import ProfileFolder

_NO = ("", "0", "false")
_LONGEST_S = 2.0
"""How long the end of a recording waits for profiles that were asked for and are not written yet."""
_LOOK_S = 0.2
_SET_NS, _SLEWED = 2_000_000, 0.001
"""By how much clocks come apart that nobody sets: a read that is interrupted, and twice what the kernel slews by."""


class KinetoProbe(Probe):
    """Answers the job's processes, which ask every few seconds whether a profile is wanted: once yes, then no.

    What they write becomes rows of table `profiled`, and is removed. Nobody is answered before every other probe
    measures: a profile tells something of what was recorded. Without --kineto it does nothing at all.

    A process that exits while torch profiles it crashes in torch's own destructors, whoever asked (seen with 2.13).
    Nothing can take a request back, so few iterations are asked for, and who ended so is told of.
    """

    name = "kineto"
    period_s = 1.0
    longest_s: ClassVar[float] = _LONGEST_S

    def __init__(self, iterations: int | None) -> None:
        self._iterations = iterations
        self._desks: dict[int, Desk] = {}  # by network namespace
        self._folders: dict[int, ProfileFolder] = {}
        self._begun = False
        self._asked: dict[int, Clock] = {}  # when each was
        self._read: set[int] = set()
        self._seen: dict[int, Target] = {}
        self._problems: dict[str, SkippedProbe] = {}

    @classmethod
    def open(cls, shared: Shared) -> KinetoProbe:
        """Make one."""
        return cls(shared.kineto_iterations)

    def follow(self, targets: Sequence[Target]) -> None:
        """Open a desk for every process that trains and was started so that it asks."""
        for target in targets if self._iterations else ():
            if target.frameworks and target.pid not in self._seen:
                self._seen[target.pid] = target
                with suppress(OSError):  # it is gone
                    self._follow(target)

    def _follow(self, target: Target) -> None:
        environment = read_environment(target.pid, (fabric.ENVIRONMENT, fabric.SOCKET_FOLDER))
        if environment.get(fabric.ENVIRONMENT, "").lower() in _NO:
            remedy = f"start the job with {fabric.ENVIRONMENT}=1"
            self._skip("the job's processes do not ask whether a profile is wanted", remedy)
        elif environment.get(fabric.SOCKET_FOLDER):
            self._skip(f"the job asks at a path, by {fabric.SOCKET_FOLDER}", "start it without that variable")
        elif target.netns not in self._desks:
            try:
                with NetworkNamespace.of(target.pid) as netns:
                    self._desks[target.netns] = Desk(netns, self._answer)
            except NetprofError as error:
                self._skip(error.message, error.hint)

    def _answer(self, pid: int) -> bytes | None:
        """Return what a process is told that asks; on the desk's thread."""
        if not self._begun or pid not in self._seen or pid in self._asked or not self._iterations:
            return None
        try:
            from netprof.probes.kineto.files import ProfileFolder  # with pyarrow and ijson, for a profile alone

            folder = ProfileFolder(pid)
        except NetprofError as error:
            self._skip(error.message, error.hint)
            return None
        except OSError as error:
            self._skip(f"process {pid} has no place to write a profile to: {error.strerror}")
            return None
        self._asked[pid], self._folders[pid] = Clock.now(), folder
        return fabric.configuration(folder.file, self._iterations)

    def drain(self, *, final: bool = False) -> Tables:
        """Return what profiles say that were written since the last call; with `final` wait a little for the others."""
        self._begun = True
        until_s = time.monotonic() + (self.longest_s if final else 0.0)
        parts, waits = [], final
        while True:
            waits = waits and bool(self._awaited()) and time.monotonic() < until_s
            parts += self._written()  # after the look at who is there: what the last one wrote is there by then
            if not waits:
                break
            time.sleep(_LOOK_S)
        if not parts:
            return {}
        return {"profiled": {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}}

    def _written(self) -> list[dict[str, Any]]:
        profiles: list[dict[str, Any]] = []
        if not self._folders:
            return profiles
        from netprof.trace.kineto import profiled_rows

        for pid in sorted(set(self._folders) - self._read):
            try:
                profile = self._folders[pid].complete()
                if profile is None:
                    continue
                profiles.append(profiled_rows(profile, pid, _unmoved(self._asked[pid])))
            except NetprofError as error:
                self._skip(f"the profile of process {pid} tells nothing: {error.message}", error.hint)
            self._read.add(pid)
            self._folders[pid].close()
        return profiles

    def describe(self) -> Description:
        """Return how many processes were profiled, and why others were not."""
        if not self._iterations:
            return Description()
        skipped = [*self._problems.values(), *self._unwritten()]
        if not self._asked and self._desks and not skipped:
            skipped = [SkippedProbe(self.name, "no process has asked whether a profile is wanted", "record longer")]
        detail = f"{len(self._read)} of {len(self._seen)} processes profiled over {self._iterations} iterations"
        return Description((StartedProbe(self.name, detail),) if self._desks else (), tuple(skipped))

    def _awaited(self) -> set[int]:
        """Return the processes that may still write their profiles."""
        return {pid for pid in set(self._asked) - self._read if is_same(self._seen[pid])}

    def _unwritten(self) -> Iterator[SkippedProbe]:
        awaited = self._awaited()
        gone = set(self._asked) - self._read - awaited
        if gone:
            reason = (
                f"{len(gone)} of {len(self._asked)} processes ended while torch profiled them, which may crash them as "
                "they exit (SIGSEGV, after the job's own work)"
            )
            yield SkippedProbe(self.name, reason, "ask while the job has longer to run, or for fewer iterations")
        if awaited:
            reason = f"{len(awaited)} of {len(self._asked)} profiles were not written before the end"
            remedy = "record longer; iterations are counted by steps of torch's optimizers"
            yield SkippedProbe(self.name, reason, remedy)

    def _skip(self, reason: str, remedy: str = "") -> None:
        self._problems.setdefault(reason, SkippedProbe(self.name, reason, remedy))

    def close(self) -> None:
        """Answer nobody any more, and remove what was written."""
        for desk in self._desks.values():
            desk.close()
        self._desks = {}
        for folder in self._folders.values():
            folder.close()


def _unmoved(before: Clock) -> Clock:
    """Return the clocks as of now. Raises TraceError where one was set since: who knows by which the profile went."""
    now = Clock.now()
    moved_ns = (now.realtime_ns - now.monotonic_ns) - (before.realtime_ns - before.monotonic_ns)
    if abs(moved_ns) > _SET_NS + _SLEWED * (now.monotonic_ns - before.monotonic_ns):
        raise TraceError(f"the host's clock was set by {duration(abs(moved_ns) / 1e9)} meanwhile", "profile again")
    return now
