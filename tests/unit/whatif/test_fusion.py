"""The fusion policies on schedules small enough to follow by hand."""

from __future__ import annotations

import numpy as np
import pytest

from netprof.analysis.whatif.fusion import MIB, FusionSettings, fuse
from netprof.analysis.whatif.schedule import GradientSchedule
from netprof.errors import NetprofError, UsageError


def schedule(*rows: tuple[float, float]) -> GradientSchedule:
    """Rows of (ready in ms, MiB)."""
    return GradientSchedule(
        np.array([ms * 1e-3 for ms, _ in rows]), np.array([mib * MIB for _, mib in rows]), compute_s=1.0
    )


def made(policy: str, *rows: tuple[float, float], **settings: float) -> list[tuple[float, float]]:
    buckets = fuse(schedule(*rows), policy, FusionSettings(**settings))  # type: ignore[arg-type]
    return [(round(t * 1e3, 6), b / MIB) for t, b in zip(buckets.launch_s, buckets.bytes, strict=True)]


def test_paper_flushes_at_five_milliseconds_of_waits_this_gradient_included() -> None:
    assert made("paper", (4.9, 1), (5.1, 2), (9, 3), (10.1, 4), (11, 5)) == [(5.1, 3), (10.1, 7), (11, 5)]


def test_paper_flushes_at_64_mib_this_gradient_included() -> None:
    assert made("paper", (0.1, 60), (0.2, 3), (0.3, 1), (0.4, 70), (0.5, 1)) == [(0.3, 64), (0.4, 70), (0.5, 1)]


def test_paper_counts_five_waits_of_one_millisecond_as_five() -> None:
    assert made("paper", *((float(ms), 1) for ms in range(1, 11))) == [(5, 5), (10, 5)]


def test_paper_looks_at_the_timeout_only_when_a_gradient_arrives() -> None:
    assert made("paper", (1, 1), (90, 1)) == [(90, 2)]


def test_horovod_launches_at_ticks_and_splits_at_the_threshold() -> None:
    rows = ((0.5, 10), (0.6, 10), (0.9, 10), (1.0, 1), (2.5, 40), (2.6, 1))
    assert made("horovod", *rows, cycle_s=1e-3, threshold_bytes=20 * MIB) == [(1, 20), (1, 11), (3, 40), (3, 1)]


def test_ddp_closes_a_small_bucket_first_and_then_larger_ones() -> None:
    assert made("ddp", (1, 0.5), (2, 0.6), (3, 24), (4, 2), (5, 30), (6, 1)) == [(2, 1.1), (4, 26), (5, 30), (6, 1)]


def test_none_keeps_every_gradient_apart() -> None:
    assert made("none", (1, 1), (1, 2), (3, 4)) == [(1, 1), (1, 2), (3, 4)]


def test_unknown_policy_and_missing_marks_say_what_to_do() -> None:
    with pytest.raises(UsageError, match="'fast' is not a fusion policy"):
        fuse(schedule((1, 1)), "fast")
    with pytest.raises(UsageError, match="only a trace"):
        fuse(schedule((1, 1)), "observed")
    with pytest.raises(NetprofError) as caught:
        fuse(schedule(), "paper")
    assert "--fusion observed" in caught.value.hint


def test_settings_that_cannot_be_meant() -> None:
    with pytest.raises(UsageError):
        FusionSettings(cycle_s=0)
    with pytest.raises(UsageError):
        FusionSettings(threshold_bytes=0)
