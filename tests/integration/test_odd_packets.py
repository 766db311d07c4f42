"""Bytes count only from packets that carry them: of any others, TCP's own totals and netprof's stay alike."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from integration.test_flow_bytes import recording
from lab import Host, Lab, run
from support.traffic import Recorded, as_rows

from netprof.probes.flow.probe import FlowProbe
from netprof.schema import RECEIVE, TRANSMIT

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="BPF and network namespaces need root")
PROGRAMS = Path(__file__).parents[1] / "programs"
NOBODY = "10.98.7.6"
"""The raw peer's address, which no host has: no kernel answers for it."""
KINDS = (
    "keep-alive",
    "reset without ACK",
    "reset",
    "SYN",
    "beyond the window",
    "before the window",
    "never sent",
    "long ago",
    "without ACK",
    "FIN elsewhere",
    "hole",
    "again",
)


def exchanged(*options: str, connections: int = 3, slowly: bool = False) -> tuple[Recorded, list[dict[str, int]], int]:
    """Let a raw peer talk to a server of the job; returns what was recorded, TCP's totals, and the server's process."""
    with Lab() as lab:
        here, there = lab[0], lab[1]
        macs = [_mac(host) for host in (there, here)]
        run("ip", "-n", here.netns, "route", "add", f"{NOBODY}/32", "dev", here.device)
        run("ip", "-n", here.netns, "neigh", "add", NOBODY, "lladdr", macs[0], "dev", here.device)
        program = [sys.executable, str(PROGRAMS / "odd_server.py"), here.ipv4.partition("/")[0], str(connections)]
        program += ["slowly"] * slowly
        server = here.popen(program, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        with recording(server.pid) as collector:
            ends = [there.device, *macs, NOBODY, here.ipv4.partition("/")[0], port]
            peer = there.popen(
                [sys.executable, str(PROGRAMS / "raw_peer.py"), *ends, "--connections", str(connections), *options]
            )
            totals = [json.loads(server.stdout.readline()) for _ in range(connections)]
            assert peer.wait(60) == 0
            return collector.finish(), totals, int(port)


def _mac(host: Host) -> str:
    found = run("ip", "-n", host.netns, "-j", "link", "show", host.device)
    return str(json.loads(found)[0]["address"])


def check(recorded: Recorded, totals: list[dict[str, int]], port: int) -> None:
    for each in totals:
        flow = recorded.flows[port, each["port"]]
        assert recorded.total(flow, RECEIVE) == each["bytes_received"]
        assert recorded.total(flow, TRANSMIT) == each["bytes_sent"] - each["bytes_retrans"]


@pytest.mark.parametrize("kind", KINDS)
def test_only_bytes_of_the_stream_count(kind: str) -> None:
    recorded, totals, port = exchanged("--kinds", f"data,data,{kind}", "--packets", "60", connections=2)
    assert all(each["bytes_received"] > 0 for each in totals)
    check(recorded, totals, port)


def test_what_finds_no_room_counts_when_it_does() -> None:
    """As probes of a window that is closed, or what is sent at its edge."""
    check(*exchanged("--kinds", "data,data,no room", "--packets", "80", connections=2, slowly=True))


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 12))])
def test_random_packets_leave_the_totals_alike(seed: int) -> None:
    check(*exchanged("--seed", str(seed), "--packets", "250", connections=4))


JOB = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
while connection.recv(100): pass
print("half closed", flush=True)
sys.stdin.readline()
connection.send(b"y" * 5)
connection.close()
"""


def test_a_fin_before_the_attach_is_no_byte() -> None:
    """It takes a sequence number, and TCP counts it: neither is a byte of the stream."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        pipe = subprocess.PIPE
        job = subprocess.Popen([sys.executable, "-c", JOB, str(port)], stdin=pipe, stdout=pipe, text=True)
        peer = server.accept()[0]
        peer.send(b"x" * 1000)
        peer.shutdown(socket.SHUT_WR)
        assert job.stdout is not None
        assert job.stdout.readline() == "half closed\n"
        with FlowProbe(1_000_000) as probe:
            probe.targets.add(job.pid)
            probe.follow(())
            job.communicate("go\n", timeout=20)
            peer.close()
            drained = [probe.drain(final=True)]
        rows = [row for tables in drained for row in as_rows(tables["totals"])]
        wire = [row for tables in drained for row in as_rows(tables["wire"])]
    assert rows, "the socket's end is told"
    assert {(row["received_bytes"], row["counted_received_bytes"]) for row in rows} == {(0, 0)}
    assert sum(row["payload_bytes"] for row in wire if row["direction"] == RECEIVE) == 0
    assert sum(row["payload_bytes"] for row in wire if row["direction"] == TRANSMIT) == 5
