"""`netprof attach --job` on real jobs: one with a launcher and data loaders, two side by side, and what is none."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.host_of_a_user import UserHost, user_host
from support.training import TRAIN, free_port

from netprof.trace import TraceReader

pytest.importorskip("torch", reason="the jobs to find are PyTorch ones")
pytestmark = [
    pytest.mark.timing,
    pytest.mark.skipif(os.geteuid() != 0, reason="BPF, and users of one's own, need root"),
]

LAUNCHED = Path(__file__).parents[1] / "programs" / "launched.py"
ONLY_IMPORTS = "import torch, time; print('ready', flush=True); time.sleep(600)"
RECORD = ("--no-live", "--duration", "2s")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[UserHost]:
    with user_host(tmp_path / "host") as made:
        yield made


def lines(process: subprocess.Popen[str], wanted: str, number: int) -> list[str]:
    """Read a program's output until so many lines begin with a word."""
    assert process.stdout is not None
    found: list[str] = []
    for line in process.stdout:
        found += [line] if line.startswith(wanted) else []
        if len(found) == number:
            return found
    raise AssertionError("the job did not start")


def spawned(host: UserHost) -> list[int]:
    """Start ranks without variables, with data loaders; return their pids."""
    return [int(line.split()[1]) for line in lines(host.start(str(LAUNCHED), "spawn"), "rank", 2)]


def torchrun(host: UserHost, **environment: str) -> list[int]:
    """Start torchrun with two ranks; return their pids."""
    words = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port()), str(TRAIN)]
    said = lines(host.start(*words, "--gradient-mb", "1", "--data-ms", "20", **environment), "training", 2)
    found = {int(line.split("rank=")[1]): int(line.split("pid=")[1].split()[0]) for line in said}
    return [found[0], found[1]]


def recorded(host: UserHost) -> list[tuple[str, list[int]]]:
    """Return the traces of a host by name, with the processes that train."""
    found = []
    for path in sorted(host.folder.glob("*.netprof")):
        training = [target.pid for target in TraceReader(path).meta.targets if target.frameworks]
        found.append((path.name, sorted(training)))
    return found


@pytest.mark.core
def test_the_only_job_is_recorded_and_the_trace_is_called_by_it(host: UserHost) -> None:
    lines(host.start("-c", ONLY_IMPORTS), "ready", 1)
    ranks = spawned(host)
    done = host.netprof("attach", "--job", *RECORD)
    assert done.returncode == 0, done.stderr
    assert f"found launched.py: 2 processes (pid {', '.join(map(str, sorted(ranks)))})" in done.stderr
    ((name, training),) = recorded(host)
    assert re.fullmatch(rf"netprof-launched-{re.escape(platform.node())}-\d{{8}}-\d{{6}}\.netprof", name)
    assert training == sorted(ranks)


def test_of_two_jobs_one_is_chosen(host: UserHost) -> None:
    one, other = spawned(host), torchrun(host, SLURM_JOB_ID="77")
    done = host.netprof("attach", "--job", *RECORD)
    said = done.stderr.splitlines()
    assert done.returncode == 2
    assert said[0] == "netprof: 2 jobs train on this host: which one?"
    assert sorted(line.split(":")[0].strip() for line in said[1:3]) == ["launched.py", "train.py"]
    assert any(line.endswith("Slurm job 77: --job --slurm-job 77") for line in said)
    assert any(line.endswith("--job --name launched.py") for line in said)
    assert recorded(host) == []

    for choice in (["--name", "launched.py"], ["--slurm-job", "77"]):
        done = host.netprof("attach", "--job", *choice, *RECORD)
        assert done.returncode == 0, done.stderr
    found = recorded(host)
    assert [training for _, training in found] == [sorted(one), sorted(other)]
    assert found[1][0].startswith("netprof-slurm-77-")
    ranks = {each.pid: each.rank for each in TraceReader(host.folder / found[1][0]).meta.targets if each.frameworks}
    assert [ranks[pid] for pid in other] == [0, 1]

    done = host.netprof("attach", "--job", "--all", "--out", "all.netprof", *RECORD)
    assert done.returncode == 0, done.stderr
    assert dict(recorded(host))["all.netprof"] == sorted(one + other)


def test_where_nothing_trains_that_is_said(host: UserHost) -> None:
    lines(host.start("-c", ONLY_IMPORTS), "ready", 1)
    done = host.netprof("attach", "--job", *RECORD)
    assert done.returncode == 1
    assert done.stderr.startswith("netprof: no training job is found on this host\n")
    assert recorded(host) == []
