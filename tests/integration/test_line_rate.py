"""Line rates of real devices in real namespaces, shaped by the kernel's own disciplines."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import Host, Lab, run

from netprof.model import Device
from netprof.probes.kernel.netns import NetworkNamespace
from netprof.probes.kernel.rtnetlink import RouteSocket
from netprof.probes.nic.history import LinkHistory

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")

NOMINAL = "unknown: the veth driver's 10 Gbit/s is nominal, it limits nothing"


@pytest.fixture
def host() -> Iterator[Host]:
    """A host with an unshaped veth."""
    with Lab() as lab:
        yield lab[0]


def process_in(host: Host) -> subprocess.Popen[bytes]:
    """Start a process in a host and wait until it is there."""
    process = host.popen(["sh", "-c", "echo; exec sleep 60"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def describe_device(pid: int, device: str, override_bps: float | None = None) -> Device:
    """Return what a device of a process's namespace is like."""
    history = LinkHistory(NetworkNamespace.of(pid))
    try:
        return history.add(device, override_bps)
    finally:
        history.close()


def describe(host: Host, override_bps: float | None = None) -> Device:
    with process_in(host) as inside:
        try:
            return describe_device(inside.pid, host.device, override_bps)
        finally:
            inside.kill()


def test_a_veths_speed_is_nominal(host: Host) -> None:
    device = describe(host)
    assert (device.line_rate.bps, device.line_rate.source) == (None, NOMINAL)
    assert (device.device, device.kind, device.mtu_bytes) == (host.device, "veth", 1500)
    assert device.netns == Path(f"/run/netns/{host.netns}").stat().st_ino


def test_the_person_knows_best(host: Host) -> None:
    device = describe(host, 5e9)
    assert (device.line_rate.bps, device.line_rate.source, device.mtu_bytes) == (5e9, "--line-rate", 1500)


@pytest.mark.core
@pytest.mark.parametrize(("rate", "bps"), [("100mbit", 1e8), ("1gbit", 1e9), ("100gbit", 1e11)])
def test_a_token_bucket(host: Host, rate: str, bps: float) -> None:
    host.tc("qdisc", "add", "dev", host.device, "root", "tbf", "rate", rate, "burst", "1mb", "latency", "50ms")
    assert describe(host).line_rate.bps == bps


def test_a_token_bucket_inside_another(host: Host) -> None:
    bucket = ("tbf", "burst", "64kb", "latency", "50ms", "rate")
    host.tc("qdisc", "add", "dev", host.device, "root", "handle", "1:", *bucket, "1gbit")
    host.tc("qdisc", "add", "dev", host.device, "parent", "1:", "handle", "2:", *bucket, "400mbit")
    rate = describe(host).line_rate
    assert (rate.bps, rate.source) == (4e8, f"tbf: 400 Mbit/s on {host.device}")


def test_a_token_bucket_under_netem(host: Host) -> None:
    try:
        host.tc("qdisc", "add", "dev", host.device, "root", "handle", "1:", "netem", "delay", "1ms")
    except RuntimeError as error:
        pytest.skip(f"LOUD: this kernel has no netem, so nesting under it is untested here: {error}")
    host.tc(
        "qdisc", "add", "dev", host.device, "parent", "1:", "tbf", "rate", "1gbit", "burst", "64kb", "latency", "5ms"
    )
    assert describe(host).line_rate.bps == 1e9


@pytest.mark.core
def test_htb_by_its_classes(host: Host) -> None:
    host.tc("qdisc", "add", "dev", host.device, "root", "handle", "1:", "htb", "default", "10")
    assert describe(host).line_rate.source == f"{NOMINAL}; an htb qdisc without classes limits nothing"
    add = ("class", "add", "dev", host.device, "parent")
    host.tc(*add, "1:", "classid", "1:1", "htb", "rate", "2gbit")
    host.tc(*add, "1:1", "classid", "1:10", "htb", "rate", "100mbit", "ceil", "1gbit")
    rate = describe(host).line_rate
    assert (rate.bps, rate.source) == (1e9, f"htb: 1 Gbit/s on {host.device}")
    host.tc(*add, "1:1", "classid", "1:20", "htb", "rate", "100mbit", "ceil", "300mbit")
    rate = describe(host).line_rate
    assert (rate.bps, rate.source) == (1.3e9, f"htb, its 2 leaf classes together: 1.3 Gbit/s on {host.device}")


