"""How `netprof report` grows with what a job has many of: connections, processes, marks.

Each table doubles one of them from row to row and leaves the others: CPU seconds and peak memory of the whole process.
Connections are short, as those of a loader that fetches each object over a new one.

    python examples/benchmarks/report_counts.py [--of connections,processes,marks] [--directory DIR]

Goal: no column grows faster than its count; 10,000 connections in at most 10 s of CPU.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from _results import keep
from _speed import say_speed
from report_growth import MS, RATE_BPS, START_NS, filled, run_report

from netprof.model import Clock, Device, LineRate, Meta, Target
from netprof.schema import UNKNOWN_RANK, MarkKind
from netprof.trace import TraceWriter

_STEP_NS = 200 * MS
_FIRST_CHILD = 1_000_000
_LIVES_MS = 40
"""How long a connection lives; a bin each way in every tenth of it."""


@dataclass(frozen=True)
class Counts:
    """How many there are: short connections, servers, processes that train, those that do not, devices and so on.

    Connections are of processes that do not train where there are any (a data loader's), else of the ranks. Devices
    are one of each rank, as far as they go; a network namespace has one.
    """

    connections: int = 0
    servers: int = 16
    processes: int = 2
    children: int = 0
    devices: int = 1
    buckets: int = 1
    steps: int = 50


TABLES = {
    "connections": [Counts(connections=count) for count in (1250, 2500, 5000, 10_000)],
    "servers": [Counts(connections=count, servers=count) for count in (1250, 2500, 5000, 10_000)],
    "children": [Counts(connections=count, children=count) for count in (1250, 2500, 5000, 10_000)],
    "devices": [Counts(processes=count, devices=count, steps=10) for count in (32, 64, 128, 256)],
    "processes": [Counts(processes=count, steps=10) for count in (32, 64, 128, 256)],
    "marks": [Counts(buckets=count) for count in (50, 100, 200, 400)],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", default=",".join(TABLES), help=f"comma-separated, of {', '.join(TABLES)}")
    parser.add_argument("--directory", type=Path, default=None, help="where to make the traces")
    options = parser.parse_args()
    say_speed()
    print(f"{'connections':>11} {'processes':>9} {'marks':>8} {'CPU s':>6} {'peak MB':>8}")
    for name in options.of.split(","):
        for counts in TABLES[name]:
            measure(counts, options.directory)


def measure(counts: Counts, directory: Path | None) -> None:
    """Make a trace, report it in a process of its own, print one line of the table."""
    place = Path(tempfile.mkdtemp(prefix="netprof-counts-", dir=directory))
    try:
        marks = write_counts(place / "t.netprof", counts)
        _, cpu_s, peak = run_report(place / "t.netprof")
    finally:
        shutil.rmtree(place)
    print(f"{counts.connections:11d} {counts.processes:9d} {marks:8d} {cpu_s:6.2f} {peak / 1e6:8.0f}", flush=True)
    keep(connections=counts.connections, processes=counts.processes, marks=marks, cpu_s=cpu_s, peak_mb=peak / 1e6)


def write_counts(path: Path, counts: Counts) -> int:
    """Write a trace with so much of everything, and return how many marks it has.

    The ranks of a ring exchange gradients that do not fill their links; beside that each opens connections to servers.
    """
    ranks = np.arange(counts.processes)
    meta = Meta(
        netprof_version="0.1.0",
        host="counts",
        boot_id="",
        kernel="",
        clock=Clock(START_NS, 0),
        command=("netprof", "attach"),
        bin_ns=MS,
        started_ns=START_NS,
        stopped_ns=START_NS + counts.steps * _STEP_NS,
        targets=tuple(
            Target(100 + rank, 1, "train", 7, rank, counts.processes, ("ddp", "gloo")) for rank in ranks.tolist()
        ),
        devices=tuple(Device("eth0", 7 + each, LineRate(RATE_BPS, "ethtool")) for each in range(counts.devices)),
    )
    marks = _marks(counts)
    tables = {"flows": _flows(counts), "wire": _wire(counts), "marks": marks, "tcp": _tcp(counts)}
    tables |= {"totals": _totals(tables["wire"], counts), "drops": _drops(tables["wire"])}
    tables |= {"flow_devices": _flow_devices(tables["flows"]), "settings": _settings(counts)}
    writer = TraceWriter(path, meta)
    for name, columns in tables.items():
        writer.append(name, filled(name, columns))
    writer.close(replace(meta))
    return len(marks["time_ns"])


def _flows(counts: Counts) -> dict[str, Any]:
    """A flow of each rank to the next and one from the one before, then the connections."""
    ranks, number = np.arange(counts.processes), np.arange(counts.connections)
    count = 2 * counts.processes + counts.connections
    after, before = (ranks + 1) % counts.processes, (ranks - 1) % counts.processes
    owner = number % counts.processes
    return {
        "flow_id": np.arange(1, count + 1),
        "family": np.full(count, 4),
        "local_addr": [_address(each) for each in (*ranks, *ranks, *owner)],
        "local_port": np.concatenate((np.full(counts.processes, 4001), np.full(counts.processes, 4002), _port(number))),
        "remote_addr": [*map(_address, (*after, *before)), *(_server(each % counts.servers) for each in number)],
        "remote_port": np.concatenate(
            (np.full(counts.processes, 4002), np.full(counts.processes, 4001), 443 + 0 * number)
        ),
        "protocol": np.full(count, 6),
        "netns": 7 + np.concatenate((ranks, ranks, owner)) % counts.devices,
        "device": ["eth0"] * count,
        "pid": 100
        + np.concatenate((ranks, ranks, _FIRST_CHILD + number % counts.children if counts.children else owner)),
        "rank": np.concatenate((ranks, ranks, 0 * number + UNKNOWN_RANK if counts.children else owner)),
        "congestion_control": ["cubic"] * count,
    }


def _address(rank: int) -> str:
    return f"10.1.{rank // 200}.{rank % 200 + 1}"


def _server(number: int) -> str:
    return f"10.{9 + number // 40_000}.{number // 200 % 200}.{number % 200 + 1}"


def _port(number: Any) -> Any:
    return 10_000 + number % 50_000


def _wire(counts: Counts) -> dict[str, Any]:
    """A bin each way in each ms of a step from 70 to 190 ms, and what connections fetch, as much in all."""
    ring = 2 * counts.processes
    at_ns = START_NS + (np.arange(counts.steps)[:, None] * _STEP_NS + np.arange(70, 190, 2) * MS).reshape(-1)
    flow, way, start = (each.reshape(-1) for each in np.meshgrid(np.arange(1, ring + 1), (0, 1), at_ns, indexing="ij"))
    began = (
        START_NS
        + (np.arange(counts.connections) * (counts.steps * _STEP_NS - _LIVES_MS * MS))
        // max(counts.connections, 1)
        // MS
        * MS
    )
    bins = np.arange(0, _LIVES_MS, _LIVES_MS // 10) * MS
    own = np.repeat(np.arange(ring + 1, ring + 1 + counts.connections), 2 * len(bins))
    flow = np.concatenate((flow, own))
    way = np.concatenate((way, np.tile(np.repeat((0, 1), len(bins)), counts.connections)))
    start = np.concatenate((start, (began[:, None, None] + 0 * np.arange(2)[:, None] + bins).reshape(-1)))
    order = np.argsort(start, kind="stable")
    flow, way, start = flow[order], way[order], start[order]
    payload = np.where(flow > ring, 4_000_000, 100_000)
    return {
        "flow_id": flow,
        "direction": way,
        "bin_start_ns": start,
        "payload_bytes": payload,
        "wire_bytes": payload + 66 * 70,
        "retransmitted_bytes": np.where((flow % 2 == 0) & (way == 0) & (start // MS % 3 == 0), 1448, 0),
        "unsent": (way == 1) * (start // MS // 4 % 2),
        "packets": np.full(len(flow), 70),
        "first_ns": start + MS // 10,
        "last_ns": start + MS // 2,
    }


def _drops(wire: dict[str, Any]) -> dict[str, Any]:
    """Packets of some flows that the host dropped, where they send again."""
    rows = np.flatnonzero((wire["retransmitted_bytes"] > 0) & (wire["flow_id"] % 4 == 0))
    columns = {"flow_id": wire["flow_id"][rows], "time_ns": wire["first_ns"][rows], "bytes": np.full(len(rows), 1500)}
    return columns | {"reason": ["QDISC_DROP"] * len(rows), "device": ["eth0"] * len(rows)}


def _flow_devices(flows: dict[str, Any]) -> dict[str, Any]:
    """Every seventh flow is received by another device for a while."""
    flow = np.repeat(flows["flow_id"][::7], 3)
    since = np.tile((0, 500, 900), len(flow) // 3)
    device = ["eth0", "eth1", "eth0"] * (len(flow) // 3)
    return {"flow_id": flow, "direction": np.ones(len(flow)), "since_ns": START_NS + since * MS, "device": device}


def _settings(counts: Counts) -> dict[str, Any]:
    """An fq on each device that holds nothing back."""
    columns = {"netns": 7 + np.arange(counts.devices), "device": ["eth0"] * counts.devices}
    return columns | {"name": ["flow_rate_bps"] * counts.devices, "value": [str(10**11)] * counts.devices}


def _tcp(counts: Counts) -> dict[str, Any]:
    """Two samples of each flow."""
    count = 2 * counts.processes + counts.connections
    flow = np.repeat(np.arange(1, count + 1), 2)
    late = np.tile((0, 1), count)
    at = (flow * 7919) % max(counts.steps * 200 - 100, 1)
    return {
        "flow_id": flow,
        "time_ns": START_NS + at * MS + late * 30 * MS,
        "rtt_us": np.full(len(flow), 300),
        "min_rtt_us": np.full(len(flow), 200),
        "cwnd": np.full(len(flow), 100),
        "mss_bytes": np.full(len(flow), 1448),
        "busy_us": late * 20_000,
        "unacked_bytes": np.full(len(flow), 1448),
    }


def _totals(wire: dict[str, Any], counts: Counts) -> dict[str, Any]:
    """TCP's own totals of each flow at its end: what was counted."""
    count = 2 * counts.processes + counts.connections
    flow = np.arange(1, count + 1)
    sent, received = (
        np.bincount(
            wire["flow_id"][wire["direction"] == way], wire["payload_bytes"][wire["direction"] == way], count + 1
        )[1:]
        for way in (0, 1)
    )
    columns = {
        "flow_id": flow,
        "time_ns": np.full(count, START_NS + counts.steps * _STEP_NS),
        "settled": np.ones(count),
    }
    columns |= dict.fromkeys(("sent_bytes", "counted_sent_bytes"), sent)
    return columns | dict.fromkeys(("received_bytes", "counted_received_bytes"), received)


def _marks(counts: Counts) -> dict[str, Any]:
    """Steps of every rank: buckets launched from 30 to 60 ms, each on the wire until the wait ends at 190 ms."""
    K = MarkKind
    rows: list[tuple[int, int, int, int, int]] = [(0, 0, K.DDP_FORWARD, 0, 0), (25 * MS, 0, K.DDP_BACKWARD, 0, 0)]
    for bucket in range(counts.buckets):
        launch = 30 * MS + bucket * 30 * MS // counts.buckets
        rows += [
            (launch, 0, K.BUCKET_LAUNCH, 0x1000 + bucket, 0),
            (launch + 1000, 500 + bucket, K.COLLECTIVE_BEGIN, 0, 0),
            (launch + 1001, 500 + bucket, K.COLLECTIVE_SIZE, 1_500_000 // counts.buckets, 4),
            (189 * MS + bucket, 500 + bucket, K.COLLECTIVE_END, 0, 0),
            (190 * MS + bucket, 0, K.BUCKET_DONE, 0x1000 + bucket, 0),
        ]
    rows += [(61 * MS, 0, K.DDP_WAIT, 0, 0), (192 * MS, 0, K.DDP_STATS, 0, 0)]
    of_step = np.array(sorted(rows), np.int64)
    step = np.arange(counts.steps)[:, None, None] * _STEP_NS
    rank = np.arange(counts.processes)[:, None]
    shape = counts.steps, counts.processes, len(of_step)
    time_ns = np.broadcast_to(START_NS + step + of_step[:, 0], shape).reshape(-1)
    pid = np.broadcast_to(100 + rank, shape).reshape(-1)
    tid = np.where(of_step[:, 1] == 0, 100 + rank, 100_000 + 1000 * rank + of_step[:, 1])
    columns = {"time_ns": time_ns, "pid": pid, "tid": np.broadcast_to(tid, shape).reshape(-1)}
    for name, values in zip(("kind", "arg0", "arg1"), of_step[:, 2:].T, strict=True):
        columns[name] = np.broadcast_to(values, shape).reshape(-1)
    order = np.argsort(time_ns, kind="stable")
    return {name: values[order] for name, values in columns.items()}


if __name__ == "__main__":
    main()
