"""Bounds of waiting of a real job whose ends are hidden, against what the job logs itself."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from lab import Lab
from support.hidden_ends import ENDS, on_gpu, only, without
from support.made_alone import apart, digested, of_traces
from support.training import TrainingJob, netprof, training

from netprof.analysis.bounds.bounded import Bounds
from netprof.analysis.evidence import Evidence
from netprof.schema import MarkKind as K
from netprof.trace import TraceReader

pytest.importorskip("torch", reason="the job is a PyTorch one")
pytestmark = [pytest.mark.timing, pytest.mark.skipif(os.geteuid() != 0, reason="BPF and network namespaces need root")]

MODEL = ("--gradient-mb", "12.6", "--batch", "128", "--bucket-cap-mb", "4", "--seconds", "60")
HOLDS, WIDTH = 0.95, 0.20


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, TrainingJob]]:
    """A recording of some seconds with all marks, and the job that it is of."""
    folder = tmp_path_factory.mktemp("bounds")
    with (
        Lab(2, rate="250mbit") as lab,
        training([host.popen for host in lab], folder, *MODEL, master=f"{lab[0].ipv4}:29500") as job,
    ):
        trace = folder / "all.netprof"
        pids = [str(pid) for pid in job.pids]
        done = netprof("attach", *pids, "--duration", "10s", "--no-live", "--out", str(trace))
        assert done.returncode == 0, done.stderr
        yield trace, job


def judged(trace: Path, job: TrainingJob) -> tuple[Bounds, np.ndarray]:
    """Return the bounds of a trace and, by row, what the job's own log says that it waited."""
    evidence = Evidence.of_trace(TraceReader(trace))
    rows = evidence.bounds.rows
    true = np.zeros(len(rows), np.int64)
    for pid, rank in evidence.ranks.items():
        own = np.flatnonzero(rows.pid == pid)
        log = job.log(rank)
        index = np.searchsorted(log["begin_ns"], rows.received_ns[own] - 1, "right") - 1
        true[own] = (log["backward_done_ns"] - log["gradient_ns"])[np.minimum(index, len(log["begin_ns"]) - 1)]
    known = (true > 0) & (true < 10**11)
    return rows.where(known), true[known]


@pytest.mark.parametrize("left", ["all but ends", "launches alone"])
def test_what_a_job_waits_for_is_inside_of_narrow_bounds(
    left: str, recorded: tuple[Path, TrainingJob], tmp_path: Path
) -> None:
    trace, job = recorded
    poorer = tmp_path / "poorer.netprof"
    if left == "all but ends":
        without(trace, poorer, ENDS)
    else:
        only(trace, poorer, [K.BUCKET_LAUNCH])
    rows, true = judged(poorer, job)
    assert len(rows) > 20
    assert ((rows.least_ns <= true) & (true <= rows.most_ns)).mean() >= HOLDS
    assert np.median((rows.most_ns - rows.least_ns) / true) <= WIDTH


@pytest.mark.parametrize("left", ["all but ends", "launches alone", "as on GPUs"])
def test_digests_that_were_made_alone_have_the_same_bounds(
    left: str, recorded: tuple[Path, TrainingJob], tmp_path: Path
) -> None:
    poorer = tmp_path / "poorer.netprof"
    if left == "as on GPUs":
        on_gpu(recorded[0], poorer, 2.0)
    else:
        _ = (
            without(recorded[0], poorer, ENDS)
            if left == "all but ends"
            else only(recorded[0], poorer, [K.BUCKET_LAUNCH])
        )
    traces = apart(poorer, tmp_path)
    found, whole = digested(traces, tmp_path / "digests"), of_traces(traces)
    assert found["waiting_bounds"]["exposed_s"]["at_least"] > 0
    for name in ("verdict_case", "waiting_bounds", "iterations", "stragglers"):
        assert found[name] == whole[name], name


@pytest.mark.parametrize("ahead", [2.0, 5.0])
def test_a_host_that_runs_ahead_of_its_gpu_makes_them_wide_but_not_wrong(
    ahead: float, recorded: tuple[Path, TrainingJob], tmp_path: Path
) -> None:
    trace, job = recorded
    rows, true = judged(on_gpu(trace, tmp_path / "gpu.netprof", ahead), job)
    assert len(rows) > 20
    assert ((rows.least_ns <= true) & (true <= rows.most_ns)).mean() >= HOLDS


def test_every_view_calls_them_bounds(recorded: tuple[Path, TrainingJob], tmp_path: Path) -> None:
    poorer = str(without(recorded[0], tmp_path / "poorer.netprof", ENDS))
    document = json.loads(netprof("report", "--full", poorer, "--json").stdout)
    low, high = (document["waiting_bounds"]["exposed_share_of_all_time"][side] for side in ("at_least", "at_most"))
    assert 0 < low < high < 1
    assert document["waiting"] is document["scaling_factor"] is None
    assert "bounds" in document["verdict"]
    assert "at least and at most" in netprof("report", "--full", poorer).stdout
    page, markdown = tmp_path / "page.html", tmp_path / "report.md"
    assert netprof("report", poorer, "--html", str(page), "--markdown", str(markdown)).returncode == 0
    for text in (page.read_text(), markdown.read_text()):
        assert "at least and at most" in text
    refused = netprof("whatif", poorer)
    assert refused.returncode != 0
    assert "the report bounds what is waited" in refused.stderr
