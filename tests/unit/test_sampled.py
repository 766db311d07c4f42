"""What TCP says of sockets to everybody, held to what real ones moved; no rights are needed."""

from __future__ import annotations

import itertools
import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netprof.model import Target
from netprof.probes.job import procfs
from netprof.probes.sampled import probe as sampled
from netprof.probes.sampled.probe import SampledFlowProbe
from netprof.probes.sampled.tcp_info import TcpSocket, TcpSockets
from netprof.schema import RECEIVE, TRANSMIT, tables

BIN_NS = 20_000_000
SIZE = 3_000_001
TCP_CONGESTION = 13  # of tcp(7)


@contextmanager
def connected(family: int = socket.AF_INET) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a connection over loopback."""
    address = "127.0.0.1" if family == socket.AF_INET else "::1"
    with (
        socket.create_server((address, 0), family=family) as server,
        socket.create_connection(server.getsockname()[:2]) as near,
        server.accept()[0] as far,
    ):
        yield near, far


def move(near: socket.socket, far: socket.socket, size: int) -> None:
    """Send so many bytes, and read them."""
    for begin in range(0, size, 1 << 14):
        part = min(1 << 14, size - begin)
        near.sendall(bytes(part))
        while part:
            part -= len(far.recv(part))


def inode(end: socket.socket) -> int:
    return os.fstat(end.fileno()).st_ino


def found(sockets: TcpSockets, end: socket.socket) -> TcpSocket:
    (only,) = sockets.look({inode(end)}, set())
    return only


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_totals_are_what_was_sent_and_received(family: int) -> None:
    try:
        with connected(family) as (near, far), TcpSockets() as sockets:
            move(near, far, SIZE)
            sender, receiver = found(sockets, near), found(sockets, far)
            assert (sender.info["sent_bytes"], sender.info["received_bytes"]) == (SIZE, 0)
            assert (receiver.info["sent_bytes"], receiver.info["received_bytes"]) == (0, SIZE)
            assert sender.local == receiver.remote
            assert sender.local[1] == near.getsockname()[1]
            assert sender.options_bytes in (0, 12)
            assert 0 < sender.info["rtt_us"] < 1_000_000
            control = near.getsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, 16).split(b"\0")[0].decode()
            assert sender.congestion_control == control
            cookie = sender.cookie
            assert [each.cookie for each in sockets.look(set(), {cookie})] == [cookie]
            assert sockets.look(set(), set()) == []
            move(near, far, 1000)
            (again,) = sockets.again([sender])
            assert (again.info["sent_bytes"], again.cookie, again.local) == (SIZE + 1000, cookie, sender.local)
            near.close()
            far.close()
            assert sockets.again([sender]) == []
    except OSError as error:
        if family == socket.AF_INET6 and error.errno in (97, 99):
            pytest.skip("no IPv6 here")
        raise


def test_the_same_ends_again_are_another_socket() -> None:
    """Also where an IPv6 socket carries IPv4, by which torch's store is reached."""
    try:
        server = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    except OSError:
        pytest.skip("no IPv6 here")
    with server, TcpSockets() as sockets:
        address = ("127.0.0.1", server.getsockname()[1])
        near = socket.create_connection(address)
        far, ends = server.accept()[0], near.getsockname()
        known = sockets.look({inode(near), inode(far)}, set())
        assert [each.cookie for each in sockets.again(known)] == [each.cookie for each in known]
        assert len(known) == 2
        near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # it leaves nothing behind
        near.close()
        far.close()
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(ends)
            other.connect(address)
            with server.accept()[0]:
                assert sockets.again(known) == []
                assert len(sockets.look({inode(other)}, set())) == 1


def own_target() -> Target:
    stat = procfs.read_stat(os.getpid())
    assert stat is not None
    return Target(os.getpid(), stat.start_ticks, netns=procfs.namespace(os.getpid(), "net"))


