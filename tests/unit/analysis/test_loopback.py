"""What is sent again on the loopback device was not lost, unless something counted a drop there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from support.synthetic import Job

from netprof.analysis import analyze
from netprof.analysis.evidence import Evidence
from netprof.analysis.tables.flow_lanes import FlowLanes
from netprof.analysis.tables.flow_table import Flows, LaneKey, LinkKey
from netprof.analysis.tables.transport import Resends
from netprof.analysis.wire.loopback import lossless
from netprof.model import Device, LineRate
from netprof.trace import TraceReader

MS = 10**6
NETNS = 7
COLUMNS = ("qdisc_drops", "tx_drops", "rx_drops")


def found(
    devices: tuple[str, str] = ("lo", "lo"), drops: tuple[int, str] | None = None, nic: dict[str, Any] | None = None
) -> list[bool]:
    """Two flows, which are each other's peers, over a device each."""

    def positions(flow_id: Any) -> Any:
        return np.where(np.asarray(flow_id) < 2, flow_id, -1)

    flows = cast(Flows, FlowsOf(np.array(devices, object), positions))
    keys = tuple(
        (LaneKey(LinkKey(NETNS, device), pid, ()), way) for pid, device in enumerate(devices) for way in (0, 1)
    )
    lanes = FlowLanes(keys, np.arange(4), {})
    told = {"flow_id": [drops[0]] if drops else [], "reason": [drops[1]] if drops else []}
    counted: dict[str, Any] = {"netns": [NETNS] * 2, "device": ["lo"] * 2, "time_ns": [1, 2]}
    counted |= {column: [5, 5] for column in COLUMNS}
    lost: list[bool] = lossless(flows, lanes, np.array([1, 0]), told, counted | (nic or {})).tolist()
    return lost


class FlowsOf(SimpleNamespace):
    def __init__(self, device: Any, positions: Any) -> None:
        super().__init__(device=device, positions=positions)

    def __len__(self) -> int:
        return len(self.device)


def test_what_stays_on_the_loopback_device_loses_nothing() -> None:
    assert found() == [True, True]
    assert found(("lo", "eth0")) == [False, False]


@pytest.mark.parametrize("column", COLUMNS)
def test_unless_it_counted_drops(column: str) -> None:
    assert found(nic={column: [5, 6]}) == [False, False]
    assert found(nic={column: [5, 6], "netns": [NETNS + 1] * 2}) == [True, True]


def test_or_the_kernel_told_of_a_drop_at_either_end() -> None:
    assert found(drops=(1, "NETFILTER_DROP")) == [False, False]
    assert found(drops=(2, "NETFILTER_DROP")) == [True, True]
    assert found(drops=(1, "TCP_OLD_DATA")) == [True, True]


def test_the_sample_at_an_acknowledgement_does_not_have_what_it_says() -> None:
    """A probe at 100 ms is acknowledged at 130 by a packet that says that it was there already; the flow rests."""
    times = np.array([0, 130, 400, 0, 130, 400]) * MS
    rows = np.array([0, 0, 0, 1, 1, 1])
    count = np.array([0, 1, 0, 0, 1, 1])
    said = Resends(rows, times, count, np.zeros(6, bool), np.full(6, 60 * MS))
    assert said.needless(np.array([0, 1]), np.array([100, 100]) * MS).tolist() == [True, False]
    assert list(said.times()) == [1]


def evidence_on_lo(drops: int, tmp_path: Path) -> Evidence:
    """TCP sent something again on both flows, and the receivers say of nothing that they had it."""
    devices = (Device("lo", NETNS, LineRate(None, "unknown")),)
    job = Job(drops=drops, flow_changes={"device": ["lo", "lo"]}, changes={"devices": devices}).fill()
    return analyze(TraceReader(job.write(tmp_path / f"{drops}.netprof"))).evidence


def test_the_account_charges_the_peer_that_is_slow_to_take_it(tmp_path: Path) -> None:
    evidence = evidence_on_lo(0, tmp_path)
    assert set(evidence.resends.times()) == {0, 1}
    sources = evidence.account_sources
    assert not sources.resends.times()
    assert {pid: [receiver for receiver, _ in each] for pid, each in sources.no_room.items()} == {
        100: [101],
        101: [100],
    }


def test_the_account_has_loss_where_lo_counted_drops(tmp_path: Path) -> None:
    sources = evidence_on_lo(5, tmp_path).account_sources
    assert set(sources.resends.times()) == {0, 1}
    assert not sources.no_room
