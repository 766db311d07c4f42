"""Finding a real torchrun job from any of its processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from netprof.probes.job.processes import find_job
from netprof.probes.job.watch import Starts, Watch

pytest.importorskip("torch", reason="LOUD: torch is not installed, finding a real job is untested here")

PROGRAM = Path(__file__).parent.parent / "programs" / "loading_ranks.py"


@dataclass(frozen=True)
class Job:
    """A running torchrun and the pids that its ranks gave for themselves."""

    launcher: int
    ranks: dict[int, int]


@pytest.fixture
def job() -> Iterator[Job]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--master-addr=127.0.0.1", f"--master-port={port}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, *torchrun, str(PROGRAM)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as launcher:
        try:
            assert launcher.stdout is not None
            lines = [launcher.stdout.readline().split() for _ in range(2)]
            yield Job(launcher.pid, {int(rank): int(pid) for _, rank, pid in lines})
        finally:
            launcher.send_signal(signal.SIGTERM)  # torchrun ends its ranks


@pytest.mark.core
def test_launcher_ranks_and_data_loaders_are_told_apart(job: Job) -> None:
    for given in (job.launcher, job.ranks[0], job.ranks[1]):
        found = find_job([given])
        assert {target.rank: target.pid for target in found if target.frameworks} == job.ranks
        assert {target.world_size for target in found if target.frameworks} == {2}
        loaders = [target for target in found if not target.frameworks and target.pid != job.launcher]
        assert [target.rank for target in loaders] == [0, 1]
        assert all("torch" in target.frameworks for target in found if target.pid in job.ranks.values())
    assert find_job([loaders[0].pid, job.launcher]) == find_job([job.launcher])


@pytest.mark.core
def test_a_killed_rank_ends_the_job(job: Job) -> None:
    with Watch(find_job([job.launcher])) as watch:
        os.kill(job.ranks[0], signal.SIGKILL)
        while watch.alive():
            assert watch.wait(60), "nothing ended for a minute"
        assert watch.training() == []


@pytest.mark.core
@pytest.mark.skipif(os.geteuid() != 0, reason="BPF needs root")
def test_every_program_that_is_started_is_told_once() -> None:
    starts = Starts()
    try:
        starts.drain()
        started = [subprocess.Popen(["/bin/true"]) for _ in range(13)]
        for each in started:
            each.wait()
        pids, are_all = starts.drain()
        assert {each.pid for each in started} <= pids
        assert are_all
        assert not {each.pid for each in started} & starts.drain()[0]
    finally:
        starts.close()
