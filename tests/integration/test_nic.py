"""The NIC's counters while known traffic passes, in a namespace that outlives its processes."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab import Lab

from netprof.probes.kernel.netns import NetworkNamespace
from netprof.probes.nic.probe import NicProbe

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")

DATAGRAMS, PAYLOAD_BYTES = 997, 1200
FRAME_BYTES = 14 + 20 + 8 + PAYLOAD_BYTES  # Ethernet, IPv4 and UDP headers around it


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Two hosts that send nothing by themselves: no IPv6, and neighbours known."""
    with Lab() as hosts:
        for host, other in zip(hosts, reversed(hosts.hosts), strict=True):
            host.run("sysctl", "-qw", f"net.ipv6.conf.{host.device}.disable_ipv6=1")
            address = other.run("cat", f"/sys/class/net/{other.device}/address").strip()
            host.ip("neigh", "replace", other.ipv4, "lladdr", address, "dev", host.device)
        yield hosts


def process_in(lab: Lab, index: int) -> subprocess.Popen[bytes]:
    process = lab[index].popen(["sh", "-c", "echo; exec sleep 60"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def flow(device: str, netns: int, pid: int) -> dict[str, list[Any]]:
    """Build a row of table `flows`, as far as the NIC probe looks at it."""
    return {"flow_id": [0], "device": [device], "netns": [netns], "pid": [pid], "remote_addr": [""]}


def send_datagrams(namespace: NetworkNamespace, address: str) -> None:
    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(DATAGRAMS):
                sender.sendto(bytes(PAYLOAD_BYTES), (address, 9))

    namespace.run(send)


@pytest.mark.core
def test_known_traffic_to_the_byte_in_two_namespaces(lab: Lab) -> None:
    with (
        process_in(lab, 0) as first,
        process_in(lab, 1) as second,
        NicProbe() as probe,
        NetworkNamespace.of(first.pid) as sending,
        NetworkNamespace.of(second.pid) as receiving,
    ):
        probe.notice("flows", flow(lab[0].device, sending.inode, first.pid))
        probe.notice("flows", flow(lab[1].device, receiving.inode, second.pid))
        first.kill()
        second.kill()
        first.wait()
        second.wait()
        before = probe.drain()["nic"]
        # A closed port answers with ICMP errors: the receiver transmits too, so only one direction is exact.
        send_datagrams(sending, lab[1].ipv4)
        after = probe.drain(final=True)["nic"]
        inodes = [sending.inode, receiving.inode]
    assert before["netns"] == after["netns"] == inodes
    assert before["device"] == [lab[0].device, lab[1].device]
    grown = {name: (np.array(after[name]) - np.array(before[name])).tolist() for name in before if name != "device"}
    assert (grown["tx_packets"][0], grown["tx_bytes"][0]) == (DATAGRAMS, DATAGRAMS * FRAME_BYTES)
    assert (grown["rx_packets"][1], grown["rx_bytes"][1]) == (DATAGRAMS, DATAGRAMS * FRAME_BYTES)
    assert grown["rx_errors"] == grown["tx_errors"] == [0, 0]
    assert all(step > 0 for step in grown["time_ns"])


@pytest.mark.core
def test_a_sample_is_what_the_interface_itself_says(lab: Lab) -> None:
    with process_in(lab, 0) as inside, NicProbe() as probe:
        netns = Path(f"/proc/{inside.pid}/ns/net").stat().st_ino
        probe.notice("flows", flow(lab[0].device, netns, inside.pid))
        probe.notice("flows", flow("lo", netns, inside.pid))
        sample, kernel = probe.drain()["nic"], lab[0].counters()
        inside.kill()
    devices = list(map(str, sample["device"]))
    row = devices.index(lab[0].device)
    assert sorted(devices) == sorted(["lo", lab[0].device])
    assert {name: sample[name][row] for name in kernel} == kernel


@pytest.mark.core
def test_a_device_that_is_deleted_has_no_row_any_more(lab: Lab) -> None:
    with process_in(lab, 0) as inside, NicProbe() as probe:
        netns = Path(f"/proc/{inside.pid}/ns/net").stat().st_ino
        probe.notice("flows", flow(lab[0].device, netns, inside.pid))
        assert probe.drain()["nic"]["device"] == [lab[0].device]
        lab[0].ip("link", "del", lab[0].device)
        assert probe.drain(final=True)["nic"]["device"] == []
        inside.kill()
