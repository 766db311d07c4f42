"""Flows over equal-cost paths: how likely a hash puts two on one, and how much longer they take for it.

ECMP hashes a flow's addresses and ports, so each flow takes one path, any of them alike, whatever the others take. See
"Challenging the Need for Packet Spraying in Large-Scale Distributed Training" (arXiv 2407.00550).
"""

from __future__ import annotations

from math import gcd, lgamma

import numpy as np

from netprof.analysis.tables.columns import Float64, Int64
from netprof.errors import UsageError

MOST_FLOWS, MOST_PATHS = 4096, 65_536
_EXACT_FLOWS = 512
"""More equal flows than this are drawn, not counted: counting takes the square of their number."""
_MOST_ROUNDS, _FEWEST_ROUNDS, _DRAWS = 20_000, 400, 1 << 23
"""How often all parts are placed by drawing: the more there are, the less their fullest path differs from the mean."""
_DRAWN_AT_ONCE, _SEED = 1 << 22, 1
_SURE = 1e-12


def check(flows: int, paths: int, parts: int = 1) -> None:
    """Raise UsageError for what cannot be."""
    if not 1 <= paths <= MOST_PATHS:
        raise UsageError(f"{paths} equal-cost paths cannot be", f"give --paths 1 to {MOST_PATHS}")
    if parts < 1 or flows * parts > MOST_FLOWS * 16:
        raise UsageError(f"{flows} flows in {parts} parts each are too many, or none", "give a smaller --split")


def no_collision(flows: int, paths: int) -> float:
    """Return the probability that no two flows take the same path: paths! / (paths - flows)! / paths^flows.

    8 flows over 8 paths: 0.24 %.
    """
    if flows > paths:
        return 0.0
    return float(np.exp(lgamma(paths + 1) - lgamma(paths - flows + 1) - flows * np.log(paths)))


def expected_fullest(flows: int, paths: int, least: int = 0) -> float:
    """Return how many of some flows the fullest path gets on average, exactly; each time it gets fewer than `least`,
    that counts instead.

    The number on each path is like independent Poisson numbers of the same mean, given their sum; so the probability
    that none has more than m is the coefficient of their sum in the truncated Poisson distribution, convolved with
    itself once a path. 8 over 8: 2.60.
    """
    mean = flows / paths
    count = np.arange(flows + 1)
    logs = np.array([lgamma(each + 1) for each in count.tolist()])
    single = np.exp(count * np.log(mean) - mean - logs)
    whole = float(np.exp(flows * np.log(flows) - flows - lgamma(flows + 1)))
    expected = float(least)
    for most in range(least, flows):
        below = _power(np.where(count <= most, single, 0.0), paths)[flows] / whole if most * paths >= flows else 0.0
        expected += 1 - min(float(below), 1.0)
        if below > 1 - _SURE:
            break
    return expected


def _power(distribution: Float64, times: int) -> Float64:
    """Return a distribution convolved with itself, no longer than it is: by repeated squaring."""
    length = len(distribution)
    result = np.zeros(length)
    result[0] = 1.0
    square = distribution
    while times:
        if times & 1:
            result = np.convolve(result, square)[:length]
        times >>= 1
        if times:
            square = np.convolve(square, square)[:length]
    return result


def drawn_time(sizes: Float64, paths: int, parts: int = 1) -> float:
    """Return what `expected_time` does by drawing; the same every time, and less often the more parts there are."""
    distinct, alike = np.unique(sizes, return_counts=True)
    draws = min(len(distinct) * paths, len(sizes) * parts)
    rounds = int(np.clip(_DRAWS // draws, _FEWEST_ROUNDS, _MOST_ROUNDS))
    random = np.random.default_rng(_SEED)
    at_once = max(1, _DRAWN_AT_ONCE // (draws + paths))
    sum_of_all, left = 0.0, rounds
    while left:
        count = min(at_once, left)
        if len(distinct) * paths < len(sizes) * parts:
            loads = _drawn_by_path(random, distinct / parts, alike * parts, paths, count)
        else:
            loads = _drawn_by_part(random, np.repeat(sizes / parts, parts), paths, count)
        sum_of_all += float(np.maximum(loads.max(axis=1), sizes.max()).sum())
        left -= count
    return sum_of_all / rounds


def _drawn_by_part(random: np.random.Generator, sizes: Float64, paths: int, rounds: int) -> Float64:
    """Draw a path for each part, and return what each path gets, a row a round."""
    chosen = random.integers(0, paths, (rounds, len(sizes))) + paths * np.arange(rounds)[:, None]
    loads = np.bincount(chosen.ravel(), np.tile(sizes, rounds), rounds * paths)
    return np.asarray(loads.reshape(rounds, paths), np.float64)


def _drawn_by_path(random: np.random.Generator, sizes: Float64, numbers: Int64, paths: int, rounds: int) -> Float64:
    """Draw how many parts of each size each path gets: the same, where there are more parts than paths."""
    loads = np.zeros((rounds, paths))
    for size, number in zip(sizes.tolist(), numbers.tolist(), strict=True):
        loads += size * random.multinomial(number, np.full(paths, 1 / paths), rounds)
    return loads


def expected_time(sizes: Float64, paths: int, parts: int = 1) -> tuple[float, bool]:
    """Return how long flows take on average, and whether exactly, where a path or a host moves one of `sizes` a time.

    Each is split into as many equal `parts`, which are hashed. The flows are done when the fullest path is, and none is
    done before its host has sent it (see `ideal`). Of equal flows that is counted, of others, or of very many, drawn.
    """
    count = len(sizes) * parts
    equal = float(sizes.max() - sizes.min()) <= 1e-9 * float(sizes.max())
    if equal and count <= _EXACT_FLOWS:
        return expected_fullest(count, paths, parts) * float(sizes[0]) / parts, True
    return drawn_time(sizes, paths, parts), False


def ideal(sizes: Float64, paths: int) -> float:
    """Return how long flows take at best: as long as a path does for its part of all, or a host for the largest flow.

    A flow leaves its host by one link, which is as fast as a path; so it is never faster on several of them.
    """
    return max(float(sizes.sum()) / paths, float(sizes.max()))


def left_over(flows: int, paths: int) -> tuple[int, int]:
    """Return how many equal flows are left over when each path has got as many whole ones, and in how many parts each
    of them has to be split for all paths to get the same: s / gcd(r, s) of r = n mod s.
    """
    left = flows % paths
    return left, paths // gcd(left, paths) if left else 1
