"""The recipes of docs/many-hosts.md: one line, run on every host by ssh or by Slurm, and the job's report of all.

And what Slurm runs before and after every job: examples/deploy/slurm_prolog.sh and slurm_epilog.sh.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from support.all_day import until
from support.clusters import SLURM, SSHD, SlurmNodes, has, slurm_nodes, ssh_hosts
from support.training import TRAIN, netprof

from netprof.trace import TraceReader

pytest.importorskip("torch", reason="the job to record is a PyTorch one")
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces, daemons and BPF need root")

RANKS = ["--nproc-per-node", "2", "--nnodes", "2", "--master-addr", "10.77.0.1", "--master-port", "29500"]
JOB = [str(TRAIN), "--gradient-mb", "1", "--data-ms", "40"]
PATIENCE_S = 90.0
DEPLOY = Path(__file__).parents[2] / "examples" / "deploy"


def ranks_of(trace: Path) -> list[int]:
    return [target.rank for target in TraceReader(trace).meta.targets if target.frameworks]


@pytest.mark.skipif(not has(SSHD), reason="openssh-server is not installed")
def test_ssh(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with ssh_hosts(tmp_path) as hosts:
        jobs = []
        for number in range(2):
            agent = f"job -m torch.distributed.run {' '.join(RANKS)} --node-rank {number} {' '.join(JOB)}"
            jobs.append(subprocess.Popen(hosts.ssh(number, agent), stdout=subprocess.PIPE, text=True))
        for job in jobs:
            assert job.stdout is not None
            assert any(line.startswith("training") for line in job.stdout)
        line = f"cd {hosts.shared} && netprof attach --job --no-live --duration 6s > /dev/null"
        recorders = [
            subprocess.Popen(hosts.ssh(number, line), stderr=subprocess.PIPE, text=True) for number in range(2)
        ]
        said = [recorder.communicate(timeout=PATIENCE_S)[1] for recorder in recorders]
        assert [recorder.returncode for recorder in recorders] == [0, 0], said
        traces = sorted(hosts.shared.glob("*.netprof"))
        for number, trace in enumerate(traces):
            assert re.fullmatch(rf"netprof-train-node{number}-\d{{8}}-\d{{6}}\.netprof", trace.name)
        assert [ranks_of(trace) for trace in traces] == [[0, 1], [2, 3]]
        done = netprof("report", str(hosts.shared), "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [host["host"] for host in report["hosts"]] == ["node0", "node1"]
    assert sorted(rank["rank"] for rank in report["ranks"]) == [0, 1, 2, 3]
    assert report["iterations"]["count"] > 5


@pytest.mark.skipif(not has(SLURM), reason="slurmctld, slurmd, slurm-client or munge is not installed")
def test_slurm(tmp_path: Path) -> None:
    with slurm_nodes(tmp_path) as nodes:
        number = started(nodes)
        line = ["srun", "--overlap", f"--jobid={number}", "--ntasks-per-node=1", "--nodes=2", f"--chdir={tmp_path}"]
        recorder = nodes.start(
            *line, sys.executable, "-m", "netprof", "attach", "--job", "--no-live", "--duration", "8s",
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        _, said = recorder.communicate(timeout=PATIENCE_S)
        assert recorder.returncode == 0, said
        traces = sorted(tmp_path.glob("*.netprof"))
        for node, trace in enumerate(traces):
            assert re.fullmatch(rf"netprof-slurm-{number}-node{node}-\d{{8}}-\d{{6}}\.netprof", trace.name)
        assert [ranks_of(trace) for trace in traces] == [[0, 1], [2, 3]]
        nodes.run("scancel", number)
        done = netprof("report", str(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [host["host"] for host in report["hosts"]] == ["node0", "node1"]
    assert sorted(rank["rank"] for rank in report["ranks"]) == [0, 1, 2, 3]


@pytest.mark.skipif(not has(SLURM), reason="slurmctld, slurmd, slurm-client or munge is not installed")
def test_slurm_runs_a_recorder_beside_each_job(tmp_path: Path) -> None:
    hooks = [f"{name}={_hook(tmp_path, DEPLOY / f'slurm_{name.lower()}.sh')}" for name in ("Prolog", "Epilog")]
    with slurm_nodes(tmp_path, *hooks) as nodes:
        number = started(nodes)
        kept = [tmp_path / f"node{node}" / "slurm" for node in range(2)]
        told = [tmp_path / f"node{node}" / "metrics" / f"netprof-slurm-{number}.prom" for node in range(2)]
        for node in range(2):
            steps = rf'netprof_steps_total{{.*rank="{2 * node}".*slurm_job_id="{number}".*}} [1-9]'
            until(partial(_says, told[node], steps), PATIENCE_S, kept[node] / f"{number}.log")
        nodes.run("scancel", number)
        until(lambda: not any(file.exists() for file in told), PATIENCE_S)
        assert nodes.run("sinfo", "-h", "-o", "%T").split() == ["idle"], "neither script fails"
        assert [sorted(folder.glob("*.pid")) for folder in kept] == [[], []]
        for node, folder in enumerate(kept):
            (trace,) = folder.glob("*.netprof")
            assert ranks_of(trace) == [2 * node, 2 * node + 1]


def _says(file: Path, pattern: str) -> bool:
    return re.search(pattern, file.read_text()) is not None


def _hook(folder: Path, script: Path) -> Path:
    """A script of examples/deploy with the places of this test; both nodes see the same files."""
    path = f"PYTHONPATH={os.environ.get('PYTHONPATH', '')}"
    netprof_here = shlex.join(["env", path, sys.executable, "-m", "netprof"])
    text = script.read_text()
    for named, place in (
        ("/var/lib/netprof/slurm", f"{folder}/$SLURMD_NODENAME/slurm"),
        ("/var/lib/prometheus/node-exporter", f"{folder}/$SLURMD_NODENAME/metrics"),
        ('"$netprof" "$@"', f'{netprof_here} "$@"'),
    ):
        text = text.replace(named, place)
    found = folder / script.name
    found.write_text(text)
    found.chmod(0o755)
    return found


def started(nodes: SlurmNodes) -> str:
    """Start torchrun on both nodes as a job of Slurm; returns the job's number once all ranks train."""
    agent = f"{sys.executable} -m torch.distributed.run {' '.join(RANKS)} --node-rank $SLURM_NODEID {' '.join(JOB)}"
    script = nodes.folder / "job.sh"
    script.write_text(f"#!/bin/bash\nsrun bash -c 'OMP_NUM_THREADS=1 {agent}'\n")
    log = nodes.folder / "job.log"
    words = ["sbatch", "--parsable", "--nodes=2", "--ntasks-per-node=1", "--exclusive", f"--output={log}", str(script)]
    number = nodes.run(*words).strip()
    deadline_s = time.monotonic() + PATIENCE_S
    while not log.exists() or log.read_text().count("training pid=") < 4:
        assert time.monotonic() < deadline_s, log.read_text() if log.exists() else "the job did not start"
        time.sleep(0.5)
    return number
