"""The table of flows: connections that only exist take no room in it, and however many come and go no byte is lost."""

from __future__ import annotations

import os
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from support.traffic import Collector, Recorded

from netprof.probes.flow.probe import MAX_FLOWS, FlowProbe
from netprof.schema import RECEIVE, TRANSMIT

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="BPF needs root")

HERE = "127.8.0.2"


class Pair:
    """The two ends of a connection, both of the job: this process."""

    def __init__(self, listener: socket.socket) -> None:
        self.near = socket.create_connection(listener.getsockname())
        self.far = listener.accept()[0]
        self.ports = self.near.getsockname()[1], self.far.getsockname()[1]

    def move(self, count: int) -> None:
        """Send bytes from near to far, and read them there."""
        sender = threading.Thread(target=self.near.sendall, args=(bytes(count),))
        sender.start()
        left = count
        while left:
            left -= len(self.far.recv(min(left, 1 << 20)))
        sender.join()

    def close(self) -> None:
        self.near.close()
        self.far.close()

    def assert_accounted(self, recorded: Recorded) -> None:
        """Compare what TCP says of both ends with what was counted, and noted as earlier, to the byte."""
        for held, ports in ((self.near, self.ports), (self.far, self.ports[::-1])):
            flow = recorded.flows[ports]
            info = held.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            received, sent, again = (struct.unpack_from("Q", info, offset)[0] for offset in (128, 200, 208))
            assert flow["earlier_sent_bytes"] + recorded.total(flow, TRANSMIT) == sent - again
            assert flow["earlier_received_bytes"] + recorded.total(flow, RECEIVE) == received


@pytest.fixture
def pairs() -> Iterator[Callable[[int], list[Pair]]]:
    """Make connections of this process with itself; closed in the end."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((HERE, 0), backlog=64))

        def make(count: int) -> list[Pair]:
            made = [Pair(listener) for _ in range(count)]
            for pair in made:
                stack.callback(pair.close)
            return made

        yield make
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextmanager
def recording(max_flows: int = MAX_FLOWS) -> Iterator[Collector]:
    with FlowProbe(1_000_000, max_flows=max_flows) as probe:
        probe.targets.add(os.getpid())
        probe.follow(())
        yield Collector(probe)


def wait_until(true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


@pytest.mark.parametrize("when", ["before", "during"])
def test_connections_that_move_nothing_take_no_room(pairs: Callable[[int], list[Pair]], when: str) -> None:
    idle = 3_000
    if when == "before":
        pairs(idle)
    with recording(max_flows=256) as collector:
        if when == "during":
            pairs(idle)
        (busy,) = pairs(1)
        busy.move(20_000_000)
        recorded = collector.finish()
    busy.assert_accounted(recorded)
    assert recorded.losses.untracked_flows == 0
    assert recorded.flows[busy.ports]["earlier_sent_bytes"] == 0, "every byte was counted"


@pytest.mark.core
def test_silent_flows_make_room_and_go_on_where_they_stood(pairs: Callable[[int], list[Pair]]) -> None:
    with recording(max_flows=32) as collector:
        slots = collector.probe._slots
        groups: list[list[Pair]] = []
        for turn in range(4):
            if turn < 2:
                groups.append(pairs(12))  # 24 flows: those of both groups would not fit
            for pair in groups[turn % 2]:
                pair.move(50_000 + turn)
            wait_until(lambda: slots._in_use() <= 8)
        recorded = collector.finish()
    for pair in groups[0] + groups[1]:
        pair.assert_accounted(recorded)
        assert {recorded.flows[ports]["earlier_sent_bytes"] for ports in (pair.ports, pair.ports[::-1])} == {0}
    assert len(recorded.flows) == 48
    ids = [flow["flow_id"] for flow in recorded.flows.values()]
    assert set(np.unique(recorded.wire["flow_id"])) == set(ids), "each flow has kept its number"
    assert recorded.losses.untracked_flows == recorded.losses.late_flows == 0


def test_a_flow_that_found_no_room_is_seen_as_soon_as_there_is_some(pairs: Callable[[int], list[Pair]]) -> None:
    with recording(max_flows=8) as collector:
        many, running = pairs(4), threading.Event()
        for pair in many:
            pair.move(1000)

        def keep_busy() -> None:
            while not running.wait(0.1):
                for pair in many:
                    pair.move(100)

        busy = threading.Thread(target=keep_busy)
        busy.start()
        (refused,) = pairs(1)
        refused.move(300_000)
        running.set()
        busy.join()
        for pair in many[:2]:
            pair.close()
        wait_until(lambda: collector.probe._slots._in_use() <= 4)
        time.sleep(1.0)  # the promise: within a second
        refused.move(400_000)
        recorded = collector.finish()
    flow = recorded.flows[refused.ports]
    refused.assert_accounted(recorded)
    assert recorded.total(flow, TRANSMIT) == 400_000
    assert flow["earlier_sent_bytes"] == 300_000
    assert recorded.losses.untracked_flows == 2
    assert recorded.losses.late_bytes == 600_000, "both ends"


def test_thousands_of_connections_a_second_lose_no_byte(pairs: Callable[[int], list[Pair]]) -> None:
    connections, each = 9_000, 10_000
    with recording() as collector, socket.create_server((HERE, 0), backlog=64) as listener:
        for _ in range(connections):
            with socket.create_connection(listener.getsockname()) as near, listener.accept()[0] as far:
                near.sendall(bytes(each))
                far.recv(each, socket.MSG_WAITALL)
        recorded = collector.finish()
    assert recorded.losses.untracked_flows == recorded.losses.late_flows == 0
    for direction in (TRANSMIT, RECEIVE):
        mine = recorded.wire["direction"] == direction
        assert recorded.wire["payload_bytes"][mine].sum() == connections * each
