"""Finding a job among real processes that look like one: what /proc shows is what a real job shows."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.open_files import no_more_open_files
from support.process_trees import HOST, PROGRAM, Start, Tree, node, rank, rendezvous, torchrun, until
from support.unprivileged import NOBODY

from netprof.errors import NetprofError, NotPermittedError, UsageError
from netprof.model import Target
from netprof.probes.job import procfs
from netprof.probes.job.processes import check_same, find_job, find_more, is_same
from netprof.schema import UNKNOWN_RANK
from netprof.session.job_processes import Job


def by_pid(targets: list[Target]) -> dict[int, Target]:
    return {target.pid: target for target in targets}


def training_ranks(targets: list[Target]) -> list[int]:
    return [target.rank for target in targets if target.frameworks]


@pytest.mark.parametrize(("sizes", "together"), [(("2", "2"), True), (("2", "3"), False)], ids=["one job", "two jobs"])
def test_ranks_that_name_no_rendezvous_are_found_by_what_started_them(
    start: Start, sizes: tuple[str, str], together: bool
) -> None:
    ranks = [
        node(f"rank{n}", torch=True, environment={"PMI_RANK": str(n), "PMI_SIZE": sizes[n], "PMI_FD": str(6 + n)})
        for n in range(2)
    ]
    pids = start(node("mpirun", node("proxy", *ranks)))
    found = by_pid(find_job([pids["rank1"]]))
    assert ({pids["rank0"], pids["rank1"]} <= found.keys()) is together
    assert found[pids["rank1"]].rank == 1
    assert training_ranks(list(found.values())) == ([0, 1] if together else [1])


@pytest.mark.parametrize("given", ["torchrun", "rank0", "rank1", "loader"])
def test_any_process_of_the_job_leads_to_all_its_ranks(start: Start, port: int, given: str) -> None:
    pids = start(torchrun(port))
    found = by_pid(find_job([pids[given]]))
    assert {pids["rank0"], pids["rank1"], pids["loader"]} <= found.keys() <= set(pids.values())
    assert training_ranks(list(found.values())) == [0, 1]
    first = found[pids["rank0"]]
    assert (first.rank, first.world_size, first.frameworks) == (0, 2, ("torch",))
    assert first.start_ticks == procfs.parse_stat(Path(f"/proc/{first.pid}/stat").read_bytes()).start_ticks > 0
    assert first.netns == Path("/proc/self/ns/net").stat().st_ino
    assert PROGRAM.name in first.command


def test_a_launcher_and_a_data_loader_do_not_train(start: Start, port: int) -> None:
    pids = start(torchrun(port))
    found = by_pid(find_job([pids["torchrun"]]))
    assert found.keys() == set(pids.values())
    assert (found[pids["torchrun"]].frameworks, found[pids["torchrun"]].rank) == ((), UNKNOWN_RANK)
    assert (found[pids["loader"]].frameworks, found[pids["loader"]].rank) == ((), 0)


def test_a_launcher_in_a_pod_with_a_rank_of_its_own_is_not_rank_0(start: Start, port: int) -> None:
    pod = {"RANK": "0", "WORLD_SIZE": "1", **rendezvous(port)}
    pids = start(node("launcher", rank(0, port), rank(1, port), torch=True, environment=pod))
    found = find_job([pids["launcher"]])
    assert training_ranks(found) == [0, 1]
    assert by_pid(found)[pids["launcher"]].frameworks == ()


@pytest.mark.slow
def test_ranks_started_one_by_one_are_found_by_their_rendezvous(start: Start, port: int) -> None:
    mine = [start(rank(number, port))[f"rank{number}"] for number in (0, 1)]
    other_port = start(rank(0, port + 1))["rank0"]
    other_run = start(rank(1, port, TORCHELASTIC_RUN_ID="another"))["rank1"]
    shell = start(node("shell", environment=rendezvous(port)))["shell"]
    found = {target.pid for target in find_job([mine[1]])}
    assert found == set(mine)
    assert not found & {other_port, other_run, shell}


@pytest.mark.slow
def test_of_what_is_started_later_only_ranks_of_the_job_join(start: Start, port: int) -> None:
    job = find_job([start(rank(0, port))["rank0"]])
    later = [
        start(rank(0, port + 1))["rank0"],
        start(rank(1, port + 1))["rank1"],
        start(rank(1, port, TORCHELASTIC_RUN_ID="another"))["rank1"],
        start(node("shell", environment=rendezvous(port)))["shell"],
        start(node("stranger", torch=True))["stranger"],
    ]
    mine = start(rank(1, port, node("loader", fork=True)))
    assert find_more(job, thorough=False, started=later) == job
    found = find_more(job, thorough=False, started=[*later, mine["rank1"]])
    assert {target.pid for target in found} == {job[0].pid, *mine.values()}
    assert training_ranks(found) == [0, 1]


@pytest.mark.slow
def test_a_rank_that_torchrun_starts_again_meets_elsewhere_and_is_of_the_job(start: Start, port: int) -> None:
    first, other = (
        start(
            node(
                "agent",
                rank(0, at, TORCHELASTIC_RUN_ID="none"),
                rank(1, at + 1, TORCHELASTIC_RUN_ID="none"),
                torch=True,
            )
        )
        for at in (port, port + 2)
    )
    found = {target.pid for target in find_job([first["rank0"]])}
    assert {first["rank0"], first["rank1"]} <= found
    assert not found & set(other.values())


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
@pytest.mark.parametrize("first", [True, False])
def test_a_second_job_at_the_same_address_in_another_network_is_another_job(
    start: Start, port: int, first: bool
) -> None:
    """As with two sets of containers whose networks number their hosts alike."""

    def job() -> list[int]:
        return [start(rank(number, port), ("unshare", "--net"))[f"rank{number}"] for number in (0, 1)]

    earlier = job()
    time.sleep(0.5)  # two jobs are told apart by when their ranks were started
    later = job()
    mine = earlier if first else later
    for given in mine:
        assert [target.pid for target in find_job([given])] == mine


def test_a_thread_leads_to_its_process_and_to_what_it_started(start: Start) -> None:
    pids = start(node("main", node("child"), threaded=True))
    threads = {int(task.name) for task in Path(f"/proc/{pids['main']}/task").iterdir()}
    (thread,) = threads - {pids["main"]}
    assert [target.pid for target in find_job([thread])] == sorted(pids.values())


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_a_loopback_rendezvous_means_a_job_only_within_its_namespace(start: Start, port: int) -> None:
    here = start(rank(0, port, address="127.0.0.1"))["rank0"]
    elsewhere = start(rank(0, port, address="127.0.0.1"), ("unshare", "--net"))["rank0"]
    routed_here = start(rank(0, port, address=HOST))["rank0"]
    routed_there = start(rank(1, port, address=HOST), ("unshare", "--net"))["rank1"]
    assert [target.pid for target in find_job([here])] == [here]
    assert [target.pid for target in find_job([elsewhere])] == [elsewhere]
    targets = find_job([routed_here])
    assert [target.pid for target in targets] == [routed_here, routed_there]
    assert targets[0].netns != targets[1].netns


def test_a_job_without_rendezvous_is_found_from_any_forked_process(start: Start) -> None:
    """As torch.multiprocessing.spawn starts it, with ranks that no environment names."""
    loader = node("loader", fork=True, comm="pt_data_worker")
    pids = start(node("main", node("first", loader, torch=True, fork=True), node("second", fork=True), torch=True))
    for given in ("main", "second", "first"):
        found = by_pid(find_job([pids[given]]))
        assert found.keys() == set(pids.values())
        assert {pid for pid, target in found.items() if target.frameworks} == set(pids.values()) - {pids["loader"]}
        assert {target.rank for target in found.values()} == {UNKNOWN_RANK}


@pytest.mark.parametrize("how", ["spawned", "forked"])
def test_a_parent_that_only_waits_for_connected_workers_does_not_train(start: Start, how: str) -> None:
    """As torch.multiprocessing.spawn's, once its workers have joined a process group."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        loader = node("loader", fork=True, comm="pt_data_worker")
        workers = [
            node(label, *below, torch=True, fork=how == "forked", connect=port)
            for label, below in (("first", [loader]), ("second", []))
        ]
        pids = start(node("main", *workers, torch=True))
        for given in ("main", "second", "loader"):
            found = by_pid(find_job([pids[given]]))
            assert found.keys() == set(pids.values())
            training = {pid for pid, target in found.items() if target.frameworks}
            assert training == {pids["first"], pids["second"]}


