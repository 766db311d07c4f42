"""Where packets were lost: a device that was down, too small, or that counted drops; else beyond what netprof sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.made_alone import apart
from support.synthetic import BYTES_PER_BIN, ITERATION_NS, MS, START_NS, Job

from netprof.analysis import analyze
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.transport.loss_place import place_of_loss, sides_of
from netprof.analysis.findings.transport.stuck import stuck_flows
from netprof.analysis.findings.waiting.open_waits import open_waits
from netprof.analysis.hosts.open_job import open_job
from netprof.analysis.tables.intervals import interval
from netprof.model import Series, Target
from netprof.schema import COUNT, LinkState, tables
from netprof.trace import TraceReader

END_NS = START_NS + 11 * ITERATION_NS
STOP_NS = START_NS + 20 * ITERATION_NS
WHEN = interval(START_NS + 300 * MS, START_NS + 600 * MS)


def evidence_of(job: Job, tmp_path: Path) -> Evidence:
    return analyze(TraceReader(job.write(tmp_path / "t.netprof"))).evidence


class Counting(Job):
    """A job whose devices count something else than nothing: by column, what each sample of eth1 shows."""

    def nic(self) -> dict[str, Any]:
        columns: dict[str, Any] = super().nic()
        for name, values in getattr(self, "counts", {}).items():
            columns[name] = [values[0] if device == "eth1" else 0 for device in columns["device"][:2]] + [
                values[1] if device == "eth1" else 0 for device in columns["device"][2:]
            ]
        return columns


def counting(**counts: tuple[int, int]) -> Job:
    job = Counting().fill()
    job.counts = counts  # type: ignore[attr-defined]
    return job


@pytest.mark.parametrize(
    ("column", "flow", "said"),
    [
        ("qdisc_drops", 1, "the queue (tbf) of eth1 of rank 1 dropped 12 packets"),
        ("tx_drops", 1, "eth1 of rank 1 dropped what it was to send: 12 packets"),
        ("rx_drops", 0, "eth1 of rank 1 dropped what it received: 12 packets"),
        ("rx_errors", 0, "eth1 of rank 1 received with errors 12 packets"),
    ],
)
def test_who_counted_drops_dropped_them(column: str, flow: int, said: str, tmp_path: Path) -> None:
    """What flow 1 (of rank 1) sends leaves by eth1; what flow 0 sends arrives there."""
    job = counting(**{column: (3, 15)})
    job.rate_changes = [("eth1", 1, 1e9)]
    evidence = evidence_of(job, tmp_path)
    assert place_of_loss(evidence, flow, WHEN).happened.startswith(said)
    assert "no device on the way" in place_of_loss(evidence, 1 - flow, WHEN).happened


def test_drops_at_another_time_explain_nothing(tmp_path: Path) -> None:
    evidence = evidence_of(counting(qdisc_drops=(0, 12)), tmp_path)
    assert "no device on the way" in place_of_loss(evidence, 1, interval(END_NS + MS, END_NS + 2 * MS)).happened


@pytest.mark.parametrize(
    ("flow", "direction", "reason", "said"),
    [
        (1, 0, "NETFILTER_DROP", "this host dropped 2 packets of it at eth0 (3.00 kB; NETFILTER_DROP)"),
        (2, 1, "SOCKET_BACKLOG", "this host dropped 2 packets of it at eth0 (3.00 kB; SOCKET_BACKLOG)"),
        (2, 1, "CPU_BACKLOG", "this host dropped 2 packets of it at eth0 (3.00 kB; CPU_BACKLOG)"),
        (2, 1, "TCP_OLD_DATA", "no device on the way"),
        (2, 0, "NETFILTER_DROP", "no device on the way"),
    ],
)
def test_the_kernel_tells_why_it_dropped(flow: int, direction: int, reason: str, said: str, tmp_path: Path) -> None:
    """What flow 1 sends is received by the flow 2 of its peer."""
    job = Job().fill()
    rows = [{"flow_id": flow, "time_ns": START_NS + at * MS, "direction": direction} for at in (310, 320, 900)]
    table = {name: [row.get(name, 1500) for row in rows] for name in ("flow_id", "time_ns", "direction", "bytes")}
    job.extra["drops"] = {**table, "reason": [reason] * 3, "device": ["eth0"] * 3}
    place = place_of_loss(evidence_of(job, tmp_path), 0, WHEN)
    assert place.happened.startswith(said)
    assert ("netdev_max_backlog" in place.advice) == (reason == "CPU_BACKLOG")


def test_what_another_host_had_no_room_for_was_not_lost_here(tmp_path: Path) -> None:
    paths = []
    for host, dropped in enumerate((0, 12)):
        target = Target(100, 5, "python train.py", 7, host, 2, ("ddp", "gloo"))
        series = (Series(1, "host", "cpu0", "softnet_dropped", "packets", COUNT, ""),)
        changes = {"host": f"h{host}", "boot_id": f"boot{host}", "targets": (target,), "series": series}
        job = Job(ranks=1, changes=changes).fill()
        job.flow_changes = {"local_addr": [f"10.0.{host}.1"], "remote_addr": [f"10.9.{host}.9"]}
        job.wire = job.wire[: len(job.wire) // (1 + host)]  # what moved other amounts is not the other end
        job.extra["counters"] = {"series": [1, 1], "time_ns": [START_NS, END_NS - MS], "value": [0, dropped]}
        paths.append(job.write(tmp_path / f"h{host}.netprof"))
    evidence = analyze(open_job(paths)).evidence
    said = {
        evidence.host_of[pid].name: place_of_loss(evidence, row, evidence.recording).happened
        for row, pid in enumerate(evidence.fold.flows.pid.tolist())
    }
    assert "no device on the way" in said["h0"]
    assert list(dict(sides_of(evidence, 0)).values()) == ["eth0 of rank 0 on h0"]
    assert said["h1"] == "12 packets found no room in the backlog of a CPU"


def test_a_device_that_was_down_explains_it(tmp_path: Path) -> None:
    job = Job().fill()
    names = tables()["link_changes"].names
    rows = [
        {"since_ns": at, "state": int(state)}
        for at, state in ((0, LinkState.UP), (START_NS + 300 * MS, LinkState.DOWN), (START_NS + 500 * MS, LinkState.UP))
    ]
    fixed = {"netns": 7, "device": "eth1", "name": "eth1", "line_rate_bps": 1e9, "mtu_bytes": 1500}
    texts = {"line_rate_source": "tbf", "qdisc": "tbf", "receive_rate_source": "unknown"}
    full = [{**dict.fromkeys(names, 0), **fixed, **texts, **row} for row in rows]
    job.extra["link_changes"] = {name: [row[name] for row in full] for name in names}
    place = place_of_loss(evidence_of(job, tmp_path), 1, WHEN)
    assert place.happened == "for 67 % of that eth1 of rank 1 was down (310.0 ms into the recording)"


def stuck(mss: int, hears: bool) -> Job:
    """The first flow sends something again from the middle on, and nothing of it is acknowledged."""
    middle = START_NS + 5 * ITERATION_NS
    job = Job(iterations=4, changes={"stopped_ns": STOP_NS}).fill()
    for rank in range(2):
        job.step(rank, middle)
    job.marks = [mark for mark in job.marks if mark[0] < middle + 45 * MS]
    job.wire = [row for row in job.wire if row[2] < middle]
    if hears:
        job.wire.append((1, 1, STOP_NS - 50 * MS, 100, BYTES_PER_BIN))
    samples = range(middle, STOP_NS, 100 * MS)
    names = tables()["tcp"].names
    rows = [
        {**dict.fromkeys(names, 0), "flow_id": 1, "time_ns": at, "unacked_bytes": 9000, "ca_state": 4}
        | {"retransmits": 4 + number // 3, "mss_bytes": mss}
        for number, at in enumerate(samples)
    ]
    job.extra["tcp"] = {name: [row[name] for row in rows] for name in names}
    return job


@pytest.mark.parametrize(
    ("mss", "hears", "said"), [(8948, True, "while smaller ones arrive"), (1448, False, "never arrive, as")]
)
def test_large_packets_that_never_arrive_are_too_large(mss: int, hears: bool, said: str, tmp_path: Path) -> None:
    evidence = evidence_of(stuck(mss, hears), tmp_path)
    (flow,) = stuck_flows(evidence)
    assert flow.resent == 9
    place = place_of_loss(evidence, 0, evidence.recording)
    assert f"packets of {mss} bytes are sent again (9 times) and never arrive" in place.happened
    assert said in place.happened
    assert "one MTU" in place.advice


def test_a_known_device_that_is_too_small_is_named(tmp_path: Path) -> None:
    job = stuck(8948, True)
    job.rate_changes = [("eth1", 1, 1e9)]  # an MTU of 1500
    evidence = evidence_of(job, tmp_path)
    place = place_of_loss(evidence, 0, evidence.recording)
    assert place.happened.endswith(": eth0 of rank 0 has an MTU of 1500")
    assert "ip link set dev eth0 mtu 1500" in place.advice


@pytest.mark.parametrize(("family", "mss"), [(4, 1448), (6, 1428), (6, 1440)])
def test_headers_and_timestamps_are_part_of_what_is_too_large(family: int, mss: int, tmp_path: Path) -> None:
    job = stuck(mss, True)
    job.flow_changes = {"family": [family] * 2}
    names = tables()["link_changes"].names
    fixed = {"line_rate_source": "tbf", "qdisc": "tbf", "receive_rate_source": "unknown", "state": int(LinkState.UP)}
    full = [
        {**dict.fromkeys(names, 0), **fixed, "netns": 7, "device": name, "name": name, "mtu_bytes": mtu}
        for name, mtu in (("eth0", 1500), ("eth1", 1492))
    ]
    job.extra["link_changes"] = {name: [row[name] for row in full] for name in names}
    evidence = evidence_of(job, tmp_path)
    assert place_of_loss(evidence, 0, evidence.recording).happened.endswith(": eth1 of rank 1 has an MTU of 1492")


def test_small_packets_that_never_arrive_are_not_too_large(tmp_path: Path) -> None:
    evidence = evidence_of(stuck(536, False), tmp_path)
    assert len(stuck_flows(evidence)) == 1
    assert "MTU" not in place_of_loss(evidence, 0, evidence.recording).happened


def test_what_was_acknowledged_at_last_does_not_stand(tmp_path: Path) -> None:
    job = stuck(8948, False)
    job.extra["tcp"]["unacked_bytes"][-1] = 0
    assert stuck_flows(evidence_of(job, tmp_path)) == ()


def test_a_wait_that_no_step_closes_is_charged_to_what_stands(tmp_path: Path) -> None:
    evidence = evidence_of(stuck(8948, False), tmp_path)
    waits = open_waits(evidence)
    assert waits is not None
    assert waits.flow == 0
    document = analyze(TraceReader(tmp_path / "t.netprof")).document()
    assert document["waiting"]["unclosed_s"] > 1
    assert document["waiting"]["causes"][0]["cause"] == "loss"


def test_a_wait_for_a_rank_that_does_not_come_is_charged_to_it(tmp_path: Path) -> None:
    job = stuck(8948, False)
    job.extra.clear()
    middle = START_NS + 5 * ITERATION_NS
    job.marks = [mark for mark in job.marks if mark[0] < middle + 41 * MS or mark[1] == 100]
    evidence = evidence_of(job, tmp_path)
    waits = open_waits(evidence)
    assert waits is not None
    assert (waits.cause.name, waits.culprit, list(waits.waited_ns)) == ("late_rank", 101, [100])


def test_of_several_hosts_it_is_said_which_one_dropped(tmp_path: Path) -> None:
    job = Job().fill()
    times = [START_NS + at * MS for at in (310, 320)]
    table = {"flow_id": [2, 2], "time_ns": times, "direction": [1, 1], "bytes": [1500, 1500]}
    job.extra["drops"] = {**table, "reason": ["SOCKET_BACKLOG"] * 2, "device": ["eth0"] * 2}
    evidence = analyze(open_job(apart(job.write(tmp_path / "whole.netprof"), tmp_path))).evidence
    place = place_of_loss(evidence, 0, WHEN)
    assert place.happened == "h1 dropped 2 packets of it at eth0 (3.00 kB; SOCKET_BACKLOG)"
