"""What a person sees first of a report: the verdict, one step, the ranks and the network, in two dozen lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from netprof.analysis.account.causes import WAIT_CAUSES
from netprof.analysis.declared import Column, table
from netprof.analysis.findings.advice import Advice
from netprof.analysis.findings.collectives.collective_sizes import COLLECTIVE_SIZES, capped, sizes_grid
from netprof.analysis.findings.collectives.collectives import COLLECTIVES
from netprof.analysis.findings.collectives.ranks import RANKS
from netprof.analysis.findings.collectives.scaling import SCALING
from netprof.analysis.findings.iterations.iterations import ITERATIONS
from netprof.analysis.findings.links.link_summary import LinkSummary
from netprof.analysis.findings.links.links import LINKS
from netprof.analysis.findings.names import rank_number
from netprof.analysis.findings.recorded import RECORDED
from netprof.analysis.findings.recording.checks import OF_THE_JOB
from netprof.analysis.findings.recording.recording import RECORDING, is_checked, lost_parts
from netprof.analysis.findings.stragglers.stragglers import STRAGGLERS
from netprof.analysis.findings.verdict.grounds import Verdict
from netprof.analysis.findings.verdict.step import Step, StepPart
from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.analysis.findings.waiting.waiting import WAITING
from netprof.analysis.findings.waiting.waiting_finding import RankWaiting, WaitingFinding, stack
from netprof.analysis.form import Cell, Grid, Pairs, Part, in_a_row
from netprof.analysis.section import Analysis, Section
from netprof.model import LEFT_OUT, Losses
from netprof.units import brief_rate, count, duration, milliseconds, percent

_SHOWN = 0.01
"""Share of a step from which on a part has a row; the smaller ones are summed up in one."""
_MOST_ADVICE, _MOST_RANKS, _MOST_SIZES, _MOST_LINKS = 2, 4, 2, 2
_FOR = 0.1
"""Share of what a rank waits from which on a cause is named in its row."""


@dataclass(frozen=True)
class FirstScreen:
    """The verdict's lines, and the parts below them.

    `case` is the verdict's; `advice` are labelled lines of what to do and how sure that is.
    """

    case: str
    headline: str
    sentence: str
    advice: Pairs
    parts: tuple[Part, ...]


def first_screen(analysis: Analysis) -> FirstScreen:
    """Return what is seen first of an analysis."""
    verdict = analysis.of(VERDICT)
    rows = [*_advice(verdict.next[:_MOST_ADVICE]), ("seen", seen(analysis, verdict)), *_left_out(analysis)]
    scaling = analysis.of(SCALING)
    if scaling is not None and scaling.measured is not None:
        rows.append(("scaling", scaling.text))
    parts = tuple(_parts(analysis, verdict))
    return FirstScreen(verdict.case.value, verdict.headline, verdict.sentence, Pairs(rows), parts)


def _advice(steps: Sequence[Advice]) -> Iterator[tuple[str, str]]:
    for number, each in enumerate(steps):
        yield "next" if number == 0 else "then", each.text
        if each.command and number == 0:
            yield "", f"$ {each.command}"


def _left_out(analysis: Analysis) -> Iterator[tuple[str, str]]:
    """Yield the traces that were given and not used, and that tables are not whole."""
    if damaged := len(analysis.of(RECORDING).damage):
        are, their = ("are", "their") if damaged > 1 else ("is", "its")
        yield (
            "but",
            f"{count(damaged, 'table')} {are} damaged: {their} last rows are missing, so this may be wrong",
        )
    notes = [note for note in analysis.notes if LEFT_OUT in note or note.startswith("left out: ")]
    if notes:
        yield "but", notes[0] if len(notes) == 1 else f"{notes[0]}, and {len(notes) - 1} more"


def seen(analysis: Analysis, verdict: Verdict) -> str:
    """Return what the verdict rests on: steps, ranks, hosts, time, and whether anything was lost."""
    hosts = analysis.evidence.hosts
    where = f"host {analysis.meta.host}" if len(hosts) < 2 else count(len(hosts), "host")
    recorded, world_size = len(analysis.of(RANKS)), analysis.evidence.world_size
    ranks = world_size or recorded or None
    untold = "no marks of steps" if analysis.of(ITERATIONS).count is None else "no whole step"
    steps = f"{count(verdict.steps, 'step')}" if verdict.steps else untold
    part = f"{recorded} of " if ranks is not None and 0 < recorded < ranks else ""
    of_ranks = f" of {part}{count(ranks, 'rank')}" if ranks is not None else ""
    lasted = duration(analysis.of(RECORDED).total_ns / 1e9)
    lasted += " so far" if analysis.of(RECORDING).still_recording else ""
    warming = " (warming up)" if verdict.is_warming_up else ""
    return f"{steps}{of_ranks} on {where} in {lasted}, {_lost(analysis)}{warming}"


def _lost(analysis: Analysis) -> str:
    """Return what the recording did not get, or whether anything speaks against its being whole."""
    finding = analysis.of(RECORDING)
    if losses := ", ".join(lost_parts(finding)):
        return f"lost {losses}"
    if finding.failed_checks - set(OF_THE_JOB):
        return "no loss known, but the numbers do not fit together"
    if finding.failed_checks:
        return "nothing lost; a part of the job is not recorded"
    return "nothing lost" if is_checked(finding) else "no loss known"


def lost(losses: Losses) -> str:
    """Return what a recording did not get, in few words."""
    parts = [
        count(losses.lost_marks, "mark") if losses.lost_marks else "",
        count(losses.untracked_flows, "flow") if losses.untracked_flows else "",
        count(losses.unseen_packets, "packet") if losses.unseen_packets else "",
        "the end" if losses.truncated else "",
    ]
    missing = ", ".join(filter(None, parts))
    merged = f", {count(losses.merged_bins, 'bin')} merged" if losses.merged_bins else ""
    return (f"lost {missing}" if missing else "nothing lost") + merged


def _parts(analysis: Analysis, verdict: Verdict) -> Iterator[Part]:
    waiting = analysis.of(WAITING)
    if verdict.step is not None:
        yield Part("a step", milliseconds(verdict.step.seconds), [step_grid(verdict.step)])
    if waiting is not None and waiting.by_rank and verdict.step is not None:
        yield Part("ranks", "", [ranks_grid(analysis, waiting)])
    network = [*_collectives(analysis), *_links(analysis, verdict)]
    if network:
        yield Part("network", "", network)


def step_grid(step: Step) -> Grid:
    """Return the parts of a step, each with what a step is shorter without it; what is small is in one row."""
    shown = [part for part in step.parts if part.cause is None or step.share(part.seconds) >= _SHOWN]
    other_s = sum(part.seconds for part in step.parts if part not in shown)
    if other_s > 0:  # before the last one, which is no waiting
        shown.insert(-1, StepPart(WAIT_CAUSES[-1].name, "other waiting", other_s))
    bars = in_a_row((part.name, step.share(part.seconds)) for part in shown)
    columns = (
        Column(f"a step of {_column(step.seconds)} ms", lambda row: _title(row[0])),
        Column("ms", lambda row: _column(row[0].seconds)),
        Column("", lambda row: row[1], left=True),
        Column("saves up to", lambda row: _notable(row[0].saves_s, step), milliseconds, ""),
    )
    return table(columns, list(zip(shown, bars, strict=True)))


def _title(part: StepPart) -> str:
    """Return the name of a part; a cause with whom it names."""
    if part.cause is None:
        return part.title
    return f"{part.cause.cause.short}: {part.who}" if part.who else part.cause.cause.title


def _notable(seconds: float, step: Step) -> float | None:
    return seconds if step.share(seconds) >= _SHOWN else None


def _column(seconds: float) -> str:
    """Return milliseconds for a column, in which all have the same digits so that they add up before one's eyes."""
    return f"{seconds * 1e3:.1f}"


