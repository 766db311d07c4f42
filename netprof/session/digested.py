"""The report of a job from digests, and traces that digests are made of on the way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from traceback import format_exception, walk_tb
from typing import TYPE_CHECKING, Any, TypeVar

from netprof.analysis.digest.asked_stragglers import sums_of
from netprof.analysis.digest.digest import HostPart
from netprof.analysis.digest.explained_waiting import (
    all_excuses,
    excuses_of,
    excuses_together,
    explained_of,
    explained_together,
)
from netprof.analysis.digest.host_communicators import (
    all_collectives,
    collectives_of_first,
    fragments_of,
    numbered_communicators,
)
from netprof.analysis.digest.host_in_job import JobHost, Reference, did_in, own_of, ran_in, reference_of
from netprof.analysis.digest.job_iterations import (
    conclude_iterations,
    joined,
    part_of_host,
    parts_together,
    streams_part,
)
from netprof.analysis.digest.job_report import Answers, all_answers, conclude_waiting, report_of, with_answers
from netprof.analysis.digest.one_job import Usable, placed_of, usable
from netprof.analysis.digest.opened import Source, open_digest
from netprof.analysis.digest.passages import steps_between
from netprof.analysis.digest.saved import SavedReport, saved_report
from netprof.analysis.digest.shared_communicators import all_fragments, find_shared
from netprof.analysis.digest.slow_paths import NO_WAYS, BusyWays, all_ways, busy_ways, transport_matters
from netprof.analysis.digest.wires_of_job import all_wires, wires_of, wires_on
from netprof.analysis.digest.world import World
from netprof.analysis.hosts.clocks import nearest
from netprof.analysis.tables.columns import Int64
from netprof.analysis.tables.intervals import Intervals
from netprof.copies import as_named
from netprof.errors import TraceError, UsageError
from netprof.session.cluster import LeftOut, Work, Workers, reduce_readable, workers
from netprof.trace.digest import HOST_FILE, DigestPlace, is_too_large, made_name, read_json, report_file, reports_in

if TYPE_CHECKING:
    from netprof.analysis import Analysis

T = TypeVar("T")
Numbered = tuple[int, Source]
_NAMED = 8


def analyze_digests(
    sources: Sequence[Source],
    *,
    baseline_s: float | None = None,
    scheduler: str | None = None,
    only_some: bool = False,
) -> Analysis:
    """Return what the digests of a job's hosts say; `scheduler` is the address of a Dask cluster that does the work.

    `only_some` says that not all hosts of the job were asked for.

    Raises TraceError for digests that cannot be put together, UsageError, NetprofError.
    """
    with _believable(), workers(scheduler, len(sources)) as team:
        report, others = _saved(sources)
        if report is not None and not others and baseline_s is None:
            return report.analysis
        return _concluded(team, sources, baseline_s, partial(report_of, absent=others, only_some=only_some))


def _saved(sources: Sequence[Source]) -> tuple[SavedReport | None, tuple[str, ...]]:
    """Return the report that was kept as these digests were made, all in one go, and the hosts that are not here."""
    jobs = {each.job if isinstance(each, DigestPlace) else None for each in sources}
    job = next(iter(jobs))
    if len(jobs) != 1 or job is None or len(made := reports_in(job)) != 1:
        return None, ()
    path = job / report_file(made[0])
    if is_too_large(path):
        return None, ()
    try:
        report = saved_report(read_json(path))
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise TraceError(f"{path} is damaged: {error}", "remove it: the digests beside it tell most of it") from error
    here = {each.name for each in sources if isinstance(each, DigestPlace)}
    is_another = here - set(report.hosts) or any(_made(source) != made[0] for source in sources)
    return (None, ()) if is_another else (report, tuple(sorted(set(report.hosts) - here)))


def _made(source: Source) -> object:
    """Return in which making a digest was made; None of one that cannot be read: that is said later."""
    try:
        return read_json(source.host / HOST_FILE).get("made") if isinstance(source, DigestPlace) else None
    except TraceError:
        return None


def _concluded(
    team: Workers, sources: Sequence[Source], baseline_s: float | None, report_of: Callable[..., Analysis]
) -> Analysis:
    """Return what digests say together: the first that can be read has the clock of all.

    They are looked at again and again, and each time all learn what the others know: how the clocks lie, when every
    collective was under way, what the wires did meanwhile, what those waited for that were late. After that each
    explains what its own ranks waited for.
    """
    numbered = list(enumerate(sources))
    steps, without_streams = reduce_readable(team, numbered, Work(streams_part, joined, steps_between))
    readable = _without(numbered, without_streams)
    reference, left_out = _first_reference(readable)
    readable = _without(readable, left_out)
    clocks = nearest(steps, readable[0][0])
    place = partial(placed_of, reference=reference, clocks=clocks)
    together, unplaced = reduce_readable(team, readable, Work(place, joined, usable))
    readable = [each for each in readable if each[0] in together.clocks]
    reference, without_collectives = _with_communicators(team, readable, reference, together)
    readable = _without(readable, without_collectives)
    opened = partial(own_of, reference=reference, clocks=together.clocks)
    conclude = partial(conclude_iterations, reference=reference, span=together.span_ns, baseline_s=baseline_s)
    one = partial(part_of_host, opened=opened, reference=reference, span=together.span_ns)
    iterations, without_tables = reduce_readable(team, readable, Work(one, parts_together, conclude))
    readable = _without(readable, without_tables)
    world = iterations.world

    def asked(ask: Callable[..., T], *given: Any) -> Callable[[Numbered], T]:
        return partial(of_host, opened, ask, (world, *given))

    wires = team.reduce(readable, Work(asked(wires_on), partial(all_wires, world), partial(wires_of, world)))
    excuses = team.reduce(readable, Work(asked(excuses_of, wires), excuses_together, all_excuses))
    explained = team.reduce(readable, Work(asked(explained_of, wires, excuses), explained_together, same))
    ways = NO_WAYS
    if transport_matters(explained):
        busy = partial(ways_of_host, world=world, hosts=iterations.hosts)
        ways = team.reduce(readable, Work(busy, all_ways, same))
    report = conclude_waiting(iterations, explained, excuses.lost.total_ns, ways)
    without_did: tuple[LeftOut, ...] = ()
    if report.questions or len(report.explained.slow):
        about = partial(did_of_host, world=world, hosts=iterations.hosts, asked=report.questions, slow=explained.slow)
        answers, without_did = reduce_readable(team, readable, Work(about, all_answers, same))
        report = with_answers(report, answers)
    gone = (*left_out, *without_streams, *unplaced, *without_collectives, *without_tables, *without_did)
    others = tuple(f"{_name(dict(numbered)[number])}: {why}" for number, why in together.left_out.items())
    return report_of(report, together.notes, (*_sentences(gone), *others))


def _with_communicators(
    team: Workers, numbered: Sequence[Numbered], reference: Reference, together: Usable
) -> tuple[Reference, tuple[LeftOut, ...]]:
    """Return the reference with the communicators of a part of the job that are on more than one host.

    And the digests that cannot be read. Those communicators are told by what their members do in the middle of the time
    that all recorded.
    """
    at_ns = sum(together.span_ns) // 2
    part = partial(fragments_of, reference=reference, clocks=together.clocks, at_ns=at_ns)
    shared, left_out = reduce_readable(team, numbered, Work(part, all_fragments, find_shared))
    if not shared:
        return reference, left_out
    wanted = {members[0].key for members in shared}
    asked = [each for each in numbered if each[0] in {key.host for key in wanted}]
    first = partial(collectives_of_first, reference=reference, clocks=together.clocks, wanted=wanted)
    communicators = team.reduce(asked, Work(first, all_collectives, partial(numbered_communicators, shared=shared)))
    return replace(reference, communicators=communicators), left_out


def _without(numbered: Sequence[Numbered], left_out: Sequence[LeftOut]) -> list[Numbered]:
    gone = {each.item[0] for each in left_out}
    return [each for each in numbered if each[0] not in gone]


def of_host(
    opened: Callable[[Numbered], JobHost], ask: Callable[..., T], given: Sequence[Any], numbered: Numbered
) -> T:
    """Return what is asked of a host, by its number and digest, which is `opened` for that."""
    return ask(opened(numbered), *given)


def ways_of_host(numbered: Numbered, world: World, hosts: Mapping[int, HostPart]) -> BusyWays:
    """Return how busy a host's ways were."""
    number, source = numbered
    digest = open_digest(source, ("windows", "way_busy"))
    return busy_ways(number, digest, hosts[number].host.clock, world.windows)


