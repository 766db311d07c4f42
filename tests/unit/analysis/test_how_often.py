"""Once, in turn or always: never more than was counted."""

from __future__ import annotations

import numpy as np
import pytest
from golden.conclusions import traces
from hypothesis import given
from hypothesis import strategies as st
from support.synthetic import MS, START_NS

from netprof.analysis import analyze
from netprof.analysis.account.causes import LATE_RANK
from netprof.analysis.account.held_up import HeldUp, Kind
from netprof.analysis.findings.stragglers.doing import NO_TIMES
from netprof.analysis.findings.stragglers.how_often import HeldUpSteps, Pattern, how_often
from netprof.analysis.findings.stragglers.stragglers_parts import Culprit, StragglersParts
from netprof.analysis.hosts.open_job import open_job
from netprof.analysis.tables.intervals import Windows

EVERY_NS = 100 * MS


def often(late_ms: np.ndarray, ranks: tuple[int, ...]) -> HeldUpSteps | None:
    """Of some amounts by rank and step."""
    begin_ns = START_NS + np.arange(late_ms.shape[1]) * EVERY_NS
    ns = np.stack([(late_ms * MS).astype(np.int64), np.zeros(late_ms.shape, np.int64)], axis=1)
    keys = tuple(range(len(late_ms)))
    names: dict[tuple[Kind, object], Culprit] = {(Kind.RANK, key): Culprit(f"rank {key}", rank=key) for key in keys}
    parts = StragglersParts(Windows(begin_ns, begin_ns + EVERY_NS), (HeldUp(Kind.RANK, keys, ns),), NO_TIMES, names)
    counted = how_often(parts, LATE_RANK)
    assert counted is not None
    return counted.of([f"rank {rank}" for rank in ranks])


@given(st.lists(st.lists(st.sampled_from([0, 1, 4, 6, 50]), min_size=3, max_size=3), min_size=1, max_size=30))
def test_no_words_claim_more_steps_than_were_counted(steps: list[list[int]]) -> None:
    late_ms = np.array(steps, float).T
    late = late_ms >= 5  # a twentieth of a step of 100 ms
    for rank in range(3):
        found = often(late_ms, (rank,))
        assert found is not None
        assert (found.held, found.steps) == (int(late[rank].sum()), len(steps))
        assert (found.pattern is Pattern.ALWAYS) == bool(late[rank].all())
        assert (found.pattern is Pattern.ONCE) == (late[rank].sum() == 1 < len(steps))
        assert found.when != "in every step" or late[rank].all()
    alike = np.flatnonzero(late_ms.sum(axis=1) >= max(late_ms.sum(axis=1).max() / 2, 1e-6))
    if len(alike) > 1:
        several = often(late_ms, tuple(alike.tolist()))
        assert several is not None
        if several.pattern is Pattern.IN_TURN:
            assert all(late[rank].sum() > 1 for rank in alike)
            assert (late[alike].sum(axis=0) <= 1).sum() >= 0.8 * len(steps) - (~late[alike].any(axis=0)).sum()
        assert several.is_always == bool(late[alike].any(axis=0).all())


@pytest.mark.parametrize(
    ("late", "pattern", "sentence"),
    [
        ([1, 1, 1, 1], "always", "rank 1 was late in all 4 steps"),
        ([0, 1, 0, 0], "once", "rank 1 was late in 1 of 4 steps"),
        ([1, 1, 0, 1], "sometimes", "rank 1 was late in 3 of 4 steps"),
        ([0, 0, 0, 0], None, ""),
    ],
)
def test_one_rank(late: list[int], pattern: str | None, sentence: str) -> None:
    found = often(np.array([[0] * 4, late]) * 50.0, (1,))
    assert found is not None
    assert (found.pattern.value if found.pattern else None, found.sentence) == (pattern, sentence)


def test_a_few_long_pauses_are_not_drowned_by_steps_that_are_a_little_late() -> None:
    late_ms = np.zeros((2, 106))
    late_ms[1, ::14] = 6  # of steps of 100 ms
    late_ms[1, [20, 75]] = 12_000
    found = often(late_ms, (1,))
    assert found is not None
    assert (found.held, found.most) == (10, 2)
    assert (found.for_long, found.when) == ("for 12.0 s each", "in 2 of 106 steps")
    assert found.sentence == "rank 1 was late in 10 of 106 steps, for 12.0 s each in 2 of them"
    late_ms[1, 20] = 0
    once = often(late_ms, (1,))
    assert once is not None
    assert (once.for_long, once.when) == ("for 12.0 s", "in 1 of 106 steps")
    late_ms[1] = 12
    always = often(late_ms, (1,))
    assert always is not None
    assert (always.for_long, always.when) == ("", "in every step")


def test_ranks_in_turn_and_ranks_that_are_late_together() -> None:
    turns = np.array([[0] * 6, [1, 0, 1, 0, 1, 0], [0, 1, 0, 1, 0, 1]]) * 50.0
    found = often(turns, (1, 2))
    assert found is not None
    assert found.pattern is Pattern.IN_TURN
    assert found.sentence == "late in turn: rank 1 in 3 and rank 2 in 3 of 6 steps"
    twice, once = often(turns[:, :4], (1, 2)), often(turns[:, :2], (1, 2))
    assert twice is not None
    assert once is not None
    assert (twice.pattern, once.pattern) == (Pattern.IN_TURN, Pattern.TOGETHER), "what comes again is a turn"
    together = often(np.array([[0] * 6, [1] * 6, [1] * 6]) * 50.0, (1, 2))
    assert together is not None
    assert together.pattern is Pattern.TOGETHER
    assert often(turns, (0, 1)) is None, "others are alike"


@pytest.mark.parametrize(
    ("name", "pattern", "late", "headline", "sentence"),
    [
        ("late-rank", "always", {"rank 1": 18}, "late in every step", "rank 1 was late in all 18 steps"),
        ("fifth-step-late", "sometimes", {"rank 1": 5}, "late in 5 of 16 steps", "rank 1 was late in 5 of 16 steps"),
        ("stopped-a-while", "once", {"rank 1": 1}, "stopped for 1.0 s, once", "rank 1 was late in 1 of 40 steps"),
        (
            "late-in-turn",
            "in_turn",
            {"rank 1": 9, "rank 2": 8},
            "late in turn",
            "late in turn: rank 1 in 9 and rank 2 in 8",
        ),
    ],
)
def test_it_is_in_headline_sentence_and_json(
    name: str, pattern: str, late: dict[str, int], headline: str, sentence: str
) -> None:
    found = analyze(open_job(traces(name))).document()
    assert found["seen"]["pattern"] == pattern
    assert found["seen"]["late_steps"] == late
    assert headline in found["headline"]
    assert f"; {sentence}" in found["sentence"]
    assert found["seen"]["once"] == (pattern == "once")
