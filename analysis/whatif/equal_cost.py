"""Flows over equal-cost paths: how likely a hash puts two on one, and how full it makes the fullest.

ECMP hashes a flow's addresses and ports, so each flow takes one path, any of them alike, whatever the others take. See
"Challenging the Need for Packet Spraying in Large-Scale Distributed Training" (arXiv 2407.00550).
"""

from __future__ import annotations

from math import gcd, lgamma

import numpy as np

from netprof.analysis.tables.columns import Float64
from netprof.errors import UsageError

MOST_FLOWS, MOST_PATHS = 4096, 65_536
_EXACT_FLOWS = 512
"""More equal flows than this are drawn, not counted: counting takes the square of their number."""
_ROUNDS, _SEED = 20_000, 1
_DRAWN_AT_ONCE = 1 << 22
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


def expected_fullest(flows: int, paths: int) -> float:
    """Return how many of some flows the fullest path gets on average, exactly.

    The number on each path is like independent Poisson numbers of the same mean, given their sum; so the probability
    that none has more than m is the coefficient of their sum in the truncated Poisson distribution, convolved with
    itself once a path. 8 over 8: 2.60.
    """
    mean = flows / paths
    count = np.arange(flows + 1)
    logs = np.array([lgamma(each + 1) for each in count.tolist()])
    single = np.exp(count * np.log(mean) - mean - logs)
    whole = float(np.exp(flows * np.log(flows) - flows - lgamma(flows + 1)))
    expected = 0.0
    for most in range(flows):
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


def drawn_fullest(sizes: Float64, paths: int, parts: int = 1, rounds: int = _ROUNDS) -> tuple[float, float]:
    """Return the same by drawing: the mean of what the fullest path gets, and the share of draws without a collision.

    `sizes` are the flows', in any unit, each split into as many equal `parts`. The same draws every time.
    """
    each = np.repeat(sizes / parts, parts)
    random = np.random.default_rng(_SEED)
    at_once = max(1, _DRAWN_AT_ONCE // (len(each) + paths))
    fullest, alone, left = 0.0, 0, rounds
    while left:
        count = min(at_once, left)
        chosen = random.integers(0, paths, (count, len(each))) + paths * np.arange(count)[:, None]
        loads = np.bincount(chosen.ravel(), np.tile(each, count), count * paths).reshape(count, paths)
        taken = np.bincount(chosen.ravel(), minlength=count * paths).reshape(count, paths)
        fullest += float(loads.max(axis=1).sum())
        alone += int((taken.max(axis=1) <= 1).sum())
        left -= count
    return fullest / rounds, alone / rounds


def fullest(sizes: Float64, paths: int, parts: int = 1) -> tuple[float, float, bool]:
    """Return what the fullest path gets on average, the probability that no two parts collide, and whether exactly.

    Of equal flows that is counted, of others, or of very many, drawn.
    """
    count = len(sizes) * parts
    equal = float(sizes.max() - sizes.min()) <= 1e-9 * float(sizes.max())
    if equal and count <= _EXACT_FLOWS:
        return expected_fullest(count, paths) * float(sizes[0]) / parts, no_collision(count, paths), True
    load, alone = drawn_fullest(sizes, paths, parts)
    return load, no_collision(count, paths) if equal else alone, False


def ideal(sizes: Float64, paths: int) -> float:
    """Return what the fullest path gets at least: a part of all, and of one flow's own share no less than its size.

    A flow leaves its host by one link, which is as fast as a path; so it is never faster on several of them.
    """
    return max(float(sizes.sum()) / paths, float(sizes.max()))


def left_over(flows: int, paths: int) -> tuple[int, int]:
    """Return how many equal flows are left over when each path has got as many whole ones, and in how many parts each
    of them has to be split for all paths to get the same: s / gcd(r, s) of r = n mod s.
    """
    left = flows % paths
    return left, paths // gcd(left, paths) if left else 1
