"""Reading `/proc/net/dev`; counters of real links are in integration/test_nic.py."""

from __future__ import annotations

import ipaddress
import os
import socket
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.tables.nic_counters import rows_by_device
from netprof.errors import NetprofError
from netprof.probes.kernel.netns import NetworkNamespace
from netprof.probes.kernel.rtnetlink import IFF_LOOPBACK, IFF_UP, Address, Changed, LinkEvents, TrafficControl
from netprof.probes.nic.device_counters import QdiscDrops, parse_counters
from netprof.probes.nic.history import LinkHistory
from netprof.probes.nic.namespaces import Namespaces
from netprof.probes.nic.probe import NicProbe
from netprof.probes.nic.settings import usable_devices
from netprof.schema import LinkState, tables


@pytest.fixture(autouse=True)
def no_other_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's devices that no flow uses are followed too, and are not what is tested here."""
    monkeypatch.setattr("netprof.probes.nic.probe.usable_devices", lambda namespace: [])


HEADER = b"Inter-|   Receive  |  Transmit\n face |bytes packets |bytes packets\n"
OWN_NETNS = Path("/proc/self/ns/net").stat().st_ino


def line(name: bytes, first: int = 1) -> bytes:
    return name.rjust(6) + b": " + b" ".join(str(first + step).encode() for step in range(16)) + b"\n"


def flow(device: str, netns: int = OWN_NETNS, pid: int | None = None) -> dict[str, list[Any]]:
    """Build a row of table `flows`, as far as the NIC probe looks at it."""
    pids = [os.getpid() if pid is None else pid]
    return {"flow_id": [0], "device": [device], "netns": [netns], "pid": pids, "remote_addr": [""]}


def test_lines_are_split_by_the_last_thing_the_kernel_forbids_in_a_name() -> None:
    shown = ["eth0", "a-name-of-15-ch", "\\xff\x1b[2J", "%s{0}", "ñ"]
    raw = [b"eth0", b"a-name-of-15-ch", b"\xff\x1b[2J", b"%s{0}", "ñ".encode()]
    found = parse_counters(HEADER + b"".join(line(name) for name in raw), shown)
    assert list(found) == shown
    assert all(counters == found["eth0"] for counters in found.values())


def test_a_line_cut_short_and_a_device_that_nobody_asked_for_are_left_out() -> None:
    text = HEADER + line(b"eth0") + line(b"eth2") + b"  eth1: 1 2 3"
    assert list(parse_counters(text, {"eth0", "eth1"})) == ["eth0"]
    assert parse_counters(b"", {"eth0"}) == {}


def test_every_counter_goes_into_its_column() -> None:
    (row,) = parse_counters(HEADER + line(b"eth0") + line(b"eth1", 100), {"eth1"}).values()
    assert row == {
        "rx_bytes": 100,
        "rx_packets": 101,
        "rx_errors": 102,
        "rx_drops": 103,
        "tx_bytes": 108,
        "tx_packets": 109,
        "tx_errors": 110,
        "tx_drops": 111,
    }


def test_a_queueing_discipline_that_is_made_anew_counts_from_0_and_one_that_wraps_goes_on() -> None:
    drops = [57]
    route = SimpleNamespace(qdiscs=lambda: [TrafficControl("netem", 0x10000, 0xFFFFFFFF, b"", 0, 0, 2, drops[0])])
    counted = QdiscDrops(SimpleNamespace(route=route, links={2: SimpleNamespace(name="eth0")}))  # type: ignore[arg-type]
    found = []
    for value in (57, 0, 3, (1 << 31) + 1, (1 << 32) - 1, 4):
        drops[0], counted._next_s = value, 0.0
        found.append(counted.counts()["eth0"])
    grown = [57, 0, 3, (1 << 31) - 2, (1 << 31) - 2, 5]
    assert found == np.cumsum(grown).tolist()


