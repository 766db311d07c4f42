"""MPI: every call against the job's own log, and training jobs that average their gradients by it; both libraries."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.mpi import Mpi
from support.training import netprof

from netprof.analysis import analyze
from netprof.analysis.events.collectives import Collectives, find_collectives
from netprof.analysis.tables.columns import UNKNOWN
from netprof.analysis.tables.marks import Marks, read_marks
from netprof.probes.marks.probe import MarkProbe
from netprof.schema import Backend, CollectiveKind, MarkKind
from netprof.trace import TraceReader

pytestmark = [
    pytest.mark.timing,
    pytest.mark.skipif(os.geteuid() != 0, reason="attaching uprobes needs root"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the layouts in MPI's tables are those of x86-64"),
]

TRAIN = Path(__file__).parents[2] / "examples" / "mpi_train.py"
LAYER_BYTES = 4 * (512 * 512 + 512)
needs_training = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("torch", "mpi4py")),
    reason="TRAINING BY MPI IS NOT TESTED: it needs torch and mpi4py",
)


@pytest.fixture(params=["openmpi", "mpich"])
def mpi(request: pytest.FixtureRequest) -> Mpi:
    library = Mpi(request.param)
    if library.missing:
        pytest.skip(library.missing)
    return library


@dataclass(frozen=True)
class Call:
    """A line of the program's own log."""

    function: str
    kind: str
    bytes: int
    ranks: int
    begin_ns: int
    end_ns: int

    @property
    def posted(self) -> bool:
        return self.function.startswith("I")


def read_calls(path: Path) -> list[Call]:
    rows = [line.split() for line in path.read_text().splitlines()]
    return [Call(function, kind, *map(int, numbers)) for function, kind, *numbers in rows]


def known_bytes(call: Call, mpi: Mpi, world: int) -> int:
    """Return the bytes that netprof can know of a call: those of the log, or UNKNOWN."""
    if call.function in ("Allgatherv", "Reduce_scatter", "Alltoallv"):
        return UNKNOWN
    derived = call.kind == "BROADCAST" and call.bytes == 12_000
    part_of_some = call.kind == "ALL_GATHER" and call.ranks != world
    return UNKNOWN if mpi.name == "mpich" and (derived or part_of_some) else call.bytes


def known_ranks(call: Call, mpi: Mpi, world: int) -> int:
    """Return the ranks that netprof can know of a call's communicator, or UNKNOWN."""
    if call.function == "Alltoallv":  # its communicator is the ninth argument
        return UNKNOWN
    return UNKNOWN if mpi.name == "mpich" and call.ranks != world else call.ranks


@pytest.fixture(params=[True, False], ids=["tcp", "shared memory"])
def calls(request: pytest.FixtureRequest, mpi: Mpi, tmp_path: Path) -> tuple[Mpi, list[tuple[Marks, list[Call]]]]:
    """Marks and log of each rank of three."""
    program, go = mpi.compile("mpi_calls.c", tmp_path), tmp_path / "go"
    with mpi.job(tmp_path, [str(program), str(go)], ranks=3, tcp=request.param) as job:
        with MarkProbe(job.pids) as probe:
            go.touch()
            job.wait_for("done", 3)  # Debian's MPICH does not always come out of MPI_Finalize over TCP
            marks = read_marks(probe.drain()["marks"])
            assert probe.skipped == []
            assert probe.warnings == []
            assert probe.lost() == 0
        own = [marks.where(marks.pid == pid) for pid in job.pids]
    return mpi, [(each, read_calls(tmp_path / f"go.{rank}")) for rank, each in enumerate(own)]


@pytest.mark.core
def test_every_call_with_its_kind_size_and_communicator(calls: tuple[Mpi, list[tuple[Marks, list[Call]]]]) -> None:
    mpi, by_rank = calls
    world = len(by_rank)
    for marks, log in by_rank:
        found = find_collectives(marks, world)
        assert len(found.unpaired_ns) == 0
        for posted, collectives in ((False, found.collectives), (True, found.posted)):
            collectives = collectives.where(collectives.begin_ns > log[0].begin_ns)  # after the first barrier
            wanted = [call for call in log if call.posted == posted and call.kind != "WAIT"]
            assert [CollectiveKind(kind).name for kind in collectives.kind] == [call.kind for call in wanted]
            assert collectives.bytes.tolist() == [known_bytes(call, mpi, world) for call in wanted]
            assert collectives.ranks.tolist() == [known_ranks(call, mpi, world) for call in wanted]
            assert {Backend.name_of(backend) for backend in collectives.backend.tolist()} == {"mpi"}
            _check_groups(collectives, wanted)


