"""`netprof attach --job`: which jobs a host has, told from what only looks like one, and which of them is meant."""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.proc_tree import FIRST_PID, ProcTree

from netprof.errors import NetprofError, UsageError
from netprof.probes.job import containers, procfs
from netprof.probes.job import jobs as jobs_module
from netprof.probes.job.cgroups import cgroup_of
from netprof.probes.job.jobs import LocalJob, find_jobs, program_of
from netprof.probes.job.tree import Snapshot
from netprof.session.which_job import JobChoice, chosen, job_here, trace_name

ID = "3f2a" + "0" * 60
DOCKER = f"0::/system.slice/docker-{ID}.scope"
POD_SLICE = "kubepods-pod8dbc11aa_1f0e_4c2b_9d3a_7f1e2d3c4b5a.slice"
POD = f"0::/kubepods.slice/kubepods-besteffort.slice/{POD_SLICE}/cri-containerd-{ID}.scope"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProcTree:
    made = ProcTree(tmp_path / "proc")
    monkeypatch.setattr(procfs, "PROC", str(made.root))
    return made


def slurm(number: int, port: int, tree: ProcTree) -> list[int]:
    return tree.torchrun("train.py", port, environment={"SLURM_JOB_ID": str(number), "SLURM_PROCID": "0"})


def pick(**choice: str | bool) -> LocalJob:
    return chosen(find_jobs().jobs, JobChoice(**choice), {})  # type: ignore[arg-type]


def test_the_only_job_is_found_whole_and_nothing_else(tree: ProcTree) -> None:
    tree.process("bash train.sh")
    tree.process("python analyse.py", torch=True)
    ranks = tree.torchrun("train.py", 29500)
    tree.process("python -m http.server", connected=True)
    job = pick()
    assert job.pids == ranks
    assert len(job.targets) == 1 + 2 + 2, "launcher, ranks, data loaders"
    assert [target.rank for target in job.training] == [0, 1]
    assert job.sentence.startswith(f"train.py: ranks 0 to 1 (pid {ranks[0]}, {ranks[1]}), user ")


def test_the_ranks_of_two_launchers_with_one_rendezvous_are_one_job(tree: ProcTree) -> None:
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "node0", "MASTER_PORT": "1"}
    pids = [tree.process(torch=True, environment={**place, "RANK": str(rank), "LOCAL_RANK": "0"}) for rank in range(2)]
    assert pick().pids == pids


def test_a_launcher_with_a_higher_pid_than_its_ranks_is_of_their_job(tree: ProcTree) -> None:
    agent = FIRST_PID + 50
    tree.process("torchrun train.py", torch=True, connected=True, pid=agent)
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "node0", "MASTER_PORT": "1"}
    pids = [tree.process(parent=agent, torch=True, environment={**place, "RANK": str(rank)}) for rank in range(2)]
    job = pick()
    assert job.pids == pids
    assert {target.pid for target in job.targets} == {agent, *pids}


def test_ranks_without_variables_are_found_by_their_connections(tree: ProcTree) -> None:
    starter = tree.process("python spawn.py", torch=True)
    fork = "python -c spawn_main(5) --multiprocessing-fork"
    pids = [tree.process(fork, starter, torch=True, connected=True) for _ in range(2)]
    assert pick().pids == pids
    assert pick().is_sure
    assert pick().label == "spawn"


def test_processes_that_only_import_torch_are_no_job(tree: ProcTree) -> None:
    parent = tree.process("python sweep.py", torch=True)
    tree.process("python sweep.py", parent, torch=True)
    tree.process("python sweep.py", parent, torch=True)
    with pytest.raises(NetprofError, match="no training job is found") as error:
        pick()
    assert error.value.exit_code == 1


def test_what_may_be_a_notebook_counts_only_where_nothing_else_is(tree: ProcTree) -> None:
    notebook = tree.process("python -m ipykernel_launcher", torch=True, connected=True)
    assert pick().pids == [notebook]
    ranks = tree.torchrun("train.py", 29500)
    assert pick().pids == ranks
    assert pick(name="ipykernel").pids == [notebook]


