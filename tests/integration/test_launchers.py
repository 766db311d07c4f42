"""`netprof attach` on jobs whose launcher says nothing, or is a rank itself: who trains, and which rank it is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from support.training import netprof

from netprof.analysis.tables.columns import int64_column
from netprof.model import Target
from netprof.probes.job.processes import find_job
from netprof.probes.job.tree import mapped_frameworks
from netprof.schema import RANK_GIVEN, MarkKind
from netprof.trace import TraceReader

pytest.importorskip("torch", reason="the job to profile is a PyTorch one")
pytestmark = [pytest.mark.timing, pytest.mark.skipif(os.geteuid() != 0, reason="BPF needs root")]

PROGRAM = Path(__file__).parents[1] / "programs" / "launched.py"


@dataclass(frozen=True)
class Launched:
    """A running job: the process that was started, and the pids that its ranks gave for themselves."""

    started: int
    ranks: dict[str, int]


@pytest.fixture(scope="module", params=["own", "spawn"])
def job(request: pytest.FixtureRequest) -> Iterator[Launched]:
    silent = {name: value for name, value in os.environ.items() if "RANK" not in name and "MASTER" not in name}
    command = [sys.executable, str(PROGRAM), request.param]
    running = subprocess.Popen(
        command, env=silent | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert running.stdout is not None
        lines = [running.stdout.readline().split() for _ in range(2)]
        yield Launched(running.pid, {label: int(pid) for label, pid in lines})
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate()


def trained(targets: list[Target]) -> set[int]:
    return {target.pid for target in targets if target.frameworks}


@pytest.mark.core
def test_the_ranks_are_found_from_any_process_and_nothing_else_trains(job: Launched) -> None:
    everybody = {target.pid for target in find_job([job.started])}
    assert len(everybody - {job.started, *job.ranks.values()}) >= 2, "data loaders too"
    for given in filter(mapped_frameworks, everybody):
        found = find_job([given])
        assert trained(found) == set(job.ranks.values())
        assert {target.pid for target in found} == everybody


def test_gloo_says_which_rank_each_is(job: Launched, tmp_path: Path) -> None:
    trace = tmp_path / "t"
    done = netprof("attach", str(job.ranks["rank1"]), "--duration", "2s", "--json", "--no-live", "--out", str(trace))
    assert done.returncode == 0, done.stderr
    reader = TraceReader(trace)
    assert trained(list(reader.meta.targets)) == set(job.ranks.values())
    marks = reader.table("marks")
    groups = np.flatnonzero(int64_column(marks, "kind") == MarkKind.COLLECTIVE_GROUP)
    pids, sizes, numbers = (int64_column(marks, name)[groups] for name in ("pid", "arg1", "arg2"))
    assert len(groups) > 20
    assert set(sizes.tolist()) == {2}
    for label, pid in job.ranks.items():
        assert set(numbers[pids == pid].tolist()) == {int(label[4:])}


def test_ranks_that_are_given_are_those_of_the_trace(job: Launched, tmp_path: Path) -> None:
    pids, trace = list(job.ranks.values()), tmp_path / "t"
    named = [text for rank, pid in enumerate(pids) for text in ("--rank", f"{pid}={rank}")]
    place = ["--duration", "2s", "--json", "--no-live", "--out", str(trace)]
    done = netprof("attach", str(pids[0]), "--world-size", "2", *named, *place)
    assert done.returncode == 0, done.stderr
    targets = {target.pid: target for target in TraceReader(trace).meta.targets if target.frameworks}
    assert [targets[pid].rank for pid in pids] == [0, 1]
    assert {(target.rank_source, target.world_size) for target in targets.values()} == {(RANK_GIVEN, 2)}
    report = json.loads(done.stdout)
    assert sorted(rank["rank"] for rank in report["ranks"]) == [0, 1]


def test_a_rank_of_no_process_of_the_job_records_nothing(job: Launched, tmp_path: Path) -> None:
    place = ["--duration", "2s", "--no-live", "--out", str(tmp_path / "t")]
    done = netprof("attach", str(job.ranks["rank0"]), "--rank", f"{os.getpid()}=0", *place)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == f"netprof: --rank {os.getpid()}=0: the job has no process {os.getpid()}"
    assert not (tmp_path / "t").exists()
