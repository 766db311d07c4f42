"""However a process of the job came to hold a socket: what it moves is recorded, and what it had moved is noted."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab import Lab
from support.traffic import Collector, Recorded

from netprof.probes.flow.adoption import _WANTED as WANTED
from netprof.probes.flow.adoption import Adoption
from netprof.probes.flow.probe import FlowProbe
from netprof.probes.kernel.loader import map_keys, map_lookup, map_update
from netprof.schema import RECEIVE, TRANSMIT
from netprof.trace import TraceReader

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="BPF needs root")

PROGRAM = Path(__file__).parents[1] / "programs" / "holder.py"
HERE = "127.8.0.1"
MPTCP = 262
MPTCP_SENDS_AGAIN_S = 0.3
SECOND = 1_000_000_000


class Holder:
    """One running holder.py."""

    def __init__(self, popen: Callable[..., Any] = subprocess.Popen, **options: Any) -> None:
        command = [sys.executable, str(PROGRAM)]
        self.process = popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)
        self.pid = json.loads(self.process.stdout.readline())["pid"]

    def __call__(self, *order: Any) -> dict[str, Any]:
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return dict(json.loads(self.process.stdout.readline()))

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def job() -> Iterator[Holder]:
    holder = Holder()
    yield holder
    holder.end()


@contextmanager
def recording(*pids: int, **options: Any) -> Iterator[Collector]:
    with FlowProbe(1_000_000, **options) as probe:
        for pid in pids:
            probe.targets.add(pid)
        probe.follow(())
        yield Collector(probe)


@contextmanager
def peer(protocol: int = 0) -> Iterator[tuple[socket.socket, list[int]]]:
    """A stranger's listener on HERE whose connections are read to their end; `list` gets how much each brought."""
    brought: list[int] = []

    def read(connection: socket.socket) -> None:
        total = 0
        while data := connection.recv(1 << 20):
            total += len(data)
        brought.append(total)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=read, args=(connection,), daemon=True).start()

    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
    listener.bind((HERE, 0))
    listener.listen()
    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener, brought
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def assert_accounted(recorded: Recorded, port: int, totals: dict[str, int], pid: int) -> dict[str, Any]:
    """Compare a socket's own totals with what was counted and what was noted as earlier, to the byte."""
    (flow,) = [flow for flow in recorded.flows.values() if flow["local_port"] == port and flow["pid"] == pid]
    assert flow["earlier_sent_bytes"] + recorded.total(flow, TRANSMIT) == totals["sent"]
    assert flow["earlier_received_bytes"] + recorded.total(flow, RECEIVE) == totals["received"]
    return flow


def give(held: socket.socket, to: Holder, folder: Path) -> dict[str, Any]:
    """Hand a socket to a holder by SCM_RIGHTS."""
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(folder / "door"))
        door.listen()
        threading.Thread(target=lambda: socket.send_fds(door.accept()[0], [b"x"], [held.fileno()])).start()
        return to("receive_from", str(folder / "door"))


@pytest.mark.core
def test_a_connection_in_the_accept_queue_at_the_attach_is_counted_from_its_first_byte_on(job: Holder) -> None:
    port = job("listen", HERE)["port"]
    with socket.create_connection((HERE, port)) as far:
        with recording(job.pid) as collector:
            job("accept")
            threading.Thread(target=far.sendall, args=(bytes(5_000_000),)).start()
            totals = job("receive", 5_000_000)
            recorded = collector.finish()
        flow = assert_accounted(recorded, port, totals, job.pid)
    assert recorded.total(flow, RECEIVE) == 5_000_000
    assert recorded.losses.late_flows == 0


