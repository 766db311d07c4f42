"""What some hosts add to the report of their job: made of one digest, and of several such parts in any order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from netprof.analysis.account.causes import LATE_RANK, WAIT_CAUSES
from netprof.analysis.digest.digest import Digest, Held, HostPart, JobPart, Waited, WindowTimes, waited_by_cause
from netprof.analysis.events.iterations import IterationTimes, narrow
from netprof.analysis.findings.bounds_finding import CountedSteps, counted, counted_together
from netprof.analysis.tables.columns import Int64, concatenate
from netprof.errors import TraceError

TABLES = ("iterations", "waiting", "surely", "steps", "windows", "held", "held_windows")
"""What of a digest a part is made of."""
_ENDLESS = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Waits:
    """What ranks wait in each of some iterations; ns.

    `exposed_ns` is how long they do all together, and `spared_ns`, of shape (causes, iterations), what the one of them
    waits that waits the least for each cause.
    """

    exposed_ns: Int64
    spared_ns: Int64

    @property
    def saves_ns(self) -> tuple[int, ...]:
        """What all iterations would be shorter without each cause, in the order of WAIT_CAUSES."""
        known = np.where(self.spared_ns == _ENDLESS, 0, self.spared_ns)
        return tuple(known.sum(axis=1).tolist())


@dataclass(frozen=True, eq=False)
class Part:
    """Some hosts of a job that were digested together.

    `waits` is by the iterations `windows`, and so is `surely`, which is what is waited at least where ranks are only
    seen to launch, in the steps that are `counted`. `held` counts things through the hosts.
    """

    job: JobPart
    hosts: tuple[HostPart, ...]
    times: IterationTimes
    windows: WindowTimes
    waits: Waits
    surely: Waits
    counted: CountedSteps
    held: Held
    held_windows: WindowTimes


def part_of(digest: Digest) -> Part:
    """Return what one host adds."""
    tables, windows = digest.tables, len(digest.tables.windows)
    steps = tables.steps
    return Part(
        job=digest.job,
        hosts=(digest.host,),
        times=narrow(tables.iterations),
        windows=tables.windows,
        waits=_waits(tables.waiting, windows),
        surely=_waits(tables.surely, windows),
        counted=counted(steps.pid, steps.least_ns, steps.most_ns, steps.exact),
        held=tables.held,
        held_windows=tables.held_windows,
    )


def _waits(table: Waited, windows: int) -> Waits:
    waited = waited_by_cause(table)
    exposed = np.zeros(windows, np.int64)
    np.add.at(exposed, table.window, waited.sum(axis=0))
    return Waits(exposed, _spared(table, waited, windows))


def _spared(table: Waited, waited: Int64, windows: int) -> Int64:
    """Return what every rank has in common of each cause: all of a job keep step.

    A late rank itself does not wait: it would be faster by what the others wait for it.
    """
    late = WAIT_CAUSES.index(LATE_RANK)
    waited[late] = np.maximum(waited[late], table.late_for_ns)
    found = np.full((len(WAIT_CAUSES), windows), _ENDLESS)
    for cause, amounts in enumerate(waited):
        np.minimum.at(found[cause], table.window, amounts)
    return found


def together(parts: Sequence[Part]) -> Part:
    """Return the parts of some hosts as one. Raises TraceError where they were not made together."""
    first = parts[0]
    if len(parts) == 1:
        return first
    for part in parts[1:]:
        if part.job.made != first.job.made or not _same_windows(part, first):
            raise TraceError(
                f"the digests of {first.hosts[0].host.name} and {part.hosts[0].host.name} were not made together",
                "make them with one netprof digest of all traces",
            )
    return Part(
        job=first.job,
        hosts=tuple(host for part in parts for host in part.hosts),
        times=concatenate(IterationTimes, [part.times for part in parts]),
        windows=first.windows,
        waits=_all_waits([part.waits for part in parts]),
        surely=_all_waits([part.surely for part in parts]),
        counted=counted_together([part.counted for part in parts]),
        held=_all_held(parts),
        held_windows=first.held_windows,
    )


def _all_waits(parts: Sequence[Waits]) -> Waits:
    return Waits(
        np.sum([part.exposed_ns for part in parts], axis=0, dtype=np.int64),
        np.minimum.reduce([part.spared_ns for part in parts]),
    )


def _same_windows(one: Part, other: Part) -> bool:
    return all(
        np.array_equal(getattr(getattr(one, table), name), getattr(getattr(other, table), name))
        for table in ("windows", "held_windows")
        for name in ("begin_ns", "end_ns")
    )


def _all_held(parts: Sequence[Part]) -> Held:
    before, found = 0, []
    for part in parts:
        found.append(replace(part.held, thing=part.held.thing + before))
        before += sum(len(host.things) for host in part.hosts)
    return concatenate(Held, found)
