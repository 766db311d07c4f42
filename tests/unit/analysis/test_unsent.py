"""Silence while a sender has bytes that it has not sent: its TCP holds them back, or the receiver has no room."""

from __future__ import annotations

import numpy as np

from netprof.analysis.account.group_times import Held, without_unsent
from netprof.analysis.tables.columns import Int64
from netprof.analysis.tables.intervals import Intervals, interval
from netprof.analysis.wire.unsent import UnsentCollector
from netprof.schema import RECEIVE, TRANSMIT, Unsent

A, B = 1, 2
SILENCES = Held(Intervals(np.array([100, 200, 300]), np.array([150, 250, 350])), np.array([A, A, B]))


def ints(*values: int) -> Int64:
    return np.array(values, np.int64)


def test_a_process_with_unsent_bytes_does_not_hold_everybody_its_tcp_does() -> None:
    kept = without_unsent(SILENCES, {A: interval(90, 160), B: interval(0, 290)}, {})
    assert kept.times.begin_ns.tolist() == [200, 300]
    assert kept.holder.tolist() == [A, B]


def test_where_the_receiver_has_no_room_it_is_the_receiver_that_stands() -> None:
    kept = without_unsent(SILENCES, {}, {A: [(B, interval(190, 260))]})
    assert kept.holder.tolist() == [A, B, B]


def test_what_an_end_had_to_send_holds_until_it_is_told_otherwise() -> None:
    collector = UnsentCollector(2)
    received = {"last_ns": ints(10, 20, 30, 15), "unsent": ints(1, 1, 0, 2)}
    collector.add(ints(0, 0, 0, 1), np.full(4, RECEIVE), received)
    collector.add(ints(1, 0), ints(RECEIVE, TRANSMIT), {"last_ns": ints(40, 50), "unsent": ints(0, 1)})
    waits = collector.unsent.times(Unsent.WAITS)
    assert {flow: (times.begin_ns.tolist(), times.end_ns.tolist()) for flow, times in waits.items()} == {
        0: ([10], [30])
    }
    no_room = collector.unsent.times(Unsent.NO_ROOM)
    assert {flow: (times.begin_ns.tolist(), times.end_ns.tolist()) for flow, times in no_room.items()} == {
        1: ([15], [40])
    }


def test_older_traces_do_not_say_it() -> None:
    collector = UnsentCollector(1)
    collector.add(ints(0), ints(RECEIVE), {"last_ns": ints(10), "unsent": ints(-1)})
    assert not collector.unsent.times(Unsent.WAITS)
