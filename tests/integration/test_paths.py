"""The devices below a flow's own, found in real namespaces: what a path is, and what its devices counted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from lab_paths import PathLab

from netprof.probes.doctor.check import DoctorCheck, Status
from netprof.probes.doctor.paths import check_paths
from netprof.probes.job.processes import find_job
from netprof.probes.kernel.netns import NetworkNamespace
from netprof.probes.nic.namespaces import Namespaces
from netprof.probes.nic.path_walk import Hop, find_path
from netprof.probes.nic.settings import facts_of, route_of
from netprof.schema import RECEIVE, TRANSMIT, HopKind

K = HopKind
HELLO = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'', ({!r}, 9))"
TALK = """
import socket, sys, time
if sys.argv[1] == "serve":
    server = socket.create_server(("", 7777))
    print("ready", flush=True)
    peer, _ = server.accept()
    while peer.recv(1 << 16):
        pass
else:
    peer = socket.create_connection((sys.argv[1], 7777))
    peer.sendall(bytes(1 << 20))
    print("ready", flush=True)
    time.sleep(60)
"""


@dataclass
class Looked:
    """A lab and the places that were opened to look at it."""

    lab: PathLab
    places: Namespaces

    def path(self, host: int, direction: int, recorded: bool = False) -> tuple[Hop, ...]:
        """The path from one host to another one's address."""
        mine, other = self.lab[host], self.lab[1 - host]
        mine.run(sys.executable, "-c", HELLO.format(other.ipv4))  # so that switches learn where who is
        place = self.places.take(NetworkNamespace(_open(mine.netns)))
        assert place is not None
        place.forget()
        others = (Path("/run/netns", other.netns).stat().st_ino,) if recorded else ()
        return find_path(self.places, place, mine.device, direction, other.ipv4, others)


def _open(netns: str) -> int:
    return os.open(f"/run/netns/{netns}", os.O_RDONLY)


@contextmanager
def looked_at(network: str, ranks: int = 2, **more: str) -> Iterator[Looked]:
    options = {"rate": "1gbit", "slow_rate": "100mbit", "sends_by": "slow", **more}
    lab = PathLab(network, ranks, slow_ranks=(1,), **options)
    with lab:
        places = Namespaces()
        try:
            yield Looked(lab, places)
        finally:
            places.close()


def said(hops: tuple[Hop, ...]) -> list[tuple[HopKind, str, int]]:
    return [(hop.kind, hop.device, hop.direction) for hop in hops]


@pytest.mark.core
def test_a_pod_is_limited_on_its_hosts_end_of_the_pair_and_behind_a_redirect() -> None:
    with looked_at("pods") as at:
        assert said(at.path(1, TRANSMIT)) == [
            (K.FLOW, "eth0", TRANSMIT),
            (K.OTHER_END, "h1", RECEIVE),
            (K.REDIRECT, "ifb1", TRANSMIT),
            (K.PORT, "h0", TRANSMIT),
        ]
        assert said(at.path(1, TRANSMIT, recorded=True))[-1] == (K.REDIRECT, "ifb1", TRANSMIT)
        assert said(at.path(1, RECEIVE, recorded=True)) == [(K.FLOW, "eth0", RECEIVE), (K.OTHER_END, "h1", TRANSMIT)]


def test_what_leaves_a_node_passes_its_uplink() -> None:
    with looked_at("uplink") as at:
        assert said(at.path(0, TRANSMIT, recorded=True)) == [
            (K.FLOW, "eth0", TRANSMIT),
            (K.OTHER_END, "h0", RECEIVE),
            (K.PORT, "up0", TRANSMIT),
            (K.OTHER_END, "down0", RECEIVE),
            (K.PORT, "down1", TRANSMIT),
            (K.OTHER_END, "up1", RECEIVE),
        ]


@pytest.mark.core
def test_a_tunnel_sends_by_the_device_to_its_remote_end() -> None:
    with looked_at("vxlan") as at:
        hops = at.path(0, TRANSMIT)
        assert said(hops)[:2] == [(K.FLOW, "vx0", TRANSMIT), (K.TUNNEL, "e0", TRANSMIT)]
        assert (hops[1].header_bytes, hops[1].about) == (50, "vxlan vx0 to 10.79.0.2")


