"""What the job waits for, as tables: causes with the largest first, each rank's waiting, and the worst iterations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from netprof.analysis.account.causes import WAIT_CAUSES
from netprof.analysis.findings.waiting.waiting_finding import CauseShare, RankWaiting, WaitingFinding, WorstIteration
from netprof.analysis.form import Bar, Cell, Grid, Pairs, Part, Stack
from netprof.units import count, duration, share

_TOLD = 0.05  # of the waiting, from which on a cause gets its sentence
_MATTERS = 0.25  # from which on it is worth doing something about, too
_SHOWN = 0.001  # from which on it gets a row
_FEW_RANKS = 16


def waiting_parts(finding: WaitingFinding | None) -> Sequence[Part]:
    """Return the parts of the section; none where no iteration is known or no rank waits."""
    if finding is None or not finding.exposed_ns:
        return ()
    about = f"{share(finding.exposed_share)} of all time, {count(len(finding.by_rank), 'rank')} together"
    parts = [
        Part("Waiting for communication", about, [_causes(finding.causes), Pairs(list(_sentences(finding.causes)))]),
        Part("Waiting by rank", "share of a rank's time", [_ranks(finding)]),
    ]
    if finding.worst:
        parts.append(Part("Worst iterations", "that wait far longer than the median one", [_worst(finding)]))
    return parts


def _causes(causes: Sequence[CauseShare]) -> Grid:
    rows: list[Sequence[Cell]] = []
    before = 0.0
    for each in [each for each in causes if each.share >= _SHOWN]:
        bar = Bar(before, each.share, each.cause.name)
        rows.append((each.cause.title, share(each.share), duration(each.saves_s), who(each), bar))
        before += each.share
    return Grid(("for", "share", "saves", "who", ""), rows, left=frozenset({"who", ""}), optional=("", "saves"))


def who(each: CauseShare) -> str:
    """Return the rank, link or flow that a cause names; nothing where it names none."""
    if each.link is not None:
        ranks = ", ".join(map(str, each.ranks[:_FEW_RANKS]))
        return f"{each.link} of {'rank' if len(each.ranks) == 1 else 'ranks'} {ranks}" if ranks else each.link
    if each.rank is not None:
        return f"rank {each.rank}"
    return each.flow or ""


def _sentences(causes: Sequence[CauseShare]) -> Iterator[tuple[str, str]]:
    """Yield what happened and what to do about it, of the causes that are not negligible."""
    for number, each in enumerate(causes):
        if number == 0 or each.share >= _TOLD:
            yield each.cause.short, f"{each.sentence} → {each.advice}"


def _ranks(finding: WaitingFinding) -> Grid:
    shown = [each.cause for each in finding.causes if each.share >= _SHOWN]
    numbers = [WAIT_CAUSES.index(cause) for cause in shown]
    names = [cause.short for cause in shown]
    rows = [_rank(each, numbers) for each in finding.by_rank]
    headings = ("rank", "waits", "", *names)
    return Grid(headings, rows, left=frozenset({""}), optional=tuple(names[::-1]), brief=_FEW_RANKS)


def _rank(each: RankWaiting, numbers: Sequence[int]) -> Sequence[Cell]:
    name = f"pid {each.pid}" if each.rank is None else str(each.rank)
    shares = (_of(each.causes_ns[number], each.window_ns) for number in numbers)
    return (name, _of(each.exposed_ns, each.window_ns), stack(each.causes_ns, each.window_ns), *shares)


def _worst(finding: WaitingFinding) -> Grid:
    longest_ns = max(each.exposed_ns for each in finding.worst)
    ranks = max(1, len(finding.by_rank))
    rows = [_iteration(each, longest_ns, ranks) for each in finding.worst]
    places = [(each.begin_ns, each.duration_ns) for each in finding.worst]
    headings = ("iteration", "took", "mean wait", "mostly for", "")
    return Grid(headings, rows, left=frozenset({"mostly for", ""}), optional=("",), places=places)


def _iteration(each: WorstIteration, longest_ns: int, ranks: int) -> Sequence[Cell]:
    waited = duration(each.exposed_ns / ranks / 1e9)
    named = each.cause.title if each.rank is None else f"{each.cause.title}: rank {each.rank}"
    took = duration(each.duration_ns / 1e9)
    return (str(each.number + 1), took, waited, named, stack(each.causes_ns, longest_ns))


def stack(causes_ns: Sequence[int], whole_ns: int) -> Stack:
    """Return the causes one after another, as shares of a whole."""
    bars, before_ns = [], 0
    for cause, ns in zip(WAIT_CAUSES, causes_ns, strict=True):
        if ns and whole_ns:
            bars.append(Bar(before_ns / whole_ns, ns / whole_ns, cause.name))
        before_ns += ns
    return Stack(tuple(bars))


def _of(part_ns: int, whole_ns: int) -> str:
    return share(part_ns / whole_ns if whole_ns else None)
