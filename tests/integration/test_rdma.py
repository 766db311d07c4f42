"""RDMA ports beside a real job: the verdict is about the port that the gradients go over, and about none without."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from support.rdma_tree import Tree
from support.training import training

from netprof.analysis.sections import analyze
from netprof.probes.flow.probe import FlowProbe
from netprof.probes.job.processes import find_job
from netprof.probes.marks.probe import MarkProbe
from netprof.probes.nic.probe import NicProbe
from netprof.probes.probe import Probe
from netprof.probes.rdma.probe import RdmaProbe
from netprof.session.options import RecordingOptions
from netprof.session.recorder import TICK_S, Recorder
from netprof.trace import TraceReader
from netprof.views.json_report import to_json

pytestmark = pytest.mark.timing

PROGRAM = Path(__file__).parents[1] / "programs" / "port_ddp.py"
SECONDS = 8.0
MEGABYTES = 24


def refused() -> list[Any]:
    raise PermissionError(1, "Operation not permitted")


def recorded(tree: Tree, pids: list[int], out: Path, seconds: float = SECONDS) -> dict[str, Any]:
    """Record a job beside a scripted sysfs, and return the report."""
    scripted = {"sysfs": tree.root, "queue_pairs": staticmethod(refused)}
    rdma = cast("type[Probe]", type("Scripted", (RdmaProbe,), scripted))
    recorder = Recorder(find_job(pids), RecordingOptions(out), [], (FlowProbe, NicProbe, rdma, MarkProbe))
    recorder.start()
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        recorder.job.wait(TICK_S)
        recorder.tick()
    recorder.stop("enough")
    return to_json(analyze(TraceReader(out)))


@pytest.fixture
def port_job(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Play a job of two ranks with a port each that says `gbit`; its gradients go over it as fast as `at`."""

    def play(*options: str, gbit: float = 1.0, at: float = 0.97) -> dict[str, Any]:
        tree = Tree(tmp_path / "sys")
        for _ in range(2):
            tree.port("mlx5", rate=f"{gbit:g} Gb/sec (4X NDR)")
        place = ("--root", str(tree.root), "--gbit", str(gbit * at), "--megabytes", str(MEGABYTES))
        with training([subprocess.Popen] * 2, tmp_path, *place, *options, program=PROGRAM) as job:
            return recorded(tree, job.pids, tmp_path / "t.netprof")

    return play


@pytest.mark.core
def test_a_full_port_is_what_the_job_waits_for(port_job: Callable[..., dict[str, Any]]) -> None:
    report = port_job()
    assert report["verdict_case"] == "link_full", report["verdict"]
    assert "mlx5_" in report["verdict"]
    assert "seen every" in report["verdict"]
    ports = [link for link in report["links"] if link["device"].startswith("mlx5_")]
    assert [link["ranks"] for link in sorted(ports, key=lambda link: link["device"])] == [[0], [1]]
    iterations = report["iterations"]["count"]
    for link in ports:
        assert link["line_rate_bps"] == 1e9
        assert link["tx_bytes"] / iterations == pytest.approx(MEGABYTES * 1e6, rel=0.15)
        assert link["utilization_outstanding_tx"] > 0.8
        assert 0 < link["period_s"] < 0.1
    assert {cause["cause"]: cause["share"] for cause in report["waiting"]["causes"]}["link_full"] > 0.7


def test_congestion_that_a_port_reports_is_why(port_job: Callable[..., dict[str, Any]]) -> None:
    report = port_job("--congested", gbit=4.0, at=0.25)
    assert report["verdict_case"] == "transport", report["verdict"]
    assert "CNP" in report["verdict"]
    (cnp,) = (counter for counter in report["counters"] if counter["name"] == "cnp_received")
    assert cnp["total"] > 0
    assert cnp["source"] == "RDMA ports"


def test_without_a_port_it_is_unseen(port_job: Callable[..., dict[str, Any]]) -> None:
    report = port_job("--no-port")
    assert report["verdict_case"] == "unseen", report["verdict"]
    assert not [link for link in report["links"] if link["device"].startswith("mlx5_")]
    assert {cause["cause"]: cause["share"] for cause in report["waiting"]["causes"]}["unseen"] > 0.9
