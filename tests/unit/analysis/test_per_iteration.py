"""Rows per iteration and bandwidth by size, against the times that the synthetic job was given."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.synthetic import BUCKET_BYTES, BUCKETS, ELEMENTS, MS, START_NS, Job, in_parts, trace_of

from netprof.analysis import analyze
from netprof.analysis.findings.iterations.per_iteration import bandwidth_by_size, histogram, iteration_rows, slowest
from netprof.trace import TraceReader


def test_an_iterations_bus_bandwidth_is_over_the_time_in_which_any_all_reduce_runs(tmp_path: Path) -> None:
    tables = analyze(TraceReader(trace_of(ranks=4, world_size=4))).evidence
    rows = iteration_rows(tables.iterations, tables.collectives, 101, 4)
    assert len(rows) == 10
    running_s = (BUCKETS[1][2] - BUCKETS[0][1]) / 1e9  # the two overlap
    np.testing.assert_allclose(rows.bus_bandwidth_bps, BUCKET_BYTES * 8 * 1.5 / running_s, rtol=1e-9)
    total = rows.forward_s + rows.backward_s + rows.exposed_communication_s + rows.rest_s
    np.testing.assert_allclose(total, rows.duration_s)
    np.testing.assert_allclose(rows.exposed_communication_s, 0.098, atol=2e-6)


def test_no_bus_bandwidth_without_a_world_size(tmp_path: Path) -> None:
    tables = analyze(TraceReader(trace_of())).evidence
    assert np.isnan(iteration_rows(tables.iterations, tables.collectives, 100, None).bus_bandwidth_bps).all()


def test_the_slowest_come_first(tmp_path: Path) -> None:
    job = Job(ranks=1, iterations=0)
    at = START_NS
    for length in (200, 200, 500, 200, 300, 200):
        job.step(0, at)
        at += length * MS
    tables = analyze(TraceReader(job.write(tmp_path / "t.netprof"))).evidence
    rows = iteration_rows(tables.iterations, tables.collectives, 100, 2)
    assert slowest(rows.duration_s, 3).tolist() == [2, 4, 0]


def test_bandwidth_of_each_size(tmp_path: Path) -> None:
    tables = analyze(TraceReader(trace_of())).evidence
    table = bandwidth_by_size(tables.collectives, 100, 2)
    assert table.bytes.tolist() == [4 * elements for elements in ELEMENTS]
    assert table.count.tolist() == [11, 11]
    expected = [4 * n * 8e9 / (end - begin) for n, (_, begin, end) in zip(ELEMENTS, BUCKETS, strict=True)]
    for column in (table.p10_bps, table.median_bps, table.p90_bps):
        np.testing.assert_allclose(column, expected)
    algorithm = bandwidth_by_size(tables.collectives, 100, None)
    bus = bandwidth_by_size(tables.collectives, 100, 4)
    np.testing.assert_allclose(bus.median_bps, 1.5 * algorithm.median_bps)


def test_many_sizes_share_groups_and_none_is_lost(tmp_path: Path) -> None:
    tables = analyze(TraceReader(trace_of())).evidence
    own = tables.collectives.where(tables.collectives.pid == 100)
    many = dataclasses.replace(own, bytes=1000 + np.arange(len(own)) ** 3)
    table = bandwidth_by_size(many, 100, 2, most_sizes=5)
    assert len(table) <= 5
    assert table.count.sum() == len(own)
    assert (np.diff(table.bytes) > 0).all()


@given(st.lists(st.lists(st.floats(0, 1e12) | st.just(float("nan")), max_size=40), min_size=1, max_size=3))
def test_a_histogram_counts_every_finite_value(ranks: list[list[float]]) -> None:
    found = histogram([np.array(values) for values in ranks])
    finite = [int(np.isfinite(values).sum()) for values in ranks]
    if found is None:
        assert sum(finite) == 0
    else:
        assert found.counts.sum(axis=1).tolist() == finite
        assert found.counts.shape == (len(ranks), len(found.edges) - 1)
        assert len(found.edges) <= 49


def test_values_that_are_all_alike_are_one_bar() -> None:
    found = histogram([np.full(5, 0.2)])
    assert found is not None
    assert found.counts.tolist() == [[5]]
    assert found.edges[0] < 0.2 < found.edges[1]


def test_bus_bandwidth_is_of_the_group_and_not_of_the_job(tmp_path: Path) -> None:
    """Eight ranks in communicators of two: each link carries a byte of each byte."""
    job = in_parts(Job(ranks=8, world_size=8).fill(), 2)
    tables = analyze(TraceReader(job.write(tmp_path / "t.netprof"))).evidence
    running_s = (BUCKETS[1][2] - BUCKETS[0][1]) / 1e9
    rows = iteration_rows(tables.iterations, tables.collectives, 100, 8)
    np.testing.assert_allclose(rows.bus_bandwidth_bps, BUCKET_BYTES * 8 / running_s, rtol=1e-9)
    expected = [4 * n * 8e9 / (end - begin) for n, (_, begin, end) in zip(ELEMENTS, BUCKETS, strict=True)]
    np.testing.assert_allclose(bandwidth_by_size(tables.collectives, 100, 8).median_bps, expected)
