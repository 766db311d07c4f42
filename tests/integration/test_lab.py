"""The laboratory: hosts that talk, loss that happens, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from lab import NETNS_DIR, Lab

pytestmark = [pytest.mark.timing, pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")]

BURST = Path(__file__).parent.parent / "programs" / "burst.py"
HOLD = """
import time
from lab import Lab
with Lab() as lab:
    lab[0].popen(["sleep", "99"])
    print(lab.name, flush=True)
    time.sleep(99)
"""


def transfer(lab: Lab, addr: str, *options: str) -> dict[str, list[dict[str, Any]]]:
    """Run a sender in host 0 against a receiver in host 1; return both logs."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    receiver = lab[1].popen([sys.executable, str(BURST), "receive", "--addr", addr], **pipes)
    assert receiver.stdout is not None
    port = json.loads(receiver.stdout.readline())["port"]
    sender = lab[0].popen([sys.executable, str(BURST), "send", "--addr", addr, "--port", str(port), *options], **pipes)
    logs = {"send": sender.communicate(timeout=30)[0], "receive": receiver.communicate(timeout=30)[0]}
    return {role: [json.loads(line) for line in text.splitlines()] for role, text in logs.items()}


def events(log: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [line for line in log if line["event"] == name]


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
@pytest.mark.parametrize("options", [{}, {"switch": True}, {"bridged_host": True}], ids=["pair", "switch", "bridged"])
def test_bursts_arrive_to_the_byte(options: dict[str, Any], family: str) -> None:
    with Lab(rate="1gbit", **options) as lab:
        log = transfer(
            lab, getattr(lab[1], family), "--bursts", "16,100000,250000", "--reply", "777", "--period-ms", "5"
        )
    assert [burst["bytes"] for burst in events(log["receive"], "burst")] == [16, 100000, 250000]
    sent = events(log["send"], "finished")[0]["flows"][0]["tcp"]
    received = events(log["receive"], "closed")[0]["tcp"]
    assert sent["bytes_sent"] - sent["bytes_retrans"] == received["bytes_received"] == 350016
    assert sent["bytes_received"] == 3 * 777


@pytest.mark.core
def test_the_token_bucket_shapes() -> None:
    with Lab(rate="100mbit") as lab:
        log = transfer(lab, lab[1].ipv4, "--bursts", "2000000")
    burst = events(log["send"], "burst")[0]
    assert burst["acked_ns"] - burst["begin_ns"] > (2_000_000 - 32_768) * 8 / 100e6 * 1e9


def test_a_link_that_becomes_slower_passes_what_waited_there() -> None:
    """Packets that are larger than the smaller bucket wait when the rate is changed."""
    with Lab(rate="1gbit") as lab, ThreadPoolExecutor(1) as pool:
        log = pool.submit(transfer, lab, lab[1].ipv4, "--bursts", "40000000")
        while sent_bytes(lab) < 5_000_000 and not log.done():
            pass
        assert not log.done()
        lab[0].shape("200mbit", lab.latency)
        assert [burst["bytes"] for burst in events(log.result()["receive"], "burst")] == [40_000_000]


@pytest.mark.parametrize("rate", ["100mbit", "500mbit"])
def test_no_packet_is_too_large_for_the_bucket(rate: str) -> None:
    """The kernel would take such packets apart before the bucket, at the price of most of a CPU."""
    with Lab(rate=rate, switch=True) as lab:
        assert whole_packets(lab)
        lab[0].shape("250mbit", lab.latency)
        assert whole_packets(lab)
    with Lab(switch=True) as lab:
        lab.shape_towards(1, rate)
        assert whole_packets(lab, "port1")


def whole_packets(lab: Lab, port: str = "") -> bool:
    """Send 2 MB from host 0 to host 1: do they leave as offloaded packets, or one by one?"""
    device = ["ip", "-netns", lab.switch_netns if port else lab[0].netns, "-j", "-s", "link", "show", "dev"]
    device.append(port or lab[0].device)
    before = json.loads(subprocess.check_output(device))[0]["stats64"]["tx"]["packets"]
    transfer(lab, lab[1].ipv4, "--bursts", "2000000")
    packets = json.loads(subprocess.check_output(device))[0]["stats64"]["tx"]["packets"] - before
    return bool(packets < 2_000_000 / 1448 / 4)


def sent_bytes(lab: Lab) -> int:
    command = ["ip", "-netns", lab[0].netns, "-j", "-s", "link", "show", "dev", lab[0].device]
    (device,) = json.loads(subprocess.check_output(command))
    return int(device["stats64"]["tx"]["bytes"])


def test_a_long_way_delays_and_loses_nothing() -> None:
    with Lab(rate="1gbit", delay_ms=5) as lab:
        log = transfer(lab, lab[1].ipv4, "--bursts", "16,2000000")
    first = events(log["send"], "burst")[0]
    assert 10e6 < first["acked_ns"] - first["begin_ns"] < 100e6
    tcp = events(log["send"], "finished")[0]["flows"][0]["tcp"]
    assert events(log["receive"], "closed")[0]["tcp"]["bytes_received"] == 2_000_016
    assert tcp["bytes_retrans"] == 0


def test_a_switch_can_be_slow_towards_one_host() -> None:
    with Lab(switch=True) as lab:
        lab.shape_towards(1, "100mbit")
        log = transfer(lab, lab[1].ipv4, "--bursts", "2000000")
    burst = events(log["send"], "burst")[0]
    assert burst["acked_ns"] - burst["begin_ns"] > (2_000_000 - 32_768) * 8 / 100e6 * 1e9


def test_a_blocked_host_is_out_of_reach_until_it_is_not() -> None:
    with Lab(switch=True) as lab:
        lab.block(1, True)
        blocked_ns = time.monotonic_ns()
        threading.Timer(0.5, lab.block, [1, False]).start()
        log = transfer(lab, lab[1].ipv4, "--count", "1")
    assert events(log["send"], "connected")[0]["time_ns"] > blocked_ns + 500_000_000


@pytest.mark.parametrize("switch", [False, True])
def test_loss_is_behind_the_sender(switch: bool) -> None:
    with Lab(loss_percent=1, offloads=False, switch=switch) as lab:
        log = transfer(lab, lab[1].ipv4, "--bytes", "3000000", "--count", "1")
        counted = lab[0].counters()["tx_bytes"]
    tcp = events(log["send"], "finished")[0]["flows"][0]["tcp"]
    assert tcp["bytes_retrans"] > 0
    assert counted > tcp["bytes_sent"]


def test_a_forked_child_sends() -> None:
    with Lab() as lab:
        log = transfer(lab, lab[1].ipv4, "--child", "send", "--count", "2")
    parent, child = (events(log["send"], name)[0]["pid"] for name in ("connected", "forked"))
    assert {burst["pid"] for burst in events(log["send"], "burst")} == {child} != {parent}


def test_four_hosts_share_a_switch() -> None:
    with Lab(4) as lab:
        log = transfer(lab, lab[1].ipv4, "--count", "1")
        assert lab[3].run("ip", "-br", "address").count("10.77.0.4") == 1
    assert len(events(log["receive"], "burst")) == 1


@pytest.mark.core
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_nothing_stays(number: signal.Signals) -> None:
    examples = str(Path(__file__).parent.parent.parent / "examples")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": examples},
    )
    assert holder.stdout is not None
    name = holder.stdout.readline().strip()
    assert list(NETNS_DIR.glob(f"{name}.*"))
    sleeper = subprocess.check_output(["ip", "netns", "pids", f"{name}.0"], text=True).split()
    holder.send_signal(number)
    holder.wait(timeout=10)
    if number == signal.SIGKILL:
        with Lab():
            pass
    assert not list(NETNS_DIR.glob(f"{name}.*"))
    assert sleeper
    assert not [pid for pid in sleeper if _alive(pid)]


def _alive(pid: str) -> bool:
    """Tell whether a process still runs a second from now at the latest (a zombie does not run)."""
    for _ in range(20):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return False
        except (FileNotFoundError, ProcessLookupError):
            return False
        time.sleep(0.05)
    return True
