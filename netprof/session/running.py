"""One probe of a recording: its calls are timed, and it is let go when one of them fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from netprof.errors import NetprofError, NotPermittedError
from netprof.model import ProbeCost, SkippedProbe, Target
from netprof.probes.kernel.loader import BpfObject
from netprof.probes.probe import Columns, Description, Probe, Shared, Tables

Result = TypeVar("Result")


class RunningProbe:
    """Opens a probe and calls it from then on, in one thread at a time.

    An error ends the probe and not the recording: it is closed, and named as skipped with the reason. Only before it
    has begun, an error of a required probe is raised, and so is NotPermittedError of any.
    """

    def __init__(self, kind: type[Probe], shared: Shared) -> None:
        self.name = kind.name
        self._cpu_s = 0.0
        self.drained_ns = 0  # everything until then was handed over (CLOCK_MONOTONIC)
        self._kind = kind
        self._begun = False
        self._next_s = self._next_sample_s = 0.0
        self._description = Description()
        self._probe: Probe | None = None
        self._probe = self._call(lambda: kind.open(shared))

    @property
    def is_open(self) -> bool:
        """Whether the probe measures, or is about to."""
        return self._probe is not None

    @property
    def objects(self) -> Sequence[BpfObject]:
        """The BPF objects that the probe has loaded and not let go of."""
        return self._probe.objects if self._probe is not None else ()

    @property
    def cost(self) -> ProbeCost:
        """The CPU time that calls of the probe have taken so far."""
        return ProbeCost(self.name, self._cpu_s)

    def follow(self, targets: Sequence[Target]) -> None:
        """Tell the probe which processes the job has; the first time, it begins. Raises as the class says."""
        if (probe := self._probe) is not None:
            self._call(lambda: probe.follow(targets))
        self._begun = True

    def is_due(self, now_s: float, slack_s: float) -> bool:
        """Say whether it is time to drain the probe, or would be within `slack_s`, or it has something to do."""
        return now_s >= self._next_s - slack_s or (self._probe is not None and self._probe.has_news)

    def sample(self, now_s: float, slack_s: float) -> None:
        """Have the probe sample, if it does that and it is time for it; both times are as of `is_due`."""
        if (period_s := self._kind.sample_s) is None or now_s < self._next_sample_s - slack_s:
            return
        self._next_sample_s = now_s + period_s
        if (probe := self._probe) is not None:
            self._call(probe.sample)

    def drain(self, now_s: float, *, final: bool = False) -> Tables:
        """Take the probe's rows; none if it has failed. `now_s` is the monotonic time at which this began."""
        self._next_s = now_s + self._kind.period_s
        self.drained_ns = round(now_s * 1e9)
        if (probe := self._probe) is None:
            return {}
        return self._call(lambda: probe.drain(final=final)) or {}

    def notices(self, table: str) -> bool:
        """Say whether the probe learns from rows of a table."""
        return table in self._kind.notices

    def notice(self, table: str, columns: Columns) -> None:
        """Show the probe a batch of rows of a table that it learns from."""
        if (probe := self._probe) is not None:
            self._call(lambda: probe.notice(table, columns))

    def describe(self) -> Description:
        """Return what the probe says of itself, or said last."""
        if (probe := self._probe) is not None:
            self._description = self._call(probe.describe) or self._description
        return self._description

    def close(self) -> None:
        """Let go of the probe. May be called twice."""
        probe, self._probe = self._probe, None
        if probe is not None:
            with suppress(Exception):  # nothing more can come of it, and the trace must be finished
                probe.close()

    def _call(self, call: Callable[[], Result]) -> Result | None:
        """Return what a call of the probe returns, None where it fails; count its CPU time."""
        begin_s = time.thread_time()
        try:
            return call()
        except Exception as error:  # whatever it is, the recording must not end
            if not self._begun and (self._kind.required or isinstance(error, NotPermittedError)):
                raise
            self._let_go(error)
            return None
        finally:
            self._cpu_s += time.thread_time() - begin_s

    def _let_go(self, error: Exception) -> None:
        """Close the probe after an error; what it has found until then stays part of the trace."""
        if self._probe is not None:
            with suppress(Exception):
                self._description = self._probe.describe()
            self.close()
        reason, remedy = f"it failed: {type(error).__name__}: {error}", "report this as a bug of netprof"
        if isinstance(error, NetprofError):
            reason, remedy = error.message, error.hint
        self._description += Description(skipped=(SkippedProbe(self.name, reason, remedy),))