@pytest.mark.parametrize("below", ["not connected", "a loader", "a rank"])
def test_a_connected_process_trains_whatever_it_has_started(start: Start, below: str) -> None:
    """A rank of a process group, without variables, that starts helpers with PyTorch."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        options = {"a loader": {"comm": "pt_data_worker", "connect": port}, "a rank": {"connect": port}}
        pids = start(node("rank", node("helper", torch=True, **options.get(below, {})), torch=True, connect=port))
        assert by_pid(find_job([pids["helper"]]))[pids["rank"]].frameworks == ("torch",)


@pytest.mark.parametrize("variables", [{}, {"LOCAL_RANK": "0", "WORLD_SIZE": "1"}], ids=["none", "of its parent"])
def test_a_process_with_data_loaders_of_its_own_trains(start: Start, variables: dict[str, str]) -> None:
    """Spawned ones have the variables that the process has set for itself, and that nobody sees there."""
    pids = start(node("rank", node("loader", torch=True, comm="pt_data_worker", environment=variables), torch=True))
    found = by_pid(find_job([pids["rank"]]))
    assert {pid for pid, target in found.items() if target.frameworks} == {pids["rank"]}


def lightning(port: int, first: int = 1, **more: str) -> Tree:
    """As Lightning's launcher starts the other ranks of a host, all with data loaders."""
    variables = {**rendezvous(port), "NODE_RANK": "0", "WORLD_SIZE": "3", **more}
    others = []
    for number in (first, first + 1):
        own = {**variables, "LOCAL_RANK": str(number)}
        loader = node(f"loader{number}", fork=True, comm="pt_data_worker")
        others.append(node(f"rank{number}", loader, torch=True, environment=own))
    spawned = node("loader0", torch=True, comm="pt_data_worker", environment={**variables, "LOCAL_RANK": "0"})
    return node("rank0" if first else "agent", spawned, *others, torch=True)


