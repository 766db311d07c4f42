"""Jobs in containers, recorded from outside, beside and inside: with pids, libraries and names as they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import container as containers
from support.container import FOR_NETPROF, Container, container
from support.training import netprof

from netprof.probes.job.procfs import read_stat
from netprof.probes.kernel.pids import namespace_pids
from netprof.schema import MarkKind
from netprof.trace import TraceReader

pytest.importorskip("torch", reason="the job to profile is a PyTorch one")

pytestmark = pytest.mark.timing
needs_runtime = pytest.mark.skipif(bool(containers.missing()), reason=containers.missing() or "-")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="BPF needs root")

PROGRAMS = Path(__file__).parents[1] / "programs"
RANKS, GRADIENT_BYTES = 2, 8.4e6
HOST_PID = {"mount": None, "network": None, "ipc": None, "uts": None}
SAY = ("sh", "-c", 'echo ready; exec "$@"', "sh")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Container, list[int]]]:
    """A DDP job in a container of its own, and its ranks' pids as they are inside."""
    folder = tmp_path_factory.mktemp("job")
    program = [sys.executable, str(PROGRAMS / "ranks_inside.py"), str(folder / "shared"), str(RANKS)]
    options = ["--gradient-mb", str(GRADIENT_BYTES / 1e6), "--data-ms", "20", "--seconds", "240"]
    with container(folder, [*program, *options]) as running:
        word, *pids = running.lines[0].split() or [""]
        assert word == "training", (running.lines, running.errors.read_text())
        yield running, [int(pid) for pid in pids]


def ranks_outside(job: tuple[Container, list[int]]) -> dict[int, int]:
    """Return each rank's pid here, by its pid inside."""
    running, inside = job
    below = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    known = {namespace_pids(int(pid))[-1]: int(pid) for pid in below}
    return {pid: known[pid] for pid in inside}


def iterations(folder: Path, rank: int, reader: TraceReader) -> np.ndarray:
    """Return how long the iterations took that a rank has logged within a recording, in seconds."""
    lines = (folder / f"rank{rank}.csv").read_text().splitlines()
    rows = [line.split(",") for line in lines[1:-1]]
    begin_ns = np.array([int(row[2]) for row in rows])
    meta = reader.meta
    assert meta.stopped_ns is not None
    taken = np.diff(begin_ns[(begin_ns > meta.started_ns) & (begin_ns < meta.stopped_ns)])
    return np.asarray(taken / 1e9)


def check(report: Mapping[str, Any], reader: TraceReader, running: Container) -> None:
    """Hold a recording to what the job says of itself: iterations by their marks, bytes by the algorithm."""
    true_s = iterations(running.shared, 0, reader)
    assert report["iterations"]["inferred"] is False
    assert abs(report["iterations"]["count"] - len(true_s)) <= 2, "those at the edges"
    assert report["iterations"]["median_s"] == pytest.approx(float(np.median(true_s)), rel=0.1)
    assert [link["device"] for link in report["links"]] == ["lo"]
    assert 1 <= report["collectives"]["wire_to_algorithm_ratio"] < 1.1
    assert report["collectives"]["bytes"] == pytest.approx(GRADIENT_BYTES * report["iterations"]["count"], rel=0.02), (
        report["collectives"]
    )
    assert not [each for each in report["checks"] if each["holds"] is False]
    losses = report["losses"]
    assert [losses[name] for name in ("lost_marks", "late_flows", "truncated")] == [0, 0, False]
    assert not [probe for probe in reader.meta.probes_skipped if probe.name.startswith(("flows", "marks"))]


def named(report: Mapping[str, Any], ranks: Mapping[int, int]) -> dict[int, dict[str, Any]]:
    """Return what the report says of each rank's process, by its pid inside."""
    by_pid = {each["pid"]: each for each in report["processes"]}
    return {inside: by_pid[pid] for inside, pid in ranks.items()}


@pytest.mark.core
@needs_runtime
def test_a_job_in_a_container_is_recorded_from_outside(job: tuple[Container, list[int]], tmp_path: Path) -> None:
    ranks, trace = ranks_outside(job), tmp_path / "t.netprof"
    done = netprof("attach", str(ranks[job[1][0]]), "--duration", "4s", "--json", "--no-live", "--out", str(trace))
    assert done.returncode == 0, done.stderr
    report, reader = json.loads(done.stdout), TraceReader(trace)
    check(report, reader, job[0])
    for rank, (inside, process) in enumerate(named(report, ranks).items()):
        assert (process["rank"], process["inner_pid"]) == (rank, inside)
        assert process["container"] == {"id": job[0].id, "name": None, "runtime": "podman"}
    shown = netprof("report", "--full", str(trace)).stdout
    assert f"rank 0 (pid {job[1][0]} inside)" in shown
    assert f"podman container {job[0].id[:12]}" in shown


