"""Steps that are more than one pass of one DDP model, on real jobs, against what each step logged of itself."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from lab import Lab
from support.training import netprof, training

from netprof.analysis import analyze
from netprof.analysis.events.iterations import Iterations
from netprof.analysis.evidence import Evidence
from netprof.analysis.section import Analysis
from netprof.trace import TraceReader

pytest.importorskip("torch", reason="the job to profile is a PyTorch one")
pytestmark = [pytest.mark.timing, pytest.mark.skipif(os.geteuid() != 0, reason="BPF and network namespaces need root")]

PROGRAM = Path(__file__).parents[1] / "programs" / "shaped_train.py"
LAYER_BYTES = 4 * (512 * 512 + 512)


def record(shape: str, folder: Path, iterations: int = 15) -> tuple[Analysis, list[int]]:
    with (
        Lab(rate="400mbit") as lab,
        training(
            [host.popen for host in lab], folder, "--shape", shape, master=f"{lab[0].ipv4}:29500", program=PROGRAM
        ) as job,
    ):
        options = ["--out", str(folder / "t.netprof"), "--iterations", str(iterations), "--no-live"]
        done = netprof("attach", *map(str, job.pids), *options)
        assert done.returncode == 0, done.stderr
        (folder / "stop").touch()
        assert job.wait() == [0, 0]
        return analyze(TraceReader(folder / "t.netprof")), job.pids


def of_rank(evidence: Evidence, pid: int) -> Iterations:
    return evidence.iterations.where(evidence.iterations.pid == pid)


@pytest.mark.parametrize("shape", ["accumulate", "two_in_turn", "gan", "one_step", "metric"])
def test_a_step_of_the_job_is_an_iteration_with_all_of_its_passes(shape: str, tmp_path: Path) -> None:
    waits_of_steps = 45  # attach counts the waits for buckets, of which a step has up to three
    analysis, pids = record(shape, tmp_path, waits_of_steps)
    for rank, pid in enumerate(pids):
        own = of_rank(analysis.evidence, pid)
        assert len(own) >= 10
        assert analysis.evidence.found_iterations.dropped[pid].damaged == 0
        log = np.loadtxt(tmp_path / f"rank{rank}.csv", delimiter=",", skiprows=1, dtype=np.int64)
        step = np.searchsorted(log[:, 0], own.begin_ns, "right") - 1
        assert (np.diff(step) == 1).all(), "a step is missing, or was found twice"
        forward, backward, wait = (log[step, column] for column in (1, 2, 3))
        # What a busy CPU takes between the job's clock and the call is in one of the two alone, but not in every step.
        off = np.abs(own.forward_phase_ns / forward - 1)
        assert np.percentile(off, 25) < 0.05
        spent = own.backward_phase_ns + own.exposed_phase_ns
        assert spent.mean() == pytest.approx((backward + wait).mean(), rel=0.03)
        assert own.exposed_phase_ns.mean() > 0.5 * wait.mean()


@pytest.mark.parametrize("shape", ["unused", "own_hook", "powersgd"])
def test_every_bucket_is_laid_beside_what_carried_it(shape: str, tmp_path: Path) -> None:
    analysis, pids = record(shape, tmp_path)
    for pid in pids:
        buckets = analysis.evidence.buckets.where(analysis.evidence.buckets.pid == pid)
        own = of_rank(analysis.evidence, pid)
        assert len(own) >= 10
        assert buckets.from_collective.all()
        assert (buckets.end_ns <= buckets.unpacked_ns).mean() > 0.9
        per_iteration = buckets.bytes.sum() / len(own)
        if shape == "powersgd":
            assert 0 < per_iteration < LAYER_BYTES, "compressed"
        else:
            assert per_iteration == (4 if shape == "unused" else 3) * LAYER_BYTES
