"""What was counted against TCP's own totals of every flow, on real links: nothing is missing, or it is named."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from lab import Lab
from support.traffic import Peer

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="BPF and network namespaces need root")

NETPROF = [sys.executable, "-m", "netprof"]
LOSSY: dict[str, dict[str, Any]] = {
    "lossy": {"loss_percent": 1, "offloads": False},
    "lossy-switch": {"loss_percent": 2, "switch": True},
    "shaped-lossy": {"rate": "400mbit", "loss_percent": 2},
}
DATA = ["--bytes", "3000000", "--count", "4", "--period-ms", "20", "--reply", "120000"]
AFTER_THE_END = 8
"""Segments of a connection's end, which pass after it was asked for its totals; more than three where one is lost."""


@contextmanager
def recording(trace: Path, *pids: int) -> Iterator[subprocess.Popen[bytes]]:
    """Record processes with `netprof attach` until they end or it is interrupted."""
    command = [*NETPROF, "attach", *map(str, pids), "--no-live", "--out", str(trace)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as recorder:
        meta = trace / "meta.json"
        while not (meta.exists() and json.loads(meta.read_text())["probes_started"]):
            assert recorder.poll() is None, "the recorder ended"
            time.sleep(0.02)
        yield recorder
        recorder.wait(60)


def report(trace: Path) -> dict[str, Any]:
    done = subprocess.run([*NETPROF, "report", str(trace), "--json"], capture_output=True, text=True, check=True)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def ends(lab: Lab, *options: str, wait: str) -> tuple[Peer, Peer]:
    """Start a sender, which waits before it does as told, and its receiver."""
    receiver = Peer(lab[1].popen, "receive", "--addr", lab[1].ipv4, "--flows", "2")
    port = str(receiver.until("listening")["port"])
    where = ["--addr", lab[1].ipv4, "--port", port, "--flows", "2", "--wait", wait]
    sender = Peer(lab[0].popen, "send", *where, *options)
    sender.until("ready" if wait == "connect" else "connected")
    return sender, receiver


def of_port(document: dict[str, Any], port: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the row of a flow in the report and in its reconciliation, by its local port."""
    (flow,) = (each for each in document["flows"] if each["local"].endswith(f":{port}"))
    (books,) = (each for each in document["reconciliation"]["flows"] if each["flow_id"] == flow["flow_id"])
    return flow, books


def in_full(document: dict[str, Any]) -> bool:
    books = document["reconciliation"]
    return books["holds"] is True and books["unseen_bytes"] == books["counted_beyond_bytes"] == 0


@pytest.mark.core
@pytest.mark.parametrize("link", LOSSY)
def test_what_is_sent_again_is_what_tcp_says(link: str, tmp_path: Path) -> None:
    """Retransmissions that no hook saw are recovered from TCP's totals, and nothing else is missing."""
    with Lab(**LOSSY[link]) as lab:
        sender, receiver = ends(lab, *DATA, wait="connect")
        with recording(tmp_path / "t.netprof", sender.pid, receiver.pid):
            sender.go()
            finished = sender.until("finished")
    document = report(tmp_path / "t.netprof")
    assert in_full(document)
    for sock in finished["flows"]:
        flow, books = of_port(document, sock["local_port"])
        assert flow["tx"]["payload_bytes"] == sock["tcp"]["bytes_sent"] - sock["tcp"]["bytes_retrans"]
        assert flow["tx"]["retransmitted_bytes"] == sock["tcp"]["bytes_retrans"]
        assert books["tcp"]["sent_bytes"] == sock["tcp"]["bytes_sent"]
        assert 0 <= flow["tx"]["packets"] - sock["tcp"]["segs_out"] <= AFTER_THE_END
        assert 0 <= flow["rx"]["packets"] - sock["tcp"]["segs_in"] <= AFTER_THE_END


@pytest.mark.core
def test_connections_older_than_the_recording(tmp_path: Path) -> None:
    """What they moved before is no part of the books, and nothing that they move afterwards is missing."""
    with Lab(rate="1gbit") as lab:
        sender, receiver = ends(lab, *DATA, wait="send")
        with recording(tmp_path / "t.netprof", sender.pid, receiver.pid):
            sender.go()
            finished = sender.until("finished")
    document = report(tmp_path / "t.netprof")
    assert in_full(document)
    for sock in finished["flows"]:
        _, books = of_port(document, sock["local_port"])
        assert books["tcp"]["sent_bytes"] == books["counted"]["sent_bytes"] == sock["tcp"]["bytes_sent"]
        assert books["tcp"]["received_bytes"] == books["counted"]["received_bytes"] == sock["tcp"]["bytes_received"]


def test_a_recording_that_ends_while_the_flows_are_busy(tmp_path: Path) -> None:
    """What TCP has sent and the device has not is on its way, not unseen."""
    with Lab(rate="100mbit") as lab:
        sender, receiver = ends(lab, "--bytes", "100000000", "--count", "1", wait="connect")
        with recording(tmp_path / "t.netprof", sender.pid, receiver.pid) as recorder:
            sender.go()
            time.sleep(1.5)
            recorder.send_signal(signal.SIGINT)
    document = report(tmp_path / "t.netprof")
    assert in_full(document)
    assert document["reconciliation"]["on_its_way_bytes"] > 0
    assert document["reconciliation"]["tcp_sent_bytes"] > 10_000_000


MANY = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print("ready", flush=True)
sys.stdin.readline()
for size in range(1000, 1300):
    with socket.create_connection(listener.getsockname()) as near, listener.accept()[0] as far:
        near.sendall(bytes(size))
        far.recv(size, socket.MSG_WAITALL)
"""


def test_connections_that_live_between_two_looks(tmp_path: Path) -> None:
    """A socket that is never looked at is read when it ends."""
    job = subprocess.Popen([sys.executable, "-c", MANY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert job.stdin
    assert job.stdout
    job.stdout.readline()
    with recording(tmp_path / "t.netprof", job.pid):
        job.stdin.write("\n")
        job.stdin.close()
        job.wait()
    books = report(tmp_path / "t.netprof")["reconciliation"]
    assert books["holds"] is True
    assert len(books["flows"]) == 600
    assert all(flow["closed"] for flow in books["flows"])
    assert books["tcp_sent_bytes"] == books["tcp_received_bytes"] == sum(range(1000, 1300))


HANDED_OVER = """
import socket, sys, time
near, far = socket.socketpair(socket.AF_UNIX)
print(sys.argv[1], flush=True)
_, (descriptor,), _, _ = socket.recv_fds(socket.socket(fileno=int(sys.argv[1])), 1, 1)
with socket.socket(fileno=descriptor) as sock:
    for _ in range(60):
        sock.sendall(bytes(100_000))
        time.sleep(0.05)
    sock.shutdown(socket.SHUT_WR)
    sock.recv(1)
"""


def test_a_socket_that_the_job_is_given(tmp_path: Path) -> None:
    """Nothing tells that a process was given a socket: what it moved until it was found is named as missing."""
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    command = [sys.executable, "-c", HANDED_OVER, str(theirs.fileno())]
    job = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdout=subprocess.PIPE, text=True)
    assert job.stdout
    job.stdout.readline()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        port, (far, _) = near.getsockname()[1], listener.accept()
    near.sendall(bytes(50_000))  # before it is the job's
    with recording(tmp_path / "t.netprof", job.pid), far:
        socket.send_fds(ours, [b"x"], [near.fileno()])
        near.close()
        while far.recv(1 << 20):
            pass
        far.close()
    document = report(tmp_path / "t.netprof")
    _, books = of_port(document, port)
    assert books["counted"]["sent_bytes"] + books["earlier_sent_bytes"] == 6_050_000
    assert books["earlier_sent_bytes"] >= 50_000
    assert document["reconciliation"]["holds"] is False
    assert document["reconciliation"]["unseen_bytes"] == books["earlier_sent_bytes"]
    assert any("found after the recording had begun" in note for note in document["notes"])
