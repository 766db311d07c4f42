"""The amount after which a job's silences recur: what one iteration moves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netprof.analysis.inference.onsets import Onsets
from netprof.analysis.tables.columns import Float64, Int64, nearest

_FARTHEST = 64  # silences of one scale between a silence and its recurrence, at most
_STARTS = 2048  # silences of one scale that are looked at, at most
_SCALES = 25
_CANDIDATES = 16
_LEAST_SHARE = 0.25  # of the silences of a scale recur after a distance that is worth a look
_STEP = 0.01  # resolution of the first guess: 1 %
_LOOSEST, _TIGHTEST = 0.04, 0.002
_BESIDE = (-5.0, -2.5, 2.5, 5.0)  # where to look how often silences come by chance, in tolerances off the amount
_MOST_PARTS = 32  # equal buckets and a remainder that are told from iterations and a pause
_SAME = 0.02  # amounts that differ less are one
_MOST_ALIKE = 16  # parts that move the same, of which an iteration may consist
_ALMOST = 0.85  # of a score is almost as much
_ABOUT = 1.25  # times as much or as little is still about an amount
FEWEST = 6
"""Recurrences below which nothing is concluded."""
_LEAST_EVIDENCE = 16.0
"""Nats by which chance must be ruled out; e**-16 leaves room for the thousands of candidates that are tried."""


@dataclass(frozen=True)
class Recurrence:
    """Silences of at least `silence_ns` recur after `amount`, in the units of `Onsets.moved`.

    `score` is the share of them that do, less what chance explains (1: all, 0: as often as chance). What chance
    explains is how often silences occur a little off the amount, or would if they were at random, whichever is more.
    `tolerance` is relative to the amount; `evidence` is the logarithm (nats, Chernoff's bound) of how unlikely it is
    that so many recur by chance.
    """

    amount: float
    score: float
    evidence: float
    silence_ns: float
    tolerance: float
    starts: int


def find_recurrences(onsets: Onsets) -> list[Recurrence]:
    """Return every significant recurrence, looking at the silences scale by scale: all of them, then the longer ones.

    A long enough scale hides the stalls inside a burst, a longer one the gaps between buckets, the longest leave
    only pauses. Which of the recurrences is the iteration is for `choose` to say.
    """
    recurrences = []
    for silence_ns in _scales(onsets):
        moved = onsets.at_least(silence_ns).moved
        recurrences += [
            recurrence for guess in _guesses(moved) if (recurrence := measure(moved, guess, silence_ns)) is not None
        ]
    return recurrences


def choose(candidates: list[Recurrence]) -> Recurrence | None:
    """Return the recurrence that is the iteration: the smallest amount that explains the silences as well as any.

    A smaller amount that does not divide a well supported larger one is a bucket of it (the last bucket of an
    iteration is rarely as large as the others), and gives way. One that does divide it may explain a little less:
    what blurs an iteration blurs several together less. Of equal amounts, the scale that hides most is taken.
    """
    best = max((r.score for r in candidates), default=0.0)
    good = [r for r in candidates if r.score >= best - _margin(r)]
    if not good:
        return None
    chosen = min(good, key=lambda r: r.amount)
    while bigger := [r for r in good if _is_made_of(r, chosen)]:
        chosen = min(bigger, key=lambda r: r.amount)
    chosen = min((r for r in candidates if _divides(r, chosen)), key=lambda r: r.amount, default=chosen)
    return _largest_scale(candidates, chosen)


def _largest_scale(candidates: list[Recurrence], chosen: Recurrence) -> Recurrence:
    """Return the one that hides most of those of the amount that was chosen, but for those that explain less."""
    same = [r for r in candidates if abs(r.amount / chosen.amount - 1) < _SAME]
    top = max(r.score for r in same)
    return max((r for r in same if r.score >= top - 0.02), key=lambda r: r.silence_ns)


def choose_about(candidates: list[Recurrence], about: float) -> Recurrence | None:
    """Return the recurrence whose amount is nearest to `about` of those that explain almost as much as any near it.

    None without any. Of those of the same amount, the scale that hides most is taken.
    """
    near = [r for r in candidates if about / _ABOUT <= r.amount <= about * _ABOUT]
    top = max((r.score for r in near), default=0.0)
    good = [r for r in near if r.score >= _ALMOST * top]
    if not good:
        return None
    return _largest_scale(good, min(good, key=lambda r: abs(r.amount - about)))


def whole_pattern(onsets: Onsets, chosen: Recurrence) -> Recurrence:
    """Return the recurrence that several of the chosen amount make together, if those parts are not all alike.

    Iterations may consist of parts that move the same, with silences at almost the same places. Silences then recur
    after every k parts more surely than after any other number of them. (What only blurs an amount blurs it less the
    more of it there is.)
    """
    moved = onsets.at_least(chosen.silence_ns).moved
    wholes = [measure(moved, k * chosen.amount, chosen.silence_ns) for k in range(1, 2 * _MOST_ALIKE)]
    scores = [0.0 if each is None else each.score for each in wholes]
    for k in range(2, _MOST_ALIKE + 1):
        whole = wholes[k - 1]
        others = [scores[j - 1] for j in range(1, 2 * k) if j % k]
        if whole is not None and whole.score > max(others) + _margin(chosen):
            return whole
    return chosen


def measure(moved: Float64, guess: float, silence_ns: float) -> Recurrence | None:
    """Return how well silences at `moved` recur after about `guess`, None if chance does as well."""
    span, tolerance, amount = float(moved[-1] - moved[0]), _LOOSEST, guess
    for _ in range(3):
        rows = _starts(moved, amount * (1 + tolerance))
        if len(rows) < FEWEST:
            return None
        off = _offsets(moved, rows, amount)
        hit = np.abs(off) <= tolerance * amount
        if np.count_nonzero(hit) < FEWEST:
            return None
        off = off[hit]
        middle = _median(off)
        spread = _median(np.abs(off - middle))
        amount += middle
        tolerance = float(np.clip(4 * spread / amount, _TIGHTEST, _LOOSEST))
    share = _hits(moved, rows, amount, tolerance)
    at_random = 1 - float(np.exp(-2 * tolerance * amount * (len(moved) - 1) / span))
    beside = [_hits(moved, rows, amount * (1 + step * tolerance), tolerance) for step in _BESIDE]
    chance = max(at_random, float(np.mean(beside)))
    evidence = len(rows) * _divergence(share, chance)
    if share <= chance or evidence < _LEAST_EVIDENCE:
        return None
    return Recurrence(amount, (share - chance) / (1 - chance), evidence, silence_ns, tolerance, len(rows))


def _scales(onsets: Onsets) -> list[float]:
    """Return lengths of silence to look at: geometric, leaving out those that select what the one before did."""
    silence = onsets.silence_ns[1:]
    silence = silence[silence > 0]
    if len(silence) < FEWEST:
        return []
    ordered = np.sort(silence)
    grid = np.floor(np.geomspace(ordered[0], ordered[-1], _SCALES))
    counts = len(ordered) - np.searchsorted(ordered, grid, "left")
    chosen, last = [], np.inf
    for threshold, count in zip(grid.tolist(), counts.tolist(), strict=True):
        if FEWEST < count < 0.98 * last:
            chosen.append(threshold)
            last = count
    return chosen


def _guesses(moved: Float64) -> list[float]:
    """Return distances between silences that occur often, the nearest first."""
    rows = _starts(moved, 0.0)
    ahead = rows[:, None] + np.arange(1, _FARTHEST + 1)
    inside = ahead < len(moved)
    distance = moved[np.minimum(ahead, len(moved) - 1)] - moved[rows][:, None]
    distance = distance[inside & (distance > 0)]
    if len(distance) == 0:
        return []
    slot = np.round(np.log(distance / distance.min()) / _STEP).astype(np.int64)
    held = np.convolve(np.bincount(slot, minlength=int(slot.max()) + 3), np.ones(3), "same")
    peak = (held >= np.append(held[1:], 0)) & (held > np.append(0, held[:-1]))
    # a slot of 1 % is wider the farther away, and soon holds silences by chance: the near ones come first
    chosen = np.flatnonzero(peak & (held >= max(FEWEST, _LEAST_SHARE * len(rows))))[:_CANDIDATES]
    return [_median(distance[np.abs(slot - top) <= 1]) for top in chosen]


def _starts(moved: Float64, room: float) -> Int64:
    """Return the rows to look ahead from: those with `room` left after them, evenly thinned to _STARTS."""
    count = int(np.searchsorted(moved, moved[-1] - room, "right"))
    if count <= _STARTS:
        return np.arange(count)
    return np.linspace(0, count - 1, _STARTS).astype(np.int64)


def _hits(moved: Float64, rows: Int64, amount: float, tolerance: float) -> float:
    """Return the share of rows that are followed by a silence after `amount`."""
    return np.count_nonzero(np.abs(_offsets(moved, rows, amount)) <= tolerance * amount) / len(rows)


def _offsets(moved: Float64, rows: Int64, amount: float) -> Float64:
    """Return how far from `amount` after each row the nearest silence is."""
    target = moved[rows] + amount
    return np.asarray(moved[nearest(moved, target)] - target)


def _median(values: Float64) -> float:
    """Return what np.median does, sooner: it is asked for thousands of times, of some hundred numbers each."""
    ordered = np.sort(values)
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _divergence(share: float, chance: float) -> float:
    """Return the Kullback-Leibler divergence of two coins, in nats."""
    chance = min(max(chance, 1e-12), 1 - 1e-12)
    parts = 0.0
    if share > 0:
        parts += share * np.log(share / chance)
    if share < 1:
        parts += (1 - share) * np.log((1 - share) / (1 - chance))
    return float(parts)


def _margin(recurrence: Recurrence) -> float:
    """Return by how much a score may fall short of the best by chance."""
    deviation = np.sqrt(max(recurrence.score * (1 - recurrence.score), 0.0) / recurrence.starts)
    return 0.03 + 2 * float(deviation)


def _is_made_of(larger: Recurrence, smaller: Recurrence) -> bool:
    """Tell whether `larger` holds several times `smaller` and a remainder."""
    times, off, blur = _ratio(larger, smaller)
    return 1.5 < times < _MOST_PARTS and larger.score >= smaller.score and off > blur


def _divides(smaller: Recurrence, larger: Recurrence) -> bool:
    """Tell whether `larger` holds `smaller` a whole number of times, and `smaller` explains almost as much."""
    times, off, blur = _ratio(larger, smaller)
    return times > 1.5 and off <= blur < 0.25 and smaller.score >= _ALMOST * larger.score


def _ratio(larger: Recurrence, smaller: Recurrence) -> tuple[float, float, float]:
    """Return larger over smaller, how far from a whole number that is, and how far it may be by blur."""
    times = larger.amount / smaller.amount
    return times, abs(times - round(times)), times * (larger.tolerance + smaller.tolerance) + 0.01
