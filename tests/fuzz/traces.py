"""Hostile traces: valid Arrow and JSON whose cells are extreme, one host's, many hosts', or beside a capture."""

from __future__ import annotations

import copy
import json
import random
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from support.synthetic import MS, START_NS, Job

from fuzz.captures import make_capture
from fuzz.values import FLOATS, NUMBERS, TEXTS, change_entry, flip
from netprof.domains import domain
from netprof.schema import BlockedIn, GpuMetric, HopKind, MarkKind, Profiled, tables
from netprof.trace import TraceReader

Rows = dict[str, list[dict[str, Any]]]
"""The rows of every table."""

_TIMES = ("time_ns", "bin_start_ns", "first_ns", "last_ns", "since_ns", "adopted_ns", "stream_position_ns")


def make_trace(rng: random.Random, place: Path) -> None:
    """Write a trace that is damaged."""
    meta, rows = copy.deepcopy(base())
    damage(rng, meta, rows, rng.choice((1, 1, 1, 2, 3, 8)))
    write_trace(rng, place / "t.netprof", meta, rows)


def make_hosts(rng: random.Random, place: Path) -> None:
    """Write the traces of a job's two hosts, each with a clock of its own, which may be anywhere; some are damaged."""
    for rank in range(2):
        meta, rows = of_rank(rank)
        if rng.random() < 0.7:
            _move_clock(rng, meta, rows)
        if rng.random() < 0.7:
            damage(rng, meta, rows, rng.choice((1, 1, 2, 8)))
        write_trace(rng, place / f"h{rank}.netprof", meta, rows)


def make_capture_and_trace(rng: random.Random, place: Path) -> None:
    """Write a trace, and a capture of its job; one of them or both are damaged."""
    meta, rows = copy.deepcopy(base())
    damage(rng, meta, rows, rng.choice((0, 0, 1, 3)))
    write_trace(rng, place / "t.netprof", meta, rows)
    make_capture(rng, place)


@lru_cache(maxsize=1)
def base() -> tuple[dict[str, Any], Rows]:
    """Return the description and the rows of the trace that is damaged: some of every table."""
    with tempfile.TemporaryDirectory(prefix="fuzzed-") as folder:
        job = Job(iterations=3, rate_changes=[("eth0", START_NS + 300 * MS, 5e8)]).fill()
        for index, kind in enumerate(MarkKind):  # each at least once, whatever it means there
            job.mark(START_NS + 700 * MS + index * 1000, 100 + index % 2, kind, arg0=5, arg1=2)
        job.wire = job.wire[::7]
        reader = TraceReader(job.write(Path(folder) / "t"))
        rows = {name: reader.table(name).to_pylist() for name in tables()}
        rows["gpu"] = [
            {"gpu": 0, "pid": 0, "metric": metric, "time_ns": START_NS + at * MS, "period_ns": MS, "value": 50.0}
            for metric in GpuMetric
            for at in (0, 100, 200, 300)
        ]
        rows["counters"] = [{"series": 1, "time_ns": START_NS + at * MS, "value": at} for at in range(0, 500, 50)]
        rows["nccl_posted"] = [
            {"pid": 100, "connection": 7, "direction": at % 2, "network": 1 + at % 3, "posted_bytes": 5000, "posts": 2}
            | {"refused": 1, **dict.fromkeys(("bin_start_ns", "first_ns", "last_ns"), START_NS + at * MS)}
            for at in range(300)
        ]
        rows["nccl_ranks"] = [
            {"time_ns": START_NS + at * MS, "communicator": "0x1", "size": 4, "rank": at % 4, "host": "h", "pid": 100}
            | {"process": 100, "state": 1 + at % 7, "collectives": at}
            for at in range(20)
        ]
        rows["profiled"] = [
            {"pid": 100, "kind": kind, "first_ns": START_NS + at * MS, "last_ns": START_NS + (at + 20) * MS}
            for kind in Profiled
            for at in (0, 100, 200)
        ]
        rows["outside"] = [dict.fromkeys(tables()["outside"].names, 1) | {"time_ns": START_NS}]
        rows |= _of_paths() | _of_threads()
        meta = asdict(reader.meta)
        meta["gpus"] = [{"index": 0, "name": "H100", "pids": [100, 101], "memory_bytes": 80 << 30}]
        said = {"source": "host", "subject": "cpu0", "name": "n", "unit": "times", "kind": "count", "meaning": "m"}
        meta["probes_started"] = [{"name": f"marks:{name}", "detail": ""} for name in ("ddp", "gloo", "nccl")]
        meta["series"] = [{"id": 1, **said}]
        return json.loads(json.dumps(meta)), rows


