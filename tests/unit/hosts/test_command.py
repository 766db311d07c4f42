"""`netprof report` of several traces, however they are named, and `netprof.load` of them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from shifted_clock import shift
from support.synthetic import Job

import netprof


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("job")
    whole = Job().fill().write(tmp_path_factory.mktemp("whole") / "whole.netprof")
    for rank in (0, 1):
        shift(whole, made / f"h{rank}.netprof", rank * 10**8, host=f"h{rank}", pids=[100 + rank])
    return made


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "netprof", "report", *arguments], capture_output=True, text=True)


def report(*arguments: str) -> Any:
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_traces_a_folder_and_a_pattern_are_the_same(folder):
    named = report(str(folder / "h0.netprof"), str(folder / "h1.netprof"))
    assert [host["host"] for host in named["hosts"]] == ["h0", "h1"]
    assert [host["ranks"] for host in named["hosts"]] == [[0], [1]]
    assert named["world_size"] == 2
    assert report(str(folder)) == named
    assert report(str(folder / "*.netprof")) == named


@pytest.mark.slow
def test_one_host_of_them(folder):
    found = report(str(folder), "--host", "h1")
    assert [host["host"] for host in found["hosts"]] == ["h1"]
    assert [rank["rank"] for rank in found["ranks"]] == [1]


@pytest.mark.slow
def test_one_host_of_them_is_digested(folder, tmp_path):
    words = [sys.executable, "-m", "netprof", "digest", str(folder), "--host", "h1", "--out", str(tmp_path)]
    subprocess.run(words, check=True)
    assert [each.name for each in tmp_path.glob("job=*/host=*")] == ["host=h1"]


@pytest.mark.slow
def test_what_is_not_there_is_said(folder):
    assert "no trace fits" in run(str(folder / "x*")).stderr
    assert "no trace is of a host" in run(str(folder), "--host", "h9").stderr
    empty = folder.parent / "empty"
    empty.mkdir(exist_ok=True)
    done = run(str(empty))
    assert done.returncode == 1
    assert "is not a netprof trace" in done.stderr


@pytest.mark.slow
def test_the_report_names_the_hosts(folder):
    text = run(str(folder), "--full").stdout
    assert "of 2 ranks on 2 hosts" in text
    assert "clocks against that of h0" in text


@pytest.mark.slow
def test_every_format_is_written(folder, tmp_path):
    names = ("page.html", "report.md", "t.perfetto.json", "report.json")
    done = run(str(folder), *(text for name in names for text in ("-o", str(tmp_path / name))))
    assert done.returncode == 0, done.stderr
    assert all((tmp_path / name).stat().st_size > 1000 for name in names)
    assert run(str(folder), "--csv", str(tmp_path / "csv")).returncode == 0
    assert "rank 1 on h1" in (tmp_path / "t.perfetto.json").read_text()


@pytest.mark.slow
def test_load(folder):
    run_of_two = netprof.load(folder / "h0.netprof", folder / "h1.netprof")
    assert set(run_of_two.flows["rank"]) == {0, 1}
    assert len(netprof.load(folder).ranks) == 2


@pytest.mark.slow
def test_two_jobs_of_one_size_are_not_mixed(folder, tmp_path):
    """Of the other job only one rank is first by name; connections tell that it is of the other one."""
    elsewhere = {"local_addr": ["10.9.0.1", "10.9.0.2"], "remote_addr": ["10.9.0.2", "10.9.0.1"]}
    whole = Job(flow_changes=elsewhere).fill().write(tmp_path / "other.netprof")
    shift(whole, tmp_path / "jobs/b0.netprof", 0, host="b0", pids=[101])
    for rank in (0, 1):
        shutil.copytree(folder / f"h{rank}.netprof", tmp_path / f"jobs/{'ac'[rank]}.netprof")
    found = report(str(tmp_path / "jobs"))
    assert [host["host"] for host in found["hosts"]] == ["h0", "h1"]


@pytest.mark.slow
def test_traces_of_one_name_are_told_apart_by_their_folders(folder, tmp_path):
    for size in (2, 3):
        whole = Job(ranks=size, world_size=size).fill().write(tmp_path / f"whole{size}.netprof")
        shift(whole, tmp_path / f"run{size}/s.netprof", 0, host=f"h{size}", pids=[100])
    done = run(str(tmp_path / "run2"), str(tmp_path / "run3"))
    assert "run3/s.netprof is left out: it is of another job: of 3 ranks, while run2/s.netprof is of one of 2" in (
        " ".join(done.stdout.split())
    )
