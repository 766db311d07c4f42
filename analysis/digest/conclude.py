"""What is concluded from the parts of all hosts of a job: where they lie, so that only findings travel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from netprof.analysis.account.held_up import HeldUp, Kind, Windows
from netprof.analysis.digest.digest import Did, HostPart, JobPart, Thing
from netprof.analysis.digest.part import Part, Waits
from netprof.analysis.events.iterations import IterationTimes
from netprof.analysis.findings.bounds_finding import CountedSteps
from netprof.analysis.findings.doing import NO_TIMES, Doing, Of, what_it_did
from netprof.analysis.findings.iterations import IterationsFinding, most_iterations
from netprof.analysis.findings.scaling import Scaling, scaling
from netprof.analysis.findings.stragglers_finding import StragglersFinding, find_stragglers
from netprof.analysis.findings.stragglers_parts import StragglersParts, Who
from netprof.analysis.tables.columns import Bool, Float64, Int64, empty

_MOST_ASKED = 64
"""Stragglers of which is asked what they did: those that cost most. The answers are of all ranks, for each of them."""


@dataclass(frozen=True, eq=False)
class Asked:
    """A straggler of which is asked what it did in some iterations: `who` is its name, `host_ns` as `doing` has it."""

    pid: int
    who: Who
    rows: Int64
    host_ns: float


@dataclass(frozen=True, eq=False)
class Concluded:
    """What all hosts come to; `stragglers` do not say yet what a rank did, which is `asked` of the digests, but for the
    `unasked` ones that cost the least."""

    job: JobPart
    hosts: tuple[HostPart, ...]
    iterations: IterationsFinding
    scaling: Scaling | None
    stragglers: StragglersFinding | None
    asked: tuple[Asked, ...]
    unasked: int
    waits: Waits
    surely: Waits
    counted: CountedSteps


@dataclass(frozen=True, eq=False)
class Sums:
    """Of each process what `Of` names, summed over what was asked: shape (asked, processes, len(Of)), and if known."""

    pids: tuple[int, ...]
    total: Float64
    known: Bool


@dataclass(frozen=True, eq=False)
class _OneSum:
    """The sums of one question, as `doing` takes them."""

    pids: tuple[int, ...]
    total: Float64
    known: Bool

    def sums(self, rows: Int64 | Bool) -> tuple[Float64, Bool]:
        return self.total, self.known


def conclude_part(part: Part, baseline_s: float | None = None) -> Concluded:
    """Conclude from all hosts of a job; `baseline_s` is an iteration of one worker alone, in seconds."""
    times = in_order(part.times) if len(part.hosts) > 1 else part.times
    iterations = _iterations(part.job, times)
    ranks = {pid: rank for host in part.hosts for pid, rank in host.told_ranks.items()}
    stragglers, asked, unasked = _stragglers(part) if part.job.stragglers_known else (None, (), 0)
    return Concluded(
        job=part.job,
        hosts=part.hosts,
        iterations=without_times(iterations),
        scaling=scaling(iterations, ranks, baseline_s),
        stragglers=stragglers,
        asked=asked,
        unasked=unasked,
        waits=part.waits,
        surely=part.surely,
        counted=part.counted,
    )


def in_order(times: IterationTimes) -> IterationTimes:
    """Return iterations by process, as a trace has them: of iterations that are alike, the first ones count."""
    if len(times) == 0 or bool((times.pid[1:] >= times.pid[:-1]).all()):
        return times
    return times.where(np.argsort(times.pid, kind="stable"))


def without_times(finding: IterationsFinding) -> IterationsFinding:
    """Return a finding with its numbers, but without the iterations that they are of, which may be millions."""
    light = replace(finding, times=empty(IterationTimes))
    light.__dict__.update(durations=finding.durations, runs_ahead=finding.runs_ahead)
    return light


def _iterations(job: JobPart, times: IterationTimes) -> IterationsFinding:
    return IterationsFinding(
        count=most_iterations(times) if job.told else None,
        times=times,
        inferred=job.inferred,
        failures=job.failures,
        dropped=job.dropped,
        stepped=job.stepped,
        models=job.models,
        accumulates=job.accumulates,
        forward_unseen=job.forward_unseen,
        only_launch=job.only_launch,
    )


def _stragglers(part: Part) -> tuple[StragglersFinding, tuple[Asked, ...], int]:
    """Return what `ask_stragglers` does of the digests' own findings."""
    things = [thing for host in part.hosts for thing in host.things]
    windows = Windows(part.held_windows.begin_ns, part.held_windows.end_ns)
    names = {(Kind(thing.kind), _key(thing)): thing.who for thing in things}
    held = tuple(_held(kind, part, things, len(windows)) for kind in Kind)

    return ask_stragglers(StragglersParts(windows, held, NO_TIMES, names))


