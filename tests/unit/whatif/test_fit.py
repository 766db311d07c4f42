"""The α–β fit on samples whose α and β are known."""

from __future__ import annotations

import numpy as np
import pytest

from netprof.analysis.whatif.fit import CollectiveSamples, fit_alpha_beta
from netprof.errors import NetprofError


def samples(*rows: tuple[float, float]) -> CollectiveSamples:
    return CollectiveSamples(np.array([b for b, _ in rows]), np.array([s for _, s in rows]))


def test_an_exact_line_is_found_exactly() -> None:
    fit = fit_alpha_beta(samples(*((size, 2e-3 + 8e-9 * size) for size in (1e6, 5e6, 25e6) for _ in range(3))))
    assert fit.latency_s == pytest.approx(2e-3)
    assert fit.seconds_per_byte == pytest.approx(8e-9)
    assert fit.median_error == pytest.approx(0, abs=1e-12)
    assert (fit.samples, fit.sizes, fit.latency_known) == (9, 3, True)


def test_the_fitted_times_add_up_to_the_measured_ones() -> None:
    for rows in ([(1e6, 1.0), (2e6, 3.0), (2e6, 4.0)], [(1e6, 0.1), (2e6, 3.0)], [(1e6, 1.0), (1e6, 2.0)]):
        fit = fit_alpha_beta(samples(*rows))
        assert sum(fit.latency_s + fit.seconds_per_byte * size for size, _ in rows) == pytest.approx(
            sum(seconds for _, seconds in rows)
        )


def test_the_error_is_the_distance_from_the_line() -> None:
    fit = fit_alpha_beta(samples((1e6, 1.0), (1e6, 1.0), (1e6, 4.0)))
    assert not fit.latency_known
    assert fit.latency_s == 0
    assert fit.seconds_per_byte == pytest.approx(2e-6)
    assert fit.median_error == pytest.approx(1.0)
    bent = fit_alpha_beta(samples((1e6, 1.0), (2e6, 3.0), (3e6, 3.0)))
    assert bent.worst_size_error > 0.2


@pytest.mark.parametrize("rows", [[(1e6, 2.0), (2e6, 1.0)], [(1e6, 0.1), (2e6, 3.0)]])
def test_neither_coefficient_goes_below_zero(rows: list[tuple[float, float]]) -> None:
    fit = fit_alpha_beta(samples(*rows))
    assert fit.latency_s >= 0
    assert fit.seconds_per_byte >= 0


def test_where_sizes_do_not_explain_the_times_no_latency_is_made_up() -> None:
    """Two buckets share a link: the small one got less than its share, the large one seems faster than the wire."""
    shared = samples((4e6, 0.043), (21e6, 0.171))
    fit = fit_alpha_beta(shared, 8e-9)
    assert (fit.latency_s, fit.latency_known) == (0.0, False)
    assert fit.seconds_per_byte * 25e6 == pytest.approx(0.214)
    small = fit_alpha_beta(samples((4.0, 1e-3), (4e3, 0.9e-3)), 8e-9)
    assert small.latency_s == pytest.approx(0.95e-3, rel=0.1)
    assert small.seconds_per_byte == 8e-9


def test_nothing_to_fit_is_an_error_with_a_way_out() -> None:
    with pytest.raises(NetprofError) as caught:
        fit_alpha_beta(samples((0.0, 1.0)))
    assert "--transport ideal" in caught.value.hint