def test_the_htb_class_that_carries_the_traffic(host: Host) -> None:
    """4 MB through the default class decide which class's ceil is the limit."""
    host.tc("qdisc", "add", "dev", host.device, "root", "handle", "1:", "htb", "default", "10")
    add = ("class", "add", "dev", host.device, "parent")
    host.tc(*add, "1:", "classid", "1:1", "htb", "rate", "2gbit")
    host.tc(*add, "1:1", "classid", "1:10", "htb", "rate", "500mbit", "ceil", "700mbit")
    host.tc(*add, "1:1", "classid", "1:20", "htb", "rate", "100mbit", "ceil", "2gbit")
    flood = f"""
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"{host.device}")
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    for _ in range(3000):
        sender.sendto(bytes(1400), ("255.255.255.255", 9))
"""
    host.run("python3", "-c", flood)
    rate = describe(host).line_rate
    assert rate.bps == 7e8
    assert rate.source.startswith("htb class 1:10, ")


def test_a_vlan_has_the_line_rate_of_the_device_below(host: Host) -> None:
    try:
        host.ip("link", "add", "link", host.device, "name", "upper", "type", "macvlan", "mode", "bridge")
    except RuntimeError as error:
        pytest.skip(f"LOUD: this kernel has no macvlan: {error}")
    upper = Host(host.netns, "upper", host.ipv4, host.ipv6)
    assert describe(upper).line_rate.source == f"{NOMINAL}, under the macvlan"
    host.tc("qdisc", "add", "dev", host.device, "root", "tbf", "rate", "1gbit", "burst", "64kb", "latency", "50ms")
    rate = describe(upper).line_rate
    assert (rate.bps, rate.source) == (1e9, f"tbf: 1 Gbit/s on {host.device}, under the macvlan")


def test_loopback_and_a_device_that_is_not_there() -> None:
    assert describe_device(os.getpid(), "lo").line_rate.source == "unknown: the loopback device has no line rate"
    assert describe_device(os.getpid(), "no-such-dev").line_rate.source == "unknown: there is no such device any more"


@pytest.mark.core
def test_a_device_with_a_hostile_name() -> None:
    with Lab() as lab:
        run("ip", "-n", lab[0].netns, "link", "add", "name", "$(x)\x1b[2J", "type", "ifb")
        with process_in(lab[0]) as inside:
            found = describe_device(inside.pid, "$(x)\x1b[2J")
            inside.kill()
    assert (found.kind, found.line_rate.bps) == ("ifb", None)


def test_the_callers_own_namespace_is_not_left(host: Host) -> None:
    before = Path("/proc/thread-self/ns/net").stat().st_ino
    with process_in(host) as inside, NetworkNamespace.of(inside.pid) as namespace:
        inside.kill()
        inside.wait()
        seen = namespace.run(lambda: Path("/proc/thread-self/ns/net").stat().st_ino)

        def names() -> list[str]:
            with RouteSocket() as route:
                return [link.name for link in route.links()]

        assert host.device in namespace.run(names)
    assert seen == namespace.inode != before
    assert Path("/proc/thread-self/ns/net").stat().st_ino == before


def test_without_the_right_to_enter_the_line_rate_is_unknown_and_says_why(host: Host) -> None:
    """CAP_SYS_ADMIN dropped for real, everything else kept."""
    with process_in(host) as inside:
        script = (
            "from netprof.probes.kernel.netns import NetworkNamespace\n"
            "from netprof.probes.nic.history import LinkHistory\n"
            f"history = LinkHistory(NetworkNamespace.of({inside.pid}))\n"
            f"for override in (None, 1e9): print(history.add('{host.device}', override).line_rate)"
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        limited = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
        done = subprocess.run(
            [*limited, sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        inside.kill()
    unknown, given = done.stdout.splitlines()
    assert "bps=None" in unknown
    assert "CAP_SYS_ADMIN missing" in unknown
    assert "bps=1000000000.0, source='--line-rate'" in given