def ask_stragglers(parts: StragglersParts) -> tuple[StragglersFinding, tuple[Asked, ...], int]:
    """Return who holds the job up, what is asked of those that cost most, and how many are not asked about."""
    asked: dict[Who, Asked] = {}

    def ask(times: object, pid: int, rows: Int64, host_ns: float) -> None:
        who = parts.names[Kind.RANK, pid]
        asked[who] = Asked(pid, who, rows, host_ns)

    found = find_stragglers(parts, ask)
    first = [asked[each.who] for each in found.stragglers if each.kind is Kind.RANK and each.who in asked]
    light = replace(found, made_of=StragglersParts(parts.windows, (), NO_TIMES, {}))
    return light, tuple(first[:_MOST_ASKED]), len(first[_MOST_ASKED:])


def _key(thing: Thing) -> object:
    return thing.pid if thing.kind == Kind.RANK else ("thing", thing.place)


def _held(kind: Kind, part: Part, things: Sequence[Thing], windows: int) -> HeldUp:
    """Return what was waited for one kind of things, in the order that they have in the job."""
    own = sorted((thing.place, number) for number, thing in enumerate(things) if thing.kind == kind)
    numbers = np.array([number for _, number in own], np.int64)
    row_of = np.full(len(things), -1)
    row_of[numbers] = np.arange(len(numbers))
    rows = row_of[part.held.thing]
    mine = rows >= 0
    ns = np.zeros((len(numbers), 2, windows), np.int64)
    for cause, amounts in enumerate((part.held.first_ns, part.held.second_ns)):
        ns[rows[mine], cause, part.held.window[mine]] = amounts[mine]
    return HeldUp(kind, tuple(_key(things[number]) for number in numbers.tolist()), ns)


def sums_of(did: Did, asked: Sequence[Int64]) -> Sums:
    """Return what the processes of one digest did in the iterations of each question."""
    pids, count = np.unique(did.pid), max(int(rows.max(initial=-1)) + 1 for rows in asked)
    did = did.where((did.window >= 0) & (did.window < count))
    values = np.full((count, len(pids), len(Of)), np.nan)
    values[did.window, np.searchsorted(pids, did.pid)] = np.stack([getattr(did, name) for name in _DID], axis=1)
    wanted = np.zeros((len(asked), count))
    for number, rows in enumerate(asked):
        wanted[number, rows] = 1.0
    told = ~np.isnan(values)
    total, known = (
        np.tensordot(wanted, each, axes=1) for each in (np.where(told, values, 0.0), told.astype(np.float64))
    )
    return Sums(tuple(pids.tolist()), total, known > 0)


_DID = [name for name in Did.__dataclass_fields__ if name not in ("pid", "window")]


def all_sums(parts: Sequence[Sums]) -> Sums:
    """Return the sums of the processes of all digests."""
    pids = tuple(pid for part in parts for pid in part.pids)
    total, known = (np.concatenate([getattr(part, name) for part in parts], axis=1) for name in ("total", "known"))
    return Sums(pids, total, known)


def with_doings(stragglers: StragglersFinding | None, asked: Sequence[Asked], sums: Sums) -> StragglersFinding | None:
    """Return the stragglers with what they did, as the digests answered."""
    doings: dict[Who, Doing | None] = {
        each.who: what_it_did(_OneSum(sums.pids, sums.total[n], sums.known[n]), each.pid, each.rows, each.host_ns)
        for n, each in enumerate(asked)
    }
    if stragglers is None:
        return None
    told = tuple(
        replace(each, doing=doings[each.who]) if each.kind is Kind.RANK and each.who in doings else each
        for each in stragglers.stragglers
    )
    return replace(stragglers, stragglers=told)
