"""Iterations of a real DDP job inferred with its marks hidden, against those that the marks tell of."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from lab import Lab
from support.training import netprof, training

from netprof.analysis import analyze
from netprof.analysis.events.iterations import Iterations
from netprof.analysis.findings.iterations.iterations import ITERATIONS
from netprof.analysis.inference.infer import InferredIterations, infer_from_collectives, infer_from_launches
from netprof.trace import TraceReader

pytest.importorskip("torch", reason="the job to profile is a PyTorch one")
pytestmark = [pytest.mark.timing, pytest.mark.skipif(os.geteuid() != 0, reason="BPF and network namespaces need root")]


def check(true: Iterations, found: InferredIterations) -> None:
    """The number of iterations within 1 in 100, and their mean within 1 %, over the same iterations."""
    assert abs(len(found) - len(true)) <= max(1, len(true) // 100) + 1  # one more: only one of both is cut at an edge
    which = np.searchsorted(true.begin_ns, found.begin_ns, "right") - 1
    inside = (which >= 0) & (found.begin_ns < true.end_ns[which])
    assert inside.sum() >= len(true) - 3
    assert (np.diff(which[inside]) == 1).mean() > 0.97, "an iteration is missing or was found twice"
    ratio = found.duration_ns[inside].mean() / true.duration_ns[which[inside]].mean()
    assert ratio == pytest.approx(1, rel=0.01)


def test_a_job_with_its_marks_hidden(tmp_path: Path) -> None:
    """A jitter of half of the time to load a batch, several buckets, an evaluation every 50 steps."""
    trace = tmp_path / "t.netprof"
    options = ["--gradient-mb", "4", "--width", "512", "--bucket-cap-mb", "1.5", "--eval-every", "50"]
    options += ["--data-ms", "40", "--data-jitter", "0.5"]
    with Lab() as lab, training([host.popen for host in lab], tmp_path, *options, master=f"{lab[0].ipv4}:29521") as job:
        arguments = ["--out", str(trace), "--json", "--no-live", "--iterations", "120"]
        done = netprof("attach", *map(str, job.pids), *arguments)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["iterations"]
    assert told["inferred"] is False
    tables = analyze(TraceReader(trace)).evidence
    for pid in job.pids:
        true = tables.iterations.where(tables.iterations.pid == pid)
        own = tables.collectives.where(tables.collectives.pid == pid)
        for found in (
            infer_from_collectives(own.begin_ns, own.end_ns, own.bytes),
            infer_from_launches(own.begin_ns),
        ):
            assert isinstance(found, InferredIterations), found
            check(true, found)

    for file in trace.glob("marks.*"):
        file.unlink()
    report = netprof("report", str(trace), "--json")
    assert report.returncode == 0, report.stderr
    said = json.loads(report.stdout)["iterations"]
    assert said["inferred"] is True
    assert said["confidence"] > 0.5
    assert said["count"] == pytest.approx(told["count"], abs=2)
    assert said["phases_s"]["exposed_communication"] is None
    inferred = analyze(TraceReader(trace)).of(ITERATIONS).inferred
    assert inferred is not None
    check(tables.iterations.where(tables.iterations.pid == inferred.pid), inferred.iterations)
    shown = netprof("report", "--full", str(trace))
    assert "inferred" in shown.stdout
