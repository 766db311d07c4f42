"""Counters of RDMA ports: wraps, reloads, and every driver's names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.rdma_tree import HARDWARE, Tree

from netprof.probes.pace import ReadingPace
from netprof.probes.rdma.counters import Count, PortCounters
from netprof.probes.rdma.drivers import CNP_SENT, DRIVERS, Driver
from netprof.probes.rdma.ports import Port, device_of_uverbs, ports_of
from netprof.probes.rdma.watched import Changes
from netprof.schema import RDMA_CONGESTION, RDMA_LOSS, LinkState

MS = 1_000_000


def counted(bits: int, *values: int) -> int:
    count = Count(bits)
    for value in values:
        count.see(value)
    return count.total


def test_a_count_goes_on_from_its_first_value() -> None:
    assert counted(64, 1000, 1000, 1010) == 10


def test_a_narrow_count_that_wraps_goes_on() -> None:
    assert counted(32, 2**32 - 3, 4, 10) == 13
    assert counted(32, 3_809_045_607, 100_000) == 2**32 - 3_809_045_607 + 100_000


@pytest.mark.parametrize("bits", [32, 64])
def test_a_count_that_begins_anew_counts_from_zero(bits: int) -> None:
    assert counted(bits, 500, 600, 7) == 107


def test_a_wide_count_never_wraps() -> None:
    assert counted(64, 2**32 - 3, 4) == 4


def test_what_is_not_known_is_not_counted() -> None:
    count = Count()
    count.see(100)
    count.see(150)
    count.begin_anew()
    count.see(7_000)
    count.see(7_001)
    assert count.total == 51


def port_of(tree: Tree, name: str) -> tuple[Port, Driver]:
    (port,) = ports_of(name.partition("/")[0], tree.root)
    driver = port.driver()
    assert driver is not None
    return port, driver


@pytest.mark.parametrize("name", HARDWARE)
def test_every_driver_is_told_by_its_files(tmp_path: Path, name: str) -> None:
    tree = Tree(tmp_path)
    port, driver = port_of(tree, tree.port(name).name)
    assert driver.name == name
    counters = PortCounters(port, driver)
    assert (counters.moved().amounts[0] is None) is (name == "rxe")
    assert counters.events()


def test_every_driver_has_a_tree_here() -> None:
    assert [driver.name for driver in DRIVERS] == list(HARDWARE)


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.name)
def test_what_is_reported_tells_of_something(driver: Driver) -> None:
    known = {quantity.name for quantity in driver.events.values()}
    assert known & {*RDMA_CONGESTION, *RDMA_LOSS}
    assert driver.narrow <= set(driver.events)


def test_words_are_bytes(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    scripted = tree.port("mlx5", begin_at={"counters/port_xmit_data": 1_000})
    counters = PortCounters(*port_of(tree, scripted.name))
    scripted.grow(counters__port_xmit_data=25, counters__port_rcv_data=50, counters__port_xmit_packets=3)
    assert counters.moved().amounts == (100, 200, 3, 0)


def test_both_families_of_addresses_count(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    scripted = tree.port("irdma")
    counters = PortCounters(*port_of(tree, scripted.name))
    scripted.grow(hw_counters__ip4OutOctets=30, hw_counters__ip6OutOctets=12)
    assert counters.moved().amounts[0] == 42


def test_a_port_that_was_loaded_again_goes_on(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    scripted = tree.port("efa", rate="100 Gb/sec (4X EDR)", link_layer="Unknown")
    counters = PortCounters(*port_of(tree, scripted.name))
    scripted.grow(hw_counters__tx_bytes=1_000_000)
    assert counters.moved().amounts[0] == 1_000_000
    scripted.pull_out()
    for _ in range(2):
        with pytest.raises(OSError):  # noqa: PT011
            counters.moved()
    scripted.come_back()
    assert counters.moved().amounts[0] == 1_000_000
    scripted.grow(hw_counters__tx_bytes=5)
    assert counters.moved().amounts[0] == 1_000_005
    assert counters.reloads == 1


def breaks(file: Path, how: str) -> None:
    """Let a counter's file be one that cannot be read."""
    file.unlink()
    if how == "a folder":
        file.mkdir()
    elif how != "missing":
        file.write_text(how)


@pytest.mark.parametrize("how", ["N/A (no PMA)\n", "", "-5\n", "a folder"])
def test_one_counter_that_cannot_be_read_is_left_out_alone(tmp_path: Path, how: str) -> None:
    tree = Tree(tmp_path)
    scripted = tree.port("mlx5")
    for name in ("counters/port_xmit_wait", "counters/port_xmit_packets"):
        breaks(scripted.folder / name, how)
    counters = PortCounters(*port_of(tree, scripted.name))
    scripted.grow(counters__port_xmit_data=25, counters__port_rcv_packets=3, hw_counters__np_cnp_sent=4)
    assert counters.moved().amounts == (100, 0, None, 3)
    told = {quantity.name: total for quantity, total in counters.events()}
    assert "credit_waits" not in told
    assert told["cnp_sent"] == 4
    why = "Is a directory" if how == "a folder" else "it holds no number"
    assert counters.unknown == [
        f"packets sent (counters/port_xmit_packets: {why})",
        f"credit waits (counters/port_xmit_wait: {why})",
    ]
    assert (counters.counts_bytes, counters.reloads) == (True, 0)


