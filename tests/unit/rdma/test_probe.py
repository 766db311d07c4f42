"""The RDMA probe on a scripted host: which ports, what they moved, how often, and what goes wrong."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from itertools import count, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.rdma_tree import ScriptedPort, Tree

from netprof.model import Device, Target
from netprof.probes.probe import Shared
from netprof.probes.rdma.counters import PortTotals
from netprof.probes.rdma.port_finder import QueuePair
from netprof.probes.rdma.ports import ports_of
from netprof.probes.rdma.probe import RdmaProbe
from netprof.probes.rdma.watched import WatchedPort
from netprof.probes.series import SeriesRows
from netprof.schema import FIRST_QUEUE_PAIR, RDMA, ROCE, LinkState, tables

WAIT_S = 20
OWN = Target(os.getpid(), 1)
PID = os.getpid()


class Recorded:
    """A probe on a scripted host, and all the rows that it has handed over."""

    def __init__(self, tree: Tree, pairs: Callable[[], list[QueuePair]], **options: Any) -> None:
        scripted = {"sysfs": tree.root, "queue_pairs": staticmethod(pairs)}
        shared = {"rank_of": lambda pid: 3, "bin_ns": 1_000_000, "series_ids": count(), "line_rate_bps": None}
        shared |= {"devices": (), **options}
        kind = cast("type[RdmaProbe]", type("Scripted", (RdmaProbe,), scripted))
        self.probe = kind.open(cast(Shared, SimpleNamespace(**shared)))
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in ("flows", "nic", "link_changes", "counters")}

    def drain(self, *, final: bool = False) -> None:
        for table, columns in self.probe.drain(final=final).items():
            assert list(columns) == tables()[table].names
            self.rows[table] += [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def until(self, true: Callable[[], bool]) -> None:
        """Drain until something is true."""
        deadline_s = time.monotonic() + WAIT_S
        while not true():
            assert time.monotonic() < deadline_s, self.rows
            time.sleep(0.01)
            self.drain()

    def moved(self, port: ScriptedPort) -> list[tuple[int, int]]:
        return [(row["tx_bytes"], row["rx_bytes"]) for row in self.rows["nic"] if row["device"] == port.name]

    def reported(self, port: ScriptedPort) -> dict[str, int]:
        names = {each.id: each.name for each in self.probe.describe().series if each.subject == port.name}
        return {names[row["series"]]: row["value"] for row in self.rows["counters"] if row["series"] in names}

    def skipped(self) -> dict[str, str]:
        return {each.name: each.reason for each in self.probe.describe().skipped}

    def devices(self) -> dict[str, Device]:
        return {each.device: each for each in self.probe.describe().devices}


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Callable[..., Recorded]]:
    """Make a recorder of a scripted host."""
    made: list[Recorded] = []

    def make(tree: Tree, pairs: Callable[[], list[QueuePair]] = list, **options: Any) -> Recorded:
        made.append(Recorded(tree, pairs, **options))
        return made[-1]

    yield make
    for each in made:
        each.probe.close()


def refused() -> list[QueuePair]:
    raise PermissionError(1, "Operation not permitted")


def pairs_on(*ports: ScriptedPort) -> Callable[[], list[QueuePair]]:
    """Two queue pairs of this process on each port, and one of a stranger on one more."""
    found = [QueuePair(port.name[:-2], 1, PID, 100 * n + k, 7) for n, port in enumerate(ports) for k in (1, 2)]
    return lambda: [*found, QueuePair("mlx5_9", 1, 1, 5, 5)]


def test_ports_with_queue_pairs_are_watched_and_no_others(tmp_path: Path, recorded: Callable[..., Recorded]) -> None:
    tree = Tree(tmp_path)
    ports = [tree.port("mlx5") for _ in range(8)]
    job = recorded(tree, pairs_on(ports[0], ports[5]))
    job.probe.follow([OWN])
    job.until(lambda: len(job.moved(ports[5])) > 0)
    assert set(job.devices()) == {"mlx5_0/1", "mlx5_5/1"}
    flows = job.rows["flows"]
    assert [row["flow_id"] for row in flows] == [FIRST_QUEUE_PAIR + n for n in range(4)]
    assert {(row["device"], row["local_queue_pair"], row["remote_queue_pair"]) for row in flows} == {
        ("mlx5_0/1", 1, 7),
        ("mlx5_0/1", 2, 7),
        ("mlx5_5/1", 101, 7),
        ("mlx5_5/1", 102, 7),
    }
    assert {(row["pid"], row["rank"], row["protocol"]) for row in flows} == {(PID, 3, ROCE)}
    changes = {row["device"]: (row["state"], row["line_rate_bps"]) for row in job.rows["link_changes"]}
    assert changes == dict.fromkeys(("mlx5_0/1", "mlx5_5/1"), (int(LinkState.UP), 400e9))


def test_without_the_right_ports_are_told_by_open_files(tmp_path: Path, recorded: Callable[..., Recorded]) -> None:
    tree = Tree(tmp_path)
    opened, _ = tree.port("efa", rate="100 Gb/sec (4X EDR)", link_layer="Unknown"), tree.port("efa")
    job = recorded(tree, refused)
    with opened.uverbs.open():
        job.probe.follow([OWN])
        job.until(lambda: len(job.rows["flows"]) > 0)
    (flow,) = job.rows["flows"]
    assert (flow["device"], flow["local_queue_pair"], flow["protocol"]) == (opened.name, 0, RDMA)
    assert job.skipped() == {"rdma:queue-pairs": "queue pairs are not told apart: Operation not permitted"}


def test_what_moves_is_recorded_and_what_is_reported(tmp_path: Path, recorded: Callable[..., Recorded]) -> None:
    tree = Tree(tmp_path)
    port = tree.port("mlx5", begin_at={"counters/port_rcv_data": 10**15, "hw_counters/out_of_sequence": 2**32 - 5})
    job = recorded(tree, pairs_on(port))
    job.probe.follow([OWN])
    job.until(lambda: job.moved(port) == [(0, 0)])
    port.grow(counters__port_xmit_data=1_000, hw_counters__rp_cnp_handled=17)
    port.set(hw_counters__out_of_sequence=1)
    job.until(lambda: job.moved(port)[-1] == (4_000, 0))
    port.grow(counters__port_rcv_data=500)
    job.until(lambda: job.moved(port)[-1] == (4_000, 2_000))
    job.until(lambda: job.reported(port).get("cnp_received") == 17)
    assert job.reported(port)["out_of_sequence"] == 6
    job.drain(final=True)
    times = [row["time_ns"] for row in job.rows["nic"]]
    assert times == sorted(times)
    assert times[-1] == max(times)
    assert job.moved(port)[-1] == (4_000, 2_000)


@pytest.mark.slow
def test_how_often_values_change_is_measured_and_said(tmp_path: Path, recorded: Callable[..., Recorded]) -> None:
    tree = Tree(tmp_path)
    port = tree.port("efa")
    job = recorded(tree, pairs_on(port))
    job.probe.follow([OWN])
    job.until(lambda: len(job.moved(port)) > 0)
    at_s = []
    for _ in range(40):
        port.grow(hw_counters__tx_bytes=1_000_000)
        at_s.append(time.monotonic())
        time.sleep(0.03)
    apart_s = sorted(b - a for a, b in pairwise(at_s))
    job.until(lambda: job.moved(port)[-1][0] == 40_000_000)
    (device,) = job.devices().values()
    assert 0.5 * apart_s[0] <= device.period_ns / 1e9 <= 1.5 * apart_s[len(apart_s) // 2]
    (started,) = job.probe.describe().started
    assert port.name in started.detail
    assert "values change every" in started.detail
    assert "of a core" in started.detail


def told(port: WatchedPort, *samples: tuple[int, int]) -> list[tuple[int, int | None]]:
    """Return (ms, bytes sent) of the rows that readings make, given as these."""
    found = []
    for time_ms, sent in samples:
        moved = PortTotals(time_ms * 1_000_000, (sent, 0, 0, 0))
        found += port.take(moved, SeriesRows("", count()))
    return [(row["time_ns"] // 1_000_000, row["tx_bytes"]) for row in found]


def test_counters_that_are_brought_up_to_date_now_and_then_tell_no_silence(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    (port,) = ports_of(tree.port("efa").name[:-2], tree.root)
    driver = port.driver()
    assert driver is not None
    watched = WatchedPort(port, driver, 7)
    every_10_ms = [(ms, ms // 10) for ms in range(0, 300, 2)]  # read each 2 ms
    assert told(watched, *every_10_ms) == [(ms, ms // 10) for ms in range(0, 300, 10)]
    rests_for_100_ms = [(ms, 29) for ms in range(300, 400, 2)]
    assert told(watched, *rests_for_100_ms, (400, 30)) == [(398, 29), (400, 30)]
    assert told(watched, *((ms, 30) for ms in range(402, 1_500, 2))) == [(1_400, 30)]


def test_a_port_is_gone_from_when_it_could_not_be_read(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    (port,) = ports_of(tree.port("mlx5").name[:-2], tree.root)
    driver = port.driver()
    assert driver is not None
    watched = WatchedPort(port, driver, 7)
    assert [row["state"] for row in watched.become(port.condition(), 5)] == [LinkState.UP]
    before_ns = time.monotonic_ns()
    assert watched.take(None, SeriesRows("", count())) == []
    after_ns = time.monotonic_ns()
    (row,) = watched.become(port.condition(), after_ns + 1_000_000_000)
    assert (row["state"], before_ns <= row["since_ns"] <= after_ns) == (LinkState.GONE, True)
    watched.take(watched.read(), SeriesRows("", count()))
    assert [row["state"] for row in watched.become(port.condition(), after_ns)] == [LinkState.UP]


@pytest.mark.slow
def test_a_port_that_vanishes_and_comes_back_goes_on(tmp_path: Path, recorded: Callable[..., Recorded]) -> None:
    tree = Tree(tmp_path)
    port, other = tree.port("mlx5"), tree.port("mlx5")
    job = recorded(tree, pairs_on(port, other))
    job.probe.follow([OWN])
    port.grow(counters__port_xmit_data=1_000)
    job.until(lambda: job.moved(port)[-1:] == [(4_000, 0)])
    port.pull_out()
    job.until(lambda: int(LinkState.GONE) in [row["state"] for row in job.rows["link_changes"]])
    other.grow(counters__port_xmit_data=3)
    job.until(lambda: job.moved(other)[-1:] == [(12, 0)])
    port.come_back()
    port.grow(counters__port_xmit_data=10)
    job.until(lambda: [row["state"] for row in job.rows["link_changes"] if row["device"] == port.name][-1] == 2)
    port.grow(counters__port_xmit_data=10)
    job.until(lambda: job.moved(port)[-1][0] in (4_040, 4_080))
    (warning,) = job.probe.describe().warnings
    assert warning.startswith("mlx5_0/1 was gone and came back")


def test_a_driver_that_counts_packets_only_gives_packets(tmp_path: Path, recorded: Callable[..., Recorded]) -> None:
    tree = Tree(tmp_path)
    port = tree.port("rxe")
    job = recorded(tree, pairs_on(port))
    job.probe.follow([OWN])
    port.grow(hw_counters__sent_pkts=1234)
    job.until(lambda: job.reported(port).get("packets_sent", 0) > 0)
    assert not job.devices()
    assert not job.rows["nic"]
    assert "counts packets, not bytes" in job.skipped()[f"rdma:{port.name}"]


@pytest.mark.parametrize("missing", [["port_rcv_data"], ["port_rcv_data", "port_xmit_data", "port_rcv_packets"]])
def test_a_port_that_lacks_a_count_of_bytes_is_one_line(
    tmp_path: Path, recorded: Callable[..., Recorded], missing: list[str]
) -> None:
    tree = Tree(tmp_path)
    port, other = tree.port("mlx5"), tree.port("mlx5")
    for name in missing:
        (port.folder / "counters" / name).unlink()
    job = recorded(tree, pairs_on(port, other))
    job.probe.follow([OWN])
    other.grow(counters__port_xmit_data=3)
    if "port_xmit_data" not in missing:
        port.grow(counters__port_xmit_data=1_000)
        job.until(lambda: job.reported(port).get("bytes_sent") == 4_000)
    port.grow(counters__port_xmit_packets=7, hw_counters__np_cnp_sent=5)
    job.until(lambda: job.reported(port).get("packets_sent") == 7)
    job.until(lambda: job.reported(port).get("cnp_sent") == 5)
    job.until(lambda: job.moved(other)[-1:] == [(12, 0)])
    assert not job.moved(port)
    assert list(job.devices()) == [other.name]
    assert "bytes_received" not in job.reported(port)
    assert list(job.skipped()) == [f"rdma:{port.name}"]
    assert "bytes received (counters/port_rcv_data" in job.skipped()[f"rdma:{port.name}"]


def test_a_counter_that_cannot_be_read_costs_no_bytes(tmp_path: Path, recorded: Callable[..., Recorded]) -> None:
    tree = Tree(tmp_path)
    port = tree.port("mlx5")
    (port.folder / "counters" / "port_xmit_wait").write_text("N/A (no PMA)\n")
    job = recorded(tree, pairs_on(port))
    job.probe.follow([OWN])
    for _ in range(30):
        port.grow(counters__port_xmit_data=100, counters__port_xmit_packets=1)
        time.sleep(0.01)
        job.drain()
    job.until(lambda: job.moved(port)[-1] == (30 * 400, 0))
    (port.folder / "counters" / "port_xmit_packets").write_text("N/A (no PMA)\n")
    port.grow(counters__port_xmit_data=100)
    job.until(lambda: job.moved(port)[-1] == (31 * 400, 0))
    job.drain(final=True)
    assert [row["tx_packets"] for row in job.rows["nic"]][-1] == 30, "as known last, not none"
    assert job.probe.describe().warnings == ()
    assert {row["state"] for row in job.rows["link_changes"]} == {LinkState.UP}
    assert job.skipped() == {
        f"rdma:{port.name}": "of mlx5_0/1 is unknown: credit waits (counters/port_xmit_wait: it holds no number), "
        "packets sent at times (counters/port_xmit_packets: it holds no number)"
    }


def test_a_machine_without_rdma_is_one_line(tmp_path: Path, recorded: Callable[..., Recorded]) -> None:
    job = recorded(Tree(tmp_path), refused)
    job.probe.follow([OWN])
    job.drain(final=True)
    assert job.skipped() == {"rdma": "this machine has no RDMA device"}
    assert not any(job.rows.values())


def test_counters_of_an_unknown_driver_are_one_line(tmp_path: Path, recorded: Callable[..., Recorded]) -> None:
    tree = Tree(tmp_path)
    port = tree.port("InfiniBand")
    for file in (port.folder / "counters").iterdir():
        file.unlink()
    job = recorded(tree, pairs_on(port))
    job.probe.follow([OWN])
    job.until(lambda: bool(job.skipped()))
    assert list(job.skipped()) == [f"rdma:{port.name}"]
    assert not job.devices()


@pytest.mark.slow
def test_a_remote_end_that_is_known_later_is_told(tmp_path: Path, recorded: Callable[..., Recorded]) -> None:
    tree = Tree(tmp_path)
    port = tree.port("mlx5")
    remote = [0]
    job = recorded(tree, lambda: [QueuePair("mlx5_0", 0, PID, 5, remote[0])])
    job.probe.follow([OWN])
    job.until(lambda: len(job.rows["flows"]) == 1)
    remote[0] = 77
    job.until(lambda: len(job.rows["flows"]) == 2)
    assert [row["remote_queue_pair"] for row in job.rows["flows"]] == [0, 77]
    assert len({row["flow_id"] for row in job.rows["flows"]}) == 1
    assert port.name == job.rows["flows"][0]["device"]


def test_pauses_are_those_of_the_network_device_beside_it(tmp_path: Path, recorded: Callable[..., Recorded]) -> None:
    tree = Tree(tmp_path)
    port = tree.port("mlx5")
    beside = port.folder / "gid_attrs" / "ndevs" / "0"
    beside.parent.mkdir(parents=True)
    beside.write_text("eth7\n")
    job = recorded(tree, pairs_on(port))
    counted = {"eth7": {"rx_prio3_pause": 5, "rx_prio4_pause": 2, "rx_pause_ctrl_phy": 7, "tx_prio3_pause": 1}}
    type(job.probe).statistics = staticmethod(counted.__getitem__)
    job.probe.follow([OWN])
    job.until(lambda: "pause_received" in job.reported(port))
    assert (job.reported(port)["pause_received"], job.reported(port)["pause_sent"]) == (7, 1)


def test_a_row_has_the_columns_of_its_table(tmp_path: Path, recorded: Callable[..., Recorded]) -> None:
    tree = Tree(tmp_path)
    job = recorded(tree, pairs_on(tree.port("mlx5")))
    job.probe.follow([OWN])
    job.until(lambda: all(job.rows[table] for table in ("flows", "nic", "link_changes")))


def test_strangers_on_a_port_of_the_job_are_named(tmp_path: Path, recorded: Callable[..., Recorded]) -> None:
    tree = Tree(tmp_path)
    port, other = tree.port("mlx5"), tree.port("mlx5")
    strangers = [QueuePair(name[:-2], 1, pid, pid, 0) for name, pid in ((port.name, 77), (other.name, 78))]
    job = recorded(tree, lambda: [*pairs_on(port)(), *strangers])
    job.probe.follow([OWN])
    job.until(lambda: bool(job.devices()))
    (warning,) = job.probe.describe().warnings
    assert "mlx5_0/1 (77)" in warning
