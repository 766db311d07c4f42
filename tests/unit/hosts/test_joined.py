"""The traces of a job's hosts, read as one, say what one trace of all of them says."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from shifted_clock import shift
from support.synthetic import ITERATION_NS, MS, START_NS, Job, K

from netprof.analysis import analyze
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.names import gpu_on_host
from netprof.analysis.findings.stalls.exits import EXITS
from netprof.analysis.findings.stalls.hang import _standing
from netprof.analysis.hosts import clocks
from netprof.analysis.hosts.open_job import open_job
from netprof.analysis.pieces import PieceSize
from netprof.errors import TraceError, UsageError
from netprof.model import Gpu, Meta, Series
from netprof.schema import COUNT, tables
from netprof.trace import TraceReader, TraceWriter
from netprof.trace.meta import open_trace, write_meta
from netprof.views.json_report import to_json

OF_HOSTS = ("hosts", "host", "cost", "notes", "probes")
"""What differs by nature: who recorded, at what cost."""


class Streams(Job):
    """A job whose flows are recorded at both ends, rank 0 with rank 1, and so on; each rank in its own namespace."""

    def meta(self) -> Meta:
        meta = super().meta()
        own = [replace(target, netns=7 + target.rank) for target in meta.targets]
        devices = [replace(device, netns=7 + rank) for rank, device in enumerate(meta.devices)]
        return replace(meta, targets=tuple(own), devices=tuple(devices))

    def flows(self) -> dict[str, list[Any]]:
        peers = [rank ^ 1 for rank in range(self.ranks)]
        return super().flows() | {
            "remote_port": [40_000 + peer for peer in peers],
            "remote_addr": [f"10.0.0.{peer + 1}" for peer in peers],
            "netns": [7 + rank for rank in range(self.ranks)],
        }

    def nic(self) -> dict[str, Any]:
        return super().nic() | {"netns": [7 + rank for rank in range(self.ranks)] * 2}


def late(ranks: int = 2, iterations: int = 10) -> Streams:
    """A job of which rank 1 is late in some steps."""
    made = Streams(ranks=ranks, world_size=ranks, iterations=iterations)
    made.fill()
    low, high = START_NS + 3 * ITERATION_NS, START_NS + 5 * ITERATION_NS
    later = (K.BUCKET_LAUNCH, K.COLLECTIVE_BEGIN, K.COLLECTIVE_SIZE)
    made.marks = [
        (m[0] + 9 * MS, *m[1:]) if low <= m[0] < high and m[1] == 101 and m[3] in later else m for m in made.marks
    ]
    return made


def parts(whole: Path, ranks: int, **options: Any) -> list[Path]:
    """Each rank of a trace as the trace of a host."""
    return [
        shift(whole, whole.parent / f"h{rank}.netprof", host=f"h{rank}", pids=[100 + rank],
              **(options if rank else {}))
        for rank in range(ranks)
    ]  # fmt: skip


def edited(path: Path, **changes: Any) -> Path:
    """Change the description of a trace."""
    write_meta(open_trace(path), replace(TraceReader(path).meta, **changes))
    return path


def report(paths: list[Path], size: PieceSize | None = None) -> dict[str, Any]:
    """Return the report, but for how hosts, flows and processes are called."""
    document = json.loads(json.dumps(to_json(analyze(open_job(paths), size=size))))
    document = {name: value for name, value in document.items() if name not in OF_HOSTS}
    flows = document["reconciliation"]["flows"]
    for each in (document["reconciliation"], *flows):
        del each["unrecorded_bytes"]  # told of one recorder alone
    for each in [*document["flows"], *document["ranks"], *document["processes"], *document["links"], *flows]:
        for name in ("flow_id", "host", "own_pid", "pid", "pids", "netns"):
            each.pop(name, None)
    flows.sort(key=json.dumps)
    document["flows"].sort(key=lambda flow: flow["local"])
    text = re.sub(r" on h\d", "", json.dumps(document))
    return cast(dict[str, Any], json.loads(re.sub(r'"pid": \d+', '"pid": 0', text)))


@pytest.mark.slow
def test_parts_say_what_the_whole_says(tmp_path):
    whole = late(4).write(tmp_path / "whole.netprof")
    assert report(parts(whole, 4)) == report([whole])


@pytest.mark.slow
def test_so_they_do_on_clocks_of_their_own(tmp_path):
    whole = late(4).write(tmp_path / "whole.netprof")
    assert report(parts(whole, 4, offset_ns=500_123_457)) == report([whole])


@pytest.mark.slow
def test_so_they_do_with_drift(tmp_path):
    whole = late(4).write(tmp_path / "whole.netprof")
    assert_about(report(parts(whole, 4, offset_ns=-77_000_001, drift=50e-6)), report([whole]))


@pytest.mark.slow
def test_so_they_do_piece_by_piece(tmp_path):
    whole = late(2, iterations=40).write(tmp_path / "whole.netprof")
    size = PieceSize(rows=1000, at_once=0, shortest_ns=500 * MS)
    found = report(parts(whole, 2, offset_ns=123_456_789), size)
    assert found == report([whole], size)


@pytest.mark.slow
def test_of_long_recordings_only_windows_are_looked_at_for_the_clocks(tmp_path, monkeypatch):
    whole = late(2, iterations=40).write(tmp_path / "whole.netprof")
    both = parts(whole, 2, offset_ns=123_456_789)
    pairs = open_job(both).hosts[1].clock.pairs
    monkeypatch.setattr(clocks, "_MOST_ROWS", 1000)
    monkeypatch.setattr(clocks, "_WINDOWS", 4)
    monkeypatch.setattr(clocks, "_SHORTEST_NS", 100 * MS)
    clock = open_job(both).hosts[1].clock
    assert 0 < clock.pairs < pairs / 2
    assert clock.source == "flows"
    assert report(both) == report([whole])


@pytest.mark.slow
def test_processes_of_one_number_are_told_apart(tmp_path):
    whole = late(2).write(tmp_path / "whole.netprof")
    mine, its = parts(whole, 2)
    same = renumbered(its, tmp_path / "same.netprof", {101: 100, 201: 200})
    assert report([mine, same]) == report([whole])
    document = to_json(analyze(open_job([mine, same])))
    assert [(rank["rank"], rank["host"], rank["own_pid"]) for rank in document["ranks"]] == [
        (0, "h0", 100),
        (1, "h1", 100),
    ]


@pytest.mark.slow
def test_a_process_that_is_to_be_looked_at_has_the_number_of_its_host(tmp_path):
    job = late(2)
    job.mark(START_NS + 9 * ITERATION_NS, 101, K.PROCESS_EXIT, 1 << 32 | 9)
    mine, its = parts(job.write(tmp_path / "whole.netprof"), 2)
    same = renumbered(its, tmp_path / "same.netprof", {101: 100, 201: 200})
    analysis = analyze(open_job([mine, same]))
    (ended,) = analysis.of(EXITS).ended
    assert ended.exit.pid != 100
    assert ended.name == "rank 1 (pid 100 on h1)"
    standing = _standing(ended.exit.pid, START_NS, START_NS + ITERATION_NS, analysis.evidence)
    assert (standing.name, standing.own_pid) == ("rank 1 on h1", 100)


def test_gpus_have_the_numbers_of_their_hosts(tmp_path):
    whole = late(2).write(tmp_path / "whole.netprof")
    both = [edited(path, gpus=(Gpu(3, "H100", pids=(100 + rank,)),)) for rank, path in enumerate(parts(whole, 2))]
    evidence = Evidence.of_trace(open_job(both))
    numbers = [gpu.index for gpu in evidence.meta.gpus]
    assert numbers[0] == 3 != numbers[1]
    assert [gpu_on_host(number, evidence) for number in numbers] == ["3 of h0", "3 of h1"]
    assert gpu_on_host(3, Evidence.of_trace(TraceReader(whole))) == ""


@pytest.mark.slow
def test_devices_of_one_name_and_namespace_are_told_apart(tmp_path):
    whole = late(2).write(tmp_path / "whole.netprof")
    mine, its = parts(whole, 2)
    same = renumbered(its, tmp_path / "same.netprof", {}, netns=7, device="eth0")
    links = to_json(analyze(open_job([mine, same])))["links"]
    assert [(link["device"], link["host"], link["ranks"]) for link in links] == [
        ("eth0", "h0", [0]),
        ("eth0", "h1", [1]),
    ]
    assert len({link["netns"] for link in links}) == 2


def test_of_two_recordings_of_a_host_the_later_one_is_reported(tmp_path):
    whole = late(2, iterations=40).write(tmp_path / "whole.netprof")
    boot_id = TraceReader(whole).meta.boot_id
    half_ns = START_NS + 20 * ITERATION_NS
    first = shift(whole, tmp_path / "a.netprof", host="vm", within_ns=(START_NS, half_ns))
    second = shift(whole, tmp_path / "b.netprof", host="vm", within_ns=(half_ns, START_NS + 40 * ITERATION_NS))
    both = [edited(path, boot_id=boot_id) for path in (first, second)]
    reader = open_job(both)
    assert [host.trace for host in reader.hosts] == ["b.netprof"]
    assert reader.meta.warnings == ("a.netprof is left out: b.netprof is a later recording",)


def test_the_first_bin_of_a_host_is_of_the_report(tmp_path):
    """The bin that a recording begins in begins before it; what was in it is neither lost nor unseen."""
    job = late(2)
    first_ns = START_NS // MS * MS
    job.changes["started_ns"] = first_ns + MS // 3
    job.wire.append((1, 0, first_ns, 5_000, 5_400))
    path = job.write(tmp_path / "t.netprof")
    alone, joined = TraceReader(path), open_job([path], ["host"])
    assert len(joined.table("wire")) == len(alone.table("wire"))
    assert to_json(analyze(joined))["reconciliation"] == to_json(analyze(alone))["reconciliation"]


@pytest.mark.slow
def test_what_cannot_be_used_is_said_and_the_rest_is_used(tmp_path):
    whole = late(2).write(tmp_path / "whole.netprof")
    mine, its = parts(whole, 2)
    damaged = tmp_path / "damaged.netprof"
    damaged.mkdir()
    (damaged / "meta.json").write_text("{")
    larger = shift(whole, tmp_path / "larger.netprof", host="other", pids=[101])
    targets = [replace(each, world_size=8, rank=7) for each in TraceReader(larger).meta.targets]
    edited(larger, targets=tuple(targets))
    again = shift(whole, tmp_path / "again.netprof", host="third", pids=[101])
    twice = edited(shift(its, tmp_path / "twice.netprof"), boot_id=TraceReader(its).meta.boot_id)
    reader = open_job([mine, damaged, its, larger, again, twice, mine])
    assert [host.name for host in reader.hosts] == ["h0", "h1"]
    text = "\n".join(reader.meta.warnings)
    assert "damaged.netprof is left out" in text
    assert "larger.netprof is left out: it is of another job: of 8 ranks, while h0.netprof is of one of 2" in text
    assert "again.netprof is left out: it has rank 1 as h1.netprof has" in text
    assert "twice.netprof is left out: it has the same processes of the same host as h1.netprof" in text
    assert len(reader.meta.warnings) == 4
    assert report([mine, damaged, its, larger, again, twice]) == report([whole])


@pytest.mark.slow
def test_only_the_common_time_is_reported(tmp_path):
    whole = late(2, iterations=40).write(tmp_path / "whole.netprof")
    mine, its = parts(whole, 2, offset_ns=10**9)
    meta = TraceReader(its).meta
    edited(its, started_ns=meta.started_ns + 4 * 10**9)
    document = to_json(analyze(open_job([mine, its])))
    assert document["recording_s"] == pytest.approx(8.21 - 4)
    assert {rank["iterations"]["count"] for rank in document["ranks"]} == {20}
    assert (
        "the hosts recorded at different times: this is the 4.21 s that they have in common, of 8.21 s on h0"
        in document["notes"]
    )


@pytest.mark.slow
def test_a_recorder_that_died_early_does_not_shorten_the_report(tmp_path):
    whole = late(4, iterations=40).write(tmp_path / "whole.netprof")
    of_all = parts(whole, 4)
    meta = TraceReader(of_all[2]).meta
    died_ns = meta.started_ns + 2 * 10**9
    dead = shift(of_all[2], tmp_path / "dead.netprof", host="h2", within_ns=(meta.started_ns, died_ns))
    edited(dead, boot_id=meta.boot_id)
    document = to_json(analyze(open_job([*of_all[:2], dead, of_all[3]])))
    assert document["recording_s"] == pytest.approx(8.21)
    counts = {rank["rank"]: rank["iterations"]["count"] for rank in document["ranks"]}
    assert counts == {0: 40, 1: 40, 2: 9, 3: 40}
    assert any("h2 recorded only 2.00 s of these 8.21 s" in note for note in document["notes"])
    causes = {each["rank"]: each["causes_s"] for each in document["waiting"]["by_rank"]}
    assert causes[0]["unseen"] == pytest.approx(0.24, abs=0.02)  # 8 ms of each step without it, which else is a host's
    assert causes[2]["unseen"] == 0


@pytest.mark.slow
def test_tcps_totals_are_compared_with_what_was_counted_beside_them(tmp_path):
    whole = late(2, iterations=40).write(tmp_path / "whole.netprof")
    mine, its = parts(whole, 2)
    edited(
        its,
        started_ns=TraceReader(its).meta.started_ns + 2 * 10**9,
        stopped_ns=(TraceReader(its).meta.stopped_ns or 0) - 10**9,
    )
    document = to_json(analyze(open_job([mine, its])))
    assert document["reconciliation"]["beyond_report"] is True
    assert document["reconciliation"]["holds"] is True
    assert not document["reconciliation"]["flows_not_read"]
    assert to_json(analyze(open_job(parts(whole, 2))))["reconciliation"]["beyond_report"] is False


@pytest.mark.slow
def test_counters_are_of_the_common_time(tmp_path):
    whole = late(2, iterations=40)
    series = [Series(0, "host", "all CPUs", "steal", "us", COUNT, "taken")]
    written = whole.write(tmp_path / "whole.netprof")
    mine, its = parts(written, 2)
    for path in (mine, its):
        meta = replace(TraceReader(path).meta, series=tuple(series))
        times = [meta.started_ns + second * 10**9 for second in range(9)]
        counted(path, meta, times, [1000 * second for second in range(9)])
    edited(its, started_ns=TraceReader(its).meta.started_ns + 4 * 10**9)
    (summary,) = to_json(analyze(open_job([mine, its])))["counters"]
    assert summary["subjects"] == 2
    assert summary["total"] == 2 * 5000


@pytest.mark.slow
def test_what_the_first_of_two_recorders_on_a_machine_counted_is_known_of_both_s_ranks(tmp_path):
    both = parts(late(2).write(tmp_path / "whole.netprof"), 2)
    steal = (Series(0, "host", "all CPUs", "steal", "us", COUNT, "taken"),)
    for path in both:
        meta = replace(TraceReader(path).meta, boot_id="one", series=steal)
        counted(path, meta, [meta.started_ns, meta.started_ns + 10**9], [0, 1000])
    evidence = Evidence.of_trace(open_job(both))
    at_ns = np.array([evidence.meta.started_ns + 10**9])
    assert [evidence.stolen_until(pid, at_ns).tolist() for pid in sorted(evidence.ranks)] == [[1000.0]] * 2


def test_another_time_altogether_is_left_out(tmp_path):
    whole = late(2).write(tmp_path / "whole.netprof")
    mine, its = parts(whole, 2)
    meta = TraceReader(its).meta
    later = replace(meta, started_ns=meta.started_ns + 10**12, stopped_ns=meta.started_ns + 2 * 10**12)
    write_meta(open_trace(its), later)
    reader = open_job([mine, its])
    assert reader.meta.warnings == ("h1.netprof is left out: it was recorded at another time than the others",)


@pytest.mark.slow
def test_without_a_connection_the_realtime_clock_has_to_do(tmp_path):
    whole = late(2).write(tmp_path / "whole.netprof")
    mine, its = parts(whole, 2, offset_ns=10**9)
    (its / "wire.arrows").unlink()
    document = to_json(analyze(open_job([mine, its])))
    clock = document["hosts"][1]["clock"]
    assert clock["source"] == "realtime"
    assert clock["bound_s"] is None
    assert clock["offset_s"] == pytest.approx(1.0)
    said = "no stream of bytes that both ends recorded leads from h0 to h1 and back"
    assert any(said in note for note in document["notes"])


@pytest.mark.slow
def test_one_host_alone(tmp_path):
    whole = late(2).write(tmp_path / "whole.netprof")
    both = parts(whole, 2)
    assert [host.name for host in open_job(both, ["h1"]).hosts] == ["h1"]
    assert to_json(analyze(open_job(both, ["h1"])))["ranks"][0]["rank"] == 1
    with pytest.raises(UsageError, match="no trace is of a host 'h7'"):
        open_job(both, ["h7"])


def test_nothing_that_can_be_used(tmp_path):
    with pytest.raises(TraceError):
        open_job([tmp_path / "a", tmp_path / "b"])


def renumbered(
    source: Path, target: Path, numbers: dict[int, int], netns: int | None = None, device: str | None = None
) -> Path:
    """Copy a trace with other numbers of processes and threads, or another namespace and device."""
    reader = TraceReader(source)
    meta = reader.meta
    targets = [replace(t, pid=numbers.get(t.pid, t.pid), netns=netns or t.netns) for t in meta.targets]
    devices = [replace(d, netns=netns or d.netns, device=device or d.device) for d in meta.devices]
    meta = replace(meta, targets=tuple(targets), devices=tuple(devices))
    writer = TraceWriter(target, meta)
    for name in tables():
        for batch in reader.batches(name):
            columns = batch.to_pydict()
            for each in {"pid", "tid"} & set(columns):
                columns[each] = [numbers.get(value, value) for value in columns[each]]
            for each, value in (("netns", netns), ("device", device)):
                if value is not None and each in columns:
                    columns[each] = [value] * len(columns[each])
            writer.append(name, columns)
    writer.close(meta)
    return target


def counted(path: Path, meta: Meta, times_ns: list[int], values: list[int]) -> None:
    """Give a trace a series of counts."""
    copy = TraceWriter(path.with_suffix(".counted"), meta)
    copy.append("counters", {"series": [0] * len(values), "time_ns": times_ns, "value": values})
    copy.close(meta)
    write_meta(open_trace(path), meta)
    (path.with_suffix(".counted") / "counters.arrows").rename(path / "counters.arrows")


def assert_about(found: Any, wanted: Any) -> None:
    """Compare documents, their numbers up to what rounding to nanoseconds makes."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            assert_about(found[name], value)
    elif isinstance(wanted, list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_about(one, other)
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, rel=1e-5, abs=1e-7)
    elif isinstance(wanted, int) and not isinstance(wanted, bool):
        assert found == pytest.approx(wanted, rel=1e-5, abs=2)
    else:
        assert found == wanted
