"""Which process and which source a job's iterations are inferred from."""

from __future__ import annotations

import numpy as np
import pytest
from rhythm import Rhythm, play

from netprof.analysis.events.collectives import Collectives
from netprof.analysis.inference.sources import infer_iterations
from netprof.analysis.tables.columns import empty
from netprof.analysis.tables.flow_table import LaneKey, LinkKey
from netprof.analysis.tables.marks import Marks
from netprof.analysis.wire.lanes import Lanes
from netprof.schema import RECEIVE, TRANSMIT, MarkKind

PLAYED = play(Rhythm(jitter=0.2, pause_ms=600.0))
LINK = LinkKey(7, "eth0")
NO_MARKS, NO_COLLECTIVES = empty(Marks), empty(Collectives)


def collectives(pid):
    one = np.full(len(PLAYED.bucket_begin_ns), pid)
    return Collectives(one, one, PLAYED.bucket_begin_ns, PLAYED.bucket_end_ns, PLAYED.bucket_bytes, *[one * 0] * 8)


def launches(pid):
    count = len(PLAYED.bucket_begin_ns)
    zero = np.zeros(count, np.int64)
    kind = zero + int(MarkKind.NCCL_ALL_REDUCE)
    return Marks(PLAYED.bucket_begin_ns, zero + pid, zero, kind, PLAYED.bucket_bytes // 4, zero, zero)


@pytest.mark.parametrize(
    ("marks", "found", "lanes", "method"),
    [
        (NO_MARKS, collectives(5), {}, "the period of the collectives of rank 1"),
        (launches(5), NO_COLLECTIVES, {}, "the period of the collectives that rank 1 enqueued"),
        (
            NO_MARKS,
            NO_COLLECTIVES,
            {(LaneKey(LINK, 5), TRANSMIT): PLAYED.bins},
            "the period of the bytes that rank 1 sent",
        ),
        (
            NO_MARKS,
            NO_COLLECTIVES,
            {(LaneKey(LINK, 6), RECEIVE): PLAYED.bins},
            "the period of the bytes that process 6 received",
        ),
    ],
)
def test_the_best_source_that_there_is(marks, found, lanes, method):
    outcome = infer_iterations(marks, found, Lanes(lanes), {5: 1})
    assert outcome.summary is not None
    assert outcome.summary.method == method
    assert outcome.summary.count == pytest.approx(100, abs=1)
    assert outcome.summary.min_s <= outcome.summary.p10_s <= outcome.summary.median_s <= outcome.summary.p90_s
    assert outcome.summary.mean_s == pytest.approx(np.diff(PLAYED.begin_ns).mean() / 1e9, rel=0.01)


def test_nothing_to_infer_from_says_so():
    few = collectives(5).where(np.arange(3))  # the third begins as the second ends: one burst
    outcome = infer_iterations(NO_MARKS, few, Lanes({}), {})
    assert outcome.summary is None
    assert outcome.failures == ("collectives of process 5: only 2 bursts between silences",)
    assert infer_iterations(NO_MARKS, NO_COLLECTIVES, Lanes({}), {}).failures == ()