def _of_paths() -> Rows:
    """Return which devices carry the flows of two ranks, what is below those, and what was dropped there."""
    ends = [(rank, direction, f"eth{rank}") for rank in range(2) for direction in range(2)]
    settings = (
        ("kind", "veth"), ("addresses", "10.0.0.1/24"), ("route to 10.0.0.2", "10.0.0.0/24 dev eth0"),
        ("off", "tso"), ("flow_rate_bps", "2e8"), ("net.ipv4.tcp_congestion_control", "bbr"),
    )  # fmt: skip
    return {
        "flow_devices": [
            {"flow_id": rank + 1, "direction": direction, "since_ns": START_NS, "device": device}
            for rank, direction, device in ends
        ],
        "flow_paths": [
            {"netns": 7, "device": device, "direction": direction, "remote_addr": f"10.0.0.{2 - rank}"}
            | {"since_ns": START_NS, "hop": hop, "kind": kind, "hop_netns": 7, "hop_device": below}
            | {"hop_direction": direction, "header_bytes": 50 * hop, "about": "tbf 200 Mbit/s"}
            for rank, direction, device in ends
            for hop, (kind, below) in enumerate([(HopKind.FLOW, device), *((each, "eth1") for each in HopKind)])
        ],
        "settings": [
            {"netns": 7, "device": f"eth{rank}", "name": name, "since_ns": START_NS, "value": value}
            for rank in range(2)
            for name, value in settings
        ],
        "drops": [
            {"flow_id": 1 + at % 2, "time_ns": START_NS + at * MS, "direction": at % 2, "bytes": 1500}
            | {"reason": ("QDISC_DROP", "")[at % 2], "device": "eth0"}
            for at in range(40)
        ],
    }


def _of_threads() -> Rows:
    """Return what the threads of two ranks were off their CPUs for, and their stacks meanwhile."""
    return {
        "blocked": [
            {"time_ns": START_NS + (10 * at + kind) * MS, "period_ns": 5 * MS, "kind": kind}
            | {"pid": 100 + at % 2, "tid": 100 + at % 2}
            for at in range(30)
            for kind in BlockedIn
        ],
        "stacks": [
            {"time_ns": START_NS + at * 20 * MS, "period_ns": 20 * MS, "pid": 100 + at % 2}
            | {"frames": f"<module> (train.py:3);step (train.py:{at % 4})"}
            for at in range(20)
        ],
    }


def of_rank(rank: int) -> tuple[dict[str, Any], Rows]:
    """Return a host's part of the base: what one rank of the job recorded."""
    meta, rows = copy.deepcopy(base())
    pid, device = 100 + rank, f"eth{rank}"
    meta |= {"host": f"h{rank}", "boot_id": f"boot {rank}"}
    meta["targets"] = [each for each in meta["targets"] if each["pid"] == pid]
    meta["devices"] = [each for each in meta["devices"] if each["device"] == device]
    own: dict[str, set[Any]] = {"flow_id": {rank + 1}, "pid": {0, pid}, "device": {device}}
    for name, each in rows.items():
        keys = [key for key in own if key in tables()[name].names]
        rows[name] = [row for row in each if all(row[key] in own[key] for key in keys)]
    return meta, rows


def _move_clock(rng: random.Random, meta: dict[str, Any], rows: Rows) -> None:
    """Let a host's clock read more or less, run faster or slower, and be wrong about the time of day."""
    offset_ns = rng.choice((0, 1, -1, 10**8, -(10**8), 10**12, 1 << 59, (1 << 60) - START_NS, 1 << 61, -START_NS))
    drift = rng.choice((0.0, 0.0, 5e-5, -5e-5, 0.1, -0.9, 10.0))

    def moved(time_ns: int) -> int:
        return time_ns + offset_ns + int((time_ns - START_NS) * drift)

    for entry in ("started_ns", "stopped_ns"):
        meta[entry] = moved(meta[entry])
    meta["clock"]["monotonic_ns"] = moved(meta["clock"]["monotonic_ns"])
    meta["clock"]["realtime_ns"] += rng.choice((0, 0, 10**9, -(10**9), 10**18, 1 << 61, -meta["clock"]["realtime_ns"]))
    for name, each in rows.items():
        for column in (column for column in _TIMES if column in tables()[name].names):
            limits = np.iinfo(tables()[name].field(column).type.to_pandas_dtype())
            for row in each:
                row[column] = min(max(moved(row[column]), int(limits.min)), int(limits.max))


