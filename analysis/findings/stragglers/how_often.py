"""In how many steps ranks held the others up: once, in turn or always. Only what was counted is claimed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np

from netprof.analysis.account.causes import Cause
from netprof.analysis.account.episodes import MATTERS
from netprof.analysis.account.held_up import CAUSES, Kind
from netprof.analysis.findings.blame import ALIKE
from netprof.analysis.findings.stragglers.stragglers_parts import StragglersParts
from netprof.analysis.tables.columns import Int64
from netprof.units import count, duration

_MOST = 0.9
"""Share of a cause's time that the longest steps have to make up for the rest to be a matter of small amounts."""
_FEW = 0.1
"""Share of all steps up to which those are few: a pause now and then."""
_APART = 0.8
"""Share of the steps with a late rank in which no other one is late, for ranks to be late in turn."""


class Pattern(Enum):
    """How often ranks are late: in every step, in one, in turn, together, or in some steps."""

    ALWAYS = "always"
    ONCE = "once"
    IN_TURN = "in_turn"
    TOGETHER = "together"
    SOMETIMES = "sometimes"


@dataclass(frozen=True)
class HeldUpSteps:
    """In how many of all `steps` some ranks held the others up, and for how long in all.

    `held` counts steps in which any of them did, `of_rank` those of each, and `apart` those in which one alone did. The
    `most` longest of them make up nine tenths of it, `most_s` seconds.
    """

    held: int
    steps: int
    held_s: float
    of_rank: tuple[tuple[str, int], ...] = ()
    apart: int = 0
    most: int = 0
    most_s: float = 0.0

    @property
    def is_always(self) -> bool:
        """Whether it is so in every step."""
        return 0 < self.held == self.steps

    @property
    def is_once(self) -> bool:
        """Whether it happened once."""
        return self.held == 1 < self.steps

    @property
    def is_few(self) -> bool:
        """Whether a few long steps make up nearly all of it."""
        return 0 < self.most <= _FEW * self.steps

    @property
    def for_long(self) -> str:
        """For how long in each of those, "" where they are not few."""
        if not self.is_few:
            return ""
        return f"for {duration(self.most_s / self.most)}{' each' if self.most > 1 else ''}"

    @property
    def pattern(self) -> Pattern | None:
        """How often it happened; None where it did in no step."""
        if not self.held:
            return None
        if len(self.of_rank) > 1:
            each_is = all(late > 1 for _, late in self.of_rank)
            return Pattern.IN_TURN if each_is and self.apart >= _APART * self.held else Pattern.TOGETHER
        return Pattern.ALWAYS if self.is_always else Pattern.ONCE if self.is_once else Pattern.SOMETIMES

    @property
    def when(self) -> str:
        """In which steps, the few that make up nearly all of it or all; "" where that was counted in none."""
        if not self.held:
            return ""
        if self.is_few:
            return "once" if self.is_once else f"in {self.most} of {self.steps} steps"
        if self.is_always:
            return "in every step"
        return "once" if self.is_once else f"in {self.held} of {count(self.steps, 'step')}"

    @property
    def sentence(self) -> str:
        """Which rank was late in how many steps, and whether in turn; "" where none was."""
        if self.pattern is None:
            return ""
        if len(self.of_rank) < 2:
            of = f"all {self.steps} steps" if self.is_always else f"{self.held} of {count(self.steps, 'step')}"
            few = f", {self.for_long} in {self.most} of them" if self.is_few and self.most < self.held else ""
            return f"{self.of_rank[0][0]} was late in {of}{few}" if self.of_rank else ""
        ranks = [f"{name} in {late}" for name, late in self.of_rank]
        how = "in turn" if self.pattern is Pattern.IN_TURN else "often in the same"
        return f"late {how}: {', '.join(ranks[:-1])} and {ranks[-1]} of {count(self.steps, 'step')}"


@dataclass(frozen=True)
class OftenLate:
    """In how many of all `steps` each rank held the others up by one cause, and for how many seconds in all.

    `alike` are the ranks that did so for about as long as the first one: in `held` steps any of them, in `apart` one
    alone. A step counts in which the others wait for a rank for a twentieth of it. `most` is by rank, and of all that
    are alike under "", as in `HeldUpSteps`.
    """

    steps: int
    of_rank: Mapping[str, tuple[int, float]]
    alike: tuple[str, ...]
    held: int
    apart: int
    most: Mapping[str, tuple[int, float]]

    def of(self, labels: Collection[str]) -> HeldUpSteps | None:
        """Return it of one rank, or of all that are alike; None where those are others."""
        if len(labels) == 1:
            (label,) = labels
            late, seconds = self.of_rank.get(label, (0, 0.0))
            return HeldUpSteps(late, self.steps, seconds, ((label, late),), late, *self.most.get(label, (0, 0.0)))
        if set(labels) != set(self.alike):
            return None
        of_rank = tuple((label, self.of_rank[label][0]) for label in self.alike)
        return HeldUpSteps(
            self.held,
            self.steps,
            sum(self.of_rank[label][1] for label in self.alike),
            of_rank,
            self.apart,
            *self.most[""],
        )


def how_often(parts: StragglersParts, cause: Cause) -> OftenLate | None:
    """Return in how many steps which ranks held the others up by a cause; None where that is not known."""
    windows = parts.windows
    for held in parts.held:
        if held.kind is not Kind.RANK or not len(windows) or not len(held.keys):
            continue
        ns = held.ns[:, CAUSES[Kind.RANK].index(cause)]
        late = ns >= np.maximum(MATTERS * windows.duration_ns, 1)
        names = [parts.names[held.kind, key].label for key in held.keys]
        total = ns.sum(axis=1, dtype=np.int64)
        alike = np.flatnonzero(total >= max(ALIKE * int(total.max()), 1))
        return OftenLate(
            len(windows),
            {
                name: (int(is_late.sum()), float(amount[is_late].sum()) / 1e9)
                for name, is_late, amount in zip(names, late, ns, strict=True)
            },
            tuple(names[place] for place in alike.tolist()),
            int(late[alike].any(axis=0).sum()),
            int((late[alike].sum(axis=0) == 1).sum()),
            {name: _most(amount) for name, amount in zip(names, ns, strict=True)} | {"": _most(ns[alike].sum(axis=0))},
        )
    return None


def _most(ns: Int64) -> tuple[int, float]:
    """Return how many of the longest steps make up nearly all of it, and their seconds."""
    through = np.cumsum(np.sort(ns)[::-1], dtype=np.int64)
    if not len(through) or through[-1] <= 0:
        return 0, 0.0
    place = int(np.searchsorted(through, _MOST * through[-1]))
    return place + 1, float(through[place]) / 1e9
