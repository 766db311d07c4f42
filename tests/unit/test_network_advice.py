"""The lines that reports and the doctor give to type: whatever a device is called, no shell runs its name."""

from __future__ import annotations

import shlex

import pytest

from netprof.network_advice import Nic, change, offloads_off, smaller_mtu

HOSTILE = "x;reboot`$(id)"


@pytest.mark.parametrize("name", [HOSTILE, "eth0.100@if2"])
@pytest.mark.parametrize("frameworks", [["nccl", "gloo"], ["mpi", "horovod"], []])
def test_a_device_is_one_word_of_a_command(name: str, frameworks: list[str]) -> None:
    nic = Nic(name, ("10.0.0.2/24",), 1e10)
    route = f"10.0.0.0/24 dev {HOSTILE} scope link"
    lines = [
        change(nic, "eth0", "10.0.0.9", "", frameworks)[0],
        change(nic, HOSTILE, "10.0.0.9", route, frameworks)[0],
        smaller_mtu(name, 9000, "below", 1500)[1],
        (offloads_off(name, ["tso"], 1e10) or ("", ""))[1],
    ]
    for line in lines:
        words = [word.partition("=")[2] or word for word in shlex.split(line)]
        assert name in words
        assert (name == HOSTILE) == ("'" in line)


def test_a_route_is_changed_as_ip_writes_it() -> None:
    nic = Nic("eth1", ("10.0.0.2/24",), 1e10)
    line, _ = change(nic, "eth0", "10.0.0.9", "10.0.0.0/24 via 10.0.0.1 dev eth0 metric 100", [])
    assert line == "ip route change 10.0.0.0/24 via 10.0.0.1 dev eth1 metric 100"