@pytest.mark.parametrize("given", ["rank0", "rank1", "rank2", "loader0", "loader2"])
def test_a_rank_that_started_the_others_is_a_rank(start: Start, port: int, given: str) -> None:
    pids = start(lightning(port))
    found = by_pid(find_job([pids[given]]))
    assert found.keys() == set(pids.values())
    assert {pid for pid, target in found.items() if target.frameworks} == {pids[f"rank{n}"] for n in range(3)}
    assert {target.rank for target in found.values()} == {UNKNOWN_RANK}


@pytest.mark.parametrize(
    ("first", "more"), [(0, {}), (1, {"TORCHELASTIC_RUN_ID": "7"})], ids=["started all", "an agent whose first ended"]
)
def test_what_started_all_ranks_is_none(start: Start, port: int, first: int, more: dict[str, str]) -> None:
    tree = lightning(port, first, **more)
    pids = start(tree)
    found = by_pid(find_job([pids[tree["label"]]]))
    assert found[pids[tree["label"]]].frameworks == ()
    ranks = {pids[f"rank{number}"] for number in (first, first + 1)}
    assert ranks <= {pid for pid, target in found.items() if target.frameworks}


def test_workers_of_a_cluster_are_those_that_are_named(start: Start) -> None:
    """As Ray starts them: with variables that nobody sees, below a process that has other jobs' workers too."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        workers = [node(name, torch=True, connect=listener.getsockname()[1]) for name in ("first", "second", "another")]
        pids = start(node("raylet", *workers))
        named = [pids["first"], pids["second"]]
        found = find_job(named)
    assert [(target.pid, target.frameworks, target.rank) for target in found] == [
        (pid, ("torch",), UNKNOWN_RANK) for pid in sorted(named)
    ]


def test_a_launcher_started_by_something_with_torch_keeps_its_job_to_itself(start: Start, port: int) -> None:
    """As a parameter search does it: each torchrun is a job of its own."""
    first = node("first", rank(0, port), torch=True)
    second = node("second", rank(1, port + 1), torch=True)
    pids = start(node("search", first, second, torch=True))
    assert {target.pid for target in find_job([pids["first"]])} == {pids["first"], pids["rank0"]}


@pytest.mark.slow
def test_climbing_to_the_main_process_ends_below_netprof() -> None:
    """What started both the job and netprof, a notebook with torch loaded, is not the job's."""
    notebook = """
import json, mmap, pathlib, subprocess, sys
path = pathlib.Path(sys.argv[1]) / "libtorch_cpu.so"
path.write_bytes(bytes(4096))
file = open(path, "rb")
held = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)
tree = json.dumps({"label": "child", "torch": True})
with subprocess.Popen([sys.executable, sys.argv[2], tree, "1"], stdout=subprocess.PIPE) as child:
    child.stdout.readline()
    find = "import sys; from netprof.probes.job.processes import find_job;"
    find += "print(*(target.pid for target in find_job([int(sys.argv[1])])))"
    found = subprocess.run([sys.executable, "-c", find, str(child.pid)], capture_output=True, text=True)
    child.kill()
print(child.pid, found.stdout, found.stderr)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-c", notebook, directory, str(PROGRAM)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    child, found = done.stdout.split()
    assert found == child


def test_a_batch_scripts_slurm_rank_is_not_given_to_what_it_spawns(start: Start) -> None:
    batch = {"SLURM_JOB_ID": "41", "SLURM_PROCID": "3", "SLURM_NTASKS": "8"}
    pids = start(node("main", node("spawned", torch=True), torch=True, environment=batch))
    found = by_pid(find_job([pids["main"]]))
    assert (found[pids["main"]].rank, found[pids["main"]].world_size) == (3, 8)
    assert found[pids["spawned"]].rank == UNKNOWN_RANK
    assert found[pids["spawned"]].frameworks == ("torch",)


def test_the_rank_of_a_process_that_a_flow_shows_first() -> None:
    script = "read line; RANK=3 WORLD_SIZE=4 sleep 60 & echo $!; read line; kill $!"
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdin is not None
        assert shell.stdout is not None
        while not procfs.command_line(shell.pid):  # it has become the shell, but the kernel is not done with it
            time.sleep(0.01)
        job = Job(find_job([shell.pid]))
        assert job.rank_of(shell.pid) == UNKNOWN_RANK
        print("go", file=shell.stdin, flush=True)
        child = int(shell.stdout.readline())
        while procfs.command_line(child) != "sleep 60":  # it is the shell until it has become sleep
            time.sleep(0.01)
        assert job.rank_of(child) == 3
        assert [(target.pid, target.rank) for target in job.changed()] == [(child, 3)]
        assert job.changed() == []
        assert job.rank_of(2**22 + 1) == UNKNOWN_RANK
        job.close()
        print("end", file=shell.stdin, flush=True)


def test_a_process_without_any_framework_is_a_target_all_the_same(start: Start) -> None:
    pids = start(node("plain"))
    (target,) = find_job([pids["plain"]])
    assert (target.rank, target.world_size, target.frameworks) == (UNKNOWN_RANK, None, ())


@pytest.mark.slow
def test_netprof_started_from_the_jobs_shell_is_no_rank(start: Start, port: int) -> None:
    pids = start(rank(0, port))
    find = "from netprof.probes.job.processes import find_job"
    script = f"import sys; {find}; print([target.pid for target in find_job([int(sys.argv[1])])])"
    environment = {**os.environ, **rank(1, port)["environment"], "PYTHONPATH": os.pathsep.join(sys.path)}
    command = ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", script, str(pids["rank0"])]
    seen = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert json.loads(seen) == [pids["rank0"]]


def test_a_hostile_name_and_command_line_do_no_harm(start: Start) -> None:
    name = ") S 1 1 (\n\x1b[2J"
    pids = start(node("\x1b[31mred\x00", comm=name))
    pid = next(iter(pids.values()))
    stat = procfs.read_stat(pid)
    assert stat is not None
    assert (stat.pid, stat.parent) == (pid, os.getpid())
    assert stat.name == r") S 1 1 (\n\x1b[2J"
    (target,) = find_job([pid])
    assert target.start_ticks == stat.start_ticks
    assert target.command.isprintable()
    assert len(target.command) <= 300


@pytest.mark.parametrize("pid", [0, -5, 1 << 40])
def test_a_number_that_is_no_pid_is_a_usage_error(pid: int) -> None:
    with pytest.raises(UsageError, match="is not a pid"):
        find_job([pid])


def test_a_pid_of_no_process() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    with pytest.raises(NetprofError, match=f"there is no process {ended.pid}") as raised:
        find_job([ended.pid])
    assert (raised.value.exit_code, bool(raised.value.hint)) == (1, True)


def test_a_zombie_has_ended() -> None:
    with subprocess.Popen(["true"]) as zombie:
        until(lambda: Path(f"/proc/{zombie.pid}/stat").read_text().split()[2] == "Z")
        with pytest.raises(NetprofError, match="has ended"):
            find_job([zombie.pid])


def test_a_process_that_is_about_to_end_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory is gone, and its environment with that: nobody hides it."""

    def gone(pid: int, names: object) -> dict[str, str]:
        raise ProcessLookupError

    monkeypatch.setattr(procfs, "read_environment", gone)
    with subprocess.Popen(["sleep", "9"]) as process:
        with pytest.raises(NetprofError, match="has ended"):
            find_job([process.pid])
        process.kill()


