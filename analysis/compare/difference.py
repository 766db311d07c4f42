"""Two runs beside each other: which quantities changed, by how much, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from netprof.analysis.compare.bootstrap import Estimate, estimate, quantile
from netprof.analysis.compare.compared_run import FEWEST, Run
from netprof.analysis.compare.quantities import BY_RANK, QUANTITIES, Quantity
from netprof.analysis.compare.setup import differences, not_comparable, other_links

CONFIDENCE = 0.99
"""How sure it is that all intervals of the job hold at once, and all of its ranks (Bonferroni)."""
SAME_WITHIN = 0.03
"""A quantity that changed by less than this, surely, is called the same."""

MORE, LESS, SAME, UNSURE = "more", "less", "same", "unsure"


@dataclass(frozen=True)
class Change:
    """One quantity of the job (`rank` None), or of one rank, in the units of the quantity.

    `low` and `high` are between what `after` - `before` surely lies: nothing becomes less than 0. `verdict`: MORE or
    LESS where all of that is beyond the `smallest` change that is reported, SAME where it is within SAME_WITHIN, else
    UNSURE.
    """

    quantity: Quantity
    rank: int | None
    before: float
    after: float
    low: float
    high: float
    smallest: float

    @property
    def difference(self) -> float:
        """How much more it is."""
        return self.after - self.before

    @property
    def verdict(self) -> str:
        """What is said of it."""
        if self.low > self.smallest:
            return MORE
        if self.high < -self.smallest:
            return LESS
        within = self.smallest * SAME_WITHIN / self.quantity.smallest
        return SAME if -within <= self.low and self.high <= within else UNSURE

    @property
    def changed(self) -> bool:
        """Whether it surely changed."""
        return self.verdict in (MORE, LESS)

    def share(self, amount: float) -> float | None:
        """Return an amount as a share of what was before; None where that was nothing."""
        return amount / self.before if self.before > 0 else None

    @property
    def worse_share(self) -> float:
        """By how much it got worse, as a share of what was before; 0 where it did not, or not surely."""
        grown = self.difference * self.quantity.worse
        if not self.changed or grown <= 0:
            return 0.0
        return grown / self.before if self.before > 0 else float("inf")


@dataclass(frozen=True)
class Difference:
    """What two runs differ in.

    `changes` are those of the job, in the order of QUANTITIES, without what is unknown in either run. `by_rank` are
    those of ranks that changed otherwise than the others. `not_comparable`, `links` (line rates that are another) and
    `notes` are sentences.
    """

    before: Run
    after: Run
    changes: tuple[Change, ...]
    by_rank: tuple[Change, ...]
    not_comparable: tuple[str, ...]
    links: tuple[str, ...]
    notes: tuple[str, ...]

    def of(self, name: str) -> Change | None:
        """Return the change of a quantity; None where it is unknown."""
        return next((change for change in self.changes if change.quantity.name == name), None)

    @property
    def changed(self) -> bool:
        """Whether anything surely changed."""
        return any(change.changed for change in (*self.changes, *self.by_rank))


def compare(before: Run, after: Run) -> Difference:
    """Compare two runs of a job. Both have at least `compared_run.FEWEST` iterations."""
    known = [each for each in QUANTITIES if min(len(before.of(each)), len(after.of(each))) >= FEWEST]
    changes = tuple(_changes(before, after, known, (None,)))
    return Difference(
        before=before,
        after=after,
        changes=changes,
        by_rank=tuple(_of_ranks(before, after, known)),
        not_comparable=tuple(not_comparable(before, after)),
        links=tuple(other_links(before, after)),
        notes=tuple(differences(before, after)),
    )


def _changes(before: Run, after: Run, quantities: Sequence[Quantity], rows: Sequence[int | None]) -> Iterator[Change]:
    """Yield the change of each quantity in each of some rows of the runs; None is the job."""
    wanted = [(each, row) for row in rows for each in quantities]
    error_share = (1 - CONFIDENCE) / max(1, len(wanted))
    wholes: dict[tuple[str, int | None], float] = {}
    for quantity, row in wanted:
        series = [run.of(quantity, row) for run in (before, after)]
        if min(map(len, series)) < FEWEST:
            continue
        old, new = (estimate(each, quantity.statistic) for each in series)
        wholes[quantity.name, row] = old.value
        smallest = max(quantity.smallest * old.value, quantity.least * wholes.get((quantity.whole, row), 0.0))
        rank = None if row is None else before.ranks[row]
        reach = _reach(old, new, error_share)
        moved = new.value - old.value
        yield Change(quantity, rank, old.value, new.value, max(moved - reach, -old.value), moved + reach, smallest)


def _reach(old: Estimate, new: Estimate, error_share: float) -> float:
    """Return how far the difference of two estimates may be off, but for `error_share` of all cases (Welch)."""
    variances = [old.error**2, new.error**2]
    if sum(variances) == 0:
        return 0.0
    freedom = sum(variances) ** 2 / (variances[0] ** 2 / old.freedom + variances[1] ** 2 / new.freedom)
    return sqrt(sum(variances)) * quantile(1 - error_share / 2, freedom)


def _of_ranks(before: Run, after: Run, known: Sequence[Quantity]) -> Iterator[Change]:
    """Yield what surely changed otherwise on a rank than in the middle of all ranks."""
    if len(before.ranks) < 2 or before.ranks != after.ranks or None in before.ranks:  # processes without a rank
        return
    quantities = [each for each in known if each.name in BY_RANK]
    every = list(_changes(before, after, quantities, range(len(before.ranks))))
    for quantity in quantities:
        changes = [change for change in every if change.quantity == quantity]
        middle = float(np.median([change.difference for change in changes])) if changes else 0.0
        for change in changes:
            if change.changed and (change.low - middle > change.smallest or change.high - middle < -change.smallest):
                yield change
