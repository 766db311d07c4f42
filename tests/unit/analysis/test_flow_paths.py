"""Bytes belong to the device that carries them then, and to the devices on the path below that counted them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.synthetic import BYTES_PER_BIN, ITERATION_NS, MS, RATE_BPS, START_NS, WIRE_FROM, WIRE_TO, Job

from netprof.analysis import analyze
from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.analysis.section import Analysis
from netprof.schema import RECEIVE, TRANSMIT, HopKind, tables
from netprof.trace import TraceReader

END_NS = START_NS + 11 * ITERATION_NS
MOVED = BYTES_PER_BIN * (WIRE_TO - WIRE_FROM) // MS * 11


def columns(table: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The columns of a table; what a row does not say is 0 or empty."""
    texts = {field.name for field in tables()[table] if str(field.type) in ("string", "dictionary")}
    texts |= {"device", "name", "remote_addr", "hop_device", "about"}
    texts |= {each for each in tables()[table].names if each.endswith("_source")}
    return {name: [row.get(name, "" if name in texts else 0) for row in rows] for name in tables()[table].names}


def paths(*hops: tuple[str, int, HopKind], device: str = "eth0", remote: str = "10.0.0.2", **more: Any) -> Any:
    """Rows of what is below a device on the sending side: name, which way packets pass there, and how it is reached."""
    base = {"netns": 7, "device": device, "direction": TRANSMIT, "remote_addr": remote, **more}
    rows = [{**base, "hop": 0, "kind": int(HopKind.FLOW), "hop_netns": 7, "hop_device": device}]
    for number, (name, way, kind) in enumerate(hops):
        what = {"hop": number + 1, "kind": int(kind), "hop_netns": 8, "hop_device": name, "hop_direction": way}
        rows.append({**base, **what, "about": f"below {device}"})
    return rows


def condition(device: str, bps: float, netns: int = 8, since_ns: int = 0) -> dict[str, Any]:
    rated = {"line_rate_bps": bps, "line_rate_source": "tbf: its rate", "receive_rate_source": "unknown"}
    return {
        "netns": netns,
        "device": device,
        "name": device,
        "since_ns": since_ns,
        "state": 0,
        "mtu_bytes": 1500,
        **rated,
    }


def counted(device: str, sent: Sequence[int], received: Sequence[int] = (), netns: int = 8) -> list[dict[str, Any]]:
    times = np.linspace(START_NS - MS, END_NS, len(sent)).astype(int).tolist()
    received = received or [0] * len(sent)
    rows = zip(times, sent, received, strict=True)
    return [{"netns": netns, "device": device, "time_ns": at, "tx_bytes": tx, "rx_bytes": rx} for at, tx, rx in rows]


def analyzed(tmp_path: Path, job: Job, hops: Any, devices: Sequence[Any], nic: Sequence[Any]) -> Analysis:
    job.extra |= {
        "flow_paths": columns("flow_paths", hops),
        "link_changes": columns("link_changes", [condition("eth0", 0.0, 7), condition("eth1", 0.0, 7), *devices]),
        "nic": columns("nic", nic),
    }
    return analyze(TraceReader(job.write(tmp_path / "t.netprof")))


def links(analysis: Analysis) -> dict[str, dict[str, Any]]:
    return {each["device"]: each for each in analysis.document()["links"]}


def test_the_device_below_is_a_link_and_its_rate_is_that_of_the_path(tmp_path: Path) -> None:
    hops = paths(("port0", RECEIVE, HopKind.OTHER_END), ("up", TRANSMIT, HopKind.ROUTE))
    nic = [*counted("port0", [0, 0], [0, MOVED]), *counted("up", [0, MOVED])]
    found = links(analyzed(tmp_path, Job(rate_bps=None).fill(), hops, [condition("up", RATE_BPS)], nic))
    assert found["up"]["below"] == ["eth0"]
    assert found["up"]["tx_bytes"] == found["eth0"]["tx_bytes"]
    assert found["up"]["ranks"] == [0]
    assert found["up"]["utilization_tx"] == pytest.approx(0.4)
    assert [(hop["device"], hop["direction"]) for hop in found["eth0"]["path"]] == [
        ("port0", "received"),
        ("up", "sent"),
    ]