def test_what_is_at_a_socket_s_address_by_now_has_to_be_that_socket(job: Holder, monkeypatch: Any) -> None:
    """A connection that is closed between the two looks may leave its place in memory to a stranger's."""
    adopt_all = Adoption._adopt_all

    def another_is_there(adoption: Adoption, places: Any) -> None:
        descriptor = adoption._object.map_fd("wanted_sockets")
        for address in list(map_keys(descriptor, 8)):
            wanted = np.frombuffer(map_lookup(descriptor, address, WANTED.itemsize) or b"", WANTED)[0].copy()
            wanted["ends"] ^= 1
            map_update(descriptor, address, wanted.tobytes())
        adopt_all(adoption, places)

    with peer() as (listener, _):
        job("connect", HERE, listener.getsockname()[1], 0)
        monkeypatch.setattr(Adoption, "_adopt_all", another_is_there)
        with FlowProbe(1_000_000) as probe:
            probe.targets.add(job.pid)
            probe.follow(())
            assert isinstance(probe._adoption, Adoption)
            assert probe._object.counters("next_flow_id") == {"next_flow_id": 0}
            monkeypatch.undo()
            probe._adoption.look()
            assert probe._object.counters("next_flow_id") == {"next_flow_id": 1}


def test_what_waits_in_the_accept_queue_with_data_has_a_past(job: Holder) -> None:
    port = job("listen", HERE)["port"]
    with socket.create_connection((HERE, port)) as far:
        far.sendall(bytes(30_000))
        with recording(job.pid) as collector:
            job("accept")
            threading.Thread(target=far.sendall, args=(bytes(1_000_000),)).start()
            totals = job("receive", 1_030_000)
            recorded = collector.finish()
        flow = assert_accounted(recorded, port, totals, job.pid)
    assert flow["earlier_received_bytes"] == 30_000
    assert recorded.losses.late_flows == 0, "older than the attach: nothing of the recording is missing"


@pytest.mark.core
@pytest.mark.parametrize("way", ["receive_from", "steal"])
def test_a_socket_of_a_stranger_is_adopted_within_a_second(way: str, job: Holder, tmp_path: Path) -> None:
    stranger = Holder()
    with peer() as (listener, _), recording(job.pid) as collector:
        with socket.create_connection(listener.getsockname()) as held:
            held.sendall(bytes(10_000))
            if way == "steal":
                held_by_stranger = give(held, stranger, tmp_path)
                got = job("steal", stranger.pid, held_by_stranger["fd"])
            else:
                got = give(held, job, tmp_path)
        job("send", 2_000_000)
        until_s = time.monotonic() + 1.0
        while time.monotonic() < until_s:
            job("send", 1)
        totals = job("send", 3_000_000)
        recorded = collector.finish()
    stranger.end()
    flow = assert_accounted(recorded, got["port"], totals, job.pid)
    assert 0 < flow["adopted_ns"] - got["time_ns"] < SECOND
    assert recorded.total(flow, TRANSMIT) >= 3_000_000
    assert recorded.losses.late_flows == 1
    assert recorded.losses.late_bytes == flow["earlier_sent_bytes"]


@pytest.mark.core
@pytest.mark.parametrize("end", ["close", "exit"])
def test_a_socket_that_comes_and_goes_between_two_looks_is_noted_at_its_end(
    end: str, job: Holder, tmp_path: Path
) -> None:
    with peer() as (listener, _), recording(job.pid) as collector:
        collector.probe._adoption._next_s = float("inf")  # type: ignore[union-attr]
        with socket.create_connection(listener.getsockname()) as held:
            got = give(held, job, tmp_path)
        totals = job("send", 2_000_000)
        if end == "close":
            job("close")
        else:
            job.end()
        recorded = collector.finish()
    flow = assert_accounted(recorded, got["port"], totals, job.pid)
    assert flow["earlier_sent_bytes"] == recorded.losses.late_bytes == 2_000_000


@pytest.mark.core
def test_multipath_tcp_older_than_the_attach() -> None:
    if Path("/proc/sys/net/mptcp/enabled").exists() and not int(Path("/proc/sys/net/mptcp/enabled").read_text()):
        pytest.skip("Multipath TCP is off")
    job = Holder()
    with peer(MPTCP) as (listener, _):
        got = job("connect", *listener.getsockname(), MPTCP)
        before = send_all(job, 100_000)
        with recording(job.pid) as collector:
            totals = send_all(job, 5_000_000)
            recorded = collector.finish()
        job.end()
    flow = assert_accounted(recorded, got["port"], totals, job.pid)
    assert flow["earlier_sent_bytes"] == before["sent"] >= 100_000
    assert recorded.total(flow, TRANSMIT) >= 5_000_000, "what Multipath TCP sends twice is new to TCP"