def test_of_several_each_is_said_in_a_line_with_how_to_choose_it(tree: ProcTree) -> None:
    one, other, third = slurm(12, 1, tree), tree.torchrun("b.py", 2, ranks=4), tree.torchrun("b.py", 3)
    with pytest.raises(UsageError) as error:
        pick()
    assert error.value.exit_code == 2
    assert error.value.message == "3 jobs train on this host: which one?"
    lines = error.value.choices
    assert len(lines) == 3
    assert lines[0].endswith("Slurm job 12: --job --slurm-job 12")
    assert "b.py: ranks 0 to 3" in lines[1]
    assert lines[1].endswith(f": netprof attach {other[0]}"), "nothing else tells it from the third"
    assert lines[2].endswith(f": netprof attach {third[0]}")
    assert pick(slurm_job="12").pids == one


def test_a_netprof_that_slurm_started_means_the_job_of_that_step(tree: ProcTree) -> None:
    slurm(12, 1, tree)
    own = slurm(13, 2, tree)
    jobs = find_jobs().jobs
    assert chosen(jobs, JobChoice(), {"SLURM_JOB_ID": "13"}).pids == own
    assert chosen(jobs, JobChoice(slurm_job="12"), {"SLURM_JOB_ID": "13"}).pids != own
    with pytest.raises(UsageError, match="2 jobs"):
        chosen(jobs, JobChoice(), {"SLURM_JOB_ID": "14"})


def test_two_steps_of_one_slurm_job_have_to_be_told_apart(tree: ProcTree) -> None:
    slurm(12, 1, tree)
    slurm(12, 2, tree)
    with pytest.raises(UsageError, match="2 jobs"):
        pick(slurm_job="12")
    assert len(pick(slurm_job="12", every=True).pids) == 4


def test_by_container_and_by_name(tree: ProcTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "name_of", lambda container, _: "trainer" if container == ID else "")
    inside = tree.torchrun("train.py", 1, cgroup=DOCKER)
    outside = tree.torchrun("train.py", 2, run="myrun")
    for text in ("trainer", "3f2a", "3F2A", ID):
        assert pick(container=text).pids == inside
    for text in ("host", "train", "f2a", ""):
        with pytest.raises(NetprofError, match="fits --container"):
            pick(container=text)
    assert pick(name="myrun").pids == outside
    with pytest.raises(UsageError) as several:
        pick(name="train.py")
    assert several.value.choices[0].endswith(": --job --container trainer")
    assert several.value.choices[1].endswith(f": netprof attach {outside[0]}")
    with pytest.raises(NetprofError, match=r"no training job on this host fits --name other\.py") as error:
        pick(name="other.py")
    assert (error.value.exit_code, len(error.value.choices)) == (1, 2)


def test_all_of_them_as_one(tree: ProcTree) -> None:
    one, other = tree.torchrun("a.py", 1), tree.torchrun("b.py", 2)
    job = pick(every=True)
    assert sorted(job.pids) == sorted(one + other)
    assert job.label == "2-jobs"


def test_by_pod(tree: ProcTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "pod_of", lambda uid, _: ("ml", f"trainer-{uid[:2]}"))
    inside = tree.torchrun("train.py", 1, cgroup=POD)
    tree.torchrun("train.py", 2)
    job = pick(container="trainer-8d")
    assert job.pids == inside
    assert job.sentence.endswith(", pod trainer-8d, namespace ml, containerd container 3f2a00000000")


def test_slurm_s_job_is_its_cgroup_s_where_the_process_says_something_else(tree: ProcTree) -> None:
    own = tree.process(cgroup="0::/system.slice/slurmstepd.scope/job_77/step_0/user/task_0")
    assert cgroup_of(own, {}).slurm_job == "77"
    assert cgroup_of(own, {"SLURM_JOB_ID": "12"}).slurm_job == "77", "a cgroup is the kernel's"
    assert cgroup_of(tree.process(), {"SLURM_JOB_ID": "12"}).slurm_job == "12"
    assert cgroup_of(tree.process(), {"SLURM_JOB_ID": "../x"}).slurm_job == ""


def test_a_job_of_an_image_without_a_cgroup(tree: ProcTree) -> None:
    inside = tree.torchrun("train.py", 1, environment={"APPTAINER_NAME": "torch.sif"})
    tree.torchrun("train.py", 2)
    assert pick(container="torch.sif").pids == inside


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("python -u /home/a/train.py --lr 1", "train.py"),
        ("python -m trainer.main x", "trainer.main"),
        ("/opt/bin/lammps -in x", "lammps"),
        ("", "?"),
    ],
)
def test_the_program_of_a_command(command: str, program: str) -> None:
    assert program_of(command) == program