def test_what_is_sampled_between_two_drains_is_rows_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that moves has one for each look, one that stands still the first and the last of them."""
    monkeypatch.setattr("netprof.probes.nic.probe._NAMESPACE_SHARE", 1.0)  # a slow machine is looked at less often
    with NicProbe() as probe, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as talker:
        talker.bind(("127.0.0.1", 0))
        probe.notice("flows", flow("lo"))
        begin_ns = time.monotonic_ns()
        for _ in range(5):
            talker.sendto(bytes(1000), talker.getsockname())
            time.sleep(0.05)
            probe.sample()
        rows = probe.drain()["nic"]
    assert len(rows["time_ns"]) >= 5
    assert rows["time_ns"] == sorted(rows["time_ns"])
    assert begin_ns + 50_000_000 <= rows["time_ns"][0] < rows["time_ns"][-1] - 150_000_000
    assert rows["tx_bytes"][-1] - rows["tx_bytes"][0] >= 4000


def test_the_columns_are_those_of_the_trace() -> None:
    with NicProbe() as probe:
        for device in ("lo", "lo", "no-such-device", ""):
            probe.notice("flows", flow(device))
        drained = probe.drain()
        devices = [device.device for device in probe.describe().devices]
    columns, changes = drained["nic"], drained["link_changes"]
    assert list(columns) == tables()["nic"].names
    assert list(changes) == tables()["link_changes"].names
    states = [int(LinkState.UP), int(LinkState.GONE)]
    assert (changes["device"], changes["state"]) == (["lo", "no-such-device"], states)
    assert {len(column) for column in columns.values()} == {1}
    assert columns["device"] == ["lo"]
    assert devices == ["lo", "no-such-device"]


def test_the_ends_of_the_newest_flows_and_of_those_that_change_devices_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("netprof.probes.nic.probe._MOST_FLOWS", 2)
    with NicProbe() as probe:
        for flow_id in range(2):
            probe.notice("flows", flow("lo") | {"flow_id": [flow_id], "remote_addr": ["127.0.0.1"]})
        probe.notice("flow_devices", {"flow_id": [0], "device": ["lo"], "direction": [0]})
        probe.notice("flows", flow("lo") | {"flow_id": [2], "remote_addr": ["127.0.0.1"]})
        assert list(probe._ends) == [0, 2]


def test_devices_beside_are_those_that_others_can_reach() -> None:
    names = ("eth0", "veth1", "eth2", "lo", "down0")
    flags = (IFF_UP, IFF_UP, IFF_UP, IFF_UP | IFF_LOOPBACK, 0)
    links = {index: SimpleNamespace(index=index, name=names[index], flags=flags[index]) for index in range(5)}
    said = [(0, "10.0.0.1"), (0, "fe80::1"), (1, "fe80::2"), (2, "2001:db8::1"), (3, "127.0.0.1"), (4, "10.0.0.2")]
    addresses = [Address(index, ipaddress.ip_address(text).packed, 24) for index, text in said]
    assert usable_devices(SimpleNamespace(links=links, addresses=addresses)) == ["eth0", "eth2"]  # type: ignore[arg-type]


def test_of_the_namespaces_in_sight_only_those_on_a_path_are_kept_open() -> None:
    """One that is held open keeps a container's devices from going back to the host."""
    asks = SimpleNamespace(inode=1, route=SimpleNamespace(netns_id=lambda descriptor: 3))
    places, files = Namespaces(), Path("/proc/self/fd")
    before = len(list(files.iterdir()))
    try:
        assert places.elsewhere(asks, 4) is None  # type: ignore[arg-type]
        assert len(list(files.iterdir())) <= before
        found = places.elsewhere(asks, 3)  # type: ignore[arg-type]
        assert found is not None
        assert found.inode == OWN_NETNS
    finally:
        places.close()


def test_settings_are_looked_at_less_often_while_devices_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def facts(namespace: object, devices: object) -> list[tuple[str, str, str]]:
        looks.append(len(looks))
        time.sleep(0.01)  # at a five-hundredth of the time the next look is due in five seconds
        return []

    monkeypatch.setattr("netprof.probes.nic.probe.facts_of", facts)
    with NicProbe() as probe:
        probe.notice("flows", flow("lo"))
        probe.drain()
        (sampler,) = probe._samplers.values()
        for _ in range(5):
            sampler.history.changes_of_paths += 1
            probe.drain()
        assert len(looks) == 2, "of the new flow, and of the first change"
        probe.drain(final=True)
        assert len(looks) == 3


def test_an_rdma_port_is_no_network_device() -> None:
    with NicProbe() as probe:
        probe.notice("flows", flow("mlx5_0/1"))
        assert not probe.describe().devices


def sampled(probe: NicProbe, text: bytes, *, final: bool = False) -> list[tuple[int, int]]:
    """Return (time, transmitted bytes) of the rows that a drain makes of what the kernel says."""
    (sampler,) = probe._samplers.values()
    sampler.counters.read = lambda: text  # type: ignore[method-assign]
    sampler.next_s = 0.0
    rows = probe.drain(final=final)["nic"]
    return list(zip(rows["time_ns"], rows["tx_bytes"], strict=True))


