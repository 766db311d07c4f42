"""Which process and which source a job's iterations are inferred from."""

from __future__ import annotations

from dataclasses import replace

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
ONE = PLAYED.bins.part(slice(0, 1))
BACK = replace(ONE, payload_bytes=PLAYED.bins.payload_bytes.sum(keepdims=True) // 10)
"""What goes the other way, all at once: no period is in it."""
NO_MARKS, NO_COLLECTIVES = empty(Marks), empty(Collectives)


def collectives(pid):
    one = np.full(len(PLAYED.bucket_begin_ns), pid)
    return Collectives(one, one, PLAYED.bucket_begin_ns, PLAYED.bucket_end_ns, PLAYED.bucket_bytes, *[one * 0] * 10)


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
            {(LaneKey(LINK, 5), TRANSMIT): PLAYED.bins, (LaneKey(LINK, 5), RECEIVE): BACK},
            "the period of the bytes that rank 1 sent",
        ),
        (
            NO_MARKS,
            NO_COLLECTIVES,
            {(LaneKey(LINK, 6), RECEIVE): PLAYED.bins, (LaneKey(LINK, 6), TRANSMIT): BACK},
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


def test_what_goes_one_way_or_is_too_little_is_no_gradient():
    download = infer_iterations(NO_MARKS, NO_COLLECTIVES, Lanes({(LaneKey(LINK, 5), RECEIVE): PLAYED.bins}), {})
    assert download.summary is None
    assert "they go one way, as no gradients do" in download.failures[0]
    few = replace(PLAYED.bins, payload_bytes=np.minimum(PLAYED.bins.payload_bytes, 1))
    keys = {(LaneKey(LINK, 5), way): few for way in (TRANSMIT, RECEIVE)}
    heartbeats = infer_iterations(NO_MARKS, NO_COLLECTIVES, Lanes(keys), {})
    assert heartbeats.summary is None
    small = replace(collectives(5), bytes=np.full(len(PLAYED.bucket_begin_ns), 4))
    assert infer_iterations(NO_MARKS, small, Lanes({}), {}).summary is None
