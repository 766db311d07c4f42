"""The archive of all hosts, and profiles of torch beside them, read back as Perfetto's manifest is defined."""

from __future__ import annotations

import gzip
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from shifted_clock import shift
from support.archive import merged
from support.synthetic import MS, START_NS, Job

from netprof.analysis import analyze
from netprof.analysis.hosts.open_job import open_job
from netprof.errors import NetprofError, TraceError
from netprof.trace import TraceReader, TraceSource
from netprof.trace.meta import open_trace, write_meta
from netprof.views import perfetto_archive
from netprof.views.reporter import Report

OFFSET_NS = 123_456_789
REALTIME_NS = 1_700_000_000_000_000_000
"""Of the synthetic job's clock at START_NS."""
BASE_NS = 1_690_000_000_000_000_000


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return Job().fill().write(tmp_path / "whole.netprof")


@pytest.fixture
def hosts(whole: Path, tmp_path: Path) -> TraceSource:
    shift(whole, tmp_path / "h0.netprof", host="h0", pids=[100])
    shift(whole, tmp_path / "h1.netprof", OFFSET_NS, host="h1", pids=[101])
    return open_job([tmp_path / "h0.netprof", tmp_path / "h1.netprof"])


def archive(reader: TraceSource, *beside: Path) -> bytes:
    out = io.BytesIO()
    perfetto_archive.write(Report(analyze(reader), reader, beside), out)
    return out.getvalue()


def profile(path: Path, pid: int, begin_ns: int, rank: int | None = None, zipped: bool = False) -> Path:
    """Write what torch.profiler writes: one event, which begins at `begin_ns` of the first host's monotonic clock."""
    ts = (begin_ns - START_NS + REALTIME_NS - BASE_NS) / 1000
    event = {"ph": "X", "cat": "cpu_op", "name": "forward", "pid": pid, "tid": pid, "ts": ts, "dur": 20_000.0}
    document: dict[str, Any] = {"traceEvents": [event], "baseTimeNanoseconds": BASE_NS}
    if rank is not None:
        document["distributedInfo"] = {"backend": "gloo", "rank": rank, "world_size": 2}
    content = json.dumps(document).encode()
    path.write_bytes(gzip.compress(content) if zipped else content)
    return path


def begins(events: list[dict[str, Any]], name: str, pid: int) -> list[float]:
    return [event["ts"] for event in events if event["ph"] == "X" and event["name"] == name and event["pid"] == pid]


def test_one_host_is_one_machine(whole: Path) -> None:
    found = merged(archive(open_job([whole])))
    assert list(found) == ["host"]
    assert len(begins(found["host"], "iteration 1", 100)) == 1
    assert {event["name"] for event in found["host"] if event["ph"] == "C"} == {
        "sent, % of line rate",
        "received, % of line rate",
    }


@pytest.mark.slow
def test_every_host_is_a_machine_with_its_own_processes_and_links(hosts: TraceSource) -> None:
    found = merged(archive(hosts))
    assert list(found) == ["h0", "h1"]
    for host, pid in (("h0", 100), ("h1", 101)):
        slices = {event["pid"] for event in found[host] if event["ph"] == "X"}
        assert slices == {pid}
        assert any(event["ph"] == "C" for event in found[host])


@pytest.mark.slow
def test_hosts_whose_names_begin_alike_are_machines_of_their_own(whole: Path, tmp_path: Path) -> None:
    for rank in (0, 1):
        shift(whole, tmp_path / f"h{rank}.netprof", rank * OFFSET_NS, host="node-" * 14 + f"{rank}", pids=[100 + rank])
    found = merged(archive(open_job([tmp_path / "h0.netprof", tmp_path / "h1.netprof"])))
    assert len(found) == 2


@pytest.mark.slow
def test_hosts_are_on_one_clock(hosts: TraceSource) -> None:
    found = merged(archive(hosts))
    bound_us = (hosts.hosts[1].clock.bound_ns or 0) / 1000 + 0.002
    first, second = (
        [event["ts"] for event in found[host] if event["ph"] == "X" and event["cat"] == "iteration"]
        for host in ("h0", "h1")
    )
    assert len(first) == len(second) > 5
    assert first == pytest.approx(second, abs=bound_us)


@pytest.mark.slow
@pytest.mark.parametrize("zipped", [False, True])
def test_a_profile_lies_beside_its_rank(hosts: TraceSource, tmp_path: Path, zipped: bool) -> None:
    iteration = 3
    at_ns = START_NS + iteration * 200 * MS
    profiles = [
        profile(tmp_path / "p0.json", 100, at_ns, rank=0, zipped=zipped),
        profile(tmp_path / "p1.json", 101, at_ns, zipped=zipped),
    ]
    found = merged(archive(hosts, *profiles))
    bound_us = (hosts.hosts[1].clock.bound_ns or 0) / 1000 + 1  # and what a float of microseconds since then holds
    for host, pid in (("h0", 100), ("h1", 101)):
        (seen,) = begins(found[host], "forward", pid)[-1:]
        starts = [event["ts"] for event in found[host] if event.get("cat") == "iteration"]
        assert min(abs(seen - start) for start in starts) < bound_us


def test_a_profile_that_began_before_the_recording_is_not_cut(whole: Path, tmp_path: Path) -> None:
    early = profile(tmp_path / "p.json", 100, START_NS - 10**9)
    found = merged(archive(open_job([whole]), early))["host"]
    (seen,) = [event["ts"] for event in found if event.get("cat") == "cpu_op"]
    (start,) = begins(found, "iteration 1", 100)
    assert start - seen == pytest.approx(1e6, abs=1)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nonsense",
        b"[]",
        b"{}",
        b'{"traceEvents": 3}',
        b'{"traceEvents": []}',
        b"\x1f\x8bnonsense",
        b"[" * 100_000,
        b'{"traceEvents": [{"ph": "X", "ts": -1}, {"ph": "X", "ts": NaN}, 7]}',
    ],
)
def test_what_is_no_profile_is_refused(whole: Path, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "p.json").write_bytes(content)
    with pytest.raises(NetprofError):
        archive(open_job([whole]), tmp_path / "p.json")


@pytest.mark.slow
def test_a_profile_of_another_job_is_refused(hosts: TraceSource, tmp_path: Path) -> None:
    with pytest.raises(NetprofError, match="is of no process"):
        archive(hosts, profile(tmp_path / "p.json", 4711, START_NS))


@pytest.mark.slow
def test_a_profile_from_a_container_names_the_pid_inside(whole: Path, tmp_path: Path) -> None:
    """Two hosts, each with the job's process as number 1 of a container; only one of them as number 17 as well."""
    for rank, inner_pid in ((0, 1), (1, 17)):
        path = shift(whole, tmp_path / f"c{rank}.netprof", rank * OFFSET_NS, host=f"h{rank}", pids=[100 + rank])
        meta = TraceReader(path).meta
        target = replace(meta.targets[0], inner_pid=inner_pid, pid_namespace=9)
        write_meta(open_trace(path), replace(meta, targets=(target,)))
    hosts = open_job([tmp_path / "c0.netprof", tmp_path / "c1.netprof"])
    found = merged(archive(hosts, profile(tmp_path / "p.json", 17, START_NS + 600 * MS)))
    assert begins(found["h1"], "forward", 17)
    assert not begins(found["h0"], "forward", 17)
    with pytest.raises(TraceError, match="of no process"):
        archive(hosts, profile(tmp_path / "q.json", 101, START_NS + 600 * MS))
