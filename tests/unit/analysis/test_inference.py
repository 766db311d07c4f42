"""Inferred iterations against jobs whose iterations are known, and against traffic that has none."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from rhythm import MS, START_NS, Rhythm, full_bins, play

from netprof.analysis.inference.infer import (
    InferredIterations,
    NoPeriod,
    infer,
    infer_from_bins,
    infer_from_collectives,
    infer_from_launches,
    period_of,
)
from netprof.analysis.inference.onsets import Onsets
from netprof.analysis.tables.columns import UNKNOWN

BUCKETS = [(8.0,), (4.0, 4.0), (1.0, 6.0, 3.0), (2.0,) * 4, (1.0, 3.0, 3.0, 3.0, 3.0, 1.5), (1.0,) * 8]
SOURCES = {
    "wire": lambda played: infer_from_bins(played.bins),
    "collectives": lambda p: infer_from_collectives(p.bucket_begin_ns, p.bucket_end_ns, p.bucket_bytes),
    "launches": lambda played: infer_from_launches(played.bucket_begin_ns),
}
STEADY = Rhythm(pause_ms=900.0, heartbeat_ms=100.0)


def iterations_in(found: InferredIterations | NoPeriod) -> InferredIterations:
    assert isinstance(found, InferredIterations), found
    return found


def check(played, found, edge_ns=0.0):
    """At most one iteration of a hundred amiss, the period within 1 %, each iteration begins within one of the truth.

    `edge_ns` is by how much the first and the last compute time may differ: the truth runs from begin to begin, what
    is inferred from onset to onset. A few begins may be amiss: where two iterations touch, the time at which one's
    bytes end is only estimated.
    """
    found = iterations_in(found)
    true_ns = np.diff(played.begin_ns)
    assert abs(len(found) - len(true_ns)) <= max(1, len(true_ns) // 100)
    first, last = np.searchsorted(played.begin_ns, [found.begin_ns[0], found.end_ns[-1]], "right") - 1
    true_period_ns = period_of(true_ns[first:last])
    assert found.period_ns == pytest.approx(true_period_ns, abs=0.01 * true_period_ns + edge_ns / len(found))
    assert (np.diff(np.searchsorted(played.begin_ns, found.begin_ns, "right")) == 1).mean() > 0.95
    assert (found.end_ns[:-1] == found.begin_ns[1:]).mean() > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("jitter", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("shape", ["normal", "uniform", "lognormal"])
def test_jittered_jobs_with_an_evaluation_pause(source, jitter, shape):
    for buckets_mb in BUCKETS:
        for seed in range(2):
            played = play(replace(STEADY, buckets_mb=buckets_mb, jitter=jitter, shape=shape, seed=seed))
            check(played, SOURCES[source](played))


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"stall_share": 0.1},
        {"heartbeat_ms": 20.0},
        {"background_share": 0.1},
        {"compute_ms": 12.0, "between_ms": 1.0},  # communication-bound: buckets touch
        {"compute_ms": 400.0, "between_ms": 100.0},  # compute-bound
        {"bin_ns": MS // 10},
    ],
    ids=str,
)
def test_what_disturbs(change):
    for buckets_mb in BUCKETS:
        played = play(replace(STEADY, buckets_mb=buckets_mb, jitter=0.2, **change))
        check(played, infer_from_bins(played.bins))


@pytest.mark.slow
def test_what_an_iteration_moves_tells_it_from_the_chunks_of_a_transport():
    """As NCCL moves a bucket: equal chunks, some of them without a silence before, and far fewer iterations."""
    rng = np.random.default_rng(1)
    chunk, count, parts = 8_388_608.0, 120, 8
    step = parts * chunk + 16_384
    moved = (np.arange(count)[:, None] * step + np.arange(parts) * chunk).ravel()
    begins = np.arange(count * parts) % parts == 0
    silence_ns = np.where(begins, 28 * MS, 2 * MS * rng.lognormal(0, 0.3, count * parts)).astype(np.int64)
    time_ns = START_NS + np.cumsum(silence_ns + 2 * MS)
    seen = begins | (rng.random(count * parts) > 0.3)
    onsets = Onsets(time_ns[seen], silence_ns[seen], moved[seen])
    for about in (0.9 * step, step, 1.1 * step):
        found = iterations_in(infer(onsets, "bytes", about))
        assert len(found) >= count - 2
        assert np.isin(found.begin_ns, time_ns[begins]).all()
    assert isinstance(infer(onsets, "bytes", 1.5 * chunk), NoPeriod), "nothing that repeats is about as much"


@pytest.mark.slow
def test_of_several_equal_buckets_as_many_as_move_that_amount_make_an_iteration():
    """As where a host runs ahead of its GPU: no silence is longer than others, five buckets recur as six do."""
    rng = np.random.default_rng(2)
    bucket, count, parts = 4_198_400.0, 200, 6
    silence_ns = (3 * MS * rng.lognormal(0, 0.2, count * parts)).astype(np.int64)
    moved = np.arange(count * parts, dtype=np.float64) * bucket
    onsets = Onsets(START_NS + np.cumsum(silence_ns + MS), silence_ns, moved)
    for about in (0.97 * parts * bucket, 1.03 * parts * bucket):
        assert abs(len(iterations_in(infer(onsets, "bytes", about))) - count) <= 2


@pytest.mark.slow
def test_any_buckets():
    """The same jobs each time: some that are possible, as of two halves of one size, look like shorter iterations."""
    right = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        buckets = tuple(rng.choice([0.5, 1.0, 2.0, 3.0, 5.0], rng.integers(1, 9)).tolist())
        jitter = float(rng.uniform(0, 0.3))
        played = play(Rhythm(int(rng.integers(100, 251)), buckets, jitter=jitter, pause_ms=500.0, seed=seed))
        found = SOURCES["collectives"](played)
        with suppress(AssertionError):
            check(played, found, edge_ns=2 * jitter * float(np.diff(played.begin_ns).mean()))
            right += 1
    assert right >= 98


def test_an_iteration_begins_at_the_onset_of_its_first_bucket():
    played = play(replace(STEADY, heartbeat_ms=0.0, jitter=0.2))
    first_bucket_ns = played.bucket_begin_ns[::3]
    found = iterations_in(infer_from_bins(played.bins))
    assert np.abs(found.begin_ns - first_bucket_ns[: len(found)]).max() <= MS
    found = iterations_in(SOURCES["collectives"](played))
    assert (found.begin_ns == first_bucket_ns[: len(found)]).all()


def test_a_recording_that_begins_and_ends_inside_iterations():
    played = play(replace(STEADY, jitter=0.2))
    low, high = (np.searchsorted(played.begin_ns, START_NS) + 10.5) / 100, 0.9
    first, last = (int(played.bins.number[0] + share * played.bins.span) for share in (low, high))
    bins = played.bins.where((played.bins.number >= first) & (played.bins.number < last))
    found = iterations_in(infer_from_bins(bins))
    from_ns, to_ns = first * MS, last * MS
    first_bucket_ns = played.bucket_begin_ns[::3]
    onsets = ((first_bucket_ns > from_ns) & (first_bucket_ns < to_ns)).sum()
    assert onsets - 3 <= len(found) <= onsets - 1


@pytest.mark.parametrize("jitter", [0.0, 0.05, 0.2, 0.4])
def test_the_period_is_a_mean_without_pauses(jitter):
    steady = (100 + 100 * jitter * np.random.default_rng(0).uniform(-1.7, 1.7, 99)) * MS
    assert period_of(np.append(steady, 900 * MS)) == pytest.approx(steady.mean(), rel=1e-9)
    assert period_of(np.append(steady, 110 * MS)) == pytest.approx(np.append(steady, 110 * MS).mean(), rel=1e-9)
    lengths = np.arange(100, 1000) * MS
    periods = [period_of(np.append(steady, length)) for length in lengths]
    assert np.abs(np.diff(periods)).max() <= 4 * MS / 100  # there is no length at which a little more decides


def test_retransmissions_do_not_count():
    played = play(replace(STEADY, jitter=0.2))
    rng = np.random.default_rng(0)
    wire = played.bins.wire_bytes * rng.integers(1, 3, len(played.bins)).astype(np.uint64)
    check(played, infer_from_bins(replace(played.bins, wire_bytes=wire)))


def test_unsized_collectives_between_sized_ones_are_left_out():
    played = play(replace(STEADY, jitter=0.2))
    rng = np.random.default_rng(0)
    barriers = rng.choice(played.bucket_end_ns, 40) + MS // 2
    begin_ns = np.concatenate((played.bucket_begin_ns, barriers))
    end_ns = np.concatenate((played.bucket_end_ns, barriers + 1000))
    sizes = np.concatenate((played.bucket_bytes, np.full(40, UNKNOWN)))
    check(played, infer_from_collectives(begin_ns, end_ns, sizes))


def test_two_threads_that_overlap_and_swap():
    played = play(replace(STEADY, jitter=0.2, buckets_mb=(3.0, 1.0, 6.0)))
    rng = np.random.default_rng(0)
    begin_ns = played.bucket_begin_ns + rng.integers(0, 20 * MS, len(played.bucket_begin_ns))
    check(played, infer_from_collectives(begin_ns, played.bucket_end_ns + 20 * MS, played.bucket_bytes))


def test_other_traffic_in_the_middle_interrupts_and_is_no_iteration():
    """A checkpoint of 1.234 iterations' bytes, sent in one go: iterations go on after it, at a new phase."""
    before, after = play(replace(STEADY, jitter=0.1)), play(replace(STEADY, jitter=0.1, seed=1))
    checkpoint_at = before.begin_ns[-1] + 300 * MS
    shift = checkpoint_at + 600 * MS - START_NS
    begin_ns = np.concatenate((before.bucket_begin_ns, [checkpoint_at], after.bucket_begin_ns + shift))
    end_ns = np.concatenate((before.bucket_end_ns, [checkpoint_at + 500 * MS], after.bucket_end_ns + shift))
    sizes = np.concatenate((before.bucket_bytes, [12_340_000], after.bucket_bytes))
    found = iterations_in(infer_from_collectives(begin_ns, end_ns, sizes))
    assert 196 <= len(found) <= 200


