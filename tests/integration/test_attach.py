"""`netprof attach` on a real training job, against the job's own log and against arithmetic."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab import Lab
from support.training import TrainingJob, netprof, training

from netprof.analysis import analyze
from netprof.schema import TRANSMIT
from netprof.trace import TraceReader

pytest.importorskip("torch", reason="the job to profile is a PyTorch one")
pytestmark = [pytest.mark.timing, pytest.mark.skipif(os.geteuid() != 0, reason="BPF and network namespaces need root")]

ITERATION_ERROR_NS, ITERATION_ERROR_SHARE = 50_000, 1e-3


def attach(pids: list[int], trace: Path, *options: str) -> dict[str, Any]:
    done = netprof("attach", *map(str, pids), "--out", str(trace), "--json", "--no-live", *options)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def check_against_log(job: TrainingJob, trace: Path, pid: int, rank: int) -> int:
    """Compare the iterations of one rank with the job's log; returns how many were found."""
    reader = TraceReader(trace)
    found = analyze(reader).evidence.iterations
    mine = found.pid == pid
    begin_ns, duration_ns = found.begin_ns[mine], found.duration_ns[mine]
    log = job.log(rank)
    true_begin_ns, true_duration_ns = log["begin_ns"][:-1], np.diff(log["begin_ns"])
    which = np.searchsorted(true_begin_ns, begin_ns, side="right") - 1
    assert (np.diff(which) == 1).all(), "an iteration is missing or was found twice"
    assert (begin_ns < log["forward_done_ns"][which]).all()
    inside = (true_begin_ns > reader.meta.started_ns) & (log["begin_ns"][1:] < (reader.meta.stopped_ns or 0))
    assert np.isin(np.flatnonzero(inside), which).all(), "an iteration between attach and detach was not found"
    assert len(which) <= inside.sum() + 2, "iterations outside of the recording"
    error_ns = np.median(np.abs(duration_ns - true_duration_ns[which]))
    assert error_ns < max(ITERATION_ERROR_NS, ITERATION_ERROR_SHARE * np.median(true_duration_ns))
    phases = found.forward_phase_ns + found.backward_phase_ns + found.exposed_phase_ns + found.rest_phase_ns
    assert (phases == found.duration_ns).all()
    done_error_ns = np.abs(found.done_ns[mine] - log["backward_done_ns"][which])
    assert np.median(done_error_ns) < 1_000_000  # finalize_backward is the last thing that backward() does
    return len(which)


@pytest.mark.core
def test_iterations_are_those_the_job_logged(tmp_path: Path) -> None:
    trace = tmp_path / "t.netprof"
    options = ["--gradient-mb", "2", "--width", "256", "--batch", "64", "--bucket-cap-mb", "1"]
    with Lab() as lab, training([host.popen for host in lab], tmp_path, *options, master=f"{lab[0].ipv4}:29500") as job:
        report = attach(job.pids[:1], trace, "--iterations", "200")
        for rank, pid in enumerate(job.pids):
            assert check_against_log(job, trace, pid, rank) >= 200
    assert report["iterations"]["count"] >= 200
    assert {(row["rank"], row["pid"]) for row in report["ranks"]} == set(enumerate(job.pids))
    reader = TraceReader(trace)
    for table, first, last in (("marks", "time_ns", "time_ns"), ("wire", "first_ns", "last_ns")):
        rows = reader.table(table)
        assert reader.meta.started_ns <= rows.column(last).to_numpy().min()
        assert rows.column(first).to_numpy().max() <= (reader.meta.stopped_ns or 0)
    assert report["losses"]["lost_marks"] == report["losses"]["merged_bins"] == 0


@pytest.mark.parametrize("ranks", [2, 4])
def test_an_all_reduce_puts_on_the_wire_what_its_algorithm_says(ranks: int, tmp_path: Path) -> None:
    trace = tmp_path / "t.netprof"
    options = ["--gradient-mb", "16", "--bucket-cap-mb", "8", "--data-ms", "20"]
    with (
        Lab(ranks) as lab,
        training([host.popen for host in lab], tmp_path, *options, master=f"{lab[0].ipv4}:29500") as job,
    ):
        attach(job.pids, trace, "--iterations", "20")
    reader = TraceReader(trace)
    tables = analyze(reader).evidence
    wire, flows = reader.table("wire").to_pandas(), reader.table("flows").to_pandas()
    wire = wire.merge(flows[["flow_id", "pid"]], on="flow_id")
    for pid in job.pids:
        iterations, collectives = tables.iterations.where(tables.iterations.pid == pid), tables.collectives
        begin_ns, end_ns = iterations.begin_ns[0], iterations.end_ns[-1]
        mine = (collectives.pid == pid) & (collectives.begin_ns > begin_ns) & (collectives.end_ns < end_ns)
        algorithm_bytes = 2 * (ranks - 1) / ranks * collectives.bytes[mine].sum()
        assert collectives.bytes[mine].sum() == pytest.approx(16e6 * len(iterations), rel=0.06)
        sent = wire[(wire.pid == pid) & (wire.direction == TRANSMIT)]
        payload = sent.payload_bytes[(sent.first_ns > begin_ns) & (sent.last_ns < end_ns)].sum()
        assert 0 < payload - algorithm_bytes < 1e-3 * algorithm_bytes  # what is more are gloo's message headers


def test_a_digest_is_written_when_the_recording_ends(tmp_path: Path) -> None:
    trace, root = tmp_path / "t.netprof", tmp_path / "digests"
    options = ["--gradient-mb", "2", "--width", "256", "--batch", "64", "--bucket-cap-mb", "1"]
    with Lab() as lab, training([host.popen for host in lab], tmp_path, *options, master=f"{lab[0].ipv4}:29500") as job:
        report = attach(job.pids[:1], trace, "--iterations", "30", "--digest", str(root / "job=test"))
    done = netprof("report", str(root), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["iterations"] == report["iterations"]
    assert found["waiting"] == report["waiting"]
    assert found["ranks"] == report["ranks"]
    drawn = netprof("report", str(root), "--csv", str(tmp_path / "csv"))
    assert drawn.returncode == 0, drawn.stderr
    assert (tmp_path / "csv").is_dir()
