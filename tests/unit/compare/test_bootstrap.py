"""Standard errors of series whose truth is known, and Student's t against tables."""

from __future__ import annotations

import numpy as np
import pytest

from netprof.analysis.compare.bootstrap import MEAN, MEDIAN, block_length, estimate, quantile


def autoregressive(length: int, coefficient: float, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    noise = random.normal(size=length + 200)
    values = np.zeros(length + 200)
    for index in range(1, len(values)):
        values[index] = coefficient * values[index - 1] + noise[index]
    return values[200:]


@pytest.mark.parametrize(
    ("probability", "freedom", "expected"),
    [(0.975, 10, 2.228), (0.995, 10, 3.169), (0.9995, 20, 3.850), (0.9995, 100, 3.390), (0.9975, 5, 4.773)],
)
def test_students_t_is_that_of_the_tables(probability: float, freedom: float, expected: float) -> None:
    assert quantile(probability, freedom) == pytest.approx(expected, rel=2e-3)


def test_the_error_of_a_mean_of_independent_values_is_the_known_one() -> None:
    errors = [estimate(np.random.default_rng(seed).normal(10, 2, 200), MEAN).error for seed in range(20)]
    assert np.mean(errors) == pytest.approx(2 / np.sqrt(200), rel=0.1)


def test_the_error_of_a_median_is_larger() -> None:
    errors = [estimate(np.random.default_rng(seed).normal(10, 2, 200), MEDIAN).error for seed in range(20)]
    assert np.mean(errors) == pytest.approx(2 / np.sqrt(200) * np.sqrt(np.pi / 2), rel=0.15)


def test_values_that_depend_on_each_other_count_for_fewer() -> None:
    coefficient, length = 0.7, 1000
    truth = 1 / (1 - coefficient) / np.sqrt(length)  # of the mean of an AR(1)
    found = [estimate(autoregressive(length, coefficient, seed), MEAN) for seed in range(20)]
    assert np.mean([each.error for each in found]) == pytest.approx(truth, rel=0.2)
    assert np.mean([each.freedom for each in found]) < length / 20


def test_the_more_values_depend_on_each_other_the_longer_are_the_blocks() -> None:
    lengths = [np.mean([block_length(autoregressive(500, c, seed)) for seed in range(20)]) for c in (0.0, 0.5, 0.9)]
    assert lengths[0] < lengths[1] < lengths[2]
    assert lengths[0] < 12


@pytest.mark.parametrize("length", [2, 3, 10, 50, 10_000])
def test_a_constant_is_known_exactly(length: int) -> None:
    found = estimate(np.full(length, 3.5), MEDIAN)
    assert (found.value, found.error) == (3.5, 0.0)


def test_the_same_series_gives_the_same_answer() -> None:
    values = np.random.default_rng(5).normal(size=77)
    assert estimate(values, MEDIAN) == estimate(values, MEDIAN)
