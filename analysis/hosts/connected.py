"""Which hosts' recordings are of one job: connections join them, and nothing speaks against it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from netprof.analysis.hosts.host_streams import Ends


@dataclass(frozen=True)
class Against:
    """Why a recording cannot be put together with those before it; `of_job` where the reason is that it is of another
    job, so that all are that connections join to it."""

    reason: str
    of_job: bool


@dataclass
class OneJob:
    """The numbers of the recordings that are of the first one's job, and why each other one is not.

    `alone` are those of the first that no connection joins to it, while some join others.
    """

    kept: list[int] = field(default_factory=list)
    left_out: dict[int, str] = field(default_factory=dict)
    alone: list[int] = field(default_factory=list)

    def notes(self, names: Sequence[str]) -> list[str]:
        """Return what one must know of those that are kept, called so."""
        if not self.alone:
            return []
        which = ", ".join(names[number] for number in self.alone)
        return [f"no connection joins {which} to {names[self.kept[0]]}, as some join others: is it of the same job?"]


def of_one_job(
    ends: Sequence[Collection[Ends]],
    names: Sequence[str],
    against: Callable[[int, Sequence[int]], Against | None],
) -> OneJob:
    """Return which recordings are of the first one's job, given the ends of the connections that each has.

    Those come first that connections join to it. `against` says what speaks against one beside some others: of several
    that are joined to each other but not to the first, one that is of another job is so for all.
    """
    job, sets = OneJob(), _joined(ends)
    for members in sets:
        reasons = {number: against(number, job.kept) for number in members}
        foreign = next((n for n, each in reasons.items() if each is not None and each.of_job), None)
        if foreign is not None and job.kept:
            job.left_out |= _all_out(members, foreign, reasons, names)
            continue
        for number in members:
            reason = against(number, job.kept)
            if reason is None:
                job.kept.append(number)
            else:
                job.left_out[number] = reason.reason
    job.kept.sort()
    if len(sets[0]) > 1:
        job.alone = [number for number in job.kept if number not in sets[0]]
    return job


def _all_out(
    members: Sequence[int], foreign: int, reasons: Mapping[int, Against | None], names: Sequence[str]
) -> dict[int, str]:
    joined_to = reasons[foreign]
    why = f"connections join it to {names[foreign]}; of that one: {'' if joined_to is None else joined_to.reason}"
    return {number: why if (reason := reasons[number]) is None else reason.reason for number in members}


def _joined(ends: Sequence[Collection[Ends]]) -> list[list[int]]:
    """Return the recordings that connections join, directly or by way of others: the first one's set first.

    A connection joins two recordings that have its two ends as their own.
    """
    parent = list(range(len(ends)))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    owners: dict[Ends, list[int]] = {}
    for number, of_recording in enumerate(ends):
        for end_pair in of_recording:
            owners.setdefault(end_pair, []).append(number)
    for (local, remote), near in owners.items():
        far = [number for number in owners.get((remote, local), ()) if (local, remote) not in ends[number]]
        for near_number, far_number in product(near, far):
            roots = root(near_number), root(far_number)
            parent[max(roots)] = min(roots)
    sets: dict[int, list[int]] = {}
    for number in range(len(ends)):
        sets.setdefault(root(number), []).append(number)
    return list(sets.values())