def test_a_shaper_below_is_what_the_job_waits_for(tmp_path: Path) -> None:
    hops = paths(("up", TRANSMIT, HopKind.ROUTE))
    nic = counted("up", [0, MOVED])
    document = analyzed(tmp_path, Job(rate_bps=None).fill(), hops, [condition("up", RATE_BPS)], nic).document()
    (cause,) = [each for each in document["waiting"]["causes"] if each["cause"] == "link_full"]
    assert cause["share"] > 0.5
    assert "up, below eth0 of rank 0" in cause["sentence"]
    assert "raise that limit (tbf: its rate" in cause["advice"]


def test_what_lies_on_one_path_with_a_full_device_is_not_called_another_link(tmp_path: Path) -> None:
    hops = paths(("up", TRANSMIT, HopKind.ROUTE), ("nic", TRANSMIT, HopKind.BELOW))
    nic = [*counted("up", [0, MOVED]), *counted("nic", [0, MOVED])]
    devices = [condition("up", RATE_BPS), condition("nic", 25 * RATE_BPS)]
    found = analyzed(tmp_path, Job(rate_bps=None).fill(), hops, devices, nic)
    said = r"NETWORK: rank 0's up \(1 Gbit/s\) is full for \d+ ms of every step"
    assert re.fullmatch(said, found.of(VERDICT).headline)
    (cause,) = [each for each in found.document()["waiting"]["causes"] if each["cause"] == "link_full"]
    assert "the other links have room" not in cause["sentence"]


def test_a_device_that_counted_less_than_half_of_it_did_not_carry_it(tmp_path: Path) -> None:
    hops = paths(("up", TRANSMIT, HopKind.ROUTE))
    for share, is_there in ((0.49, False), (0.51, True)):
        nic = counted("up", [0, int(share * MOVED)])
        found = links(
            analyzed(tmp_path / str(share), Job(rate_bps=None).fill(), hops, [condition("up", RATE_BPS)], nic)
        )
        assert ("up" in found) is is_there


def test_a_flows_own_device_that_counted_less_than_half_is_never_full(tmp_path: Path) -> None:
    for share, full in ((0.49, False), (0.51, True)):
        job = Job(other_traffic=share - 1).fill()
        found = links(analyze(TraceReader(job.write(tmp_path / str(share)))))
        assert (found["eth0"]["utilization_tx"] is not None) is full


