"""The flow probe against what the sockets themselves report: every byte, both directions, on every kind of link."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from lab import Lab
from lab_links import CONGESTION_CONTROL
from support.traffic import Collector, Peer, Recorded, assert_exact

from netprof.probes.flow.probe import FlowProbe
from netprof.schema import RECEIVE, TRANSMIT

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="BPF and network namespaces need root")

LINKS: dict[str, dict[str, Any]] = {
    "pair": {},
    "pair-no-offloads": {"offloads": False},
    "switch": {"switch": True},
    "bridge-in-host": {"bridged_host": True},
    "shaped": {"rate": "400mbit"},
    "lossy": {"loss_percent": 1, "offloads": False},
    "lossy-switch": {"loss_percent": 2, "switch": True},
    "shaped-lossy": {"rate": "400mbit", "loss_percent": 2},
}


@contextmanager
def recording(*pids: int, bin_ns: int = 1_000_000) -> Iterator[Collector]:
    with FlowProbe(bin_ns) as probe:
        for pid in pids:
            probe.targets.add(pid)
        probe.follow(())
        yield Collector(probe)


def transfer(
    send_on: Callable[..., Any], receive_on: Callable[..., Any], addr: str, *options: str
) -> tuple[Recorded, Peer, Peer]:
    """Run a whole transfer, from before the first connection, under the probe."""
    receiver = Peer(receive_on, "receive", "--addr", addr, "--flows", "2")
    port = str(receiver.until("listening")["port"])
    sender = Peer(send_on, "send", "--addr", addr, "--port", port, "--flows", "2", "--wait", "connect", *options)
    sender.until("ready")
    with recording(sender.pid, receiver.pid) as collector:
        sender.go()
        sender.until("closed")
        for _ in range(2):
            receiver.until("closed")
        recorded = collector.finish()
    return recorded, sender, receiver


@pytest.mark.core
@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
@pytest.mark.parametrize("link", LINKS)
def test_payload_is_what_the_sockets_report(link: str, family: str) -> None:
    with Lab(**LINKS[link]) as lab:
        options = ["--bytes", "3000000", "--count", "4", "--period-ms", "20", "--reply", "120000"]
        recorded, sender, receiver = transfer(lab[0].popen, lab[1].popen, getattr(lab[1], family), *options)
    finished = sender.events("finished")[0]
    assert_exact(recorded, finished, sender.pid)
    closed = {"flows": receiver.events("closed")}
    for sock in closed["flows"]:  # it closed after its report: what it sent last is in
        assert sock["tcp"]["bytes_received"] == 12_000_000
    assert_exact(recorded, closed, receiver.pid)
    assert recorded.losses.merged_bins == recorded.losses.untracked_flows == 0
    if "lossy" in link:
        assert sum(sock["tcp"]["bytes_retrans"] for sock in finished["flows"]) > 0
    if link == "lossy":  # no timer-driven device in between: each retransmission passes the hook
        for sock in finished["flows"]:
            flow = recorded.flows[sock["local_port"], sock["remote_port"]]
            assert recorded.total(flow, TRANSMIT, "retransmitted_bytes") == sock["tcp"]["bytes_retrans"]


@pytest.mark.core
@pytest.mark.parametrize("link", ["pair", "shaped", "lossy"])
def test_both_ends_say_where_the_stream_stands(link: str) -> None:
    """What one end sends and the other receives has the same numbers, and none arrives before it leaves."""
    with Lab(**LINKS[link]) as lab:
        options = ["--bytes", "3000000", "--count", "4", "--period-ms", "20"]
        recorded, sender, _ = transfer(lab[0].popen, lab[1].popen, lab[1].ipv4, *options)
    for sock in sender.events("finished")[0]["flows"]:
        ports = sock["local_port"], sock["remote_port"]
        sent = recorded.rows(recorded.flows[ports], TRANSMIT)
        received = recorded.rows(recorded.flows[ports[::-1]], RECEIVE)
        for rows in (sent, received):
            assert_times_are_within(rows)
        (begin,) = np.unique(beginnings(sent))
        assert beginnings(received)[-1] == begin
        if link != "lossy":  # where packets are lost the stream goes on before all of it is there
            assert (beginnings(received) == begin).all()
        left, arrived = (passed(rows) for rows in (sent, received))
        common = left.keys() & arrived.keys()
        assert len(common) >= 4  # the end of each burst, at least
        assert all(left[position] <= arrived[position] for position in common)


@pytest.mark.core
def test_what_is_overtaken_is_not_sent_again() -> None:
    """Packets arrive in another order: each byte counts when it arrives, and again only if TCP had it already."""
    with Lab(delay_ms=1, swap_every=2) as lab:
        options = ["--bytes", "3000000", "--count", "4", "--period-ms", "20"]
        recorded, sender, receiver = transfer(lab[0].popen, lab[1].popen, lab[1].ipv4, *options)
    finished = sender.events("finished")[0]["flows"]
    closed = receiver.events("closed")
    assert_exact(recorded, {"flows": closed}, receiver.pid)
    assert sum(sock["tcp"]["rcv_ooopack"] for sock in closed) > 20
    for sock in finished:
        ports = sock["local_port"], sock["remote_port"]
        received = recorded.rows(recorded.flows[ports[::-1]], RECEIVE)
        assert received["retransmitted_bytes"].sum() == sock["tcp"]["bytes_retrans"]  # nothing is lost on the way
        headers = received["wire_bytes"] - received["payload_bytes"] - received["retransmitted_bytes"]
        assert (headers <= 120 * received["packets"]).all()


def beginnings(rows: dict[str, np.ndarray]) -> np.ndarray:
    """Return where the stream began, as each row has it: its position less all payload until then."""
    payload = np.cumsum(rows["payload_bytes"].astype(np.int64))
    return (rows["stream_position"].astype(np.int64) - payload) % (1 << 32)


def assert_times_are_within(rows: dict[str, np.ndarray]) -> None:
    """Rows with new bytes say when the last of them passed, but for those in which some passed unseen."""
    known = rows["stream_position_ns"] > 0
    assert (rows["stream_position_ns"][known] >= rows["first_ns"][known]).all()
    assert (rows["stream_position_ns"][known] <= rows["last_ns"][known]).all()
    assert (rows["payload_bytes"][known] > 0).all()
    assert known.sum() > 0.5 * (rows["payload_bytes"] > 0).sum()


def passed(rows: dict[str, np.ndarray]) -> dict[int, int]:
    """Return when the stream reached its positions, as far as that was seen."""
    known = rows["stream_position_ns"] > 0
    return dict(zip(rows["stream_position"][known].tolist(), rows["stream_position_ns"][known].tolist(), strict=True))


@pytest.mark.core
def test_loopback_counts_once() -> None:
    recorded, sender, receiver = transfer(subprocess.Popen, subprocess.Popen, "127.0.0.1", "--reply", "50000")
    assert_exact(recorded, sender.events("finished")[0], sender.pid)
    assert_exact(recorded, {"flows": receiver.events("closed")}, receiver.pid)
    assert {flow["device"] for flow in recorded.flows.values()} == {"lo"}


@pytest.mark.core
def test_congestion_control_is_named() -> None:
    """The laboratory's is its own, whatever the machine's is; a socket may choose another one."""
    with Lab() as lab:
        recorded, _, _ = transfer(lab[0].popen, lab[1].popen, lab[1].ipv4)
    assert {flow["congestion_control"] for flow in recorded.flows.values()} == {CONGESTION_CONTROL}
    with recording(os.getpid()) as collector, socket.create_server(("127.0.0.1", 0)) as listener:
        with socket.socket() as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
            client.connect(listener.getsockname())
            accepted, (_, port) = listener.accept()
            with accepted:
                usual = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()
                accepted.sendall(client.getsockname()[0].encode())
                assert client.recv(99)
        recorded = collector.finish()
    control = {ports[0] == port: flow["congestion_control"] for ports, flow in recorded.flows.items()}
    assert control == {True: "reno", False: usual}


@pytest.mark.core
def test_sockets_older_than_the_attach() -> None:
    with Lab(rate="1gbit") as lab:
        receiver = Peer(lab[1].popen, "receive", "--addr", lab[1].ipv4)
        port = str(receiver.until("listening")["port"])
        sender = Peer(lab[0].popen, "send", "--addr", lab[1].ipv4, "--port", port, "--wait", "send", "--reply", "9999")
        sender.until("connected")
        receiver.until("accepted")
        with recording(sender.pid, receiver.pid) as collector:
            sender.go()
            finished = sender.until("finished")
            receiver.until("closed")
            recorded = collector.finish()
    assert_exact(recorded, finished, sender.pid)
    assert_exact(recorded, {"flows": receiver.events("closed")}, receiver.pid)


@pytest.mark.core
def test_attached_in_the_middle_counts_from_there() -> None:
    with Lab(rate="200mbit") as lab:
        receiver = Peer(lab[1].popen, "receive", "--addr", lab[1].ipv4)
        port = str(receiver.until("listening")["port"])
        options = ["--bytes", "400000", "--count", "60", "--period-ms", "20"]
        sender = Peer(lab[0].popen, "send", "--addr", lab[1].ipv4, "--port", port, *options)
        for _ in range(10):
            last = receiver.until("burst")
        with recording(sender.pid, receiver.pid) as collector:
            sender.until("finished")
            receiver.until("closed")
            recorded = collector.finish()
    sent = recorded.flows[last["remote_port"], last["local_port"]]
    received = recorded.flows[last["local_port"], last["remote_port"]]
    assert 10 * 400_000 <= received["earlier_received_bytes"] < 60 * 400_000
    assert sent["earlier_sent_bytes"] + recorded.total(sent, TRANSMIT) == 60 * 400_000
    assert received["earlier_received_bytes"] + recorded.total(received, RECEIVE) == 60 * 400_000


@pytest.mark.core
@pytest.mark.parametrize("child", ["connect", "send"])
def test_forked_children_belong_to_the_job(child: str) -> None:
    receiver = Peer(subprocess.Popen, "receive", "--addr", "127.0.0.1")
    port = str(receiver.until("listening")["port"])
    sender = Peer(
        subprocess.Popen, "send", "--addr", "127.0.0.1", "--port", port, "--wait", "connect", "--child", child
    )
    sender.until("ready")
    with recording(sender.pid) as collector:
        sender.go()
        finished = sender.until("finished")
        receiver.until("closed")
        recorded = collector.finish()
    owner = finished["pid"] if child == "connect" else sender.pid
    assert finished["pid"] != sender.pid
    assert len(recorded.flows) == 1
    assert_exact(recorded, finished, owner)


@pytest.mark.core
def test_strangers_are_not_recorded() -> None:
    receiver = Peer(subprocess.Popen, "receive", "--addr", "127.0.0.1")
    port = str(receiver.until("listening")["port"])
    sender = Peer(subprocess.Popen, "send", "--addr", "127.0.0.1", "--port", port, "--wait", "connect")
    sender.until("ready")
    bystander = Peer(subprocess.Popen, "receive", "--addr", "127.0.0.1")
    with recording(bystander.pid) as collector:
        sender.go()
        sender.until("closed")
        recorded = collector.finish()
    bystander.stop()
    assert recorded.flows == {}
    assert len(recorded.wire["flow_id"]) == 0


@pytest.mark.core
@pytest.mark.parametrize(
    ("devices", "flows"), [((), 4), (("lo",), 4), (("eth0",), 0), (("lo", "eth0"), 4), (("eth0", "lo"), 4)]
)
def test_only_the_devices_that_are_asked_for(devices: tuple[str, ...], flows: int) -> None:
    with FlowProbe(1_000_000, devices=devices, rank_of=lambda pid: pid + 1) as probe:
        probe.targets.add(os.getpid())
        probe.follow(())
        with socket.create_server(("127.0.0.1", 0)) as listener:
            for _ in range(2):
                with socket.create_connection(listener.getsockname()) as near, listener.accept()[0] as far:
                    near.sendall(b"x" * 1000)
                    far.recv(1000)
        rows = probe.drain(final=True)
    assert len(rows["flows"]["flow_id"]) == flows
    assert set(rows["flows"]["rank"]) == ({os.getpid() + 1} if flows else set())
    for table in ("wire", "tcp"):
        assert set(rows[table]["flow_id"].tolist()) == set(rows["flows"]["flow_id"])


@pytest.mark.core
def test_slots_are_used_again() -> None:
    """A job that opens many short connections never runs out, and no flow inherits another's bytes."""
    with FlowProbe(1_000_000, max_flows=8) as probe:
        probe.targets.add(os.getpid())
        probe.follow(())
        collector = Collector(probe)
        totals = []
        for _ in range(4):
            receiver = Peer(subprocess.Popen, "receive", "--addr", "127.0.0.1", "--flows", "2")
            port = str(receiver.until("listening")["port"])
            sender = Peer(
                subprocess.Popen, "send", "--addr", "127.0.0.1", "--port", port, "--flows", "2", "--count", "1"
            )
            totals.append(sender.until("finished"))
            sender.until("closed")
            sender.process.wait()
            receiver.process.wait()
            while (probe._slots.used()["closed"] != 0).any():
                pass
        recorded = collector.finish()
    assert recorded.losses.untracked_flows == 0
    assert len(recorded.flows) == 16
    for finished in totals:
        assert_exact(recorded, finished, finished["pid"])


