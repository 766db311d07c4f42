"""The mark probe on a real DDP job over gloo, attached in the middle, against what the job itself logged."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netprof.probes.marks.probe import MarkProbe
from netprof.schema import MarkKind as Kind

pytest.importorskip("torch", reason="the job to probe is a PyTorch one")
pytestmark = [pytest.mark.timing, pytest.mark.skipif(os.geteuid() != 0, reason="attaching uprobes needs root")]

PROGRAM = Path(__file__).parents[1] / "programs" / "tiny_ddp.py"
Table = Mapping[str, Any]


class Job:
    """A DDP job of `world_size` ranks on loopback."""

    def __init__(self, world_size: int, store: Path) -> None:
        environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        self.ranks = [
            subprocess.Popen(
                [sys.executable, str(PROGRAM), str(rank), str(world_size), str(store)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                text=True,
            )
            for rank in range(world_size)
        ]
        self.pids = [rank.pid for rank in self.ranks]
        self.model = self._answers()[0]

    def iterate(self, count: int) -> list[list[tuple[int, int]]]:
        """Run iterations; returns each rank's own log of (begin, end) in ns."""
        for rank in self.ranks:
            assert rank.stdin is not None
            rank.stdin.write(f"{count}\n")
            rank.stdin.flush()
        return self._answers()

    def end(self) -> list[int]:
        for rank in self.ranks:
            assert rank.stdin is not None
            rank.stdin.close()
        return [rank.wait(60) for rank in self.ranks]

    def _answers(self) -> list[Any]:
        return [json.loads(rank.stdout.readline()) for rank in self.ranks if rank.stdout is not None]


@pytest.fixture
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Job]:
    job = Job(request.param, tmp_path / "store")
    yield job
    try:
        assert job.end() == [0] * len(job.ranks), "the job did not survive being probed"
    finally:
        for rank in job.ranks:
            rank.kill()


def of(table: Table, pid: int) -> Table:
    """One process's rows, in order of time."""
    chosen = {name: column[table["pid"] == pid] for name, column in table.items()}
    order = np.argsort(chosen["time_ns"], kind="stable")
    return {name: column[order] for name, column in chosen.items()}


def times(table: Table, kind: Kind) -> list[int]:
    return [int(time_ns) for time_ns in table["time_ns"][table["kind"] == kind]]


@pytest.mark.core
@pytest.mark.parametrize("job", [1, 2], indirect=True)
def test_iterations_are_exactly_those_the_job_logged(job: Job) -> None:
    job.iterate(5)
    with MarkProbe(job.pids) as probe:
        assert probe.skipped == []
        assert probe.warnings == []
        logs = job.iterate(30)
        table = probe.drain()["marks"]
        assert probe.lost() == 0
    job.iterate(5)
    for pid, log in zip(job.pids, logs, strict=True):
        _check_rank(of(table, pid), log, job.model)


def _check_rank(table: Table, log: list[tuple[int, int]], model: dict[str, int]) -> None:
    count = len(log)
    for kind in (Kind.DDP_FORWARD, Kind.DDP_BACKWARD, Kind.DDP_WAIT):
        assert len(times(table, kind)) == count
    assert len(times(table, Kind.GRADIENT_READY)) == count * model["parameters"]
    assert len(times(table, Kind.DDP_STATS)) == count * 6
    buckets, rest = divmod(len(times(table, Kind.BUCKET_LAUNCH)), count)
    assert rest == 0
    assert buckets > 1, "the model is meant to have several buckets"
    collectives = (Kind.BUCKET_DONE, Kind.COLLECTIVE_BEGIN, Kind.COLLECTIVE_END, Kind.COLLECTIVE_SIZE)
    assert [len(times(table, kind)) for kind in collectives] == [count * buckets] * 4
    for begin_ns, end_ns in log:
        inside = (table["time_ns"] >= begin_ns) & (table["time_ns"] <= end_ns)
        _check_iteration({name: column[inside] for name, column in table.items()}, buckets, model)
        table = {name: column[~inside] for name, column in table.items()}
    assert table["kind"].size == 0, "marks outside of every iteration"


def _check_iteration(table: Table, buckets: int, model: dict[str, int]) -> None:
    """The order that the analysis rests on, and the sizes: all gradients, once."""
    (forward,), (backward,), (wait,) = (times(table, k) for k in (Kind.DDP_FORWARD, Kind.DDP_BACKWARD, Kind.DDP_WAIT))
    gradients, launches, done = (times(table, k) for k in (Kind.GRADIENT_READY, Kind.BUCKET_LAUNCH, Kind.BUCKET_DONE))
    assert forward < backward < gradients[0] < launches[0]
    assert max(gradients[-1], launches[-1]) < wait < done[0] < done[-1] < times(table, Kind.DDP_STATS)[-1]
    indices = table["arg0"][table["kind"] == Kind.GRADIENT_READY]
    assert sorted(indices.tolist()) == list(range(model["parameters"]))
    launched = table["arg0"][table["kind"] == Kind.BUCKET_LAUNCH].tolist()
    assert table["arg0"][table["kind"] == Kind.BUCKET_DONE].tolist() == launched
    assert len(set(launched)) == buckets
    sizes = table["kind"] == Kind.COLLECTIVE_SIZE
    assert int((table["arg0"][sizes] * table["arg1"][sizes]).sum()) == model["gradient_bytes"]
    for tid in np.unique(table["tid"][sizes]):
        own = table["kind"][(table["tid"] == tid) & (table["kind"] >= Kind.COLLECTIVE_BEGIN)].tolist()
        one = [
            Kind.COLLECTIVE_BEGIN,
            Kind.COLLECTIVE_SIZE,
            Kind.COLLECTIVE_GROUP,
            Kind.COLLECTIVE_ORDER,
            Kind.COLLECTIVE_END,
        ]
        assert own == one * (len(own) // len(one))


@pytest.mark.parametrize("job", [2], indirect=True)
def test_dropping_gradients_keeps_everything_else(job: Job) -> None:
    with MarkProbe(job.pids) as probe:
        job.iterate(4)
        sampled = probe.drain()["marks"]
        probe.drop_sampled()
        job.iterate(6)
        table = probe.drain()["marks"]
    for pid in job.pids:
        assert len(times(of(sampled, pid), Kind.GRADIENT_READY)) == 4 * job.model["parameters"]
        assert times(of(table, pid), Kind.GRADIENT_READY) == []
        assert len(times(of(table, pid), Kind.DDP_FORWARD)) == 6


@pytest.mark.parametrize("job", [2], indirect=True)
def test_only_the_attached_rank_is_recorded(job: Job) -> None:
    with MarkProbe([job.pids[1]], multi=False) as probe:  # perf events are in both ranks; the program must filter
        job.iterate(3)
        assert set(probe.drain()["marks"]["pid"].tolist()) == {job.pids[1]}
