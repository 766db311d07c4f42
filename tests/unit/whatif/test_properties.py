"""What must hold for every schedule, policy and cost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.profiles import examples

from netprof.analysis.whatif.compression import Codec
from netprof.analysis.whatif.fit import AlphaBeta
from netprof.analysis.whatif.fusion import FusionSettings, fuse
from netprof.analysis.whatif.points import at, grid, one
from netprof.analysis.whatif.prices import Pricing, RankLinks
from netprof.analysis.whatif.program import GradBuckets, of_buckets
from netprof.analysis.whatif.schedule import GradientSchedule
from netprof.analysis.whatif.sweep import Replay, baselines, needed_compression, sweep
from netprof.analysis.whatif.transports import AddTable, FittedTransport, FullLink, Spoken, Transport
from netprof.schema import CollectiveKind

POLICIES = ("paper", "horovod", "ddp", "none")
waits = st.one_of(st.just(0.0), st.floats(1e-7, 0.02))
sizes = st.integers(0, 80 << 20).map(float)
schedules = st.lists(st.tuples(waits, sizes), min_size=1, max_size=60).map(
    lambda rows: GradientSchedule(
        np.cumsum([wait for wait, _ in rows]), np.array([size for _, size in rows]), compute_s=0.1
    )
)
tables = st.just(AddTable(np.array([40.0, 1e6, 6e8]), np.array([1e-5, 1.1e-5, 2.4e-3])))
rings: st.SearchStrategy[Transport] = st.builds(FullLink, add=st.one_of(st.none(), tables))


def fitted(latency_s: float, rest_s_per_byte: float, overhead: float, ranks: int) -> FittedTransport:
    """A transport whose collectives were recorded among `ranks`, at 1 Gbit/s."""
    beta = rest_s_per_byte + overhead * 8e-9 * 2 * (ranks - 1) / ranks
    fit = AlphaBeta(latency_s, beta, 0.0, 0.0, 1, 1, True, 1.0)
    return FittedTransport({Spoken(int(CollectiveKind.ALL_REDUCE), ranks): fit}, 1e9, overhead)


measured: st.SearchStrategy[Transport] = st.builds(
    fitted, st.floats(0, 1e-2), st.floats(0, 1e-8), st.floats(0.1, 4), st.integers(2, 64)
)
costs = st.one_of(rings, measured)
policies = st.sampled_from(POLICIES)
rates = st.lists(st.floats(1e6, 1e13), min_size=2, max_size=5, unique=True).map(sorted)
ratios = st.lists(st.floats(1, 1e4), min_size=2, max_size=5, unique=True).map(sorted)


def of(buckets: GradBuckets, cost: Transport, last_ready_s: float, codec: float = 0.0, workers: int = 2) -> Replay:
    program = of_buckets(buckets, workers, last_ready_s, 0.1)
    codecs = {"": Codec(codec / 2, codec / 2)}
    return Replay((program,), Pricing(cost, RankLinks.alike(1, None), workers, False, codecs), 0.1)


def replay(schedule: GradientSchedule, policy: str, cost: Transport, codec: float = 0.0) -> Replay:
    return of(fuse(schedule, policy), cost, schedule.last_ready_s, codec)


@given(schedules, policies, costs, rates, ratios, st.integers(2, 512))
def test_more_never_hurts_and_the_factor_is_a_share(schedule, policy, cost, rates, ratios, workers) -> None:
    points = grid([workers], rates, ratios)
    factor = sweep(replay(schedule, policy, cost), points).scaling_factor.reshape(len(rates), len(ratios))
    assert (factor > 0).all()
    assert (factor <= 1).all()
    assert (np.diff(factor, axis=0) >= 0).all()
    assert (np.diff(factor, axis=1) >= 0).all()


@given(schedules, st.sampled_from(("paper", "ddp", "none")), st.integers(2, 512))
def test_an_infinite_link_with_free_additions_leaves_no_overhead(schedule, policy, workers) -> None:
    points = grid([workers], [np.inf], [1.0, 10.0])
    assert sweep(replay(schedule, policy, FullLink()), points).overhead_s.tolist() == [0.0, 0.0]


@given(schedules, st.floats(1e-4, 1e-1))
def test_an_infinite_link_leaves_horovod_at_most_its_cycle(schedule, cycle_s) -> None:
    buckets = fuse(schedule, "horovod", FusionSettings(cycle_s=cycle_s))
    points = one(2, np.inf)
    alone = of(buckets, FullLink(), schedule.last_ready_s)
    assert 0 <= sweep(alone, points).overhead_s[0] <= cycle_s * (1 + 1e-6)


@given(schedules, policies)
def test_no_policy_loses_a_byte_or_sends_one_early(schedule, policy) -> None:
    buckets = fuse(schedule, policy)
    assert buckets.bytes.sum() == schedule.bytes.sum()
    assert (np.diff(buckets.launch_s) >= 0).all()
    launched = np.array([buckets.bytes[buckets.launch_s <= t].sum() for t in schedule.ready_s])
    assert (
        launched <= np.cumsum(schedule.bytes)[np.searchsorted(schedule.ready_s, schedule.ready_s, "right") - 1]
    ).all()


@given(schedules, st.integers(1, 1 << 26))
def test_horovods_threshold_is_exceeded_only_by_a_gradient_alone(schedule, threshold) -> None:
    buckets = fuse(schedule, "horovod", FusionSettings(threshold_bytes=threshold))
    too_large = buckets.bytes[buckets.bytes > threshold]
    assert np.isin(too_large, schedule.bytes).all()


@pytest.mark.slow
@given(schedules, policies, costs, st.floats(1e6, 1e12), st.integers(2, 64), st.floats(0.2, 0.99))
def test_the_ratio_needed_is_the_smallest_that_reaches_the_goal(schedule, policy, cost, bps, workers, goal) -> None:
    alone = replay(schedule, policy, cost)
    point = one(workers, bps)
    needed = needed_compression(alone, point, goal, schedule.compute_s)[0]

    def factor(ratio: float) -> float:
        return float(sweep(alone, at(point.workers, point.bandwidth_bps, np.array([ratio]))).scaling_factor[0])

    if np.isinf(needed):
        assert factor(1e11) < goal * (1 + 1e-9)
    elif needed == 1:
        assert factor(1.0) >= goal * (1 - 1e-9)
    else:
        assert factor(needed) == pytest.approx(goal, rel=1e-6)
        assert factor(max(1.0, needed * (1 - 1e-3))) < goal


@given(schedules, policies, st.floats(1e6, 1e12), st.floats(1e-12, 1e-9))
def test_a_codec_counts_only_where_something_is_compressed(schedule, policy, bps, codec) -> None:
    points = grid([4], [bps], [1.0, 2.0])
    with_codec = sweep(replay(schedule, policy, FullLink(), codec), points).overhead_s
    without = sweep(replay(schedule, policy, FullLink()), points).overhead_s
    assert with_codec[0] == without[0]
    assert with_codec[1] >= without[1]


@examples(30)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(1, 1e8)), min_size=1, max_size=20), rings)
def test_the_sweep_is_the_event_loop(rows, cost) -> None:
    rows.sort()
    buckets = GradBuckets(np.array([r[0] for r in rows]), np.array([r[1] for r in rows]))
    point = at(np.array([8.0]), np.array([1e9]), np.array([3.0]))
    reduce = np.array(int(CollectiveKind.ALL_REDUCE))
    fixed, bits, _ = cost.terms(reduce, buckets.bytes, np.array(8))
    now = 0.0
    for k, (launch, _) in enumerate(rows):
        now = max(now, launch) + fixed[k] + bits[k] / 3e9
    found = sweep(of(buckets, cost, rows[-1][0]), point).overhead_s[0]
    assert found == pytest.approx(now - rows[-1][0], rel=1e-9, abs=1e-12)


def test_the_one_host_baseline_keeps_what_is_not_the_network() -> None:
    add = AddTable(np.array([1.0, 1e9]), np.array([1e-3, 1e-3]))
    alone = of(GradBuckets(np.array([0.0]), np.array([8e6])), FullLink(add), 0.0)
    assert baselines(alone, 1).host_s == 0.1
    assert baselines(alone, 8).host_s == pytest.approx(0.1 + 7e-3)
    assert baselines(alone, 8, worker_s=0.09).host_s == pytest.approx(0.09 + 7e-3)
    assert baselines(alone, 8, host_s=0.2).host_s == 0.2
