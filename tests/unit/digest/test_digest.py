"""The report of digests says what the report of their traces says, in every number that it gives."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from shifted_clock import shift
from support.made_alone import forget_reports
from support.synthetic import MS, START_NS, Job, trace_of, with_late_rank

from netprof.analysis import analyze
from netprof.analysis.digest import passages
from netprof.analysis.digest.gather import GATHERED
from netprof.analysis.hosts import clocks
from netprof.analysis.hosts.open_job import open_job
from netprof.analysis.pieces import PieceSize
from netprof.analysis.result_tables import result_table
from netprof.analysis.section import Analysis
from netprof.errors import TraceError, UsageError
from netprof.session.digest import write_digests
from netprof.session.digested import analyze_digests, on_hosts
from netprof.trace import TraceReader
from netprof.trace.digest import digests_in, is_digest
from netprof.views.console import render
from netprof.views.json_report import to_json
from netprof.views.markdown import render as markdown

ONLY_DIGESTS = ("digest", "notes", "last_ones")


def job(ranks: int = 4, iterations: int = 30) -> Job:
    """A job of which the last rank is late for good."""
    return with_late_rank(Job(ranks=ranks, world_size=ranks, iterations=iterations).fill(), ranks - 1, 40 * MS)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("job")
    whole = job().write(folder / "whole.netprof")
    return [
        shift(whole, folder / f"h{rank}.netprof", rank * 10**8, host=f"h{rank}", pids=[100 + rank])
        for rank in range(4)
    ]  # fmt: skip


def analyzed(paths: list[Path], size: PieceSize | None = None) -> Analysis:
    return analyze(open_job(paths), size=size, more=(GATHERED,))


def write(
    paths: list[Path], root: Path, name: str = "job", size: PieceSize | None = None, **how: Any
) -> tuple[Analysis, list[Path]]:
    """Digest traces in one go; return what was concluded from them, and the folders."""
    reader = open_job(paths)
    analysis = analyze(reader, size=size, more=(GATHERED,))
    return analysis, write_digests(analysis, reader, root, name, **how)


@pytest.mark.slow
def test_a_report_that_is_too_large_is_concluded_again(
    traces: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a host with very many flows may be larger than what is read of documents from others."""
    analysis, _ = write(traces, tmp_path)
    (report,) = tmp_path.rglob("_report-*.json")
    monkeypatch.setattr("netprof.trace.digest._MOST_JSON_BYTES", report.stat().st_size - 1)
    assert max(each.stat().st_size for each in tmp_path.rglob("_digest.json")) < report.stat().st_size - 1
    found = to_json(analyze_digests(digests_in(tmp_path)))
    assert found["iterations"]["count"] == to_json(analysis)["iterations"]["count"]


