"""When a process computes forward, when backward, and when it does nothing but wait for communication."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.events import phases
from netprof.analysis.events.local_passes import LocalPasses
from netprof.analysis.events.reducers import Passes
from netprof.analysis.tables.columns import Int64
from netprof.analysis.tables.intervals import Intervals, merge

_REST, _FORWARD, _BACKWARD = range(3)


@dataclass(frozen=True, eq=False)
class PhaseTimes:
    """Three disjoint sets of time of one process (`definitions.PHASES`); all other time is the rest."""

    forward: Intervals
    backward: Intervals
    exposed: Intervals

    def within(self, begin_ns: Int64, end_ns: Int64) -> dict[str, Intervals]:
        """Return the times of each phase inside of windows that do not overlap, by the phase's name."""
        windows = merge(begin_ns, end_ns)
        return {
            phases.FORWARD.name: self.forward & windows,
            phases.BACKWARD.name: self.backward & windows,
            phases.EXPOSED.name: self.exposed & windows,
            phases.REST.name: windows - (self.forward | self.backward | self.exposed),
        }


def phase_times(passes: Passes, local: LocalPasses, waits: Intervals) -> PhaseTimes:
    """Return the phases of a process: what the last event said, but for the time in which it waits.

    A pass that is done leaves the process in the backward phase of another model's, where that has one under way.
    """
    whole = passes.where(passes.whole)
    under_way = np.searchsorted(np.sort(whole.backward_ns), whole.done_ns, "right")
    under_way -= np.searchsorted(np.sort(whole.wait_ns), whole.done_ns, "right")
    events = (
        (local.other_ns, _REST),
        (local.step_ns, _REST),
        (local.forward_ns, _FORWARD),
        (local.backward_ns, _BACKWARD),
        (whole.begin_ns, _FORWARD),
        (whole.backward_ns, _BACKWARD),
        (whole.done_ns[under_way <= 0], _REST),
        (whole.done_ns[under_way > 0], _BACKWARD),
    )
    time_ns = np.concatenate([times for times, _ in events])
    state = np.repeat([phase for _, phase in events], [len(times) for times, _ in events])
    order = np.argsort(time_ns, kind="stable")
    time_ns, state = time_ns[order], state[order]
    forward, backward = (_while(time_ns, state == phase) for phase in (_FORWARD, _BACKWARD))
    return PhaseTimes(forward - waits, backward - waits, waits)


def _while(time_ns: Int64, holds: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Intervals:
    """Return the time from each event of which something holds to the next event."""
    return merge(time_ns[:-1][holds[:-1]], time_ns[1:][holds[:-1]])
