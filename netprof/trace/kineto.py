"""What torch.profiler writes (Kineto's Chrome trace JSON): whose it is, and which clock its times are on."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netprof.errors import TraceError
from netprof.trace.files import open_regular

_GZIP = b"\x1f\x8b"
_LATEST_NS = 1 << 62


@dataclass(frozen=True)
class Kineto:
    """One process's profile. Its times are of the realtime clock, from `base_ns` on (0: since 1970).

    `first_ns` and `last_ns` are those of its events, on the realtime clock. `pids` are the processes that it names, as
    they number themselves, and `rank` what the process says of itself, None where it says nothing.
    """

    path: Path
    base_ns: int
    first_ns: int
    last_ns: int
    pids: frozenset[int]
    rank: int | None


def read_kineto(path: Path) -> Kineto:
    """Read what a profile says of itself. Raises TraceError for what is none, OSError."""
    try:
        document = json.loads(kineto_json(path))
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path} is no profile of torch.profiler: it holds no JSON") from error
    events = document.get("traceEvents") if isinstance(document, dict) else None
    if not isinstance(events, list):
        raise TraceError(f"{path} is no profile of torch.profiler: it has no traceEvents")
    base_ns = _whole(document.get("baseTimeNanoseconds")) or 0
    slices = [each for each in events if isinstance(each, dict) and each.get("ph") == "X"]
    times = [each["ts"] for each in slices if _is_time(each.get("ts"))]
    if not times:
        raise TraceError(f"{path} holds no event of a known time")
    first_ns, last_ns = (base_ns + round(1000 * each) for each in (min(times), max(times)))
    about = document.get("distributedInfo")
    return Kineto(
        path=path,
        base_ns=base_ns,
        first_ns=first_ns,
        last_ns=last_ns,
        pids=frozenset(pid for each in slices if (pid := _whole(each.get("pid"))) is not None),
        rank=_whole(about.get("rank")) if isinstance(about, dict) else None,
    )


def kineto_json(path: Path) -> bytes:
    """Return the JSON of a profile, which may be compressed. Raises TraceError, OSError."""
    try:
        descriptor = open_regular(path, path)
    except OSError as error:
        raise TraceError(f"cannot read {path}: {os.strerror(error.errno or 0)}") from error
    with open(descriptor, "rb") as file:
        content = file.read()
    try:
        return gzip.decompress(content) if content.startswith(_GZIP) else content
    except (EOFError, OSError) as error:
        raise TraceError(f"{path} is compressed, and damaged") from error


def _whole(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < _LATEST_NS else None


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < _LATEST_NS / 1000