@pytest.mark.slow
def test_where_digests_cannot_be_written_the_option_is_named(traces: list[Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(TraceError, match=f"cannot write to {tmp_path}/file: Not a directory") as caught:
        write(traces, tmp_path / "file", "job", option="--digest")
    assert caught.value.hint == "choose another place with --digest"


@pytest.mark.slow
def test_hosts_whose_names_make_one_folder_are_refused(traces: list[Path], tmp_path: Path) -> None:
    for number, name in enumerate(("a b", "a/b")):
        shutil.copytree(traces[number], tmp_path / f"{number}.netprof")
        meta = json.loads((tmp_path / f"{number}.netprof" / "meta.json").read_text())
        (tmp_path / f"{number}.netprof" / "meta.json").write_text(json.dumps(meta | {"host": name}))
    with pytest.raises(TraceError, match="two hosts have names that make one folder"):
        write([tmp_path / "0.netprof", tmp_path / "1.netprof"], tmp_path / "digests")
    assert not (tmp_path / "digests").exists()


def document(analysis: Analysis) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(to_json(analysis), allow_nan=False))
    return found


def same_as_traces(found: dict[str, Any], traces: dict[str, Any]) -> list[str]:
    """Hold the one to the other, and return what both say."""
    keys = [key for key in found if key not in ONLY_DIGESTS]
    assert {key: found[key] for key in keys} == {key: traces[key] for key in keys}
    return keys


@pytest.mark.slow
def test_it_equals_that_of_the_traces(traces, tmp_path):
    analysis, folders = write(traces, tmp_path)
    assert len(folders) == 4
    found = document(analyze_digests(digests_in(tmp_path)))
    keys = same_as_traces(found, document(analysis))
    assert {"waiting", "stragglers", "ranks", "links", "collectives", "iterations", "hosts", "verdict"} <= set(keys)
    assert found["stragglers"], "the late rank is found"
    assert found["stragglers"][0]["doing"] == document(analysis)["stragglers"][0]["doing"] != None  # noqa: E711
    assert found["waiting"]["exposed_s"] > 0
    assert found["digest"]["hosts"] == 4
    assert [note for note in found["notes"] if "digests" not in note] == list(analysis.notes)
    assert found.keys() - {"digest"} == document(analysis).keys()


@pytest.mark.slow
def test_so_does_that_of_one_trace(tmp_path):
    analysis, _ = write([job(2).write(tmp_path / "one.netprof")], tmp_path)
    same_as_traces(document(analyze_digests(digests_in(tmp_path))), document(analysis))


@pytest.mark.slow
def test_so_does_that_of_a_long_recording_in_pieces(tmp_path):
    size = PieceSize(rows=1000, at_once=0, shortest_ns=500 * MS)
    analysis, _ = write([job(2, 60).write(tmp_path / "one.netprof")], tmp_path, size=size)
    same_as_traces(document(analyze_digests(digests_in(tmp_path))), document(analysis))


def test_one_rank_without_anybody_to_wait_for(tmp_path):
    analysis, _ = write([trace_of(ranks=1, world_size=1)], tmp_path)
    found = document(analyze_digests(digests_in(tmp_path)))
    same_as_traces(found, document(analysis))
    assert found["stragglers"] is None


def test_a_trace_that_tells_nothing(tmp_path):
    analysis, _ = write([Job().write(tmp_path / "one.netprof")], tmp_path)
    found = document(analyze_digests(digests_in(tmp_path)))
    same_as_traces(found, document(analysis))
    assert found["waiting"] is None


@pytest.mark.slow
def test_what_was_waited_for_is_in_the_tables_as_all_traces_tell_it(alike, tmp_path):
    """Nobody on its own host is late for a rank: that tells the recordings of all hosts alone."""
    analysis, folders = write(alike, tmp_path)
    waited = [pyarrow.parquet.read_table(folder / "waiting.parquet") for folder in folders]
    of_rank = {each["pid"]: each["causes_s"]["late_rank"] for each in document(analysis)["waiting"]["by_rank"]}
    assert sum(of_rank.values()) > 2
    for number, table in enumerate(waited):
        own = 100 + number
        assert set(table["pid"].to_pylist()) == {own}
        assert np.asarray(table["late_rank_ns"]).sum() / 1e9 == pytest.approx(of_rank[own])


@pytest.mark.slow
def test_in_any_order_it_is_the_same(traces, tmp_path):
    write(traces, tmp_path)
    straight = document(analyze_digests(digests_in(tmp_path)))
    assert document(analyze_digests(digests_in(tmp_path)[::-1])) == straight


@pytest.mark.slow
def test_hosts_that_are_missing_are_named(traces, tmp_path):
    write(traces, tmp_path)
    shutil.rmtree(tmp_path / "job=job" / "host=h2")
    found = document(analyze_digests(digests_in(tmp_path)))
    assert found["digest"]["missing"] == ["h2"]
    assert any("h2 are missing" in note or "h2" in note for note in found["notes"])
    assert [rank["rank"] for rank in found["ranks"]] == [0, 1, 3]


@pytest.mark.slow
def test_some_hosts_of_them(traces, tmp_path):
    write(traces, tmp_path)
    analysis = analyze_digests(on_hosts(digests_in(tmp_path), ["h1"]), only_some=True)
    found = document(analysis)
    assert found["digest"]["missing"] == []
    assert any("not asked for were h0, h2, h3" in note for note in found["notes"])
    assert analysis.meta.host == "h1"
    assert [rank["rank"] for rank in found["ranks"]] == [1]
    with pytest.raises(UsageError, match="no digest is of a host 'h9'"):
        on_hosts(digests_in(tmp_path), ["h9"])


@pytest.mark.slow
def test_every_view_of_findings_draws_it(traces, tmp_path):
    from io import StringIO

    from rich.console import Console

    write(traces, tmp_path)
    analysis = analyze_digests(digests_in(tmp_path))
    console = Console(file=StringIO(), width=120)
    render(analysis, console, full=True)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "on 4 hosts" in text
    assert "clocks against that of h0" in text
    assert "only in the traces" in text
    assert "4 hosts' digests" in markdown(analysis)


@pytest.mark.slow
def test_it_is_small_and_other_programs_read_it(traces, tmp_path):
    write(traces, tmp_path)
    host = tmp_path / "job=job" / "host=h0"
    table = pyarrow.parquet.read_table(host / "iterations.parquet")
    assert table.num_rows == 30
    assert {"pid", "begin_ns", "exposed_phase_ns"} <= set(table.column_names)
    assert not (host / "marks.parquet").exists()
    assert pyarrow.parquet.read_table(host / "link_seconds.parquet").num_rows > 0


@pytest.mark.slow
def test_digests_are_not_overwritten_unless_they_may_be(traces, tmp_path):
    analysis, _ = write(traces[:2], tmp_path)
    with pytest.raises(TraceError, match="holds a digest already"):
        write(traces[:2], tmp_path)
    write(traces[:2], tmp_path, force=True)
    assert len(list((tmp_path / "job=job").glob("_report-*.json"))) == 1
    same_as_traces(document(analyze_digests(digests_in(tmp_path))), document(analysis))


@pytest.mark.slow
def test_a_damaged_digest_beside_it_keeps_none_from_being_replaced(traces, tmp_path):
    each_alone(traces[:2], tmp_path)
    (tmp_path / "job=job" / "host=h1" / "_digest.json").write_text("{")
    _, (folder,) = write(traces[:1], tmp_path, force=True)
    assert is_digest(folder)
    assert len(list((tmp_path / "job=job").glob("_report-*.json"))) == 3, "it is unknown whose they are"


def test_digests_of_several_jobs_are_not_mixed(traces, tmp_path):
    write(traces[:1], tmp_path, "one")
    write(traces[:1], tmp_path, "two")
    assert is_digest(tmp_path)
    assert is_digest(tmp_path / "job=one")
    assert not is_digest(tmp_path / "job=none")
    with pytest.raises(UsageError, match="2 jobs"):
        digests_in(tmp_path)
    assert len(digests_in(tmp_path / "job=one")) == 1
    assert len(digests_in(tmp_path / "job=one" / "host=h0")) == 1


@pytest.fixture(scope="module")
def alike(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Recorders of one machine, whose clock is one: nothing is estimated."""
    folder = tmp_path_factory.mktemp("alike")
    whole = job().write(folder / "whole.netprof")
    return [
        same_boot(shift(whole, folder / f"h{rank}.netprof", host=f"h{rank}", pids=[100 + rank])) for rank in range(4)
    ]


def each_alone(traces: list[Path], root: Path) -> None:
    for trace in traces:
        write([trace], root)


@pytest.mark.slow
def test_made_host_by_host_they_tell_who_comes_last(alike, tmp_path):
    each_alone(alike, tmp_path)
    found, whole = document(analyze_digests(digests_in(tmp_path))), document(analyzed(alike))
    assert found["last_ones"]["ranks"][0]["rank"] == 3
    assert found["last_ones"]["ranks"][0]["host"] == "h3"
    assert found["last_ones"]["ranks"][0]["late_s"] > 0
    assert found["verdict"] == whole["verdict"]
    assert found["iterations"] == whole["iterations"]
    assert found["scaling_factor"] == whole["scaling_factor"]


@pytest.mark.slow
def test_clocks_of_their_own_are_compared_by_what_is_kept_of_the_streams(tmp_path):
    whole = job(2).write(tmp_path / "whole.netprof")
    mine = shift(whole, tmp_path / "h0.netprof", host="h0", pids=[100])
    its = shift(whole, tmp_path / "h1.netprof", 500_123_457, 20e-6, host="h1", pids=[101])
    parts = [mine, its]
    each_alone(parts, tmp_path / "digests")
    found, traces = document(analyze_digests(digests_in(tmp_path / "digests"))), document(analyzed(parts))
    clock, same = found["hosts"][1]["clock"], traces["hosts"][1]["clock"]
    assert clock["source"] == same["source"] == "flows"
    assert abs(clock["drift_ppm"] - 20) < clock["drift_bound_ppm"] + 1e-3
    assert clock["bound_s"] < 1e-3
    (last,) = found["last_ones"]["ranks"]
    assert (last["rank"], last["host"], last["matters"]) == (1, "h1", 30)
    assert last["late_s"] == pytest.approx(30 * 0.04, rel=1e-3)


@pytest.mark.slow
def test_so_are_those_of_long_recordings_that_began_and_ended_at_other_times(tmp_path, monkeypatch):
    """What is kept is of the whole of each: of windows in it the two would have none at one time."""
    monkeypatch.setattr(passages, "_AT_ONCE", 1000)
    monkeypatch.setattr(clocks, "_MOST_ROWS", 1000)
    monkeypatch.setattr(clocks, "_WINDOWS", 4)
    monkeypatch.setattr(clocks, "_SHORTEST_NS", 100 * MS)
    whole = job(2).write(tmp_path / "whole.netprof")
    began_ns, ended_ns = START_NS + 3500 * MS, START_NS + 5200 * MS
    mine = shift(whole, tmp_path / "h0.netprof", host="h0", pids=[100])
    its = shift(whole, tmp_path / "h1.netprof", 10**9, host="h1", pids=[101], within_ns=(began_ns, ended_ns))
    each_alone([mine, its], tmp_path / "digests")
    clock = document(analyze_digests(digests_in(tmp_path / "digests")))["hosts"][1]["clock"]
    assert clock["source"] == "flows"
    assert clock["offset_s"] == pytest.approx(1.0, abs=1e-3)


@pytest.mark.slow
def test_where_the_clocks_do_not_tell_nobody_is_said_to_be_last(traces, tmp_path):
    """Steps that are all alike do not tell which is which, and the realtime clocks may be wrong by seconds."""
    each_alone(traces, tmp_path)
    found = document(analyze_digests(digests_in(tmp_path)))
    assert found["last_ones"]["ranks"] == []
    assert [host["clock"]["source"] for host in found["hosts"]] == ["reference", *["realtime"] * 3]


@pytest.mark.slow
def test_who_comes_last_is_who_does_in_the_traces(alike, tmp_path):
    each_alone(alike, tmp_path)
    found = document(analyze_digests(digests_in(tmp_path)))
    table = result_table(analyzed(alike), "arrivals")
    assert found["last_ones"]["iterations"] == 30
    last = {each["rank"]: each for each in found["last_ones"]["ranks"]}
    ranks, late = np.asarray(table["rank"]), np.asarray(table["late_ns"])
    assert {rank: each["iterations"] for rank, each in last.items()} == {
        int(rank): int((ranks == rank).sum()) for rank in np.unique(ranks[ranks >= 0])
    }
    assert sum(each["late_s"] for each in last.values()) == pytest.approx(late[late >= 0.05 * 200 * MS].sum() / 1e9)


def same_boot(trace: Path) -> Path:
    from dataclasses import replace

    from netprof.trace.meta import open_trace, write_meta

    write_meta(open_trace(trace), replace(TraceReader(trace).meta, boot_id="one"))
    return trace


@pytest.mark.slow
def test_traces_beside_digests_are_digested_on_the_way(traces, tmp_path):
    each_alone(traces[:2], tmp_path)
    mixed = document(analyze_digests([*digests_in(tmp_path), *traces[2:]]))
    each_alone(traces[2:], tmp_path)
    assert mixed["last_ones"] == document(analyze_digests(digests_in(tmp_path)))["last_ones"]


@pytest.mark.slow
def test_what_was_made_in_one_go_and_what_alone_are_one_job(alike, tmp_path):
    write(alike[:2], tmp_path)
    each_alone(alike[2:], tmp_path)
    found = document(analyze_digests(digests_in(tmp_path)))
    each_alone(alike, tmp_path / "alone")
    alone = document(analyze_digests(digests_in(tmp_path / "alone")))
    assert found == alone


@pytest.mark.slow
def test_a_digest_that_was_made_again_is_not_of_the_report_that_was_kept(alike, tmp_path):
    write(alike, tmp_path)
    write(alike[:1], tmp_path, force=True)
    found = document(analyze_digests(digests_in(tmp_path)))
    assert found["digest"]["hosts"] == 4
    assert found["last_ones"]["ranks"], "which the report of traces does not have"


@pytest.mark.slow
def test_a_kept_report_that_is_damaged_is_a_line(alike, tmp_path):
    write(alike[:1], tmp_path)
    (path,) = tmp_path.rglob("_report-*.json")
    whole = path.read_text()
    for text in ('{"schema": 1}', '{"schema": 1, "hosts": 7}', whole.replace('"rows":[[', '"rows":[7,[')):
        path.write_text(text)
        with pytest.raises(TraceError, match=r"_report-.* is damaged"):
            analyze_digests(digests_in(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("damaged", [[0], [2], [1, 3]])
@pytest.mark.parametrize("alone", [True, False])
def test_a_damaged_digest_is_left_out_and_named(alike, tmp_path, alone, damaged):
    if alone:
        each_alone(alike, tmp_path)
    else:
        write(alike, tmp_path)
    forget_reports(tmp_path)
    for number in damaged:
        (tmp_path / "job=job" / f"host=h{number}" / "iterations.parquet").write_bytes(b"PAR1")
    found = document(analyze_digests(digests_in(tmp_path)))
    left = [f"h{number}" for number in range(4) if number not in damaged]
    assert [host["host"] for host in found["hosts"]] == left
    assert found["digest"]["hosts"] == len(left)
    assert len(found["digest"]["left_out"]) == len(damaged)
    for number, why in zip(damaged, found["digest"]["left_out"], strict=True):
        assert f"host=h{number}/iterations.parquet is damaged" in why
        assert any(why in note for note in found["notes"])
    assert found["iterations"]["count"] == 30


@pytest.mark.slow
def test_a_damaged_digest_is_left_out_by_processes_too(alike, tmp_path, monkeypatch):
    write(alike, tmp_path)
    forget_reports(tmp_path)
    (tmp_path / "job=job" / "host=h1" / "spans.parquet").write_bytes(b"PAR1")
    here = document(analyze_digests(digests_in(tmp_path)))
    monkeypatch.setattr("netprof.session.cluster._AT_ONCE", 1)
    assert document(analyze_digests(digests_in(tmp_path))) == here
    assert len(here["digest"]["left_out"]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("damaged", [0, 1])
def test_a_digest_whose_streams_are_damaged_is_left_out(alike, tmp_path, damaged):
    each_alone(alike, tmp_path)
    (tmp_path / "job=job" / f"host=h{damaged}" / "passages.parquet").write_bytes(b"PAR1")
    found = document(analyze_digests(digests_in(tmp_path)))
    assert [host["host"] for host in found["hosts"]] == [f"h{number}" for number in range(4) if number != damaged]
    assert "passages.parquet is damaged" in found["digest"]["left_out"][0]


@pytest.mark.slow
@pytest.mark.parametrize("alone", [True, False])
def test_a_digest_that_was_not_finished_is_named(alike, tmp_path, alone):
    """Its document is written last: a digest without is none, and neither is a folder where none was begun."""
    each_alone(alike, tmp_path) if alone else write(alike, tmp_path)
    place = tmp_path / "job=job"
    (place / "host=h1" / "_digest.json").unlink()
    (place / "host=h9").mkdir()
    found = document(analyze_digests(digests_in(tmp_path)))
    assert [host["host"] for host in found["hosts"]] == ["h0", "h2", "h3"]
    for host, why in zip(("h1", "h9"), found["digest"]["left_out"], strict=True):
        assert why.startswith(f"the digest {place / f'host={host}'} was not finished: it has no _digest.json; ")
        assert any(why in note for note in found["notes"])
    assert is_digest(place / "host=h1")
    with pytest.raises(TraceError, match="was not finished"):
        analyze_digests(digests_in(place / "host=h1"))


@pytest.mark.slow
def test_traces_in_folders_that_are_called_so_are_no_digests(alike, tmp_path):
    place = tmp_path / "job=job" / "host=h0"
    shutil.copytree(alike[0], place)
    shutil.copytree(alike[0], tmp_path / "job=job" / "host=h1" / "h1.netprof")
    assert not is_digest(tmp_path)
    assert not is_digest(place)


@pytest.mark.slow
@pytest.mark.parametrize("command", [["live"], ["digest", "-o", "x"], ["report", "--html", "-"]])
def test_what_needs_the_traces_says_what_to_do_with_a_digest(alike, tmp_path, command):
    write(alike[:1], tmp_path)
    named = str(tmp_path / "job=job" / "host=h0")
    words = [sys.executable, "-m", "netprof", command[0], named, *command[1:]]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "traces" in done.stderr
    if command[0] != "report":
        said = f"netprof: {named} is a digest, and this needs the traces\n  netprof report {named} reads digests\n"
        assert done.stderr == said
        shown = subprocess.run([*words[:3], command[0], "--help"], capture_output=True, text=True, check=True)
        assert "their digests" not in shown.stdout
