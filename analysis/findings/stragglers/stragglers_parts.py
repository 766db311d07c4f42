"""What is needed to say who holds the job up: for how long each rank, link and way was waited for, and what ranks did.

All of it is by iteration, so that what was found in the pieces of a long recording is put one behind the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from netprof.analysis.account.held_up import CAUSES, HeldUp, Kind, by_links, by_paths, by_ranks, mates
from netprof.analysis.events.iterations import Iterations
from netprof.analysis.events.level import level_windows
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.names import link_on_host, name_on_host, ranks_of
from netprof.analysis.findings.stragglers.doing import AllTimes, TimesOfPieces, times_of_ranks
from netprof.analysis.tables.columns import Int64, concatenate, grouped, narrowed
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.tables.intervals import Windows
from netprof.analysis.wire.paths import PathKey
from netprof.schema import TRANSMIT


@dataclass(frozen=True)
class Culprit:
    """A rank, a link or a way between ranks, as one names it; what is not known, or has none, is None or empty."""

    label: str
    rank: int | None = None
    ranks: tuple[int, ...] = ()
    link: str | None = None
    host: str | None = None
    pid: int | None = None


@dataclass(frozen=True, eq=False)
class StragglersParts:
    """What was waited for in the iterations `windows`; `names` is how each thing of each kind is called."""

    windows: Windows
    held: Sequence[HeldUp]
    times: AllTimes
    names: dict[tuple[Kind, object], Culprit]


def gather(evidence: Evidence) -> StragglersParts | None:
    """Return the parts of a recording, or a piece of one; None without iterations of two processes."""
    iterations = evidence.iterations
    known = iterations.where(~np.isin(iterations.pid, sorted(evidence.only_launch)))
    iterations = known if len(known) else iterations  # of a rank that only launches it is unknown when it waits
    pids = np.unique(iterations.pid).tolist()
    if len(pids) < 2:
        return None
    windows = reference_windows(iterations, evidence)
    members = _members(evidence, pids)
    account, lanes = evidence.account, evidence.links.lanes
    links = [link for link in lanes.links if set(lanes.pids_of(link)) & set(pids)]
    sent = evidence.fold.totals(TRANSMIT).wire_bytes
    held = (
        by_ranks(account.around, pids, mates(members, pids), windows),
        by_links(account, members, links, windows),
        by_paths(account, members, evidence.paths, evidence.busy_clocks, sent, windows),
    )
    names = {(each.kind, key): _who(each.kind, key, evidence) for each in held for key in each.keys}
    return StragglersParts(windows, _packed(held), times_of_ranks(evidence, pids, windows), names)


class EachKind(Sequence[HeldUp]):
    """What is held of each kind, made whenever it is asked for: that is one after the other."""

    def __init__(self, kinds: int, make: Callable[[int], HeldUp]) -> None:
        self._kinds, self._make = kinds, make

    def __len__(self) -> int:
        return self._kinds

    def __getitem__(self, kind: int) -> HeldUp:  # type: ignore[override]  # nobody takes a slice
        return self._make(range(self._kinds)[kind])


def _packed(held: Sequence[HeldUp]) -> EachKind:
    """Keep of each kind only what is not 0, which is little: a day has hundreds of thousands of iterations."""
    kinds = [(each.kind, each.keys, each.ns.shape) for each in held]
    places = [np.flatnonzero(each.ns) for each in held]
    values = [narrowed(each.ns.ravel()[place]) for each, place in zip(held, places, strict=True)]
    rows = [narrowed(place) for place in places]

    def unpacked(number: int) -> HeldUp:
        kind, keys, shape = kinds[number]
        ns = np.zeros(shape, np.int64)
        ns.ravel()[rows[number]] = values[number]
        return HeldUp(kind, keys, ns)

    return EachKind(len(kinds), unpacked)


def reference_windows(iterations: Iterations, evidence: Evidence) -> Windows:
    """Return the steps of each run of a job, as the process with the most of them has them.

    A step lasts from when all ranks are level to when they are again.
    """
    return concatenate(Windows, [windows for windows, _ in runs_of(iterations, evidence)])


def runs_of(iterations: Iterations, evidence: Evidence) -> list[tuple[Windows, Int64]]:
    """Return the steps of each run of a job that was started again, in the order of time, and its processes."""
    runs, sight = [], evidence.found_iterations.iterations
    while len(iterations):
        reference = iterations.of_most()
        pids = np.unique(
            iterations.pid[(iterations.end_ns > reference.begin_ns[0]) & (iterations.begin_ns < reference.end_ns[-1])]
        )
        seen = sight.of_pid(int(reference.pid[0]))
        windows = level_windows(seen.begin_ns, seen.end_ns, seen.done_ns)
        windows = windows.where(np.isin(seen.begin_ns, reference.begin_ns))
        if evidence.is_bounded or len(windows) != len(reference):  # all of the time, where there are no steps
            windows = Windows(reference.begin_ns, reference.end_ns)
        runs.append((windows, pids))
        iterations = iterations.where(~np.isin(iterations.pid, pids))
    return sorted(runs, key=lambda run: int(run[0].begin_ns[0]))


def _members(evidence: Evidence, pids: Sequence[int]) -> dict[int, list[int]]:
    """Return the processes that train of each communicator of several."""
    group, pid = evidence.exchanges.members.group, evidence.exchanges.collectives.pid
    training = np.flatnonzero(np.isin(pid, pids) & (group >= 0))
    rows = (training[each] for each in grouped(group[training]))
    members = {int(group[each[0]]): np.unique(pid[each]).tolist() for each in rows}
    return {number: several for number, several in members.items() if len(several) > 1}


def _who(kind: Kind, key: object, evidence: Evidence) -> Culprit:
    if isinstance(key, LinkKey):
        return _link(key, evidence)
    if isinstance(key, PathKey):
        ranks = tuple(evidence.ranks[pid] for pid in (key.pid, key.to_pid) if pid in evidence.ranks)
        return Culprit(" → ".join(name_of_path(key, evidence)), ranks=ranks)
    pid = int(key) if isinstance(key, int) else -1
    host = evidence.host_of.get(pid)
    name, rank = name_on_host(pid, evidence), evidence.ranks.get(pid)
    return Culprit(name, rank, host=None if host is None else host.name, pid=pid)


def name_of_path(key: PathKey, evidence: Evidence) -> tuple[str, str]:
    """Return how the ends of a way are called."""
    return name_on_host(key.pid, evidence), key.to_addr or name_on_host(key.to_pid, evidence)


def _link(key: LinkKey, evidence: Evidence) -> Culprit:
    pids = evidence.links.lanes.pids_of(key)
    ranks = ranks_of(pids, evidence)
    kind = "pid" if not ranks else "rank" if len(ranks) == 1 else "ranks"
    above = evidence.links.lanes.above(key)
    below = f" below {above[0].device}" if above else ""
    label = f"{key.device}{below} of {kind} {', '.join(map(str, ranks or pids))}{link_on_host(key, evidence)}"
    return Culprit(label, ranks=ranks, link=key.device, host=evidence.host_of_link(key) or None)


def one_after_another(parts: Sequence[StragglersParts]) -> StragglersParts:
    """Return the parts of consecutive pieces as those of the whole; what a piece does not know held nobody up in it."""
    if len(parts) == 1:
        return parts[0]
    windows = concatenate(Windows, [part.windows for part in parts])
    names = {key: who for part in parts for key, who in part.names.items()}
    counts = [len(part.windows) for part in parts]
    times = TimesOfPieces([part.times for part in parts], np.cumsum([0, *counts]))
    return StragglersParts(windows, EachKind(len(parts[0].held), partial(_in_one, parts)), times, names)


def _in_one(parts: Sequence[StragglersParts], kind: int) -> HeldUp:
    name = parts[0].held[kind].kind
    keys = tuple(dict.fromkeys(key for part in parts for key in part.held[kind].keys))
    ns = np.zeros((len(keys), len(CAUSES[name]), sum(len(part.windows) for part in parts)), np.int32)
    begin = 0
    for part in parts:
        held, end = part.held[kind], begin + len(part.windows)
        if held.ns.max(initial=0) > np.iinfo(np.int32).max:
            ns = ns.astype(np.int64)
        for place, key in enumerate(held.keys):
            ns[keys.index(key), :, begin:end] = held.ns[place]
        begin = end
    return HeldUp(name, keys, ns)
