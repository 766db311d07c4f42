"""`attach --kineto N` on a real job: torch answers, and what it says of its own steps is what netprof's marks say."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from lab import Lab
from support.hidden_ends import ENDS, without
from support.training import netprof, training

from netprof.analysis.evidence import Evidence
from netprof.schema import Profiled
from netprof.trace import TraceReader

pytest.importorskip("torch", reason="the job is a PyTorch one")
pytestmark = [pytest.mark.timing, pytest.mark.skipif(os.geteuid() != 0, reason="BPF and network namespaces need root")]

MODEL = ("--gradient-mb", "12.6", "--batch", "128", "--bucket-cap-mb", "4", "--seconds", "60")
NEAR = 0.15
"""Profiles count copying out of buckets as computing, which DDP's marks count as waiting."""


def test_torch_answers_and_bounds_become_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETO_USE_DAEMON", "1")
    trace = tmp_path / "t.netprof"
    with (
        Lab(2, rate="250mbit") as lab,
        training([host.popen for host in lab], tmp_path, *MODEL, master=f"{lab[0].ipv4}:29500") as job,
    ):
        pids = [str(pid) for pid in job.pids]
        options = ["--kineto", "4", "--duration", "25s", "--no-live", "--json", "--out", str(trace)]
        done = netprof("attach", *pids, *options)
        assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (said,) = [each for each in document["probes"]["started"] if each["name"] == "kineto"]
    assert said["detail"].startswith("2 of 2 processes profiled"), document["probes"]["skipped"]
    table = TraceReader(trace).table("profiled")
    assert set(table.column("kind").to_pylist()) == {int(kind) for kind in Profiled}
    truth = Evidence.of_trace(TraceReader(trace)).iterations
    bounds = Evidence.of_trace(TraceReader(without(trace, tmp_path / "hidden.netprof", ENDS))).bounds.rows
    exact = bounds.where(bounds.exact == 1)
    assert len(exact) >= 2, (
        bounds.end_ns[-4:],
        truth.end_ns[-4:],
        [
            table.slice(row, 1).to_pylist()
            for row in range(table.num_rows)
            if table["kind"][row].as_py() == Profiled.SEEN
        ],
    )
    for pid in np.unique(exact.pid).tolist():
        own, true = exact.where(exact.pid == pid), truth.where(truth.pid == pid)
        row = np.searchsorted(true.begin_ns, own.begin_ns, "right") - 1
        assert np.median(own.least_ns / true.exposed_phase_ns[row]) == pytest.approx(1, abs=NEAR)


def test_a_job_that_was_not_started_so_is_only_told_of(tmp_path: Path) -> None:
    trace = tmp_path / "t.netprof"
    with (
        Lab(2, rate="1gbit") as lab,
        training([host.popen for host in lab], tmp_path, *MODEL, master=f"{lab[0].ipv4}:29500") as job,
    ):
        pids = [str(pid) for pid in job.pids]
        done = netprof("attach", *pids, "--kineto", "2", "--duration", "3s", "--no-live", "--json", "--out", str(trace))
    assert done.returncode == 0, done.stderr
    (skipped,) = [each for each in json.loads(done.stdout)["probes"]["skipped"] if each["name"] == "kineto"]
    assert "KINETO_USE_DAEMON=1" in skipped["remedy"]


def test_a_job_that_ends_while_torch_profiles_it_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch may crash then, after the job's work; netprof's recording is whole."""
    monkeypatch.setenv("KINETO_USE_DAEMON", "1")
    model = (*MODEL[:-1], "14")
    with (
        Lab(2, rate="250mbit") as lab,
        training([host.popen for host in lab], tmp_path, *model, master=f"{lab[0].ipv4}:29500") as job,
    ):
        trace = ("--out", str(tmp_path / "t.netprof"))
        done = netprof("attach", *map(str, job.pids), "--kineto", "100", "--no-live", "--json", *trace)
        ends = [rank.wait() for rank in job.ranks]
    assert done.returncode == 0, done.stderr
    assert set(ends) <= {0, -signal.SIGSEGV}
    document = json.loads(done.stdout)
    (skipped,) = [each for each in document["probes"]["skipped"] if each["name"] == "kineto"]
    assert skipped["reason"].startswith("2 of 2 processes ended while torch profiled them")
    assert document["iterations"]["count"] > 10