def inside(
    job: tuple[Container, list[int]], folder: Path, target: int, spaces: Mapping[str, str | None]
) -> tuple[dict[str, Any], TraceReader]:
    """Record from another container; returns the report and the trace."""
    trace = job[0].shared / f"{folder.name}.netprof"
    attach = [sys.executable, "-m", "netprof", "attach", str(target), "--duration", "4s", "--no-live"]
    with container(
        folder,
        [*SAY, *attach, "--out", str(trace), "--json"],
        capabilities=FOR_NETPROF,
        namespaces=spaces,
        shared=job[0].shared,
    ) as beside:
        assert beside.lines == ["ready\n"]
        said, _ = beside.process.communicate(timeout=120)
        assert beside.process.returncode == 0, said + beside.errors.read_text()
    return json.loads(said), TraceReader(trace)


@pytest.mark.core
@needs_runtime
def test_netprof_in_a_container_that_shares_the_job_s_pids(job: tuple[Container, list[int]], tmp_path: Path) -> None:
    """As beside it in a pod: pids are those of the shared namespace, in marks, flows and forks, and so are threads."""
    of_job = {kind: f"/proc/{job[0].pid}/ns/{path}" for kind, path in (("pid", "pid"), ("network", "net"))}
    report, reader = inside(job, tmp_path, job[1][0], {**of_job, "mount": None})
    check(report, reader, job[0])
    marks = reader.table("marks").to_pandas()
    forwards = marks[marks["kind"] == MarkKind.DDP_FORWARD]
    assert set(forwards["pid"]) == set(job[1])
    assert (forwards["tid"] == forwards["pid"]).all(), "of the main thread"
    assert set(reader.table("flows").to_pandas()["pid"]) <= set(job[1])
    for pid, process in named(report, {pid: pid for pid in job[1]}).items():
        assert process["inner_pid"] == pid
        assert process["container"]["id"] == job[0].id


@needs_runtime
def test_netprof_in_a_container_with_the_host_s_pids(job: tuple[Container, list[int]], tmp_path: Path) -> None:
    ranks = ranks_outside(job)
    report, reader = inside(job, tmp_path, ranks[job[1][0]], HOST_PID)
    check(report, reader, job[0])
    assert {each["inner_pid"] for each in named(report, ranks).values()} == set(job[1])


@needs_runtime
def test_a_pid_from_inside_is_answered_with_that_outside(job: tuple[Container, list[int]]) -> None:
    own = max(job[1])
    here = ranks_outside(job)[own]
    said = " ".join(netprof("doctor", str(here)).stdout.split())
    assert f"another one, in which it is process {own}" in said
    assert f"podman container {job[0].id[:12]}" in said
    stat = read_stat(own)
    if stat is None or stat.kernel_thread:  # else that one would be recorded
        refused = netprof("attach", str(own), "--out", "/nonexistent/t")
        assert refused.returncode == 1
        assert str(here) in refused.stderr


NESTED = """
mount -t proc proc /proc; ip link set lo up
unshare --pid --fork --kill-child {python} {talks} > talks & TURN=0
until grep -q . talks; do sleep 0.05; TURN=$((TURN + 1)); [ $TURN -lt 400 ] || exit 9; done
TARGET=$(cat /proc/$!/task/$!/children)
{python} -m netprof attach $TARGET --duration 2s --no-live --json --out t.netprof > report.json; CODE=$?
echo $TARGET > target; kill -9 $TARGET; exit $CODE
"""


@needs_root
def test_a_job_in_a_namespace_within_netprof_s_own(tmp_path: Path) -> None:
    """Three numbers for one process: the machine's, that of netprof's namespace, and its own."""
    script = NESTED.format(python=sys.executable, talks=PROGRAMS / "talks_to_itself.py")
    command = ["unshare", "--mount", "--pid", "--fork", "--net", "--kill-child", "sh", "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    target, reader = int((tmp_path / "target").read_text()), TraceReader(tmp_path / "t.netprof")
    (process,) = json.loads((tmp_path / "report.json").read_text())["processes"]
    assert (process["pid"], process["inner_pid"]) == (target, 1)
    assert not [probe for probe in reader.meta.probes_skipped if probe.name == "flows"], "counted, not sampled"
    flows = reader.table("flows").to_pandas()
    assert set(flows["pid"]) == {target}
    moved_bytes = int(reader.table("wire").column("payload_bytes").to_numpy().sum())
    megabytes = moved_bytes / 2 / (1 << 20)  # each is sent and received
    assert 15 <= megabytes <= 23, "ten in a second"