@pytest.mark.core
@pytest.mark.parametrize("link", ["pair-no-offloads", "shaped-no-offloads"])
def test_wire_bytes_are_the_interface_s_own(link: str) -> None:
    options: dict[str, Any] = {"offloads": False} | ({"rate": "400mbit"} if "shaped" in link else {})
    with Lab(**options) as lab:
        before = [host.counters() for host in lab]
        data = ["--bytes", "3000000", "--reply", "3000000"]  # so that handshakes and ARP are far below 0.1 %
        recorded, sender, receiver = transfer(lab[0].popen, lab[1].popen, lab[1].ipv4, *data)
        after = [host.counters() for host in lab]
    for side, peer in ((0, sender), (1, receiver)):
        mine = [flow for flow in recorded.flows.values() if flow["pid"] == peer.pid]
        for direction, counter in ((TRANSMIT, "tx_bytes"), (RECEIVE, "rx_bytes")):
            wire = sum(recorded.total(flow, direction, "wire_bytes") for flow in mine)
            counted = after[side][counter] - before[side][counter]
            assert wire == pytest.approx(counted, rel=1e-3)


@pytest.mark.core
@pytest.mark.parametrize("mtus", [(9000, 1500), (1500, 9000), (9000, 9000), (1500, 1500)], ids=str)
def test_packets_are_those_of_the_link_whatever_the_mtu(mtus: tuple[int, int]) -> None:
    """Small writes are cut for the peer, not for the own device: the packets are TCP's, and so are their headers."""
    with Lab() as lab:
        for host, mtu in zip(lab, mtus, strict=True):
            host.ip("link", "set", host.device, "mtu", str(mtu))
        bursts = ["--bytes", "5792", "--count", "500", "--period-ms", "1", "--reply", "3000"]
        recorded, sender, receiver = transfer(lab[0].popen, lab[1].popen, lab[1].ipv4, *bursts)
    said = [(sender, sender.events("finished")[0]["flows"]), (receiver, receiver.events("closed"))]
    again = sum(sock["tcp"]["retransmits"] for _, socks in said for sock in socks)
    slack = 20 + 12 * again  # handshake and end; what comes twice is answered with a SACK option more
    for peer, socks in said:
        assert_exact(recorded, {"flows": socks}, peer.pid)
        for sock in socks:
            flow, tcp = recorded.flows[sock["local_port"], sock["remote_port"]], sock["tcp"]
            sent, received = (recorded.total(flow, way, "packets") for way in (TRANSMIT, RECEIVE))
            # TCP was asked before the end, and counts the answer to the SYN; what a timer sends may go by unseen.
            assert abs(sent - tcp["segs_out"]) <= 5, (sent, tcp)
            assert abs(received - tcp["segs_in"]) <= 5, (received, tcp)
            for way, packets in ((TRANSMIT, sent), (RECEIVE, received)):
                carried = recorded.total(flow, way) + recorded.total(flow, way, "retransmitted_bytes")
                headers = recorded.total(flow, way, "wire_bytes") - carried
                assert headers == pytest.approx(66 * packets, abs=slack)