def test_a_trace_is_called_by_job_host_and_time(tree: ProcTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "node", lambda: "node-3.cluster")
    monkeypatch.setattr(time, "strftime", lambda _: "20260101-120000")
    slurm(12, 1, tree)
    tree.torchrun("../../tmp/\x1b]0;x\x07.py", 2, run="../../etc;rm")
    tree.torchrun("a.py", 3, run="0b3c1de2-1111-4222-8333-0123456789ab")
    names = sorted(str(trace_name(job)) for job in find_jobs().jobs)
    assert names == [
        "netprof-a-node-3.cluster-20260101-120000.netprof",
        "netprof-etc_rm-node-3.cluster-20260101-120000.netprof",
        "netprof-slurm-12-node-3.cluster-20260101-120000.netprof",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["1", "--job"], ["1", "--all"], ["--slurm-job", "3"]])
def test_what_is_to_be_recorded_is_said_once(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "netprof", "attach", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 2


def test_the_job_of_this_host_is_that_which_is_found(tree: ProcTree) -> None:
    ranks = tree.torchrun("train.py", 1)
    assert job_here(JobChoice()).pids == ranks
    with pytest.raises(NetprofError) as error:
        job_here(JobChoice(name="other.py"))
    assert error.value.hint == "there is 1 other"
    tree.torchrun("train.py", 2)
    with pytest.raises(NetprofError) as error:
        job_here(JobChoice(name="other.py"))
    assert error.value.hint == "there are 2 others"


def test_several_jobs_of_one_name_are_recorded_by_what_the_first_is_of(tree: ProcTree) -> None:
    first = tree.torchrun("train.py", 1, cgroup=DOCKER)
    second = tree.torchrun("train.py", 2)
    job = pick(every=True)
    assert sorted(job.pids) == sorted(first + second)
    assert (job.label, job.cgroup.container) == ("train", ID)


def test_finding_jobs_is_linear_in_their_number(tree: ProcTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "_MOST_TRIES", 1000)
    reads = Counter[str]()
    real = procfs._parts

    def counted(path: str) -> Iterator[bytes]:
        reads["all"] += 1
        return real(path)

    monkeypatch.setattr(procfs, "_parts", counted)
    costs = []
    for count in (20, 20, 40):  # 20, 40, 80 in all
        for _ in range(count):
            place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(tree._next), "RANK": "0", "WORLD_SIZE": "1"}
            tree.process(torch=True, environment=place)
        reads.clear()
        jobs = find_jobs().jobs
        costs.append((len(jobs), reads["all"]))
    (few, cost), _, (many, most) = costs
    assert (few, many) == (20, 80)
    assert most <= 4.2 * cost


@pytest.mark.parametrize("same", [True, False])
def test_one_user_cannot_keep_the_search_busy(tree: ProcTree, monkeypatch: pytest.MonkeyPatch, same: bool) -> None:
    """Whether all are the same rank of one job, so that each of them looks at all others, or each a job of its own."""
    monkeypatch.setattr(jobs_module, "_MOST_TRIES", 30)
    monkeypatch.setattr(jobs_module, "_MOST_LOOKS", 500)
    monkeypatch.setattr(procfs, "real_user", lambda pid: 7 if pid < FIRST_PID + 200 else 8)
    for number in range(200):
        place = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": str(1 if same else number), "RANK": "0", "WORLD_SIZE": "2"}
        tree.process(torch=True, environment=place)
    other = tree.process(torch=True, environment={**place, "MASTER_ADDR": "10.0.0.2"})
    looked: list[Snapshot] = []
    monkeypatch.setattr(jobs_module, "Snapshot", lambda: looked.append(Snapshot()) or looked[-1])  # type: ignore[func-returns-value]
    found = find_jobs()
    assert [other] in [job.pids for job in found.jobs], "another user's job is found"
    assert found.untried[7] >= 200 - 30
    assert found.untried[8] == 0
    assert looked[0].looks < 2000


def test_what_is_known_begins_no_search(tree: ProcTree) -> None:
    pid = tree.process(torch=True, environment={"RANK": "0", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1"})
    assert [job.pids for job in find_jobs().jobs] == [[pid]]
    assert not find_jobs({(pid, pid)}).jobs
