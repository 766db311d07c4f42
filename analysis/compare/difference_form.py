"""What two runs differ in: a sentence or two, and the neutral form that every view can draw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from netprof.analysis.compare.compared_run import Run
from netprof.analysis.compare.difference import CONFIDENCE, LESS, MORE, SAME, UNSURE, Change, Difference
from netprof.analysis.compare.quantities import CAUSES, PHASES, SMALLEST
from netprof.analysis.declared import Column, table
from netprof.analysis.form import Grid, Pairs, Part
from netprof.units import count, duration, rate, share, size

_FORMATS = {"s": duration, "bytes": size, "bps": rate, "1": share}
_MOST = 0.5
_NAMED = 4
"""Parts of an iteration that are named, the largest first."""
_LITTLE = 0.01
"""Share of what is named below which the rest of a change is not."""


def amount(change: Change, value: float) -> str:
    """Return an amount of a quantity with its unit."""
    text = _FORMATS[change.quantity.unit](abs(value))
    return f"-{text}" if value < 0 else text


def signed(change: Change, value: float) -> str:
    """Return a difference of a quantity, with its sign."""
    return ("+" if value >= 0 else "") + amount(change, value)


def signed_share(part: float | None) -> str:
    """Return a share with its sign; nothing where it is of nothing."""
    return "" if part is None else f"{_percent(part)} %"


def _percent(part: float) -> str:
    return f"{round(part * 100, 1) + 0.0:+.1f}"  # no -0.0


def between(change: Change) -> str:
    """Return between what a change surely lies: as shares, or of what was nothing before, as amounts."""
    low, high = change.share(change.low), change.share(change.high)
    if low is None or high is None:
        return f"{signed(change, change.low)} to {signed(change, change.high)}"
    return f"{_percent(low)} to {signed_share(high)}"


def sentences(difference: Difference) -> Sequence[str]:
    """Return what is concluded: what keeps runs apart, links that are not the same, then how long iterations take."""
    links = [f"{each[:1].upper()}{each[1:]}." for each in difference.links]
    if difference.not_comparable:
        links.insert(0, f"These runs cannot be compared: {'; '.join(difference.not_comparable)}. All the same:")
    return [*links, *_sentences(difference)]


def sentence(difference: Difference) -> str:
    """Return all of that in one."""
    return " ".join(sentences(difference))


def _sentences(difference: Difference) -> Iterator[str]:
    changed = [each for each in difference.changes if each.changed]
    iteration = next((each for each in changed if each.quantity.source == "iteration"), None)
    if iteration is None:
        yield _not_changed(difference)
        besides = [each for each in changed if each.quantity.level < 2]
    else:
        yield _changed(iteration)
        yield from _parts(difference)
        yield from _by_cpu(iteration, changed)
        besides = [each for each in changed if each.quantity.level == 0 and each.quantity.source != "iteration"]
    if besides:
        yield f"Changed{' too' if iteration else ''}: {', '.join(map(_said, besides))}."
    yield from (f"Rank {each.rank} differs from the others: {_said(each)}." for each in difference.by_rank)
    if difference.changes and not difference.changed:
        yield _nothing(difference)


def _changed(iteration: Change) -> str:
    longer = "longer" if iteration.difference > 0 else "shorter"
    part = share(abs(iteration.difference) / iteration.before)
    before, after = (amount(iteration, value) for value in (iteration.before, iteration.after))
    return (
        f"{_ARE[iteration.quantity.name]} {part} {longer}: {after} instead of {before} (surely {between(iteration)})."
    )


_ARE = {
    "iteration": "Iterations are",
    "undisturbed_iteration": "Undisturbed, iterations are",
    "mean_iteration": "In the mean, iterations are",
}


def _not_changed(difference: Difference) -> str:
    iteration = difference.of("iteration")
    if iteration is None:
        return "Whether iterations take as long as before is unknown: of some rank no whole iteration is known."
    if iteration.verdict == SAME:
        return f"Iterations take as long as before (surely {between(iteration)})."
    return f"Whether iterations take as long as before is not sure ({between(iteration)})."


def _parts(difference: Difference) -> Iterator[str]:
    """Yield by how much a mean iteration and its smallest parts changed, the largest first: they add up."""
    whole, known = difference.of("mean_iteration"), {each.quantity.name: each for each in difference.changes}
    if whole is None or "compute" not in known:
        return
    smallest = (*(PHASES if all(name in known for name in PHASES) else ("compute",)), *CAUSES)
    leaves = [known[name] for name in smallest if name in known and known[name].changed]
    named = sorted(leaves, key=lambda each: -abs(each.difference))[:_NAMED]
    if not named:
        return
    texts = [f"{each.quantity.title} {signed(each, each.difference)}" for each in named]
    other_s = whole.difference - sum(each.difference for each in named)
    if abs(other_s) > _LITTLE * sum(abs(each.difference) for each in named):
        texts.append(f"all else {signed(whole, other_s)}")
    yield f"In the mean {signed(whole, whole.difference)}: {', '.join(texts)}."


def _by_cpu(iteration: Change, changed: Sequence[Change]) -> Iterator[str]:
    """Say that the ranks were on a CPU for longer, or shorter, by most of what the iteration changed by."""
    cpu = next((each for each in changed if each.quantity.name == "cpu_time"), None)
    if cpu is None or cpu.difference / iteration.difference < _MOST:
        return
    more = "more" if cpu.difference > 0 else "less"
    yield (
        f"The ranks are on a CPU for {amount(cpu, abs(cpu.difference))} {more}: another amount of work, or CPUs of "
        "another speed, as a shared machine has them; no recording tells which."
    )


def _said(change: Change) -> str:
    part = change.share(change.difference)
    return f"{change.quantity.title} {signed(change, change.difference) if part is None else signed_share(part)}"


def _nothing(difference: Difference) -> str:
    unsure = [each.quantity.title for each in difference.changes if each.quantity.main and each.verdict == UNSURE]
    return f"A change of {', '.join(unsure)} cannot be ruled out." if unsure else "Nothing changed."


_VERDICTS = {MORE: "more", LESS: "less", SAME: "same", UNSURE: "not sure"}
_INDENT = " "
_NOTABLE = 0.03
"""Share by which a part of an iteration may change while it changes nothing of the whole: such a change is minor."""


def parts(difference: Difference) -> Sequence[Part]:
    """Return the headed parts of a comparison."""
    headed = [Part("Changes", "of an iteration, A before and B after", [_changes(difference.changes)])]
    if difference.by_rank:
        headed.append(Part("Ranks that differ", "from the others", [_of_ranks(difference.by_rank)]))
    runs = [(f"{letter}: {run.name}", _run(run)) for letter, run in (("A", difference.before), ("B", difference.after))]
    headed.append(Part("The runs", bodies=[Pairs([*runs, *(("", note) for note in difference.notes)])]))
    return [*headed, Part("Rests on", bodies=[Pairs([("a change", ABOUT)])], detail=True)]


ABOUT = (
    f"All intervals of the job hold at once in {CONFIDENCE * 100:.0f} of 100 comparisons of such recordings, and so do "
    "those of all ranks. They say how far the statistics over the iterations may be off: the median of iterations, "
    "rates and buffers; means of the parts of an iteration, which add up to its mean (checkpoints and pauses are in "
    "them), and of bytes; 10th percentiles of what is undisturbed (what disturbs an iteration only makes it longer). "
    "The errors are those of a circular block bootstrap, since an iteration depends on the ones before. What one run "
    "differs from the next by for no reason they cannot know: what changed by less than "
    f"{SMALLEST * 100:g} % is not called changed."
)


def _changes(changes: Sequence[Change]) -> Grid:
    shown = [each for each in changes if each.before or each.after]
    title = Column("", lambda change: _INDENT * change.quantity.level + change.quantity.title)
    changed = frozenset(number for number, each in enumerate(shown) if each.changed)
    faint = frozenset(number for number, each in enumerate(shown) if each.verdict == SAME)
    return table((title, *_COLUMNS), shown, strong=changed, faint=faint)


def _of_ranks(changes: Sequence[Change]) -> Grid:
    named = (Column("", "rank", "rank {}".format), Column("of it", "quantity.title", left=True))
    return table((*named, *_COLUMNS), changes)


def _run(run: Run) -> str:
    rates = sorted(set(run.line_rates_bps[run.line_rates_bps > 0].tolist()))
    facts = [
        count(run.iterations, "iteration") + f" of {count(len(run.ranks), 'rank')}",
        f"on {', '.join(run.hosts)}",
        f"time bins of {duration(run.meta.bin_ns / 1e9)}",
        "links of " + " and ".join(map(rate, rates)) if rates else "line rate unknown",
    ]
    return ", ".join(facts)


def _verdict(change: Change) -> str:
    part = change.share(change.difference)
    is_minor = change.verdict == SAME and (part is None or abs(part) > _NOTABLE)
    return "minor" if is_minor and change.difference else _VERDICTS[change.verdict]


_COLUMNS = (
    Column("A", lambda change: amount(change, change.before), goes=3),
    Column("B", lambda change: amount(change, change.after)),
    Column("change", lambda change: signed(change, change.difference), goes=1),
    Column("share", lambda change: signed_share(change.share(change.difference))),
    Column("surely between", between, goes=2),
    Column("", _verdict),
)