def _check_groups(collectives: Collectives, wanted: list[Call]) -> None:
    """The world and its parts are different groups wherever the communicator is known."""
    names: dict[int, set[int]] = {}
    for group, call in zip(collectives.group.tolist(), wanted, strict=True):
        if call.function not in ("Alltoallv", "Mrecv", "Sendrecv"):
            names.setdefault(call.ranks, set()).add(group)
    assert all(len(groups) == 1 for groups in names.values())
    assert len(set.union(*names.values())) == len(names)
    assert UNKNOWN not in set.union(*names.values())


def test_begins_ends_and_waits_against_the_jobs_own_clock(calls: tuple[Mpi, list[tuple[Marks, list[Call]]]]) -> None:
    for marks, log in calls[1]:
        found = find_collectives(marks).collectives
        found = found.where(found.begin_ns > log[0].begin_ns)
        waits = marks.times(MarkKind.POSTED_WAIT), marks.times(MarkKind.POSTED_WAIT_OVER)
        for (begin_ns, end_ns), wanted in (
            ((found.begin_ns, found.end_ns), [call for call in log if not call.posted and call.kind != "WAIT"]),
            (waits, [call for call in log if call.kind == "WAIT"]),
        ):
            before, after = (np.array([getattr(call, name) for call in wanted]) for name in ("begin_ns", "end_ns"))
            assert (before <= begin_ns).all()
            assert (begin_ns <= end_ns).all()
            assert (end_ns <= after).all()
            assert np.median(begin_ns - before) < 20_000
            assert np.median(after - end_ns) < 20_000


def read_log(path: Path) -> dict[str, np.ndarray]:
    text = path.read_text()
    rows = list(csv.DictReader(text[: text.rfind("\n")].splitlines()))
    return {name: np.array([int(row[name]) for row in rows]) for name in rows[0]}


@dataclass(frozen=True)
class Recorded:
    """A recorded training job."""

    folder: Path
    pids: list[int]
    report: dict[str, Any]


def record(mpi: Mpi, folder: Path, *options: str, tcp: bool = True, given: str = "ranks") -> Recorded:
    """Record four seconds of training, given the pids of the ranks, of one "rank" of them, or of the "launcher"."""
    command = [sys.executable, str(TRAIN), "--csv", str(folder / "{rank}.csv"), "--seconds", "60", *options]
    with mpi.job(folder, command, tcp=tcp) as job:
        pids = {"ranks": job.pids, "rank": job.pids[1:], "launcher": [job.launcher.pid]}[given]
        trace = str(folder / "t.netprof")
        done = netprof("attach", *map(str, pids), "--duration", "4s", "--json", "--no-live", "--out", trace)
        assert done.returncode == 0, done.stderr
        wait_for_the_logs(folder, TraceReader(Path(trace)).meta.stopped_ns or 0)
        return Recorded(folder, job.pids, json.loads(done.stdout))


def wait_for_the_logs(folder: Path, until_ns: int) -> None:
    """Wait until both ranks have logged an iteration that began after `until_ns`."""
    deadline = time.monotonic() + 60
    while any(read_log(folder / f"{rank}.csv")["backward_ns"][-1] < until_ns for rank in range(2)):
        assert time.monotonic() < deadline, "the job does not go on"
        time.sleep(0.1)


def check_iterations(job: Recorded, calls: int) -> int:
    """Compare iterations and exposed time with the log of each rank; returns the fewest iterations of one.

    `calls` are those of an iteration that wait.
    """
    reader = TraceReader(job.folder / "t.netprof")
    found, counts = analyze(reader).evidence.iterations, []
    for rank, pid in enumerate(job.pids):
        own, log = found.where(found.pid == pid), read_log(job.folder / f"{rank}.csv")
        which = np.searchsorted(log["backward_ns"], own.begin_ns, "right") - 1
        assert (np.diff(which) == 1).all(), "an iteration is missing or was found twice"
        inside = (log["backward_ns"] > reader.meta.started_ns) & (log["step_done_ns"] < (reader.meta.stopped_ns or 0))
        assert len(own) >= inside.sum() - 2, "only the edges are cut"
        true_ns = np.diff(log["backward_ns"])[which]
        assert np.median(np.abs(own.duration_ns - true_ns)) < max(50_000, 1e-3 * np.median(true_ns))
        quiet = log["iteration"][which] % 10 != 9  # in the others the job also asks whether time is up
        unseen = (log["waited_ns"][which] - own.exposed_phase_ns)[quiet]
        assert (unseen >= 0).all()
        assert np.median(unseen - log["around_ns"][which][quiet]) < 20_000 * calls, "Python's own part is no waiting"
        counts.append(len(own))
    return min(counts)


