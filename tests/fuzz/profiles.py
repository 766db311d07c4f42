"""Hostile profiles of torch.profiler, beside a recording of the job."""

from __future__ import annotations

import copy
import gzip
import json
import random
from pathlib import Path
from typing import Any

from support.synthetic import ITERATION_NS, MS

from fuzz.traces import base, damage, write_trace
from fuzz.values import change_entry, flip

PROFILE = "profile.json"


def make_profile_and_trace(rng: random.Random, place: Path) -> None:
    """Write a trace, and a profile of one of its processes; one of them or both are damaged."""
    meta, rows = copy.deepcopy(base())
    damage(rng, meta, rows, rng.choice((0, 0, 1)))
    write_trace(rng, place / "t.netprof", meta, rows)
    document = _profile(meta)
    for _ in range(rng.choice((0, 1, 1, 3, 10))):
        change_entry(rng, document)
    content = json.dumps(document).encode(errors="replace")
    (place / PROFILE).write_bytes(gzip.compress(content) if rng.random() < 0.3 else content)
    if rng.random() < 0.3:
        flip(rng, place / PROFILE)


def _profile(meta: dict[str, Any]) -> dict[str, Any]:
    clock = meta["clock"] if isinstance(meta.get("clock"), dict) else {}
    base_ns = clock.get("realtime_ns", 0)
    events: list[Any] = [{"ph": "M", "name": "process_name", "pid": 100, "tid": 0, "args": {"name": "python"}}]
    for step in range(3):
        for category, name, begin_ns, end_ns in (
            ("kernel", "gemm", 5 * MS, 100 * MS),
            ("kernel", "ncclDevKernel_AllReduce", 50 * MS, 140 * MS),
            ("cpu_op", "aten::mm", 0, 90 * MS),
            ("cpu_op", "gloo:all_reduce", 80 * MS, 150 * MS),
            ("user_annotation", "ProfilerStep#1", 0, ITERATION_NS),
        ):
            begin_us = (step * ITERATION_NS + begin_ns) / 1e3
            entries = {"pid": 100, "tid": 1, "ts": begin_us, "dur": (end_ns - begin_ns) / 1e3, "args": {"id": [1, "a"]}}
            events.append({"ph": "X", "cat": category, "name": name, **entries})
    about = {"rank": 0, "backend": "nccl", "world_size": 2}
    return {"schemaVersion": 1, "distributedInfo": about, "baseTimeNanoseconds": base_ns, "traceEvents": events}