def test_members_of_a_bond_share_the_bytes_as_they_counted(tmp_path: Path) -> None:
    hops = paths(("a", TRANSMIT, HopKind.MEMBER), ("b", TRANSMIT, HopKind.MEMBER))
    nic = [*counted("a", [0, MOVED // 4 * 3]), *counted("b", [0, MOVED // 4])]
    found = links(analyzed(tmp_path, Job(rate_bps=None).fill(), hops, [condition("a", 1e9), condition("b", 1e9)], nic))
    whole = found["eth0"]["tx_bytes"]
    assert [found[name]["tx_bytes"] / whole for name in "ab"] == pytest.approx([0.75, 0.25], rel=1e-4)


@pytest.mark.parametrize(
    ("sent", "received", "idle"),
    [((1.0, 1e-5), (1.0, 1e-5), "b"), ((0.5, 0.5), (1.0, 1e-5), None), ((1.0, 0.0), (0.0, 1.0), None)],
)
def test_a_member_of_a_bond_idles_that_carries_hardly_anything_either_way(
    sent: tuple[float, float], received: tuple[float, float], idle: str | None, tmp_path: Path
) -> None:
    """What is left of LACP are some packets a second, and each end chooses the members for what it sends."""
    members = paths(("a", TRANSMIT, HopKind.MEMBER), ("b", TRANSMIT, HopKind.MEMBER))
    hops = members + paths(("a", RECEIVE, HopKind.MEMBER), ("b", RECEIVE, HopKind.MEMBER), direction=RECEIVE)
    nic = []
    for name, tx, rx in zip("ab", sent, received, strict=True):
        nic += counted(name, [0, int(tx * MOVED)], [0, int(rx * MOVED)])
    devices = [condition("a", RATE_BPS), condition("b", RATE_BPS)]
    document = analyzed(tmp_path, Job(rate_bps=None).fill(), hops, devices, nic).document()
    found = [each["sentence"] for each in document["audit"] if each["kind"] == "bond"]
    said = f"of the members of eth0 hardly anything passes {idle}: a flow goes by one member"
    assert found == ([] if idle is None else [said])


def test_among_devices_that_it_may_be_it_is_the_one_that_counts_when_the_job_moves(tmp_path: Path) -> None:
    """One idles, one moves as much but evenly, one goes as the job does."""
    hops = paths(*((name, TRANSMIT, HopKind.ASSUMED) for name in ("idle", "even", "real")))
    job = Job(rate_bps=None).fill()
    samples = 23
    moved = np.array([[row[2] + MS, row[4]] for row in job.wire if row[:2] == (1, TRANSMIT)])
    times = np.linspace(START_NS - MS, END_NS, samples)
    real = [int(moved[moved[:, 0] <= at, 1].sum()) for at in times]
    even = np.linspace(0, MOVED, samples).astype(int).tolist()
    nic = [*counted("idle", [0] * samples), *counted("even", even), *counted("real", real)]
    found = links(analyzed(tmp_path, job, hops, [condition(name, 1e9) for name in ("idle", "even", "real")], nic))
    assert {name for name in ("idle", "even", "real") if name in found} == {"real"}


def test_a_path_that_changes_moves_the_bytes_to_another_device(tmp_path: Path) -> None:
    middle = START_NS + 5 * ITERATION_NS
    hops = [
        *paths(("a", TRANSMIT, HopKind.ROUTE)),
        *paths(("b", TRANSMIT, HopKind.ROUTE), since_ns=middle),
    ]
    nic = [*counted("a", [0, MOVED]), *counted("b", [0, MOVED])]
    found = links(analyzed(tmp_path, Job(rate_bps=None).fill(), hops, [condition("a", 1e9), condition("b", 1e9)], nic))
    whole = found["eth0"]["tx_bytes"]
    assert [found[name]["tx_bytes"] / whole for name in "ab"] == pytest.approx([0.5, 0.5])


def test_what_is_received_belongs_to_the_device_that_it_comes_by(tmp_path: Path) -> None:
    middle = START_NS + 5 * ITERATION_NS
    job = Job().fill()
    job.extra["flow_devices"] = columns(
        "flow_devices",
        [
            {"flow_id": 1, "direction": RECEIVE, "device": "eth1"},
            {"flow_id": 1, "direction": RECEIVE, "since_ns": middle, "device": "eth0"},
        ],
    )
    job.extra["nic"] = columns("nic", [])
    found = links(analyze(TraceReader(job.write(tmp_path / "t.netprof"))))
    half = BYTES_PER_BIN * (WIRE_TO - WIRE_FROM) // MS * 5
    assert (found["eth0"]["tx_bytes"], found["eth0"]["rx_bytes"]) == (2 * half, half)
    assert (found["eth1"]["tx_bytes"], found["eth1"]["rx_bytes"]) == (2 * half, 3 * half)


def test_a_tunnels_headers_count_below_it(tmp_path: Path) -> None:
    hops = paths(("eth9", TRANSMIT, HopKind.TUNNEL))
    hops[1]["header_bytes"] = 150
    found = links(
        analyzed(tmp_path, Job(rate_bps=None).fill(), hops, [condition("eth9", 1e9)], counted("eth9", [0, MOVED]))
    )
    assert found["eth9"]["tx_bytes"] == pytest.approx(1.1 * found["eth0"]["tx_bytes"])


def test_what_both_ends_find_on_the_way_carries_the_bytes_once(tmp_path: Path) -> None:
    """The sender finds an uplink below, the receiver the same one."""
    sent = paths(("up", TRANSMIT, HopKind.PORT))
    received = paths(("up", TRANSMIT, HopKind.PORT), device="eth1", remote="10.0.0.1", direction=RECEIVE)
    found = links(
        analyzed(
            tmp_path,
            Job(rate_bps=None).fill(),
            [*sent, *received],
            [condition("up", RATE_BPS)],
            counted("up", [0, MOVED]),
        )
    )
    assert found["up"]["tx_bytes"] == found["eth0"]["tx_bytes"]
    assert found["up"]["below"] == ["eth0"]
