"""The anatomy of an iteration whose every time is known, and the idle time that it shows."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.synthetic import BUCKETS, ELEMENTS, MS, START_NS, Job, K

from netprof.analysis import Analysis, analyze
from netprof.analysis.account.causes import CAUSES, UNEXPLAINED
from netprof.analysis.findings.collectives.anatomy import anatomy
from netprof.analysis.findings.links.links import LINKS, spans_of_idleness
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.tables.intervals import covered_until, merge
from netprof.trace import TraceReader


def analysed(job: Job, path: Path) -> Analysis:
    return analyze(TraceReader(job.write(path / "t.netprof")))


def spans_of(analysis: Analysis, index: int = 0):
    return spans_of_idleness(analysis.evidence, analysis.of(LINKS)[index])


def test_phases_and_buckets_are_where_they_were_put(tmp_path: Path) -> None:
    job = Job().fill()
    for step in range(11):  # gradients, the last of them right before its bucket's launch
        for at in (21, 29, 35, 40):
            job.mark(START_NS + step * 200 * MS + at * MS, 100, K.GRADIENT_READY)
    analysis = analysed(job, tmp_path)
    found = anatomy(analysis.evidence, 100, LinkKey(7, "eth0"), spans_of(analysis))
    assert found is not None
    edges = [found.backward.median, found.wait.median, found.done.median, found.end.median]
    assert edges == pytest.approx([0.020, 0.042, 0.140, 0.200], abs=2e-6)
    assert found.end.p10 == found.end.median == found.end.p90
    assert [bucket.bytes for bucket in found.buckets] == [4 * elements for elements in ELEMENTS]
    for bucket, (launch, begin, end) in zip(found.buckets, BUCKETS, strict=True):
        assert bucket.begin is not None
        times = [bucket.launch.median, bucket.begin.median, bucket.end.median]
        assert times == pytest.approx([launch / 1e9, begin / 1e9, end / 1e9])
    assert [b.ready.median for b in found.buckets if b.ready] == pytest.approx([0.029, 0.040])


def test_the_link_beneath_is_busy_from_50_to_130_ms(tmp_path: Path) -> None:
    analysis = analysed(Job().fill(), tmp_path)
    found = anatomy(analysis.evidence, 100, LinkKey(7, "eth0"), spans_of(analysis))
    assert found is not None
    assert found.profile is not None
    middle_ms = (found.profile.edges_s[:-1] + found.profile.edges_s[1:]) * 500
    busy = (middle_ms > 50) & (middle_ms < 130)
    for rates in (found.profile.tx_bps, found.profile.rx_bps):
        assert rates.shape == (3, 200)
        np.testing.assert_allclose(rates[:, busy], 1e9, rtol=1e-6)
        np.testing.assert_allclose(rates[:, ~busy], 0.0, atol=1.0)
    share = found.profile.idle
    np.testing.assert_allclose(share["no_gradient"], middle_ms < 30, atol=1e-6)
    waiting = ((middle_ms > 30) & (middle_ms < 50)) | ((middle_ms > 130) & (middle_ms < 138))
    np.testing.assert_allclose(share["gradients_waiting"], waiting, atol=1e-6)
    np.testing.assert_allclose(share["after_last_byte"], middle_ms > 138, atol=1e-6)


def test_spread_is_the_iterations_own(tmp_path: Path) -> None:
    job = Job(iterations=0).fill()
    job.marks.clear()
    at = START_NS
    for step in range(41):
        job.step(0, at)
        at += (150 + 2 * step) * MS
    found = anatomy(analysed(job, tmp_path).evidence, 100, None, {})
    assert found is not None
    assert found.profile is None
    assert found.iterations == 20  # the middle half of 40
    assert 0.168 < found.end.p10 < found.end.median < found.end.p90 < 0.212


def test_none_without_iterations_of_that_process(tmp_path: Path) -> None:
    analysis = analysed(Job().fill(), tmp_path)
    assert anatomy(analysis.evidence, 4711, None, {}) is None


@pytest.mark.parametrize(
    "job",
    [Job(), Job(one_device=True, rate_bps=2e9), Job(rate_bps=None), Job(ranks=4, world_size=4)],
    ids=["two", "shared", "no rate", "four"],
)
def test_idle_spans_are_as_long_as_the_summary_says(job: Job, tmp_path: Path) -> None:
    job = dataclasses.replace(job, marks=[], wire=[]).fill()
    for step in range(5):  # what one rank alone moves must not be taken for another's
        job.wire.append((1, 0, START_NS + (200 * step + 10) * MS, 120_000, 125_000))
    analysis = analysed(job, tmp_path)
    for index, link in enumerate(analysis.of(LINKS)):
        spans = spans_of(analysis, index)
        assert tuple(spans) == tuple(cause.name for cause in CAUSES)
        assert {name: s.total_ns for name, s in spans.items()} == {c.name: link.idle.of(c) for c in CAUSES}
        assert sum(s.total_ns for s in spans.values()) == link.idle.total_ns > 0


def test_without_iterations_idle_time_has_no_cause(tmp_path: Path) -> None:
    job = Job().fill()
    job.marks.clear()
    analysis = analysed(job, tmp_path)
    spans = spans_of(analysis)
    assert list(spans) == [UNEXPLAINED.name]
    assert spans[UNEXPLAINED.name].total_ns == analysis.of(LINKS)[0].idle.total_ns > 0


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=12), st.lists(st.integers(-5, 105)))
def test_covered_until_counts_every_nanosecond_once(pairs: list[tuple[int, int]], instants: list[int]) -> None:
    edges = np.array(pairs, np.int64).reshape(-1, 2)
    spans = merge(edges[:, 0], edges[:, 1])
    covered = {ns for begin, end in pairs for ns in range(begin, end)}
    expected = [sum(ns < at for ns in covered) for at in instants]
    assert covered_until(spans, np.array(instants, np.int64)).tolist() == expected
