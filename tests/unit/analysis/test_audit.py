"""What of a job's network could be set otherwise: idle devices that are faster, offloads, MTUs, one CPU, buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.made_alone import apart
from support.synthetic import ITERATION_NS, START_NS, Job

from netprof.analysis import analyze
from netprof.analysis.findings.links.alternatives import _nic
from netprof.analysis.findings.links.audit import AUDIT, Audited
from netprof.analysis.hosts.open_job import open_job
from netprof.analysis.tables.flow_table import LinkKey
from netprof.model import Series
from netprof.network_advice import Nic, change, faster, offloads_off, reached, smaller_mtu
from netprof.schema import HopKind, tables
from netprof.trace import TraceReader
from netprof.trace.meta import open_trace, write_meta

END_NS = START_NS + 11 * ITERATION_NS
FAST = Nic("eth9", ("10.0.0.9/24",), 1e10)


def test_a_device_is_worth_a_change_if_it_is_faster_idles_and_reaches_the_peer() -> None:
    assert faster(1e9, [FAST], "10.0.0.2", ()) is FAST
    assert faster(1e10, [FAST], "10.0.0.2", ()) is None
    assert faster(1e9, [FAST], "10.1.0.2", ()) is None
    assert faster(1e9, [FAST], "10.1.0.2", ("10.0.0.2/24",)) is FAST
    assert faster(1e9, [Nic("eth9", ("10.0.0.9/24",), 1e10, used=0.6)], "10.0.0.2", ()) is None
    assert faster(1e9, [Nic("eth9", ("10.0.0.9/24",), None)], "10.0.0.2", ()) is None
    assert reached(FAST, "fd00::2", ("10.0.0.2/24",)) == "10.0.0.2"


@pytest.mark.parametrize(
    ("remote", "route", "frameworks", "line"),
    [
        ("10.0.0.2", "10.0.0.0/24 dev eth0 metric 1", {"gloo"}, "ip route change 10.0.0.0/24 dev eth9 metric 1"),
        ("10.0.0.2", "10.0.0.0/24 dev eth9", {"gloo"}, "GLOO_SOCKET_IFNAME=eth9"),
        ("10.1.0.2", "10.1.0.0/24 dev eth0", {"nccl", "ddp"}, "NCCL_SOCKET_IFNAME=eth9"),
        ("10.1.0.2", "", {"mpi"}, "mpirun --mca btl_tcp_if_include eth9"),
        ("10.1.0.2", "", {"torch"}, "NCCL_SOCKET_IFNAME=eth9 or GLOO_SOCKET_IFNAME=eth9"),
    ],
)
def test_the_line_changes_what_decides(remote: str, route: str, frameworks: set[str], line: str) -> None:
    assert change(FAST, "eth0", remote, route, frameworks)[0] == line


def test_offloads_matter_on_fast_devices_only() -> None:
    assert offloads_off("eth0", ["tso"], 1e8) is None
    assert offloads_off("eth0", ["sg"], 1e10) is None
    found = offloads_off("eth0", ["tso", "gro"], None)
    assert found is not None
    assert found[1] == "ethtool -K eth0 tso on gro on"


def rows_of(table: str, rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    texts = {"device", "name", "value", "qdisc", "line_rate_source", "receive_rate_source", "remote_addr", "hop_device"}
    texts |= {"about"}
    return {name: [row.get(name, "" if name in texts else 0) for row in rows] for name in tables()[table].names}


def settings(**by_device: dict[str, str]) -> dict[str, list[Any]]:
    rows = [
        {"netns": 7, "device": device, "name": name, "value": value}
        for device, values in by_device.items()
        for name, value in values.items()
    ]
    return rows_of("settings", [*rows, {"netns": 7, "name": "net.ipv4.tcp_rmem", "value": "4096 131072 6291456"}])


def audited(job: Job, tmp_path: Path) -> dict[str, dict[str, Any]]:
    document = analyze(TraceReader(job.write(tmp_path / "t.netprof"))).document()
    return {each["kind"]: each for each in document["audit"]}


def with_idle_device(rate_bps: float = 1e10, **more: dict[str, str]) -> Job:
    job = Job().fill()
    known = {"eth0": {"addresses": "10.0.0.1/24"}, "eth9": {"addresses": "10.0.0.9/24"}}
    job.extra["settings"] = settings(**{name: {**each, **more.get(name, {})} for name, each in known.items()})
    change = {"netns": 7, "device": "eth9", "name": "eth9", "line_rate_bps": rate_bps, "mtu_bytes": 1500}
    job.rate_changes = [("eth0", 1, 1e9)]
    job.extra["link_changes"] = rows_of("link_changes", [change])
    nic = [{"netns": 7, "device": "eth9", "time_ns": at} for at in (START_NS, END_NS)]
    job.extra["nic"] = rows_of("nic", nic)
    return job


def test_an_idle_faster_device_is_found_and_the_route_that_chose_the_other(tmp_path: Path) -> None:
    found = audited(with_idle_device(eth0={"route to 10.0.0.2": "10.0.0.0/24 dev eth0"}), tmp_path)["faster_device"]
    assert found["subject"] == "eth0"
    assert found["sentence"] == (
        "eth9 of rank 0 (10.0 Gbit/s, idle) reaches 10.0.0.2 too, 10.0 times as fast as eth0 (1.00 Gbit/s)"
    )
    assert found["advice"] == "ip route change 10.0.0.0/24 dev eth9"


def test_a_device_that_is_not_faster_is_not_found(tmp_path: Path) -> None:
    assert "faster_device" not in audited(with_idle_device(1e9), tmp_path)


def test_the_advice_on_a_full_link_is_the_other_device(tmp_path: Path) -> None:
    trace = TraceReader(with_idle_device().write(tmp_path / "t.netprof"))
    (cause,) = [each for each in analyze(trace).document()["waiting"]["causes"] if each["cause"] == "link_full"]
    assert cause["advice"].startswith("GLOO_SOCKET_IFNAME=eth9: eth9 of rank 0")


def test_offloads_that_are_off_and_an_mtu_that_is_smaller_below(tmp_path: Path) -> None:
    job = with_idle_device(eth0={"off": "tso gro"})
    base = {"netns": 7, "device": "eth0", "remote_addr": "10.0.0.2", "hop_netns": 7}
    hops = [{**base, "hop_device": "eth0"}, {**base, "hop": 1, "kind": int(HopKind.BELOW), "hop_device": "nic"}]
    job.extra["flow_paths"] = rows_of("flow_paths", hops)
    below = {"netns": 7, "device": "nic", "name": "nic", "line_rate_bps": 1e9, "mtu_bytes": 1400}
    job.extra["link_changes"] = rows_of("link_changes", [below])
    found = audited(job, tmp_path)
    assert found["offloads"]["advice"] == "ethtool -K eth0 tso on gro on"
    assert found["mtu"]["sentence"] == "nic below eth0 has an MTU of 1400, eth0 one of 1500"


ONE = 9500, 100, 200, 200


@pytest.mark.parametrize(
    ("shares", "said"),
    [(ONE, "cpu0"), ((4000, 2000, 2000, 2000), ""), ((*ONE, *ONE), "cpu0 of h1"), ((*ONE, 0), "cpu0 of h0")],
)
def test_one_cpu_that_receives_nearly_everything(shares: tuple[int, ...], said: str, tmp_path: Path) -> None:
    names = [f"cpu{n % 4}{f' of h{n // 4}' if len(shares) > 4 else ''}" for n in range(len(shares))]
    series = tuple(Series(n, "host", name, "net_rx", "times", "count", "x") for n, name in enumerate(names, 1))
    job = Job(changes={"series": series})
    job.fill()
    rows = [
        {"series": n + 1, "time_ns": at, "value": value}
        for n, share in enumerate(shares)
        for at, value in ((START_NS, 10), (END_NS, 10 + share))
    ]
    job.extra["counters"] = rows_of("counters", rows)
    found = audited(job, tmp_path)
    assert ("receive_cpu" in found) is bool(said)
    if said:
        assert found["receive_cpu"]["sentence"] == f"{said} does 95 % of all receive processing, of 4 CPUs"


def test_flows_that_wait_for_buffers_name_the_setting(tmp_path: Path) -> None:
    job = with_idle_device()
    samples = [
        {"flow_id": flow, "time_ns": at, "busy_us": busy, "rwnd_limited_us": busy // 2}
        for flow in (1, 2)
        for at, busy in ((START_NS + 1, 0), (END_NS, 2_000_000))
    ]
    job.extra["tcp"] = rows_of("tcp", samples)
    assert audited(job, tmp_path)["buffers"]["subject"] == "net.ipv4.tcp_rmem"


def test_texts_that_are_no_addresses_reach_nothing() -> None:
    nic = Nic("eth0", ("\x1b[31m", "10.0.0.1/24"), 1e9)
    assert reached(nic, "\x1b[31m", ("", "10.0.0.7/24")) == "10.0.0.7"
    assert reached(Nic("eth0", ("nonsense",), 1e9), "10.0.0.2", ()) == ""


def test_a_counter_that_begins_anew_takes_nothing_from_what_a_device_moved() -> None:
    key = LinkKey(7, "eth9")
    moved = np.array([0, 6 * 10**8, 10**8])  # 0.6 GB are sure in 1 s of 10 Gbit/s; a driver was reset in between
    evidence: Any = SimpleNamespace(
        pasts={key: SimpleNamespace(changes=[SimpleNamespace(line_rate_bps=1e10)])},
        links=SimpleNamespace(counted={key: (np.array([0, 5 * 10**8, 10**9]), moved, 0 * moved)}),
        settings=SimpleNamespace(of=lambda link, name: "10.0.0.9/24"),
    )
    assert _nic(evidence, key).used == pytest.approx(0.48)


def test_pieces_tell_of_each_device_below(tmp_path: Path) -> None:
    """A bond may have two members of smaller MTUs; what a share says is of the last piece."""
    assert AUDIT.merge is not None
    whole = analyze(TraceReader(Job().fill().write(tmp_path / "t.netprof")))
    one, other = (Audited("mtu", "bond0", *smaller_mtu("bond0", 9000, f"eth{n}", 1500 + n)) for n in (0, 1))
    before, after = (Audited("receive_cpu", "cpu0", f"cpu0 does {share} of all", "RPS") for share in ("91 %", "95 %"))
    assert AUDIT.merge([(one, other, before), (one, other, after)], whole) == (one, other, after)


def test_devices_and_cpus_of_several_hosts_are_looked_at_host_by_host(tmp_path: Path) -> None:
    job = with_idle_device(eth0={"off": "tso gro"})
    job.changes = {"series": tuple(Series(n + 1, "host", f"cpu{n}", "net_rx", "times", "count", "x") for n in range(4))}
    rows = [
        {"series": n + 1, "time_ns": at, "value": value}
        for n, share in enumerate((9500, 100, 200, 200))
        for at, value in ((START_NS, 10), (END_NS, 10 + share))
    ]
    job.extra["counters"] = rows_of("counters", rows)
    mine, its = apart(job.write(tmp_path / "whole.netprof"), tmp_path)
    write_meta(open_trace(its), replace(TraceReader(its).meta, boot_id="two"))
    found = [(each.kind, each.subject) for each in analyze(open_job([mine, its])).of(AUDIT)]
    assert ("offloads", "eth0 on h0") in found
    assert [subject for kind, subject in found if kind == "receive_cpu"] == ["cpu0 of h0", "cpu0 of h1"]
