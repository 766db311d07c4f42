"""How `netprof report` grows with the rows of the wire table: seconds and peak memory of the whole process.

Two shapes per size: 64 flows in both directions at 1 ms bins, and one flow (many more bins for as many rows).
Traces are made in a temporary directory and deleted again.

    python examples/benchmarks/report_growth.py [--rows 1,10,100] [--flows 64,1] [--directory DIR]

Goal at 10 million rows: at most 5 s and 500 MB.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from _places import NETPROF
from _speed import say_speed

from netprof.model import Clock, Device, LineRate, Meta, Target
from netprof.schema import MarkKind, tables
from netprof.trace import TraceWriter

MS = 1_000_000
START_NS = 1_000_000 * MS
ITERATION_MS = 200
RATE_BPS = 25e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="1,10", help="millions of wire rows, comma-separated (default 1,10)")
    parser.add_argument("--flows", default="64,1", help="numbers of flows, comma-separated (default 64,1)")
    parser.add_argument("--directory", type=Path, default=None, help="where to make the traces")
    options = parser.parse_args()
    say_speed()
    print(f"{'million rows':>12} {'flows':>6} {'trace MB':>9} {'seconds':>8} {'CPU s':>6} {'peak MB':>8}")
    for millions in (float(text) for text in options.rows.split(",")):
        for flows in (int(text) for text in options.flows.split(",")):
            measure(int(millions * 1e6), flows, options.directory)


def measure(rows: int, flows: int, directory: Path | None) -> None:
    """Make a trace, report it in a process of its own, print one line of the table."""
    place = Path(tempfile.mkdtemp(prefix="netprof-growth-", dir=directory))
    try:
        trace = place / "t.netprof"
        write_trace(trace, rows, flows)
        size = sum(file.stat().st_size for file in trace.iterdir())
        seconds, cpu_s, peak = run_report(trace)
        line = f"{rows / 1e6:12.0f} {flows:6d} {size / 1e6:9.0f} {seconds:8.2f} {cpu_s:6.2f} {peak / 1e6:8.0f}"
        print(line, flush=True)
    finally:
        shutil.rmtree(place)


def run_report(trace: Path) -> tuple[float, float, int]:
    """Return the seconds, the CPU seconds and the peak resident bytes of `python -m netprof report TRACE`."""
    begin = time.perf_counter()
    command = [NETPROF, "report", str(trace)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"netprof report failed with status {status}")
    return time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def write_trace(path: Path, rows: int, flows: int) -> None:
    """Write a job of two ranks whose `flows` flows have a bin each way in every millisecond, a second per batch."""
    seconds = max(1, rows // (flows * 2 * 1000))
    meta = Meta(
        netprof_version="0.1.0",
        host="growth",
        boot_id="",
        kernel="",
        clock=Clock(START_NS, 0),
        command=("netprof", "attach"),
        bin_ns=MS,
        started_ns=START_NS,
        stopped_ns=START_NS + seconds * 1000 * MS,
        targets=tuple(Target(100 + rank, 1, "train", 7, rank, 2, ("ddp", "gloo")) for rank in range(2)),
        devices=(Device("eth0", 7, LineRate(RATE_BPS, "ethtool")),),
    )
    writer = TraceWriter(path, meta)
    writer.append("flows", filled("flows", flow_columns(flows)))
    for second in range(seconds):
        writer.append("wire", filled("wire", wire_columns(START_NS + second * 1000 * MS, flows)))
        for rank in range(min(2, flows)):
            writer.append("marks", mark_columns(START_NS + second * 1000 * MS, 100 + rank))
    writer.close(meta)


def filled(table: str, columns: dict[str, Any]) -> dict[str, Any]:
    """Return all columns of a table: 0 or "" in those that this job has nothing to say in."""
    rows = len(next(iter(columns.values())))
    nothing = {field.name: [""] * rows if field.type == pa.string() else np.zeros(rows) for field in tables()[table]}
    return {**nothing, **columns}


def flow_columns(flows: int) -> dict[str, Any]:
    numbers = np.arange(flows)
    return {
        "flow_id": numbers,
        "family": np.full(flows, 4),
        "local_addr": ["10.0.0.1"] * flows,
        "local_port": 30_000 + numbers,
        "remote_addr": ["10.0.0.2"] * flows,
        "remote_port": 40_000 + numbers,
        "protocol": np.full(flows, 6),
        "netns": np.full(flows, 7),
        "device": ["eth0"] * flows,
        "pid": 100 + numbers % 2,
        "rank": numbers % 2,
    }


def wire_columns(begin_ns: int, flows: int) -> dict[str, Any]:
    """A second of bins, in the order in which they are drained: by time, then flow and direction; bytes vary."""
    random = np.random.default_rng(begin_ns // MS)
    count = 1000 * flows * 2
    start = begin_ns + np.repeat(np.arange(1000) * MS, flows * 2)
    busy = (np.repeat(np.arange(1000), flows * 2) % ITERATION_MS) > 60
    payload = np.where(busy, random.integers(1, 3_000_000 // flows, count), 52)
    packets = payload // 1448 + 1
    return {
        "flow_id": np.tile(np.repeat(np.arange(flows), 2), 1000),
        "direction": np.tile([0, 1], 1000 * flows),
        "bin_start_ns": start,
        "payload_bytes": payload,
        "wire_bytes": payload + 66 * packets,
        "retransmitted_bytes": np.zeros(count, np.int64),
        "packets": packets,
        "first_ns": start + random.integers(0, MS // 10, count),
        "last_ns": start + random.integers(MS // 2, MS, count),
    }


def mark_columns(begin_ns: int, pid: int) -> dict[str, Any]:
    """A second of iterations: one bucket each, from 50 to 190 ms, on gloo's worker thread."""
    rows = list(_marks(begin_ns, pid))
    names = ("time_ns", "tid", "kind", "arg0", "arg1")
    columns = {name: np.array([row[index] for row in rows]) for index, name in enumerate(names)}
    return columns | {"pid": np.full(len(rows), pid), "arg2": np.zeros(len(rows), np.int64)}


def _marks(begin_ns: int, pid: int) -> Iterator[tuple[int, int, int, int, int]]:
    for begin in range(begin_ns, begin_ns + 1000 * MS, ITERATION_MS * MS):
        yield begin, pid, MarkKind.DDP_FORWARD, 0, 0
        yield begin + 30 * MS, pid, MarkKind.DDP_BACKWARD, 0, 0
        yield begin + 50 * MS, pid, MarkKind.BUCKET_LAUNCH, 1, 0
        yield begin + 51 * MS, pid + 500, MarkKind.COLLECTIVE_BEGIN, 0, 0
        yield begin + 51 * MS + 1, pid + 500, MarkKind.COLLECTIVE_SIZE, 50_000_000, 4
        yield begin + 60 * MS, pid, MarkKind.DDP_WAIT, 0, 0
        yield begin + 190 * MS, pid + 500, MarkKind.COLLECTIVE_END, 0, 0
        yield begin + 191 * MS, pid, MarkKind.BUCKET_DONE, 1, 0
        yield begin + 192 * MS, pid, MarkKind.DDP_STATS, 0, 0


if __name__ == "__main__":
    main()