@pytest.mark.skipif(
    "kthreadd" not in Path("/proc/2/comm").read_text() if Path("/proc/2").exists() else True,
    reason="no kernel threads to be seen",
)
def test_a_thread_of_the_kernel() -> None:
    with pytest.raises(NetprofError, match="thread of the kernel"):
        find_job([2])


def test_netprof_does_not_profile_itself() -> None:
    with pytest.raises(UsageError, match="netprof itself"):
        find_job([os.getpid()])


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="another user's process is needed")
def test_another_users_process_names_the_missing_capability(start: Start) -> None:
    """Really as an unprivileged user, in a process that main's error handling sees."""
    pids = start(node("plain"))
    script = """
import sys
from netprof.errors import NetprofError
from netprof.probes.job.processes import find_job
try:
    find_job([int(sys.argv[1])])
except NetprofError as error:
    print(error.message)
    sys.exit(error.exit_code)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [*NOBODY, sys.executable, "-c", script, str(pids["plain"])],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == NotPermittedError.exit_code == 3, done.stderr
    assert "CAP_SYS_PTRACE" in done.stdout


def test_a_reused_pid_and_an_ended_process_are_told_apart(start: Start) -> None:
    pids = start(node("plain"))
    (target,) = find_job([pids["plain"]])
    check_same([target])
    assert is_same(target)
    with pytest.raises(NetprofError, match="now belongs to another process"):
        check_same([replace(target, start_ticks=target.start_ticks - 1)])
    os.kill(target.pid, signal.SIGKILL)
    until(lambda: not is_same(target))
    with pytest.raises(NetprofError, match="ended while netprof was attaching"):
        check_same([target])


@pytest.mark.skipif(os.geteuid() != 0, reason="a PID namespace needs root")
def test_a_pid_of_a_container_is_answered_with_the_pid_here() -> None:
    """A number that no process has here, and one of a namespace of its own has there."""
    number = int(Path("/proc/sys/kernel/pid_max").read_text()) - 9
    script = f"echo {number - 1} > /proc/sys/kernel/ns_last_pid && {{ sleep 60 & echo $!; wait; }}"
    command = ["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as outside:
        assert outside.stdout is not None
        if outside.stdout.readline() != f"{number}\n" or Path(f"/proc/{number}").exists():
            outside.kill()
            pytest.skip("pids cannot be chosen here")
        here = next(pid for pid in procfs.processes() if procfs.pid_inside(pid) == number)
        with pytest.raises(NetprofError, match=f"there is no process {number}") as raised:
            find_job([number])
        assert raised.value.hint == f"in a container process {here} has that pid: give that one"
        (target,) = find_job([here])
        assert (target.inner_pid, target.pid_namespace) == (number, Path(f"/proc/{here}/ns/pid").stat().st_ino)
        outside.kill()


def test_a_process_that_cannot_be_read_for_want_of_files_has_not_ended() -> None:
    own = Target(os.getpid(), 1)
    with no_more_open_files(), pytest.raises(NetprofError, match="Too many open files") as raised:
        check_same([own])
    assert "ulimit -n" in raised.value.hint
