"""What digests say of jobs that are only seen to launch: bounds, as the report of all traces does."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.hidden_ends import ENDS, without
from support.made_alone import apart, digested, document, of_traces
from support.synthetic import MS, Job, enqueued, launched_ahead, with_late_rank

from netprof.analysis import analyze
from netprof.analysis.digest.gather import GATHERED
from netprof.analysis.hosts.open_job import open_job
from netprof.analysis.pieces import PieceSize
from netprof.session.digest import write_digests
from netprof.session.digested import analyze_digests
from netprof.trace import TraceReader
from netprof.trace.digest import digests_in

IN_PIECES = PieceSize(rows=1000, at_once=1, shortest_ns=10**9)


def late() -> Job:
    return with_late_rank(Job(ranks=3, world_size=3, iterations=30).fill(), 2, 40 * MS)


@pytest.fixture
def hosts(tmp_path: Path) -> list[Path]:
    """The traces of a job's three hosts, of which no mark tells when a collective is done."""
    whole = late().write(tmp_path / "whole.netprof")
    return apart(without(whole, tmp_path / "launches.netprof", ENDS), tmp_path)


def together(traces: list[Path], root: Path, size: PieceSize | None = None) -> dict[str, Any]:
    """Return the report of digests that are made in one go."""
    reader = open_job(traces)
    write_digests(analyze(reader, size=size, more=(GATHERED,)), reader, root, "job")
    return document(analyze_digests(digests_in(root)))


def bounds(found: dict[str, Any]) -> dict[str, Any]:
    """Return the bounds of a report.

    Not the job's numbers of processes, of which digests have others, nor what is said of causes that are nothing.
    """
    its: dict[str, Any] = found["waiting_bounds"]
    causes = [each for each in its["causes"] if each["seconds"]["at_most"] > 1e-6]
    return its | {"causes": causes, "by_rank": [{**each, "pid": None} for each in its["by_rank"]]}


@pytest.mark.slow
def test_the_ends_are_hidden(hosts: list[Path]) -> None:
    found = of_traces(hosts)
    assert found["waiting"] is None
    assert found["waiting_bounds"]["exposed_s"]["at_least"] > 1
    assert {each["cause"] for each in found["waiting_bounds"]["causes"]} >= {"late_rank", "link_full"}


@pytest.mark.slow
@pytest.mark.parametrize("size", [None, IN_PIECES])
@pytest.mark.parametrize("made", ["alone", "in one go"])
def test_they_say_the_same_as_the_traces(made: str, size: PieceSize | None, hosts: list[Path], tmp_path: Path) -> None:
    found = (digested if made == "alone" else together)(hosts, tmp_path / "digests", size)
    pieces = size if made == "in one go" else None  # each host explains its waiting in one piece
    whole = document(analyze(open_job(hosts), size=pieces))
    assert bounds(found) == bounds(whole)
    assert found["waiting"] is None
    assert found["stragglers"] is None
    assert found["verdict"] == whole["verdict"]
    assert found["iterations"]["source"] == "inferred"
    assert found["iterations"]["median_s"] == whole["iterations"]["median_s"]
    assert size is not None or found["iterations"] == whole["iterations"]
    assert [each["iterations"] for each in found["ranks"]] == [each["iterations"] for each in whole["ranks"]]
    assert [each["collectives"]["bus_bandwidth_bps"] for each in found["ranks"]] == [None] * 3
    assert next(note for note in whole["notes"] if "bounded" in note) in found["notes"]


@pytest.mark.slow
def test_one_digest_of_all_ranks(tmp_path: Path) -> None:
    trace = without(late().write(tmp_path / "whole.netprof"), tmp_path / "launches.netprof", ENDS)
    found, whole = together([trace], tmp_path / "digests"), document(analyze(TraceReader(trace)))
    assert found["waiting_bounds"] == whole["waiting_bounds"] != None  # noqa: E711
    assert found["verdict"] == whole["verdict"]


@pytest.mark.slow
@pytest.mark.parametrize("is_ahead", [False, True])
def test_jobs_on_gpus(is_ahead: bool, tmp_path: Path) -> None:
    trace = (launched_ahead(enqueued()) if is_ahead else enqueued()).write(tmp_path / "gpus.netprof")
    found, whole = together([trace], tmp_path / "digests"), document(analyze(TraceReader(trace)))
    assert found["iterations"] == whole["iterations"]
    assert found["scaling_factor"] is whole["scaling_factor"] is None
    alone = digested([trace], tmp_path / "alone")
    assert alone["scaling_factor"] is None
    ahead = [[note for note in each["notes"] if "ahead of its GPUs" in note] for each in (found, alone, whole)]
    assert [len(notes) for notes in ahead] == [int(is_ahead)] * 3
    assert ahead[0] == ahead[1] == ahead[2]


@pytest.mark.slow
def test_a_rank_that_is_seen_to_be_done_waits_as_long_as_it_does(tmp_path: Path) -> None:
    """Where other hosts only see launches, its bounds are one number."""
    seen = apart(late().write(tmp_path / "whole.netprof"), tmp_path)
    exact = of_traces(seen)["waiting"]["by_rank"][0]
    hidden = without(seen[1], tmp_path / "hidden.netprof", ENDS)
    found = digested([seen[0], hidden, seen[2]], tmp_path / "digests")
    first, second, _ = found["waiting_bounds"]["by_rank"]
    assert first["exposed_s"]["at_least"] == first["exposed_s"]["at_most"] == pytest.approx(exact["exposed_s"], rel=0.1)
    assert second["exposed_s"]["at_least"] < second["exposed_s"]["at_most"]


@pytest.mark.slow
def test_of_which_nothing_is_known_is_said_why(hosts: list[Path], tmp_path: Path) -> None:
    """A host whose bytes were not recorded."""
    lost = [hosts[0], _without_bytes(hosts[1], tmp_path / "silent.netprof"), hosts[2]]
    whole = of_traces(lost)
    why = next(note for note in whole["notes"] if "not even by bounds" in note)
    for found in (digested(lost, tmp_path / "alone"), together(lost, tmp_path / "together")):
        assert [each["rank"] for each in found["waiting_bounds"]["by_rank"]] == [0, 2]
        assert why.partition(" waits")[2] in next(note for note in found["notes"] if "not even by bounds" in note)


def _without_bytes(trace: Path, out: Path) -> Path:
    shutil.copytree(trace, out)
    with pa.OSFile(str(out / "wire.arrows"), "rb") as file, pa.ipc.open_stream(file) as reader:
        schema = reader.schema
    with pa.OSFile(str(out / "wire.arrows"), "wb") as file, pa.ipc.new_stream(file, schema):
        pass
    return out
