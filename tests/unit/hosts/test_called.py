"""Processes are called by the number that they have on their own host: that is what one types there."""

from __future__ import annotations

from pathlib import Path

from support.synthetic import ITERATION_NS, MS, START_NS, Job, K

from netprof.analysis import analyze
from netprof.analysis.findings.collectives.nccl import NCCL
from netprof.analysis.findings.stalls.exits import EXITS
from netprof.analysis.findings.stalls.hang import HANG
from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.analysis.hosts.open_job import open_job
from netprof.analysis.section import Analysis
from netprof.model import Gpu, Target
from netprof.schema import BlockedIn

END_NS = START_NS + 11 * ITERATION_NS


def of_host(rank: int) -> Job:
    """What a host has of a job of two ranks: one, which is process 100 there."""
    target = Target(100, 5, "python train.py", 7, rank, 2, ("ddp", "gloo"))
    job = Job(ranks=1, changes={"host": f"h{rank}", "boot_id": f"boot{rank}", "targets": (target,)})
    ends = {"addr": f"10.0.0.{rank + 1}", "port": 40_000 + rank}, {"addr": f"10.0.0.{2 - rank}", "port": 40_001 - rank}
    job.flow_changes = {
        f"{side}_{name}": [value]
        for side, end in zip(("local", "remote"), ends, strict=True)
        for name, value in end.items()
    }
    return job


def analyzed(jobs: list[Job], folder: Path) -> Analysis:
    return analyze(open_job([job.write(folder / f"h{number}.netprof") for number, job in enumerate(jobs)]))


def test_the_rank_that_a_job_hangs_for_is_to_be_looked_at_by_its_own_number(tmp_path: Path) -> None:
    jobs = [of_host(0), of_host(1)]
    for job, kind in zip(jobs, (BlockedIn.LOCK, BlockedIn.SLEEP), strict=True):
        whole = {"time_ns": END_NS, "period_ns": END_NS - START_NS + 10 * MS, "pid": 100, "tid": 100, "kind": int(kind)}
        job.extra["blocked"] = {name: [value] for name, value in whole.items()}
    found = analyzed(jobs, tmp_path)
    hang = found.of(HANG)
    assert hang is not None
    assert len({each.pid for each in hang.ranks}) == 2
    assert [each.own_pid for each in hang.ranks] == [100, 100]
    assert found.of(VERDICT).headline.endswith(": rank 1 on h1 is asleep in a timer")
    assert hang.advice.endswith("py-spy dump --pid 100")


def test_a_rank_that_was_killed_is_called_by_its_own_number(tmp_path: Path) -> None:
    jobs = [of_host(0).fill(), of_host(1).fill()]
    jobs[1].mark(END_NS - 5 * MS, 100, K.PROCESS_EXIT, 1 << 32 | 9)
    found = analyzed(jobs, tmp_path)
    (ended,) = found.of(EXITS).ended
    assert ended.name == "rank 1 (pid 100 on h1)"
    assert ended.exit.pid != 100
    assert "rank 1 (pid 100 on h1) was killed (SIGKILL)" in found.of(VERDICT).headline


def test_a_gpu_is_called_by_its_number_on_its_own_host(tmp_path: Path) -> None:
    jobs = [of_host(0), of_host(1)]
    for job in jobs:
        job.changes["gpus"] = (Gpu(0, "H100"), Gpu(1, "H100"))
    gpus = open_job([job.write(tmp_path / f"h{number}.netprof") for number, job in enumerate(jobs)]).meta.gpus
    assert len({gpu.index for gpu in gpus}) == 4
    assert [gpu.name for gpu in gpus] == [f"H100 (h{host}: GPU {own})" for host in (0, 1) for own in (0, 1)]


def test_what_nccl_was_asked_for_is_of_a_rank_on_a_host(tmp_path: Path) -> None:
    jobs = [of_host(0).fill(), of_host(1).fill()]
    for job in jobs:
        times_ns = [START_NS + step * ITERATION_NS for step in range(10)]
        job.marks = [(at, 100, 100, int(K.NCCL_ALL_REDUCE), 1_250_000, 0x5000 << 8 | 7, 0x7000) for at in times_ns]
    said = [part.about.partition(":")[0] for part in analyzed(jobs, tmp_path).parts(NCCL)]
    assert said == ["rank 0 on h0", "rank 1 on h1"]
