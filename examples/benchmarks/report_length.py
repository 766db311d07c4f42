"""How `netprof report` grows with hours and with ranks: seconds and peak memory of the whole process.

Each rank has one all-reduce an iteration of 200 ms, and bytes in 5 % of its 1 ms bins each way; rows are written as a
recorder writes them, by time. Traces are made in a temporary directory and deleted again; a day of eight ranks takes
0.5 GB there, and a minute.

    python examples/benchmarks/report_length.py [--cases 8x1h,512x20s] [--host-ranks 8] [--directory DIR]

With --host-ranks so many share a device: what a slice of time over the hosts of a job costs.

Goals: eight ranks for 24 hours in less than 500 MB, 512 ranks for 20 seconds in less than 15 s.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from _speed import say_speed
from report_growth import filled, run_report

from netprof.model import Clock, Device, LineRate, Meta, Target
from netprof.schema import MarkKind
from netprof.trace import TraceWriter
from netprof.units import parse_duration_ns

MS = 1_000_000
START_NS = 1_000_000 * MS
ITERATION_NS = 200 * MS
BATCH = 300
"""Iterations in a batch: a minute."""
BUSY_MS = np.arange(30, 90, 6)
"""The bins of an iteration in which bytes pass."""

_Int64 = npt.NDArray[np.int64]

MARKS = (  # ms, kind, arg0, arg1, on a thread of its own
    (0, MarkKind.DDP_FORWARD, 0x1000, 0, False),
    (20, MarkKind.DDP_BACKWARD, 0x1000, 0, False),
    (30, MarkKind.BUCKET_LAUNCH, 0x2000, 0x1000, False),
    (31, MarkKind.COLLECTIVE_BEGIN, 0, 0, True),
    (32, MarkKind.COLLECTIVE_SIZE, 250_000, 4, True),
    (80, MarkKind.DDP_WAIT, 0x1000, 0, False),
    (90, MarkKind.COLLECTIVE_END, 0, 0, True),
    (92, MarkKind.BUCKET_DONE, 0x2000, 0x1000, False),
    (93, MarkKind.DDP_STATS, 0x1000, 0, False),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="8x1h,512x20s", help="ranks x time, comma-separated (default 8x1h,512x20s)")
    parser.add_argument("--host-ranks", type=int, default=1, help="ranks on each host (default 1)")
    parser.add_argument("--directory", type=Path, default=None, help="where to make the traces")
    options = parser.parse_args()
    say_speed()
    print(
        f"{'ranks':>6} {'recorded':>8} {'M marks':>8} {'M wire':>7} {'trace MB':>9} {'seconds':>8} {'CPU s':>6} "
        f"{'peak MB':>8}"
    )
    for ranks, length in (case.split("x") for case in options.cases.split(",")):
        measure(int(ranks), length, options.host_ranks, options.directory)


def measure(ranks: int, length: str, host_ranks: int, directory: Path | None) -> None:
    """Make a trace, report it in a process of its own, print one line of the table."""
    place = Path(tempfile.mkdtemp(prefix="netprof-length-", dir=directory))
    try:
        trace = place / "t.netprof"
        iterations = parse_duration_ns(length) // ITERATION_NS
        write_trace(trace, ranks, iterations, host_ranks)
        size = sum(file.stat().st_size for file in trace.iterdir())
        seconds, cpu_s, peak = run_report(trace)
        marks, wire = iterations * ranks * len(MARKS) / 1e6, iterations * ranks * 2 * len(BUSY_MS) / 1e6
        print(
            f"{ranks:6d} {length:>8} {marks:8.2f} {wire:7.2f} {size / 1e6:9.0f} {seconds:8.2f} {cpu_s:6.2f} "
            f"{peak / 1e6:8.0f}",
            flush=True,
        )
    finally:
        shutil.rmtree(place)


def write_trace(path: Path, ranks: int, iterations: int, host_ranks: int = 1) -> None:
    """Write a job in a ring; so many ranks are on a host."""
    meta = Meta(
        netprof_version="0.1.0",
        host="length",
        boot_id="",
        kernel="",
        clock=Clock(START_NS, 0),
        command=("netprof", "attach"),
        bin_ns=MS,
        started_ns=START_NS,
        stopped_ns=START_NS + iterations * ITERATION_NS,
        targets=tuple(
            Target(1000 + rank, 1, "train", 7 + rank // host_ranks, rank, ranks, ("ddp", "gloo"))
            for rank in range(ranks)
        ),
        devices=tuple(Device("eth0", 7 + host, LineRate(1e10, "ethtool")) for host in range(-(-ranks // host_ranks))),
    )
    writer = TraceWriter(path, meta)
    writer.append("flows", filled("flows", flow_columns(ranks, host_ranks)))
    for first in range(0, iterations, BATCH):
        begin = START_NS + np.arange(first, min(first + BATCH, iterations)) * ITERATION_NS
        writer.append("marks", mark_columns(begin, ranks))
        writer.append("wire", filled("wire", wire_columns(begin, ranks)))
    writer.close(meta)


def flow_columns(ranks: int, host_ranks: int = 1) -> dict[str, Any]:
    """Both ends of every connection: each rank sends to the next one."""
    own = np.tile(np.arange(ranks), 2)
    peer = np.concatenate(((np.arange(ranks) + 1) % ranks, (np.arange(ranks) - 1) % ranks))
    sends = np.repeat([True, False], ranks)
    return {
        "flow_id": np.arange(2 * ranks),
        "family": np.full(2 * ranks, 4),
        "local_addr": [f"10.0.{rank >> 8}.{rank & 255}" for rank in own.tolist()],
        "local_port": np.where(sends, 30_000, 40_000),
        "remote_addr": [f"10.0.{rank >> 8}.{rank & 255}" for rank in peer.tolist()],
        "remote_port": np.where(sends, 40_000, 30_000),
        "protocol": np.full(2 * ranks, 6),
        "netns": 7 + own // host_ranks,
        "device": ["eth0"] * 2 * ranks,
        "pid": 1000 + own,
        "rank": own,
    }


def mark_columns(begin_ns: _Int64, ranks: int) -> dict[str, Any]:
    """Iterations of all ranks, none of which is on time to the nanosecond."""
    random = np.random.default_rng(int(begin_ns[0]) // MS)
    late_ns = random.integers(0, 900_000, (len(begin_ns), ranks, 1))
    at_ns = np.array([mark[0] for mark in MARKS]) * MS
    time_ns = begin_ns[:, None, None] + late_ns + at_ns
    shape = time_ns.shape
    pid = np.broadcast_to(1000 + np.arange(ranks)[None, :, None], shape)
    columns = {
        "time_ns": time_ns,
        "pid": pid,
        "tid": np.where([mark[4] for mark in MARKS], pid + 100_000, pid),
        "kind": np.broadcast_to([int(mark[1]) for mark in MARKS], shape),
        "arg0": np.broadcast_to(np.array([mark[2] for mark in MARKS], np.uint64), shape),
        "arg1": np.broadcast_to(np.array([mark[3] for mark in MARKS], np.uint64), shape),
        "arg2": np.zeros(shape, np.uint64),
    }
    order = np.argsort(time_ns.ravel(), kind="stable")
    return {name: values.ravel()[order] for name, values in columns.items()}


def wire_columns(begin_ns: _Int64, ranks: int) -> dict[str, Any]:
    """What every rank sends to the next one, and receives from the one before."""
    random = np.random.default_rng(int(begin_ns[0]) // MS)
    start = np.repeat((begin_ns[:, None] + BUSY_MS * MS).ravel(), 2 * ranks)
    packets = random.integers(60, 80, len(start))
    return {
        "flow_id": np.tile(np.arange(2 * ranks), len(start) // (2 * ranks)),
        "direction": np.tile(np.repeat([0, 1], ranks), len(start) // (2 * ranks)),
        "bin_start_ns": start,
        "payload_bytes": packets * 1448,
        "wire_bytes": packets * 1514,
        "retransmitted_bytes": np.zeros(len(start), np.int64),
        "packets": packets,
        "first_ns": start + 1000,
        "last_ns": start + MS - 1000,
    }


if __name__ == "__main__":
    main()