def ranks_grid(analysis: Analysis, waiting: WaitingFinding, most: int = _MOST_RANKS) -> Grid:
    """Return a row for each rank, those that hold the job up first where there are more than `most`."""
    late = late_pids(analysis)
    steps = {rank.pid: rank.durations.count for rank in analysis.of(RANKS) if rank.durations is not None}
    ranked = sorted(waiting.by_rank, key=lambda each: (each.pid not in late, -each.exposed_ns))
    shown = waiting.by_rank if len(waiting.by_rank) <= most else ranked[:most]
    rows = [_rank(each, steps.get(each.pid), each.pid in late) for each in shown]
    strong = frozenset(place for place, each in enumerate(shown) if each.pid in late)
    headings = (_of_all("rank", len(rows), len(waiting.by_rank)), "step", "waits", "", "for", " ")
    return Grid(headings, rows, frozenset({"", "for", " "}), optional=("step", "for"), strong=strong)


def _of_all(heading: str, shown: int, total: int) -> str:
    """Return the heading of rows, which says how many there are where not all are shown."""
    return heading if shown == total else f"{heading} ({shown} of {total})"


def late_pids(analysis: Analysis) -> frozenset[int]:
    """Return the processes that hold the job up."""
    finding = analysis.of(STRAGGLERS)
    pids = () if finding is None else (each.who.pid for each in finding.stragglers)
    return frozenset(pid for pid in pids if pid is not None)