@pytest.mark.core
@needs_training
def test_a_training_job_over_tcp(mpi: Mpi, tmp_path: Path) -> None:
    job = record(mpi, tmp_path, "--gradient-mb", "2", given="launcher")
    assert check_iterations(job, calls=4) > 5
    report = job.report
    assert report["iterations"]["source"] == "optimizer steps"
    assert report["iterations"]["phases_s"]["exposed_communication"] > 0
    kinds = {each["kind"]: each for each in report["collectives"]["by_kind"]}
    assert {(each["backend"], each["timing"]) for each in kinds.values()} == {("mpi", "measured")}
    reduce = kinds["all-reduce"]
    assert reduce["bytes"] == pytest.approx(reduce["count"] / 2 * LAYER_BYTES, rel=1 / reduce["count"])
    assert reduce["bus_bandwidth_bps"] == pytest.approx(reduce["algorithm_bandwidth_bps"])  # 2(n-1)/n of two
    assert 1 <= report["collectives"]["payload_to_algorithm_ratio"] < 1.02
    assert {rank["rank"] for rank in report["ranks"]} == {0, 1}
    text = netprof("report", "--full", str(tmp_path / "t.netprof")).stdout
    assert any(line.split()[:2] == ["all-reduce", "mpi"] for line in text.splitlines())


@needs_training
def test_a_training_job_that_posts_its_all_reduces_and_waits(mpi: Mpi, tmp_path: Path) -> None:
    job = record(mpi, tmp_path, "--gradient-mb", "2", "--how", "posted", given="rank")
    assert check_iterations(job, calls=1) > 5
    kinds = {each["kind"]: each for each in job.report["collectives"]["by_kind"]}
    reduce = kinds["all-reduce"]
    assert (reduce["backend"], reduce["timing"]) == ("mpi", "times of posting only")
    assert reduce["bytes"] == pytest.approx(reduce["count"] / 2 * LAYER_BYTES, rel=1 / reduce["count"])
    assert reduce["bus_bandwidth_bps"] is None
    assert all(1 <= rank["collectives"]["payload_to_algorithm_ratio"] < 1.02 for rank in job.report["ranks"])


@needs_training
def test_a_training_job_through_shared_memory_has_no_link_to_be_idle(mpi: Mpi, tmp_path: Path) -> None:
    job = record(mpi, tmp_path, tcp=False)
    assert check_iterations(job, calls=16) > 5
    assert job.report["links"] == []
    assert job.report["verdict_case"] == "unseen"
    assert "idle" not in job.report["verdict"]
    assert job.report["collectives"]["by_kind"][0]["bus_bandwidth_bps"] > 0


@needs_training
def test_doctor_names_the_framework(mpi: Mpi, tmp_path: Path) -> None:
    with mpi.job(tmp_path, [sys.executable, str(TRAIN), "--seconds", "30"]) as job:
        text = " ".join(netprof("doctor", str(job.pids[0])).stdout.split())
    assert f"marks of {mpi.name}" in text
    assert "mpi" in text.partition("frameworks")[2].partition("marks of")[0]


THROWS = "mpi_throws.cpp"


@pytest.fixture
def throwing(mpi: Mpi, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A rank in C++ whose error handler throws through MPI's own functions, at every line of its input."""
    program = mpi.compile(THROWS, tmp_path, "mpicxx")
    environment = mpi.environment(tmp_path, tcp=True)
    running = subprocess.Popen(
        [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, bufsize=1
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    yield running
    running.communicate(timeout=30)
    assert running.returncode == 0, "the program did not survive being probed"


def test_returns_are_not_probed_where_an_error_handler_may_throw(throwing: subprocess.Popen[str]) -> None:
    assert throwing.stdin is not None
    assert throwing.stdout is not None
    with MarkProbe([throwing.pid]) as probe:
        throwing.stdin.write("once\n")
        assert throwing.stdout.readline() == "caught 1\n"
        marks = read_marks(probe.drain()["marks"])
        assert any("C++ exception" in skipped.reason for skipped in probe.skipped)
    found = find_collectives(marks)
    assert (len(found.collectives), len(found.posted), len(found.unpaired_ns)) == (0, 1, 0)
    assert found.posted.bytes.tolist() == [4]