def of_payload(payload):
    return full_bins(payload, START_NS // MS)


def random_bursts(rng, lengths):
    payload = np.zeros(20_000)
    for at, length in zip(np.cumsum(rng.exponential(60, 250)).astype(int), lengths, strict=True):
        payload[at : at + length] = 125_000
    return payload


NOISE = {
    "constant": lambda rng: np.full(20_000, 125_000),
    "constant with stalls": lambda rng: 125_000 * (rng.random(20_000) > 0.05),
    "white": lambda rng: rng.exponential(50_000, 20_000),
    "mostly silent": lambda rng: 125_000 * (rng.random(20_000) > 0.95),
    "random sizes": lambda rng: random_bursts(rng, rng.integers(2, 30, 250)),
    "equal sizes at random": lambda rng: random_bursts(rng, np.full(250, 8)),
    "silence": lambda rng: np.zeros(20_000),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", NOISE)
def test_no_period_in_noise(kind):
    for seed in range(5):
        found = infer_from_bins(of_payload(NOISE[kind](np.random.default_rng(seed))))
        assert isinstance(found, NoPeriod)
        assert found.reason


@pytest.mark.slow
def test_no_period_in_launches_at_random():
    for seed in range(10):
        times = START_NS + np.cumsum(np.random.default_rng(seed).exponential(50 * MS, 400)).astype(np.int64)
        assert isinstance(infer_from_launches(times), NoPeriod)


@pytest.mark.parametrize("iterations", [0, 1, 2, 5])
def test_too_few_iterations(iterations):
    empty = np.zeros(0, np.int64)
    played = play(Rhythm(iterations)) if iterations else None
    found = SOURCES["collectives"](played) if played else infer_from_collectives(empty, empty, empty)
    assert isinstance(found, NoPeriod)


@pytest.mark.slow
def test_confidence_falls_with_fewer_iterations_and_with_disturbance():
    def confidence(**change):
        return iterations_in(infer_from_bins(play(replace(STEADY, jitter=0.2, **change)).bins)).confidence

    assert confidence() > 0.9
    assert confidence(iterations=15) < confidence(iterations=100) < confidence(iterations=500)


@pytest.mark.slow
def test_what_is_said_with_confidence_is_right():
    """Over jobs of every difficulty: of what is said with 0.9 and more, nine in ten have the right count."""
    said, right = 0, 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        job = Rhythm(
            iterations=int(rng.integers(8, 120)),
            buckets_mb=BUCKETS[int(rng.integers(len(BUCKETS)))],
            jitter=float(rng.uniform(0, 0.6)),
            background_share=float(rng.choice([0.0, 0.03])),
            stall_share=float(rng.choice([0.0, 0.2])),
            bin_ns=int(rng.choice([1, 5])) * MS,
            seed=seed,
        )
        found = infer_from_bins(play(job).bins)
        if isinstance(found, InferredIterations) and found.confidence >= 0.9:
            said += 1
            right += abs(len(found) - job.iterations) <= max(1, job.iterations // 100)
    assert said >= 15
    assert right >= 0.9 * said


ALMOST_ALIKE = [
    (0.5, 0.5, 2.0, 1.0, 0.5, 0.5, 3.0),  # two halves of 4 MB
    (*(1.0,) * 6, 0.4, 0.6, *(1.0,) * 6, 0.6, 0.4),  # as many buckets in both, too, and all but two of 1 MB
    (1.0, 2.0, 1.0, 0.5, 1.5, 1.0, 1.0, 2.0),  # of 4.5 and 5.5
]


@pytest.mark.parametrize("buckets_mb", ALMOST_ALIKE)
@pytest.mark.parametrize("count", [12, 30, 100])
@pytest.mark.parametrize("jitter", [0.0, 0.2])
def test_halves_that_move_the_same_with_equal_silences_are_no_iterations(buckets_mb, count, jitter):
    random = np.random.default_rng(1)
    silence_ns = 5e6 * (1 + jitter * random.standard_normal(len(buckets_mb) * count))
    length_ns = 1e7 * np.tile(buckets_mb, count)
    begin_ns = np.cumsum(silence_ns) + np.cumsum(length_ns) - length_ns
    size = (1e6 * np.tile(buckets_mb, count)).astype(np.int64)
    found = infer_from_collectives(begin_ns.astype(np.int64), (begin_ns + length_ns).astype(np.int64), size)
    found = iterations_in(found)
    assert abs(len(found) - count) <= 1
    assert found.period_ns == pytest.approx(float(begin_ns[-1] - begin_ns[0]) / (count - 1 / len(buckets_mb)), rel=0.05)