def test_a_counter_that_cannot_be_read_for_a_while_goes_on(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    scripted = tree.port("mlx5")
    counters = PortCounters(*port_of(tree, scripted.name))
    scripted.grow(hw_counters__np_cnp_sent=4)
    assert dict(counters.events())[CNP_SENT] == 4
    breaks(scripted.folder / "hw_counters" / "np_cnp_sent", "missing")
    assert dict(counters.events())[CNP_SENT] == 4, "an open file is read on"
    counters.close()
    assert CNP_SENT not in dict(counters.events())
    scripted.grow(hw_counters__np_cnp_sent=30)
    assert dict(counters.events())[CNP_SENT] == 4, "what was counted meanwhile is not known"
    scripted.grow(hw_counters__np_cnp_sent=2)
    assert dict(counters.events())[CNP_SENT] == 6
    assert counters.unknown == ["cnp sent at times (hw_counters/np_cnp_sent: there is no such counter)"]


@pytest.mark.parametrize("how", ["missing", "N/A\n"])
def test_bytes_without_a_counter_are_unknown_and_not_zero(tmp_path: Path, how: str) -> None:
    tree = Tree(tmp_path)
    scripted = tree.port("mlx5")
    breaks(scripted.folder / "counters" / "port_rcv_data", how)
    counters = PortCounters(*port_of(tree, scripted.name))
    scripted.grow(counters__port_xmit_data=25)
    assert counters.moved().amounts == (100, None, 0, 0)
    assert not counters.counts_bytes
    (said,) = counters.unknown
    assert said.startswith("bytes received (counters/port_rcv_data: ")


def test_half_of_a_count_is_none(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    scripted = tree.port("irdma")
    breaks(scripted.folder / "hw_counters" / "ip6OutOctets", "missing")
    assert PortCounters(*port_of(tree, scripted.name)).moved().amounts[0] is None


def test_a_port_without_byte_counters_is_gone_when_its_folder_is(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    scripted = tree.port("mlx5")
    shutil.rmtree(scripted.folder / "counters")
    counters = PortCounters(*port_of(tree, scripted.name))
    assert counters.moved().amounts == (None,) * 4
    assert counters.events()
    scripted.pull_out()
    with pytest.raises(OSError, match="gone"):
        counters.moved()
    assert counters.events() == []
    scripted.come_back()
    counters.moved()
    assert (counters.reloads, counters.counts_bytes) == (1, True)


def test_a_port_of_which_nothing_can_be_read_is_refused(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    scripted = tree.port("efa")
    for file in (scripted.folder / "hw_counters").iterdir():
        file.write_text("N/A\n")
    with pytest.raises(OSError, match="tx_bytes: it holds no number"):
        PortCounters(*port_of(tree, scripted.name))


def test_a_narrow_counter_of_a_port_wraps(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    scripted = tree.port("mlx5", begin_at={"hw_counters/packet_seq_err": 2**32 - 2})
    counters = PortCounters(*port_of(tree, scripted.name))
    scripted.set(hw_counters__packet_seq_err=3, hw_counters__rp_cnp_handled=9)
    told = {quantity.name: total for quantity, total in counters.events()}
    assert told["sequence_errors"] == 5
    assert told["cnp_received"] == 9


def test_a_port_says_its_rate_and_whether_it_is_up(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    scripted = tree.port("mlx5", rate="10 Gb/sec (1X FDR10)")
    port, _ = port_of(tree, scripted.name)
    state, rate = port.condition()
    assert (state, rate.bps, port.is_ethernet) == (LinkState.UP, 10e9, True)
    (scripted.folder / "state").write_text("1: DOWN\n")
    (scripted.folder / "rate").write_text("nonsense\n")
    state, rate = port.condition()
    assert (state, rate.bps) == (LinkState.DOWN, None)
    scripted.pull_out()
    assert port.condition()[0] is LinkState.GONE


def test_a_device_is_told_by_its_file(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    scripted = tree.port("mlx5")
    assert device_of_uverbs(scripted.uverbs.name, tmp_path) == "mlx5_0"
    assert device_of_uverbs("uverbs9", tmp_path) == ""


def test_reading_keeps_to_its_share_of_a_core() -> None:
    pace = ReadingPace(0.01, 2 * MS)
    pace.took(5_000)
    assert pace.period_ns == 2 * MS
    for _ in range(100):
        pace.took(80_000)
    assert pace.period_ns == pytest.approx(8 * MS, rel=0.02)


def test_how_often_counters_change_is_measured_while_they_do() -> None:
    changes = Changes()
    assert not changes.measured
    time_ns = 0
    for number in range(200):
        time_ns += 1_000 * MS if number % 10 == 0 else 12 * MS + number % 3 * MS
        changes.see(time_ns)
    assert changes.measured
    assert 12 * MS <= changes.period_ns <= 14 * MS