def test_a_socket_in_a_namespace_that_none_of_the_job_is_in(tmp_path: Path) -> None:
    """It was made by a stranger there: its lock cannot be had by way of the namespace, so it is adopted without."""
    with Lab() as lab:
        far, near, job = Holder(lab[1].popen), Holder(lab[0].popen), Holder()
        port = far("listen", "0.0.0.0")["port"]
        fd = near("connect", lab[1].ipv4, port, 0)["fd"]
        far("accept")
        with recording(job.pid) as collector:
            got = job("steal", near.pid, fd)
            near.end()
            until_s = time.monotonic() + 1.0
            while time.monotonic() < until_s:
                job("send", 1)
            totals = job("send", 30_000)  # nobody reads it: it must fit into the other side's buffer
            recorded = collector.finish()
        for holder in (far, job):
            holder.end()
    flow = assert_accounted(recorded, got["port"], totals, job.pid)
    assert recorded.total(flow, TRANSMIT) >= 30_000


def send_all(job: Holder, count: int) -> dict[str, int]:
    """Send by Multipath TCP until TCP has sent it all: it has a send buffer of its own, and sends some of it twice."""
    goal = job("totals")["sent"] + count
    totals = job("send", count)
    while True:
        time.sleep(MPTCP_SENDS_AGAIN_S)
        last, totals = totals["sent"], job("totals")
        if last == totals["sent"] >= goal:
            return totals


def rank(number: int, job_port: int, *words: str, **options: Any) -> dict[str, Any]:
    """Return how a rank of the job that meets at `job_port` is started."""
    place = {"RANK": str(number), "WORLD_SIZE": "2", "MASTER_ADDR": HERE, "MASTER_PORT": str(job_port)}
    return {"env": os.environ | place, **options}


def test_a_rank_that_starts_after_the_attach_and_no_rank_of_another_job(tmp_path: Path) -> None:
    first, trace = Holder(**rank(0, 1111)), tmp_path / "t"
    with peer() as (listener, _):
        command = [sys.executable, "-m", "netprof", "attach", str(first.pid), "--no-live", "--out", str(trace)]
        recorder = subprocess.Popen([*command, "--duration", "4s"], stdout=subprocess.DEVNULL)
        while not (trace / "meta.json").exists() or not json.loads((trace / "meta.json").read_text())["probes_started"]:
            assert recorder.poll() is None
            time.sleep(0.02)
        others = Holder(**rank(1, 2222))
        others("connect", *listener.getsockname(), 0)
        others("send", 1000)
        began_ns = time.monotonic_ns()
        inherited = socket.create_connection(listener.getsockname())
        inherited.sendall(bytes(10_000))
        second = Holder(**rank(1, 1111, pass_fds=[inherited.fileno()]))
        got = second("inherited", inherited.fileno())
        inherited.close()
        second("send", 2_000_000)
        time.sleep(1.0)  # the promise: within a second
        ports = {got["port"]: second("totals")}
        opened = second("connect", *listener.getsockname(), 0)["port"]
        ports[opened] = second("send", 3_000_000)
        assert recorder.wait() == 0
    reader = TraceReader(trace)
    for holder in (first, second, others):
        holder.end()
    assert {target.pid for target in reader.meta.targets} == {first.pid, second.pid}
    flows, wire = reader.table("flows").to_pandas(), reader.table("wire").to_pandas()
    mine = flows[flows.pid == second.pid].set_index("local_port")
    assert set(mine.index) == set(ports)
    assert set(mine["rank"]) == {1}
    for port, totals in ports.items():
        of_flow = wire[(wire.flow_id == mine.flow_id[port]) & (wire.direction == TRANSMIT)]
        assert of_flow.payload_bytes.sum() + mine.earlier_sent_bytes[port] == totals["sent"]
    assert 0 <= mine.adopted_ns[got["port"]] - began_ns < SECOND
    assert mine.adopted_ns[opened] == 0, "the rank was known before it opened that one"