def test_a_tunnel_of_a_program_is_assumed_to_send_by_any_device_that_could() -> None:
    with looked_at("tunnel") as at:
        assert said(at.path(0, TRANSMIT)) == [(K.FLOW, "tun0", TRANSMIT), (K.ASSUMED, "e0", TRANSMIT)]


def test_a_macvlan_is_stacked_on_a_device_of_another_namespace() -> None:
    with looked_at("macvlan") as at:
        hops = at.path(0, TRANSMIT)
        assert said(hops)[:2] == [(K.FLOW, "eth0", TRANSMIT), (K.BELOW, "nic", TRANSMIT)]
        assert hops[1].netns == Path("/run/netns", f"{at.lab.name}.node0").stat().st_ino


def test_what_is_set_is_told_as_one_writes_it() -> None:
    with looked_at("one-subnet") as at:
        place = at.places.take(NetworkNamespace(_open(at.lab[0].netns)))
        assert place is not None
        facts = {(device, name): value for device, name, value in facts_of(place, ["e1", "e10"])}
        assert facts["e1", "addresses"] == "10.77.0.1/20"
        assert facts["e10", "kind"] == "veth"
        assert facts["e10", "off"] == ""
        assert len(facts["", "net.ipv4.tcp_rmem"].split()) == 3
        remote = at.lab[1].ipv4
        assert list(route_of(place, "e1", remote)) == [("e1", f"route to {remote}", "10.77.0.0/20 dev e1 metric 1")]


def checks_of(at: Looked) -> list[DoctorCheck]:
    """What the doctor says of a connection from the first host to the second."""
    job = ["env", f"MASTER_ADDR={at.lab[1].ipv4}", "MASTER_PORT=7777", "WORLD_SIZE=2"]
    served = at.lab[1].popen([*job, "RANK=1", sys.executable, "-c", TALK, "serve"], stdout=subprocess.PIPE)
    assert served.stdout is not None
    served.stdout.readline()
    talks = at.lab[0].popen([*job, "RANK=0", sys.executable, "-c", TALK, at.lab[1].ipv4], stdout=subprocess.PIPE)
    assert talks.stdout is not None
    talks.stdout.readline()
    return list(check_paths(find_job([talks.pid])))


def test_the_doctor_names_the_slow_device_and_the_route_that_chose_it() -> None:
    with looked_at("one-subnet", rate="10gbit") as at:
        checks = checks_of(at)
        (path,) = [each for each in checks if each.name == f"path to {at.lab[1].ipv4}"]
        assert path.status is Status.OK
        assert path.detail.startswith("e1 → ")
        assert path.detail.endswith("at most 100.0 Mbit/s (tbf: 100 Mbit/s on e1)")
        (faster,) = [each for each in checks if each.name == "faster device"]
        assert (
            faster.detail == f"e10 (10.0 Gbit/s) reaches {at.lab[1].ipv4} too, 100.0 times as fast as e1 (100.0 Mbit/s)"
        )
        why = "the route 10.77.0.0/20 dev e1 metric 1 sends by e1"
        assert faster.remedy == f"ip route change 10.77.0.0/20 dev e10 metric 1 ({why})"


@pytest.mark.core
def test_the_doctor_names_a_pods_limit_and_no_faster_device_where_there_is_none() -> None:
    with looked_at("pods") as at:
        checks = checks_of(at)
        (path,) = [each for each in checks if each.name == f"path to {at.lab[1].ipv4}"]
        assert path.detail.endswith("at most 100.0 Mbit/s (tbf: 100 Mbit/s on h1)")
        assert not [each for each in checks if each.name == "faster device"]


def test_the_doctor_names_an_idle_device_in_another_network_of_the_peer() -> None:
    with looked_at("two-networks", rate="10gbit") as at:
        (faster,) = [each for each in checks_of(at) if each.name == "faster device" and "10.78.2.2" in each.detail]
        assert faster.remedy == "NCCL_SOCKET_IFNAME=e10 or GLOO_SOCKET_IFNAME=e10"
