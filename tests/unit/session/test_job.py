"""When a job is over: with those that train, or with all of it where nobody ever did."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from netprof.model import Target
from netprof.probes.job.processes import find_job
from netprof.session.job import Job


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    with ExitStack() as stack:
        found = [stack.enter_context(subprocess.Popen(["sleep", "60"])) for _ in range(2)]
        yield found
        for each in found:
            each.kill()


def targets(processes: list[subprocess.Popen[bytes]]) -> list[Target]:
    return [find_job([each.pid])[0] for each in processes]


def ended(job: Job) -> bool:
    until_s = time.monotonic() + 5
    while not job.over() and time.monotonic() < until_s:
        job.wait(0.05)
    return job.over()


def test_it_is_over_with_those_that_train(processes: list[subprocess.Popen[bytes]]) -> None:
    trains, helps = targets(processes)
    job = Job([replace(trains, frameworks=("torch",)), helps], told=False)
    assert not job.over()
    processes[0].kill()
    assert ended(job), "whoever else is still there"
    job.close()


def test_where_nobody_trains_it_is_over_with_the_last(processes: list[subprocess.Popen[bytes]]) -> None:
    job = Job(targets(processes), told=False)
    processes[0].kill()
    processes[0].wait()
    job.wait(0.2)
    assert not job.over()
    processes[1].kill()
    assert ended(job)
    job.close()
