"""TCP's own clocks in table `tcp`, against what the kernel says of the same socket (TCP_INFO, as `ss -ti`)."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab import NETNS_DIR, Host, Lab

from netprof.probes.flow.flow_records import SAMPLE_NS, tick_us
from netprof.probes.flow.probe import FlowProbe
from netprof.probes.kernel.netns import NetworkNamespace
from netprof.probes.probe import Tables

pytestmark = [pytest.mark.timing, pytest.mark.skipif(os.geteuid() != 0, reason="BPF and namespaces need root")]

CLOCKS = {"busy_us": 168, "rwnd_limited_us": 176, "sndbuf_limited_us": 184}  # offsets in struct tcp_info
NOTSENT, DSACKED = 144, 216
TICK_US = tick_us()
AMOUNTS = {"rwnd": 8_000_000, "sndbuf": 8_000_000, "neither": 1_000_000}
LONG_ENOUGH_US = {"rwnd": 150_000, "sndbuf": 2 * TICK_US, "neither": 150_000}
Pair = tuple[socket.socket, socket.socket]


def clocks(sock: socket.socket) -> dict[str, int]:
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    found = {name: struct.unpack_from("=Q", info, offset)[0] for name, offset in CLOCKS.items()}
    words = {"notsent_bytes": NOTSENT, "dsacked": DSACKED}
    found |= {name: struct.unpack_from("=I", info, offset)[0] for name, offset in words.items()}
    return found | {"ca_state": info[1]}


def inside(host: Host, function: Callable[[], Any]) -> Any:
    descriptor = os.open(NETNS_DIR / host.netns, os.O_RDONLY)
    try:
        return NetworkNamespace(descriptor).run(function)
    finally:
        os.close(descriptor)


@pytest.fixture
def connect() -> Iterator[Callable[[str], Pair]]:
    """Connect two namespaces of this process over a link of 20 Mbit/s; `how` shapes the sending socket."""
    held: list[Any] = []

    def connected(how: str) -> Pair:
        lab = Lab(rate="20mbit").__enter__()
        held.append(lab)
        listener = inside(lab[1], lambda: socket.create_server((lab[1].ipv4, 0)))
        near = inside(lab[0], socket.socket)
        held.extend([listener, near])
        if how == "sndbuf":
            near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        near.connect(listener.getsockname())
        far, _ = listener.accept()
        held.append(far)
        return near, far

    yield connected
    for each in reversed(held):
        each.close()


def flow_rows(rows: Tables, near: socket.socket) -> dict[str, np.ndarray]:
    """Return the rows of table `tcp` of the flow that sends."""
    port = near.getsockname()[1]
    (number,) = (i for i, p in zip(rows["flows"]["flow_id"], rows["flows"]["local_port"], strict=True) if p == port)
    own = rows["tcp"]["flow_id"] == number
    return {name: np.asarray(column[own]).astype(np.int64) for name, column in rows["tcp"].items()}


def send(near: socket.socket, far: socket.socket, reading: threading.Event, amount: int) -> threading.Thread:
    """Send from one thread, and receive in another from when `reading` is set."""

    def receive() -> None:
        reading.wait()
        left = amount
        while left:
            left -= len(far.recv(min(left, 65536)))

    threads = [threading.Thread(target=near.sendall, args=(bytes(amount),)), threading.Thread(target=receive)]
    for thread in threads:
        thread.start()
    threads[0].other = threads[1]  # type: ignore[attr-defined]
    return threads[0]


@pytest.mark.parametrize("known_before", [True, False], ids=["before the attach", "after it"])
@pytest.mark.parametrize("how", [pytest.param("rwnd", marks=pytest.mark.core), "sndbuf", "neither"])
def test_the_clocks_are_the_sockets_own(connect: Callable[[str], Pair], how: str, known_before: bool) -> None:
    with FlowProbe(1_000_000) as probe:
        probe.targets.add(os.getpid())
        if not known_before:
            probe.follow(())
        near, far = connect(how)
        if known_before:
            probe.follow(())
        reading = threading.Event()
        if how != "rwnd":
            reading.set()
        sending = send(near, far, reading, AMOUNTS[how])
        deadline = time.monotonic() + 30
        limited = f"{how}_limited_us" if how != "neither" else "busy_us"
        while clocks(near)[limited] < LONG_ENOUGH_US[how]:
            if not sending.is_alive() and how == "sndbuf":
                sending.other.join()  # type: ignore[attr-defined]
                pytest.skip(f"LOUD: the kernel's own clock did not run, so there is nothing to compare: {clocks(near)}")
            assert time.monotonic() < deadline, f"{limited} does not run: {clocks(near)}"
            time.sleep(0.01)
        before = clocks(near)
        rows = probe.drain(final=True)
        after = clocks(near)
        reading.set()
        sending.join()
        sending.other.join()  # type: ignore[attr-defined]
    found = flow_rows(rows, near)
    last = int(np.argmax(found["time_ns"]))
    for name in CLOCKS:
        assert before[name] <= found[name][last] <= after[name], name
        assert (np.diff(found[name][np.argsort(found["time_ns"], kind="stable")]) >= 0).all()
    assert found[limited][last] >= LONG_ENOUGH_US[how]
    if how == "rwnd":
        assert found["notsent_bytes"][last] == before["notsent_bytes"] > 0
    if how == "neither":
        gaps_ns = np.diff(np.sort(found["time_ns"]))
        assert np.median(gaps_ns) < 2 * SAMPLE_NS, "a flow that moves is sampled often"
        assert len(found["time_ns"]) < 10 + (found["time_ns"].max() - found["time_ns"].min()) / SAMPLE_NS
    assert set(found["ca_state"].tolist()) <= {0, 1, 2, 3, 4}


def test_recovery_is_a_state() -> None:
    """Loss makes TCP leave the open state: 3 is recovery, 4 a timeout."""
    with Lab(rate="50mbit", loss_percent=3, offloads=False) as lab, FlowProbe(1_000_000) as probe:
        probe.targets.add(os.getpid())
        probe.follow(())
        listener = inside(lab[1], lambda: socket.create_server((lab[1].ipv4, 0)))
        near = inside(lab[0], socket.socket)
        with listener, near:
            near.connect(listener.getsockname())
            far, _ = listener.accept()
            with far:
                reading = threading.Event()
                reading.set()
                sending = send(near, far, reading, 4_000_000)
                sending.join()
                sending.other.join()  # type: ignore[attr-defined]
                rows = probe.drain(final=True)
    states = set(rows["tcp"]["ca_state"].tolist())
    assert states & {3, 4}, states
    assert states <= {0, 1, 2, 3, 4}


def test_a_jiffy_is_as_long_as_the_kernel_was_built_with() -> None:
    config = Path("/proc/config.gz")
    if not config.exists():
        pytest.skip("this kernel does not say its HZ")
    import gzip

    (line,) = (line for line in gzip.decompress(config.read_bytes()).decode().splitlines() if "CONFIG_HZ=" in line)
    assert 1_000_000 // int(line.partition("=")[2]) == TICK_US


@pytest.mark.core
def test_a_full_send_buffer_is_seen(connect: Callable[[str], Pair]) -> None:
    """TCP's own clock of it hardly runs where acknowledgements are all that it waits for."""
    with FlowProbe(1_000_000) as probe:
        probe.targets.add(os.getpid())
        probe.follow(())
        near, far = connect("sndbuf")
        reading = threading.Event()
        reading.set()
        sending = send(near, far, reading, AMOUNTS["neither"])
        sending.join()
        buffer_bytes = near.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        found = flow_rows(probe.drain(final=True), near)
        sending.other.join()  # type: ignore[attr-defined]
    assert set(found["send_buffer_bytes"].tolist()) == {buffer_bytes}
    assert np.median(found["send_queued_bytes"]) > 2 / 3 * buffer_bytes