def did_of_host(
    numbered: Numbered, world: World, hosts: Mapping[int, HostPart], asked: Sequence[Int64], slow: Intervals
) -> Answers:
    """Return what a host's processes did in the iterations that are asked about, and TCP while that was slow."""
    number, source = numbered
    digest, clock = open_digest(source, ("did", "windows", "tcp_clocks")), hosts[number].host.clock
    did = did_in(digest.tables, number, clock, world.windows)
    return Answers(sums_of(did, asked) if asked else None, ran_in(digest.tables.tcp_clocks, clock, slow))


def _first_reference(numbered: Sequence[Numbered]) -> tuple[Reference, list[LeftOut]]:
    """Return the first digest's host that can be read, and those before it. Raises TraceError where none can."""
    left_out: list[LeftOut] = []
    for each in numbered:
        try:
            return reference_of(each[1]), left_out
        except TraceError as error:
            left_out.append(LeftOut(each, error.message, error.hint))
    raise TraceError(left_out[0].message, left_out[0].hint)


def _sentences(left_out: Iterable[LeftOut]) -> tuple[str, ...]:
    return tuple(as_named(f"{each.message}; {each.hint}" if each.hint else each.message) for each in left_out)


@contextmanager
def _believable() -> Iterator[None]:
    """Turn what digests fail by whose numbers were made up, one by one each possible, into a TraceError.

    A mistake of netprof's looks the same from here: the error says where it was, and `-v` shows the way there.
    """
    try:
        yield
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise TraceError(
            f"the digests cannot be put together: {type(error).__name__} in {_where(error)}",
            "they are damaged, or netprof is: make them again from the traces, and if that changes nothing, "
            "report what `netprof -v report` prints",
            detail="".join(format_exception(error)),
        ) from error


def _where(error: Exception) -> str:
    """Return the place of ours where an error came up: the module's name and the line."""
    places = [(str(frame.f_globals.get("__name__", "")), line) for frame, line in walk_tb(error.__traceback__)]
    module, line = [place for place in places if place[0].startswith("netprof.")][-1]
    return f"{module}, line {line}"


def on_hosts(sources: Sequence[Source], names: Collection[str]) -> list[Source]:
    """Return the digests of some hosts, by the names of their folders. Raises UsageError for one that there is not."""
    named = {name: [each for each in sources if _name(each) == f"host={made_name(name)}"] for name in names}
    for name, digests in named.items():
        if not digests:
            there = ", ".join(sorted(_name(each).removeprefix("host=") for each in sources)[:_NAMED])
            raise UsageError(f"no digest is of a host '{name}'", f"name one as the folder host=NAME does: {there}")
    return [digest for digests in named.values() for digest in digests]


def _name(source: Source) -> str:
    return source.host.name if isinstance(source, DigestPlace) else source.name


def same(value: T) -> T:
    """Return what is given: a function that every process knows by its name."""
    return value