def test_a_device_that_stands_still_has_a_row_a_second_and_one_when_it_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ends of a rise have one, so that nothing that lies between two rows can have happened at another time."""
    now_ns = 10**12
    monkeypatch.setattr("netprof.probes.nic.probe.time.monotonic_ns", lambda: now_ns)
    with NicProbe() as probe:
        probe.notice("flows", flow("lo"))
        still, moved = HEADER + line(b"lo", 1), HEADER + line(b"lo", 2)
        assert sampled(probe, still) == [(now_ns, 9)]
        for _ in range(19):
            now_ns += 50_000_000
            assert sampled(probe, still) == []
        now_ns += 50_000_000
        assert sampled(probe, still) == [(now_ns, 9)]
        now_ns += 50_000_000
        assert sampled(probe, still) == []
        now_ns += 50_000_000
        assert sampled(probe, moved) == [(now_ns - 50_000_000, 9), (now_ns, 10)]
        now_ns += 50_000_000
        assert sampled(probe, moved) == []
        now_ns += 50_000_000
        assert sampled(probe, moved, final=True) == [(now_ns, 10)]


def test_a_namespace_that_is_slow_to_read_is_read_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu_s = iter(range(0, 1000, 1))
    monkeypatch.setattr("netprof.probes.nic.probe.time.thread_time", lambda: next(cpu_s) / 1000)  # 1 ms a look
    with NicProbe() as probe:
        probe.notice("flows", flow("lo"))
        (sampler,) = probe._samplers.values()
        assert len(probe.drain()["nic"]["device"]) == 1
        assert sampler.next_s - time.monotonic() == pytest.approx(0.5, abs=0.1), "0.2 % of a core"
        assert probe.drain()["nic"]["device"] == []
        assert len(probe.drain(final=True)["nic"]["device"]) == 1


def test_a_process_that_is_gone_or_elsewhere() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    with NicProbe(line_rate_bps=1e9) as probe:
        probe.notice("flows", flow("lo", pid=ended.pid))
        probe.notice("flows", flow("lo", netns=1))
        said = probe.describe()
        assert probe.drain()["nic"]["device"] == []
    assert [skipped.name for skipped in said.skipped] == ["nic:lo", "nic:lo"]
    assert f"no process {ended.pid}" in said.skipped[0].reason
    assert "is not in network namespace 1" in said.skipped[1].reason
    assert {device.line_rate.bps for device in said.devices} == {1e9}
    with pytest.raises(NetprofError, match=f"no process {ended.pid}"):
        NetworkNamespace.of(ended.pid)


def test_what_is_raised_inside_a_namespace_is_raised_outside() -> None:
    with NetworkNamespace.of(os.getpid()) as namespace, pytest.raises(ZeroDivisionError):
        namespace.run(lambda: 1 // 0)


class Told:
    """A namespace in which something has always changed, and a look takes a while."""

    inode = OWN_NETNS
    are_waiting = True

    def __init__(self, look_s: float) -> None:
        self.look_s, self.looks = look_s, 0

    def run(self, work: Any) -> Any:
        if work is LinkEvents:
            return self
        self.looks += 1
        time.sleep(self.look_s)
        return {"eth0": None}

    def take(self) -> Changed:
        return Changed(links=True)

    def close(self) -> None:
        pass


def test_a_few_changes_are_each_looked_at_and_a_storm_of_them_is_not() -> None:
    namespace: Any = Told(look_s=0.03)
    history = LinkHistory(namespace)
    history.add("eth0")
    for _ in range(2):
        history.changes()
    assert namespace.looks == 3, "however long the looks before took"
    for _ in range(50):
        history.changes()
    assert namespace.looks <= 5
    history.changes(final=True)
    assert namespace.looks <= 6


def test_rows_of_a_device_are_by_time_wherever_they_stand():
    table = {"netns": np.array([1, 2, 1, 1]), "device": ["eth0", "eth0", "eth1", "eth0"]}
    found = rows_by_device(table, np.array([30, 5, 7, 10]))
    assert {key: rows.tolist() for key, rows in found.items()} == {
        LinkKey(1, "eth0"): [3, 0],
        LinkKey(2, "eth0"): [1],
        LinkKey(1, "eth1"): [2],
    }
    assert rows_by_device({"netns": np.zeros(0, np.int64), "device": []}, np.zeros(0, np.int64)) == {}