def damage(rng: random.Random, meta: dict[str, Any], rows: Rows, times: int) -> None:
    """Damage the description or the rows, so many times."""
    for _ in range(times):
        rng.choice(_DAMAGES)(rng, meta, rows)


def write_trace(rng: random.Random, trace: Path, meta: dict[str, Any], rows: Rows) -> None:
    """Write a trace of a description and of rows, now and then with a few bytes changed."""
    trace.mkdir()
    (trace / "meta.json").write_text(json.dumps(meta, ensure_ascii=rng.random() < 0.5), errors="replace")
    for name, each in rows.items():
        if each:
            (trace / f"{name}.arrows").write_bytes(_stream(rng, name, each))
    if rng.random() < 0.15:
        flip(rng, rng.choice(sorted(trace.iterdir())))


def _stream(rng: random.Random, name: str, rows: list[dict[str, Any]]) -> bytes:
    schema, sink = tables()[name], pa.BufferOutputStream()
    codec = pa.Codec("zstd", 1) if rng.random() < 0.5 else None
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as stream:
        cut = rng.randrange(len(rows) + 1)
        for part in (rows[:cut], rows[cut:]):
            if part:
                stream.write_batch(pa.RecordBatch.from_pylist(part, schema))
    return bytes(sink.getvalue())


def _cell(rng: random.Random, meta: Any, rows: Rows) -> None:
    """Give some rows of a column one value: extreme for its type, extreme for its domain, or a little off."""
    name = rng.choice([name for name in rows if rows[name]] or [""])
    if not name:
        return
    field = rng.choice(list(tables()[name]))
    chosen = rng.sample(rows[name], min(len(rows[name]), rng.choice((1, 1, 2, 10, 1000))))
    value = _value(rng, field, name, chosen[0][field.name])
    for row in chosen:
        row[field.name] = value if rng.random() < 0.9 else _value(rng, field, name, row[field.name])


def _value(rng: random.Random, field: pa.Field[Any], table: str, now: Any) -> Any:
    if pa.types.is_string(field.type):
        return rng.choice(TEXTS)
    if pa.types.is_floating(field.type):
        return rng.choice((*FLOATS, now * 1e6 if now else 1.0))
    limits, possible = np.iinfo(field.type.to_pandas_dtype()), domain(field.name, table)
    edges = [int(possible.low), int(possible.high), int(possible.high) // 2, now + 1, now - 1, now * 2, now + 10**9]
    value = rng.choice([*edges, *edges, *NUMBERS, int(limits.min), int(limits.max), rng.getrandbits(20)])
    return min(max(value, int(limits.min)), int(limits.max))


def _rows(rng: random.Random, meta: Any, rows: Rows) -> None:
    """Leave rows out, double them, or change their order."""
    name = rng.choice(list(rows))
    how = rng.randrange(5)
    if how == 0:
        rows[name] = []
    elif how == 1:
        rows[name] = [row for row in rows[name] if rng.random() < 0.5]
    elif how == 2:
        rng.shuffle(rows[name])
    elif how == 3:
        rows[name] = [dict(row) for row in rows[name] * 2]
    else:
        rows[name] = rows[name][:1]


def _kinds(rng: random.Random, meta: Any, rows: Rows) -> None:
    """Call marks something else."""
    for row in rng.sample(rows["marks"], min(len(rows["marks"]), rng.choice((1, 5, 50)))):
        row["kind"] = int(rng.choice(list(MarkKind)))


def _entry(rng: random.Random, meta: Any, rows: Rows) -> None:
    """Change an entry of meta.json, wherever it is."""
    change_entry(rng, meta)


_DAMAGES: list[Callable[[random.Random, Any, Rows], None]] = [
    _cell,
    _cell,
    _rows,
    _kinds,
    _entry,
]