def _rank(each: RankWaiting, steps: int | None, is_late: bool) -> Sequence[Cell]:
    took = milliseconds(each.window_ns / steps / 1e9) if steps else "-"
    name, waits = rank_number(each.rank, each.pid), percent(each.exposed_share)
    named = [(ns, cause.short) for cause, ns in zip(WAIT_CAUSES, each.causes_ns, strict=True)]
    shorts = [short for ns, short in sorted(named, reverse=True) if ns > _FOR * each.exposed_ns]
    return name, took, waits, stack(each.causes_ns, each.window_ns), ", ".join(shorts[:2]), "LATE" if is_late else ""


def _collectives(analysis: Analysis) -> Iterator[Grid]:
    sizes = analysis.of(COLLECTIVE_SIZES) if COLLECTIVE_SIZES in analysis.sections else None
    whole = analysis.of(COLLECTIVES).summary
    if sizes is not None and sizes.sizes:
        yield sizes_grid(sizes, _MOST_SIZES)
    elif whole.count:
        yield table(_ALL_REDUCES, [whole])


def _links(analysis: Analysis, verdict: Verdict) -> Iterator[Grid]:
    moving = [link for link in analysis.of(LINKS) if link.moved_bytes > 0]
    if moving:
        ranked = sorted(moving, key=lambda link: (link != verdict.link, -(link.waiting_utilization or 0.0)))
        shown = ranked[:_MOST_LINKS]
        yield table((Column(_of_all("link", len(shown), len(moving)), "label"), *_USAGE), shown)


def _used(heading: str, share: Callable[[LinkSummary], float | None]) -> Column:
    return Column(heading, lambda link: percent(capped(share(link))) if link.line_rate_bps else None, none="-")


_ALL_REDUCES = (
    Column("collective", "count", "{} all-reduces".format),
    Column("busbw", "bus_bandwidth_bps", brief_rate),
    Column("of line rate", lambda whole: percent(capped(whole.line_rate_share))),
)
_USAGE = (
    Column("line rate", "line_rate_bps", brief_rate),
    _used("used", lambda link: link.busier_utilization),
    _used("while gradients wait", lambda link: link.waiting_utilization),
)


FIRST_SCREEN = Section("first screen", first_screen)
"""Concluded from what the other sections found, and no part of the long report."""
