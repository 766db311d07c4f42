"""Clocks of hosts around which bytes go one way only, as NCCL's ring over sockets: the truth is inside the bound."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest
from support.streaming_hosts import MS, WRAP, S, Wire, assert_true, bursts

from netprof.analysis.hosts.clocks import Ways, by_delays, join_by_detours, there_and_back
from netprof.analysis.hosts.host_streams import Delays, delays, read_streams
from netprof.model import HostClock

SECONDS = 20


def send(one: Wire, other: Wire, flow: int, seed: int, every: np.random.Generator) -> None:
    """Let a connection carry bytes from one to the other and nothing back; all send in the same moments."""
    random = np.random.default_rng(seed)
    one.flows.append((flow, "10.0.0.1", 1000 + flow, "10.0.0.2", 2000 + flow))
    other.flows.append((flow, "10.0.0.2", 2000 + flow, "10.0.0.1", 1000 + flow))
    sent = bursts(every, SECONDS, packets=50)
    arrived = np.maximum.accumulate(sent + 20_000 + random.exponential(30_000, len(sent)).astype(np.int64))
    first = int(random.integers(0, WRAP))
    position = first + 1448 * np.arange(1, len(sent) + 1)
    one.moved(flow, 0, sent, position, first)
    other.moved(flow, 1, arrived, position, first)


def hosts(number: int, seed: int = 0) -> list[Wire]:
    random = np.random.default_rng(seed)
    return [Wire(int(random.integers(0, 9 * S)), float(random.uniform(-5e-5, 5e-5))) for _ in range(number)]


def ring(every: Sequence[Wire], among: Sequence[int]) -> None:
    for place, one in enumerate(among):
        send(every[one], every[among[(place + 1) % len(among)]], one + 1, one, np.random.default_rng(7))


def ways_of(every: Sequence[Wire]) -> Ways:
    streams = [read_streams(each, [(-(1 << 62), 1 << 62)]) for each in every]  # type: ignore[arg-type]
    return {
        (one, other): delays(streams[one], streams[other])[0]
        for one, other in permutations(range(len(every)), 2)
    }  # fmt: skip


def clocks(every: Sequence[Wire]) -> dict[int, HostClock]:
    steps: dict[int, dict[int, HostClock]] = {host: {} for host in range(len(every))}
    span = (int(every[0].clock(0)), int(every[0].clock(SECONDS * S)))
    join_by_detours(steps, ways_of(every), 0, span)
    return steps[0]


@pytest.mark.parametrize("number", [3, 8])
@pytest.mark.parametrize("seed", range(3))
def test_around_a_ring_the_truth_is_inside_the_bound(number, seed):
    every = hosts(number, seed)
    ring(every, range(number))
    found = clocks(every)
    assert sorted(found) == list(range(1, number))
    for host, clock in found.items():
        assert_true(clock, every[0], every[host], within_ns=50_000 * number)


def test_of_who_only_sends_or_only_receives_nothing_is_known():
    every = hosts(5)
    ring(every, [0, 1, 2])
    send(every[0], every[3], 8, 8, np.random.default_rng(7))
    send(every[4], every[1], 9, 9, np.random.default_rng(7))
    assert sorted(clocks(every)) == [1, 2]


def test_delays_add_up_and_so_does_what_a_clock_may_gain_meanwhile():
    def one(sent_ms: float, took_ms: float) -> Delays:
        return Delays(*(np.array([round(ms * MS)]) for ms in (sent_ms, sent_ms + took_ms)))

    ways = {(0, 1): one(1, 0.5), (1, 2): one(4.5, 2), (2, 0): one(7, 0.25)}
    there, back = there_and_back(ways, 0, [2])[2]
    assert (there.sent_ns[0], there.arrived_ns[0]) == (1 * MS, 3.5 * MS + 3000)
    assert (back.sent_ns[0], back.arrived_ns[0]) == (7 * MS, 7.25 * MS)
    there, back = there_and_back(ways, 0, [1])[1]
    assert back.arrived_ns[0] - back.sent_ns[0] == 2.25 * MS + 500  # half a millisecond apart, by the clock of 2
    assert by_delays(there, back, (0, S)) is not None
