"""When one of several alike held the others up, and how sure that is.

A window of ten iterations, or five seconds where those take less, slides over the recording. In it one has to account
for a twentieth of the time more than the mean of its like, and for more than chance would give it. There are two ways
to be sure of that; neither assumes how amounts are distributed, and both count how many were looked at (Bonferroni).

- It is this one again and again. Were all alike, then in each iteration any of the amounts could have been its own:
  by Hoeffding's inequality its sum is further above its mean than d with a probability of exp(-2 d^2 / sum of the
  squares of their ranges) at most.
- It is far beyond what the others do, if only once. Of a distribution with one peak, a share of 4/9 var / x^2 at most
  lies further from its mean than x (Vysochanskij and Petunin 1980), where var is that of the others' amounts. Nobody
  is more certain than the number of amounts that were seen allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from netprof.analysis.tables.columns import Float64, Int64

LEAST_NS = 5 * 10**9
LEAST_ITERATIONS = 10
MATTERS = 0.05
"""Share of the time from which on somebody would look for who or what holds the job up."""
SURE = 0.95
"""Confidence from which on it is said."""
_WAYS = 2
_NOTHING = 1e-12
_AT_ONCE = 1 << 15
"""Iterations that are looked at together: a day has hundreds of thousands."""


@dataclass(frozen=True)
class Episode:
    """Iterations `first` to `last`, both included, in which number `one` held the others up for `ns` in all.

    It was known when iteration `known` was over; `still` says that it holds for the last window of all.
    """

    one: int
    first: int
    last: int
    known: int
    ns: int
    confidence: float
    still: bool


def episodes(held_ns: Int64, begin_ns: Int64, end_ns: Int64) -> list[Episode]:
    """Return all episodes, by who and when; `held_ns` has the shape (number of alike, iterations)."""
    if held_ns.shape[0] < 2 or held_ns.shape[1] == 0:
        return []
    first = windows(begin_ns, end_ns)
    least_s = MATTERS * _length_ns(begin_ns, end_ns, first) * 1e-9
    candidates = []
    for one, at, confidence in _sure(held_ns, least_s, first):
        for begin, end in _runs(at):
            span = int(first[at[begin]]), int(at[begin]), int(at[end])
            candidates.append(_episode(one, held_ns[one], span, float(confidence[begin : end + 1].max())))
    return _apart(candidates, held_ns)


def _sure(held_ns: Int64, least_s: Float64, first: Int64) -> Iterator[tuple[int, Int64, Float64]]:
    """Yield who held the others up for sure, with the iterations that such windows end with, and how sure it is."""
    ones, ends, confidences = [], [], []
    for begin in range(0, len(first), _AT_ONCE):
        confidence = _confidence(held_ns, least_s, first, begin, begin + _AT_ONCE)
        one, at = np.nonzero(confidence >= SURE)
        ones.append(one)
        ends.append(begin + at)
        confidences.append(confidence[one, at])
    one, end, confidence = np.concatenate(ones), np.concatenate(ends), np.concatenate(confidences)
    for number in np.unique(one).tolist():
        yield number, end[one == number], confidence[one == number]


def windows(begin_ns: Int64, end_ns: Int64) -> Int64:
    """Return for each iteration the first one of the window that ends with it."""
    number = np.arange(len(begin_ns))
    since = np.searchsorted(begin_ns, end_ns - LEAST_NS, "right") - 1
    return np.maximum(np.minimum(since, number - LEAST_ITERATIONS + 1), 0)


def _confidence(held_ns: Int64, least_s: Float64, first: Int64, begin: int, end: int) -> Float64:
    """Return how sure it is of each that it held the others up in the windows that end with iterations [begin, end).

    0 where it does not matter, which is below `least_s`, and less where it may well be chance; shape (number of alike,
    end - begin).
    """
    since = int(first[begin])
    value = held_ns[:, since:end].astype(np.float64) * 1e-9
    first, least_s = first[begin:end] - since, least_s[begin:end]
    total = _sums(value, first)
    beyond = total - total.mean(axis=0)
    count = (np.arange(begin - since, value.shape[1]) - first + 1).astype(np.float64)
    by_turns, by_size = _by_turns(value, beyond, first), _by_size(value, total, count, least_s, first)
    chance = len(value) * _WAYS * np.minimum(by_turns, by_size)
    return np.where(beyond >= least_s, 1.0 - chance, 0.0)


def _by_turns(value: Float64, beyond: Float64, first: Int64) -> Float64:
    """Return how likely each would be so far above the mean if whose amount is whose were chance."""
    ranges = _sums(np.square(value.max(axis=0) - value.min(axis=0))[None, :], first)
    return np.asarray(np.exp(-2 * np.square(np.maximum(beyond, 0.0)) / np.maximum(ranges, _NOTHING)))


def _by_size(value: Float64, total: Float64, count: Float64, least_s: Float64, first: Int64) -> Float64:
    """Return how likely an amount of the size that each usually has (each by its size) would be among the others'.

    Those that matter too are no others, unless there are no other ones.
    """
    number, squares = len(value), _sums(value * value, first)
    quiet = total < least_s
    known = quiet.any(axis=0)
    amounts = count * np.where(known, quiet.sum(axis=0), number - 1)
    mean, mean_square = (
        np.where(known, (each * quiet).sum(axis=0), each.sum(axis=0) - each) / amounts for each in (total, squares)
    )
    size = np.maximum(squares / np.maximum(total, _NOTHING) - mean, _NOTHING)
    chance = count * 4 / 9 * np.maximum(mean_square - mean**2, 0.0) / size**2
    return np.asarray(np.maximum(chance, 1.0 / (1.0 + number * count) / number / _WAYS))


def _length_ns(begin_ns: Int64, end_ns: Int64, first: Int64) -> Float64:
    """Return how long the window is that ends with each iteration; at the beginning, how long it will be."""
    whole_ns = max(LEAST_NS, LEAST_ITERATIONS * float(np.median(end_ns - begin_ns)))
    return np.asarray(np.maximum(end_ns - begin_ns[first], whole_ns))


def _sums(value: Float64, first: Int64) -> Float64:
    """Return the sum over the window that ends with each of the last iterations: as many as `first` tells of."""
    before = value.shape[1] - len(first)
    through = np.concatenate((np.zeros((len(value), 1)), np.cumsum(value, axis=1)), axis=1)
    return np.asarray(through[:, before + 1 :] - through[:, first])


def _runs(numbers: Int64) -> list[tuple[int, int]]:
    """Return the first and last place of each run of consecutive numbers among ascending ones."""
    ends = np.append(np.flatnonzero(np.diff(numbers) != 1), len(numbers) - 1)
    return list(zip([0, *(ends[:-1] + 1).tolist()], ends.tolist(), strict=True))


def _episode(one: int, held_ns: Int64, span: tuple[int, int, int], confidence: float) -> Episode:
    """Return the episode that windows tell of: the first of them begins at `span[0]`, they end with the other two.

    It is the part of them that is furthest above half of their mean.
    """
    since, known, until = span
    amounts = held_ns[since : until + 1].astype(np.float64)
    through = np.concatenate(([0.0], np.cumsum(amounts - amounts.mean() / 2)))
    last = int(np.argmax(through)) - 1  # only half of all is taken off, so after that it never sinks below 0 again
    first = int(np.argmin(through[: last + 1]))
    first, last = since + first, since + last
    still = until == len(held_ns) - 1
    return Episode(one, first, last, known, int(held_ns[first : last + 1].sum()), confidence, still)


def _apart(candidates: list[Episode], held_ns: Int64) -> list[Episode]:
    """Join episodes of one that overlap."""
    apart: list[Episode] = []
    for episode in candidates:
        before = apart[-1] if apart else None
        if before is not None and before.one == episode.one and episode.first <= before.last:
            last = max(before.last, episode.last)
            ns = int(held_ns[episode.one, before.first : last + 1].sum())
            sure = max(before.confidence, episode.confidence)
            apart[-1] = Episode(episode.one, before.first, last, before.known, ns, sure, episode.still)
        else:
            apart.append(episode)
    return apart