@pytest.mark.parametrize("looks_ns", [sampled._LOOK_NS, 100_000_000_000], ids=["with looks", "between looks"])
def test_every_byte_after_the_adoption_is_in_a_bin(looks_ns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was moved before is noted: the two add up to what the application sent."""
    monkeypatch.setattr(sampled, "_LOOK_NS", looks_ns)
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in tables()}
    with connected() as (near, far), SampledFlowProbe(BIN_NS, lambda pid: 5) as probe:
        move(near, far, 1000)
        probe.follow([own_target()])
        begin_ns = time.monotonic_ns()
        for _ in range(20):
            move(near, far, SIZE // 20)
            time.sleep(0.005)  # so that there is more than one sample
        for table, columns in probe.drain(final=True).items():
            rows[table] = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        port = near.getsockname()[1]
    assert all(isinstance(column, np.ndarray) for column in probe.drain()["wire"].values()), (
        "rows are left out by masks"
    )
    (flow,) = (row for row in rows["flows"] if row["local_port"] == port)
    assert (flow["device"], flow["pid"], flow["rank"], flow["family"]) == ("lo", os.getpid(), 5, 4)
    assert flow["earlier_sent_bytes"] == 1000
    assert flow["adopted_ns"] <= begin_ns
    own = [row for row in rows["wire"] if row["flow_id"] == flow["flow_id"]]
    sent = [row for row in own if row["direction"] == TRANSMIT]
    assert sum(row["payload_bytes"] for row in sent) == SIZE // 20 * 20
    assert sum(row["payload_bytes"] for row in own if row["direction"] == RECEIVE) == 0
    assert all(row["wire_bytes"] >= row["payload_bytes"] for row in sent), "a part of a header may be no byte"
    assert sum(row["wire_bytes"] for row in sent) > SIZE // 20 * 20
    assert len({row["bin_start_ns"] for row in sent}) > 1
    assert all(row["bin_start_ns"] % BIN_NS == 0 for row in own)
    assert any(row["rtt_us"] for row in rows["tcp"] if row["flow_id"] == flow["flow_id"])


def test_a_stranger_with_the_pid_of_a_process_that_ended_is_not_sampled() -> None:
    own = own_target()
    with connected(), SampledFlowProbe(BIN_NS) as probe:
        probe.follow([replace(own, start_ticks=own.start_ticks - 1)])
        assert probe._flows == 0
        probe.follow([replace(own, start_ticks=own.start_ticks - 1), own])
        probe.drain(final=True)
        assert probe._flows >= 2


def test_looking_for_sockets_does_not_slow_the_sampling_of_those_that_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the kernel's table is large, a look takes as long as all that sampling may take in a tenth of a second."""
    look = TcpSockets.look

    def slow(sockets: TcpSockets, *wanted: Any) -> list[TcpSocket]:
        until_ns = time.thread_time_ns() + 15_000_000
        while time.thread_time_ns() < until_ns:
            pass
        return look(sockets, *wanted)

    monkeypatch.setattr(TcpSockets, "look", slow)
    with connected() as (near, far), SampledFlowProbe(BIN_NS) as probe:
        probe.follow([own_target()])
        for _ in range(30):
            move(near, far, 1000)
            time.sleep(0.01)
        assert probe._looks.period_ns > 2 * sampled._LOOK_NS
        assert probe._samples.cost_ns < 5_000_000, "a look takes three times as long"


@pytest.mark.slow
@given(st.integers(0, 10**6), st.integers(1, 10**5), st.integers(1, 10**4), st.integers(0, 1 << 60))
def test_what_is_split_adds_up_and_lies_in_its_bins(begin_ns: int, lasts_ns: int, bin_ns: int, amount: int) -> None:
    end_ns = begin_ns + lasts_ns - 1
    parts = list(sampled._in_bins(begin_ns, end_ns, bin_ns))
    assert sum(sampled._part(amount, share) for _, _, share in parts) == amount
    assert parts[0][0] == begin_ns
    assert parts[-1][1] == end_ns
    assert all(one[1] + 1 == other[0] for one, other in itertools.pairwise(parts))
    if lasts_ns <= 2 * bin_ns:
        assert all(first // bin_ns == last // bin_ns for first, last, _ in parts)
    else:
        assert len(parts) == 1, "when is unknown: the row ends beyond its bin, and says so"
