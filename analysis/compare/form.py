"""What two runs differ in, in the neutral form that every view can draw."""

from __future__ import annotations

from collections.abc import Sequence

from netprof.analysis.compare.difference import CONFIDENCE, LESS, MORE, SAME, UNSURE, Change, Difference
from netprof.analysis.compare.quantities import SMALLEST
from netprof.analysis.compare.run import Run
from netprof.analysis.compare.words import amount, between, signed, signed_share
from netprof.analysis.form import Cell, Grid, Pairs, Part
from netprof.units import count, duration, rate

_VERDICTS = {MORE: "more", LESS: "less", SAME: "same", UNSURE: "not sure"}
_INDENT = " "
_HEADINGS = ("A", "B", "change", "share", "surely between", "")
_LEFT, _OPTIONAL = frozenset({"of it"}), ("change", "surely between", "A")
_NOTABLE = 0.03
"""Share by which a part of an iteration may change while it changes nothing of the whole: such a change is minor."""


def parts(difference: Difference) -> Sequence[Part]:
    """Return the headed parts of a comparison."""
    found = [Part("Changes", "of an iteration, A before and B after", [_changes(difference.changes)])]
    if difference.by_rank:
        found.append(Part("Ranks that differ", "from the others", [_of_ranks(difference.by_rank)]))
    runs = [(f"{letter}: {run.name}", _run(run)) for letter, run in (("A", difference.before), ("B", difference.after))]
    found.append(Part("The runs", bodies=[Pairs([*runs, *(("", note) for note in difference.notes)])]))
    return [*found, Part("Rests on", bodies=[Pairs([("a change", ABOUT)])], detail=True)]


ABOUT = (
    f"All intervals hold at once in {CONFIDENCE * 100:.0f} of 100 comparisons of such recordings. They say how far the "
    "statistics over the iterations may be off: medians of times, rates and buffers, means of causes and bytes, and "
    "10th percentiles of what is undisturbed (what disturbs an iteration only makes it longer). The errors are "
    "those of a circular block bootstrap, since an iteration depends on the ones before. What one run differs from the "
    f"next by for no reason they cannot know: what changed by less than {SMALLEST * 100:g} % is not called changed."
)


def _changes(changes: Sequence[Change]) -> Grid:
    shown = [each for each in changes if each.before or each.after]
    rows: list[list[Cell]] = [[_INDENT * each.quantity.level + each.quantity.title, *_cells(each)] for each in shown]
    told = frozenset(number for number, each in enumerate(shown) if each.changed)
    faint = frozenset(number for number, each in enumerate(shown) if each.verdict == SAME)
    return Grid(("", *_HEADINGS), rows, _LEFT, _OPTIONAL, strong=told, faint=faint)


def _of_ranks(changes: Sequence[Change]) -> Grid:
    rows: list[list[Cell]] = [[f"rank {each.rank}", each.quantity.title, *_cells(each)] for each in changes]
    return Grid(("", "of it", *_HEADINGS), rows, _LEFT, _OPTIONAL)


def _cells(change: Change) -> list[Cell]:
    return [
        amount(change, change.before),
        amount(change, change.after),
        signed(change, change.difference),
        signed_share(change.share(change.difference)),
        between(change),
        _verdict(change),
    ]


def _run(run: Run) -> str:
    rates = sorted(set(run.line_rates_bps[run.line_rates_bps > 0].tolist()))
    told = [
        count(run.iterations, "iteration") + f" of {count(len(run.ranks), 'rank')}",
        f"on {', '.join(run.hosts)}",
        f"time bins of {duration(run.meta.bin_ns / 1e9)}",
        "links of " + " and ".join(map(rate, rates)) if rates else "line rate unknown",
    ]
    return ", ".join(told)


def _verdict(change: Change) -> str:
    part = change.share(change.difference)
    is_minor = change.verdict == SAME and (part is None or abs(part) > _NOTABLE)
    return "minor" if is_minor and change.difference else _VERDICTS[change.verdict]
