"""Hosts whose bytes pass more than their own device: what examples/causes.py builds where `--network` says so.

one-subnet     two devices a host, e1 (--slow-rate) and e10 (--rate), with addresses in one network; rank 0 meets the
               others at the address of one and sends by the other (--sends-by)
two-networks   the same with a network each; the job meets on e1
pods           a pod a rank on a host's bridge; the pods of --slow-ranks are held to --slow-rate by the host: a token
               bucket on the host's end for what they receive, one behind a redirect (ifb) for what they send
uplink         a node a rank: its pod is on a bridge, and what leaves the node passes an uplink of --slow-rate
vxlan          vx0 over e0, and e0 has --rate
tunnel         tun0 of a program that copies packets, over e0, which has --rate
macvlan        a macvlan over a device of the host, which has --rate
nat            rank 1 is behind a gateway that translates its address (nftables); each host's device has --rate
equal-cost     the job's addresses are on lan0, which carries nothing: two equal routes, by p1 and p2, which have --rate
far-queue      a switch in user space that passes on --slow-rate and has a long queue: no device shows it
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from lab import Host, Lab, LabError
from lab_links import CONGESTION_CONTROL, add_namespace, add_veth, fit_packets, run, shape

_HERE = Path(__file__).parent


@dataclass
class PathHost(Host):
    """A host of such a lab; `environment` is what a rank on it needs to meet the others."""

    environment: dict[str, str] = field(default_factory=dict)


class PathLab(Lab):
    """`ranks` hosts, joined as `network` says; the host between them is a namespace of its own, `switch_netns`."""

    def __init__(
        self, network: str, ranks: int, *, rate: str, slow_rate: str, slow_ranks: tuple[int, ...], sends_by: str
    ):
        self.network, self.slow_rate, self.slow_ranks, self.sends_by = network, slow_rate, slow_ranks, sends_by
        super().__init__(ranks, rate=rate)

    def _host(self, index: int) -> Host:
        device, prefix, last = {
            "one-subnet": ("e10", "10.77.0", index + 101),
            "two-networks": ("e1", "10.78.1", index + 1),
            "vxlan": ("vx0", "10.79.1", index + 1),
            "tunnel": ("tun0", "10.80.1", index + 1),
            "nat": ("eth0", f"10.81.{index}", 1),
            "equal-cost": ("lan0", "10.82.0", index + 1),
        }.get(self.network, ("eth0", "10.77.0", index + 1))
        if self.network == "one-subnet" and index == 0 and self.sends_by == "fast":
            device, last = "e1", index + 1
        address = f"{prefix}.{last}"
        return PathHost(
            f"{self.name}.{index}", device, address, f"fd77::{index + 1}", [], {"GLOO_SOCKET_IFNAME": device}
        )

    def beside(self, index: int) -> Host:
        """Return where another program runs that shares a host's link: behind an uplink, in another pod of the node."""
        if self.network != "uplink":
            return super().beside(index)
        shares = self.hosts[index].processes  # they end with the lab
        pod = Host(f"{self.name}.pod{index}", "eth0", f"10.77.0.{index + 101}", "", shares)
        add_namespace(pod.netns)
        self._join_bridge(pod, "eth0", f"pod{index}", f"node{index}")
        self._address(pod, "eth0", f"{pod.ipv4}/24")
        fit_packets(pod.netns, "eth0", self.slow_rate)
        return pod

    def _build(self) -> None:
        for host in self.hosts:
            add_namespace(host.netns)
        add_namespace(self.switch_netns)
        builders: dict[str, Callable[[], None]] = {
            "one-subnet": self._one_subnet,
            "two-networks": self._two_networks,
            "pods": self._pods,
            "uplink": self._uplinks,
            "vxlan": self._vxlan,
            "tunnel": self._tunnel,
            "macvlan": self._macvlan,
            "nat": self._nat,
            "equal-cost": self._equal_cost,
            "far-queue": self._far_queue,
        }
        if self.network not in builders:
            raise LabError(f"there is no network {self.network}: {', '.join(builders)}")
        builders[self.network]()

    def _one_subnet(self) -> None:
        self._bridge("br0")
        for index, host in enumerate(self.hosts):
            for device, rate, last in (("e1", self.slow_rate, index + 1), ("e10", self.rate, index + 101)):
                self._join_bridge(host, device, f"p{index}{device}", "br0")
                self._address(host, device, f"10.77.0.{last}/20", route="")
                for netns, name in ((host.netns, device), (self.switch_netns, f"p{index}{device}")):
                    _limit(netns, name, rate)
            host.run("sh", "-c", "cd /proc/sys/net/ipv4/conf/all; echo 1 > arp_ignore; echo 2 > arp_announce")
            other = "e10" if self.sends_by == "fast" else "e1"
            used = other if index == 0 else "e10"
            for device, metric in ((used, "1"), ("e1" if used == "e10" else "e10", "2")):
                host.ip("route", "add", "10.77.0.0/20", "dev", device, "metric", metric, "congctl", CONGESTION_CONTROL)

    def _two_networks(self) -> None:
        for number, (device, rate) in enumerate((("e1", self.slow_rate), ("e10", self.rate)), 1):
            self._bridge(f"br{number}")
            for index, host in enumerate(self.hosts):
                self._join_bridge(host, device, f"p{index}{device}", f"br{number}")
                self._address(host, device, f"10.78.{number}.{index + 1}/24")
                _limit(host.netns, device, rate)

    def _pods(self) -> None:
        self._bridge("cbr0")
        for index, host in enumerate(self.hosts):
            self._join_bridge(host, "eth0", f"h{index}", "cbr0")
            self._address(host, "eth0", f"{host.ipv4}/24")
            if index in self.slow_ranks:
                fit_packets(host.netns, "eth0", self.slow_rate)
                _redirect(self.switch_netns, f"h{index}", f"ifb{index}")
                for device in (f"h{index}", f"ifb{index}"):
                    shape(self.switch_netns, device, self.slow_rate, "25ms")

    def _uplinks(self) -> None:
        """Each node is a bridge with the pod and an uplink to the others; all nodes are in one namespace."""
        self._bridge("fabric")
        for index, host in enumerate(self.hosts):
            self._bridge(f"node{index}")
            self._join_bridge(host, "eth0", f"h{index}", f"node{index}")
            self._address(host, "eth0", f"{host.ipv4}/24")
            pair = ["link", "add", f"up{index}", "type", "veth", "peer", "name", f"down{index}"]
            self._ip(*pair)
            for device, bridge in ((f"up{index}", f"node{index}"), (f"down{index}", "fabric")):
                self._ip("link", "set", device, "up", "master", bridge)
            fit_packets(host.netns, "eth0", self.slow_rate)
            shape(self.switch_netns, f"up{index}", self.slow_rate, "25ms")

    def _vxlan(self) -> None:
        self._underlay()
        for index, host in enumerate(self.hosts):
            kind = ["type", "vxlan", "id", "7", "dstport", "4789", "local", f"10.79.0.{index + 1}"]
            host.ip("link", "add", "vx0", *kind, "remote", f"10.79.0.{2 - index}")
            host.ip("link", "set", "vx0", "mtu", "1450", "up")
            self._address(host, "vx0", f"{host.ipv4}/24")
            fit_packets(host.netns, "vx0", self.rate)

    def _tunnel(self) -> None:
        self._underlay()
        for index, host in enumerate(self.hosts):
            ends = (f"10.79.0.{index + 1}", f"10.79.0.{2 - index}")
            program = host.popen(
                [sys.executable, str(_HERE / "lab_tunnel.py"), *ends], stdout=subprocess.PIPE, text=True
            )
            if program.stdout is None or not program.stdout.readline():
                raise LabError("the tunnel did not start (its own words are above)")
            host.ip("link", "set", "tun0", "mtu", "1400", "up")
            self._address(host, "tun0", f"{host.ipv4}/24")

    def _underlay(self) -> None:
        first, second = self.hosts
        add_veth(first.netns, "e0", second.netns, "e0")
        for index, host in enumerate(self.hosts):
            self._address(host, "e0", f"10.79.0.{index + 1}/24")
            _limit(host.netns, "e0", self.rate)

    def _macvlan(self) -> None:
        """Each rank has a macvlan over a device of a node, which is joined to the other nodes'."""
        self._bridge("br0")
        for index, host in enumerate(self.hosts):
            node = f"{self.name}.node{index}"
            add_namespace(node)
            add_veth(node, "nic", self.switch_netns, f"p{index}")
            run("ip", "-netns", node, "link", "set", "nic", "up")
            self._ip("link", "set", f"p{index}", "up", "master", "br0")
            kind = [
                "link",
                "add",
                "link",
                "nic",
                "name",
                "eth0",
                "netns",
                host.netns,
                "type",
                "macvlan",
                "mode",
                "bridge",
            ]
            run("ip", "-netns", node, *kind)
            self._address(host, "eth0", f"{host.ipv4}/24")
            fit_packets(host.netns, "eth0", self.rate)
            shape(node, "nic", self.rate, "50ms")

    def _nat(self) -> None:
        for index, host in enumerate(self.hosts):
            add_veth(host.netns, "eth0", self.switch_netns, f"to{index}")
            self._ip("address", "add", f"10.81.{index}.254/24", "dev", f"to{index}")
            self._ip("link", "set", f"to{index}", "up")
            self._address(host, "eth0", f"{host.ipv4}/24")
            _limit(host.netns, "eth0", self.rate)
        self.hosts[1].ip("route", "add", "default", "via", "10.81.1.254", "congctl", CONGESTION_CONTROL)
        run("ip", "netns", "exec", self.switch_netns, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        chain = "{ type nat hook postrouting priority 100 ; }"
        for rule in ("add table ip lab", f"add chain ip lab out {chain}", "add rule ip lab out oifname to0 masquerade"):
            run("ip", "netns", "exec", self.switch_netns, "nft", rule)

    def _equal_cost(self) -> None:
        first, second = self.hosts
        for device in ("p1", "p2"):
            add_veth(first.netns, device, second.netns, device)
        for index, host in enumerate(self.hosts):
            host.ip("link", "add", "lan0", "type", "bridge")
            self._address(host, "lan0", f"{host.ipv4}/32", route="")
            hops = []
            for number, device in enumerate(("p1", "p2"), 1):
                self._address(host, device, f"10.83.{number}.{index + 1}/24")
                _limit(host.netns, device, self.rate)
                hops += ["nexthop", "via", f"10.83.{number}.{2 - index}", "dev", device]
            other = self.hosts[1 - index].ipv4
            host.ip("route", "add", other, "src", host.ipv4, "congctl", CONGESTION_CONTROL, *hops)

    def _far_queue(self) -> None:
        for index, host in enumerate(self.hosts):
            add_veth(host.netns, "eth0", self.switch_netns, f"port{index}")
            self._ip("link", "set", f"port{index}", "up")
            self._address(host, "eth0", f"{host.ipv4}/24")
            _limit(host.netns, "eth0", self.rate)
        self._start_far_switch(self.switch_netns, [f"port{index}" for index in range(len(self.hosts))], self.slow_rate)

    def _bridge(self, name: str) -> None:
        self._ip("link", "add", name, "type", "bridge")
        self._ip("link", "set", name, "up")

    def _join_bridge(self, host: Host, device: str, port: str, bridge: str) -> None:
        add_veth(host.netns, device, self.switch_netns, port)
        self._ip("link", "set", port, "up", "master", bridge)

    def _ip(self, *argv: str) -> None:
        run("ip", "-netns", self.switch_netns, *argv)

    def _address(self, host: Host, device: str, address: str, route: str = "default") -> None:
        """Give a device an address, and a route to its network with Linux's own congestion control."""
        host.ip("link", "set", device, "up")
        host.ip("address", "add", address, "dev", device, "noprefixroute")
        if route:
            network = f"{address.rpartition('.')[0]}.0/24"
            host.ip("route", "add", network, "dev", device, "congctl", CONGESTION_CONTROL)


def _limit(netns: str, device: str, rate: str) -> None:
    fit_packets(netns, device, rate)
    shape(netns, device, rate, "50ms")


def _redirect(netns: str, device: str, ifb: str) -> None:
    """Send what comes in by a device through an ifb."""
    run("ip", "-netns", netns, "link", "add", ifb, "type", "ifb")
    run("ip", "-netns", netns, "link", "set", ifb, "up")
    run("tc", "-netns", netns, "qdisc", "add", "dev", device, "ingress")
    every = ["parent", "ffff:", "protocol", "all", "u32", "match", "u32", "0", "0"]
    to = ["action", "mirred", "egress", "redirect", "dev", ifb]
    run("tc", "-netns", netns, "filter", "add", "dev", device, *every, *to)
