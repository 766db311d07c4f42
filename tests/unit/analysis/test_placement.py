"""What the job's processes run in: said of ranks by what they share, and harmless whatever a trace says."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.synthetic import Job

from netprof.analysis import Analysis, analyze
from netprof.analysis.findings.host.placement import PROCESSES
from netprof.analysis.form import Grid
from netprof.analysis.hosts.open_job import open_job
from netprof.errors import TraceError
from netprof.model import Cgroup, Target
from netprof.trace import TraceReader
from netprof.views import console, html, markdown
from netprof.views.json_report import to_json

HOSTILE = "<img src=x onerror=alert(1)>\x1b]0;x\x07[red]\u202e"
DOCKER = Cgroup("ab" * 32, "docker")
POD = Cgroup("cd" * 32, "containerd", "u-1", "trainer-0", "ml")


def job(*cgroups: Cgroup, **changes: Any) -> Job:
    """A job whose ranks are in these, as processes 7, 8, ... there."""
    made = Job(ranks=len(cgroups), world_size=len(cgroups)).fill()
    targets = [
        replace(target, cgroup=cgroup, inner_pid=7 + rank, pid_namespace=99, **changes)
        for rank, (target, cgroup) in enumerate(zip(made.meta().targets, cgroups, strict=True))
    ]
    made.changes["targets"] = tuple(targets)
    return made


def analysed(made: Job, folder: Path) -> Analysis:
    return analyze(TraceReader(made.write(folder / "t.netprof")))


def rows(analysis: Analysis) -> list[tuple[Any, ...]]:
    found = [body for part in analysis.parts(PROCESSES) for body in part.bodies if isinstance(body, Grid)]
    return [tuple(row) for grid in found for row in grid.rows]


def test_ranks_in_one_container_are_one_row(tmp_path: Path) -> None:
    found = rows(analysed(job(DOCKER, DOCKER, POD), tmp_path))
    assert found == [
        ("rank 0 (pid 7 inside), rank 1 (pid 8 inside)", "docker container abababababab"),
        ("rank 2 (pid 9 inside)", "pod trainer-0, namespace ml, containerd container cdcdcdcdcdcd"),
    ]


@pytest.mark.slow
def test_of_many_ranks_some_are_named(tmp_path: Path) -> None:
    ((who, _),) = rows(analysed(job(*[DOCKER] * 11), tmp_path))
    assert who.startswith("rank 0 (pid 7 inside), rank 1 ")
    assert who.endswith(", rank 7 (pid 14 inside) and 3 more")


def test_what_runs_on_the_host_is_told_from_what_does_not(tmp_path: Path) -> None:
    assert rows(analysed(job(DOCKER, Cgroup()), tmp_path))[1] == (
        "rank 1 (pid 8 inside)",
        "no container known",
    )


def test_without_containers_nothing_is_said(tmp_path: Path) -> None:
    analysis = analysed(Job().fill(), tmp_path)
    assert analysis.parts(PROCESSES) == ()
    assert [each["container"] for each in analysis.document()["processes"]] == [None, None]


def test_the_document_has_each_process(tmp_path: Path) -> None:
    slurm = Cgroup(slurm_job="4711", slurm_step="0")
    found = to_json(analysed(job(DOCKER, POD, slurm), tmp_path))["processes"]
    nowhere = {"container": None, "pod": None, "slurm": None}
    assert found == [
        {"pid": 100, "inner_pid": 7, "rank": 0}
        | nowhere
        | {"container": {"id": "ab" * 32, "name": None, "runtime": "docker"}},
        {"pid": 101, "inner_pid": 8, "rank": 1, "slurm": None}
        | {"container": {"id": "cd" * 32, "name": None, "runtime": "containerd"}}
        | {"pod": {"uid": "u-1", "name": "trainer-0", "namespace": "ml"}},
        {"pid": 102, "inner_pid": 9, "rank": 2} | nowhere | {"slurm": {"job": "4711", "step": "0"}},
    ]


def test_what_is_not_told_is_null(tmp_path: Path) -> None:
    (found,) = to_json(analysed(job(Cgroup("ab" * 32, "", "u-1", slurm_job="1")), tmp_path))["processes"]
    assert found["container"] == {"id": "ab" * 32, "name": None, "runtime": None}
    assert found["pod"] == {"uid": "u-1", "name": None, "namespace": None}
    assert found["slurm"] == {"job": "1", "step": None}


@pytest.mark.slow
def test_hostile_names_are_harmless_everywhere(tmp_path: Path) -> None:
    hostile = Cgroup(*[HOSTILE] * 8)
    analysis = analysed(job(hostile, DOCKER), tmp_path)
    text = printed(analysis)
    assert not re.search("[\x1b\x07\u202e]", text)
    assert "\\x1b]0;x\\x07[red]\\u202e" in "".join(text.split())
    page = html.render(analysis)
    assert "<img src=x" not in page
    assert not re.search("[\x1b\x07\u202e]", page)
    assert "Placement" in page
    assert not re.search("[\x1b\x07\u202e]", markdown.render(analysis))


def printed(analysis: Analysis) -> str:
    out = io.StringIO()
    console.render(analysis, Console(file=out, width=100, force_terminal=True, color_system=None), full=True)
    return out.getvalue()


def test_a_pid_inside_that_no_process_can_have_is_refused(tmp_path: Path) -> None:
    made = job(DOCKER)
    made.changes["targets"] = (replace(made.changes["targets"][0], inner_pid=1 << 40),)
    with pytest.raises(TraceError, match="inner_pid is 1099511627776"):
        TraceReader(made.write(tmp_path / "t.netprof"))


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (Target(100, 5, netns=7, inner_pid=7, pid_namespace=99), True),
        (Target(3, 5, netns=7, inner_pid=7, pid_namespace=99), True),  # another recorder knows it by another number
        (Target(100, 5, netns=7, inner_pid=7, pid_namespace=98), False),  # of another container
        (Target(100, 6, netns=7, inner_pid=7, pid_namespace=99), False),  # it had the number before
    ],
)
def test_recordings_of_one_process_are_told_whatever_it_is_called(tmp_path: Path, other: Target, same: bool) -> None:
    job(DOCKER).write(tmp_path / "host.netprof")
    beside = job(DOCKER)
    beside.changes["targets"] = (replace(other, rank=-1),)
    beside.changes["boot_id"] = "boot"
    beside.write(tmp_path / "inside.netprof")
    warnings = open_job([tmp_path / "host.netprof", tmp_path / "inside.netprof"]).meta.warnings
    assert any("it has the same processes of the same host" in each for each in warnings) is same
