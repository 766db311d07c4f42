"""`netprof attach` on a real `horovodrun -np 2` job over gloo, against the job's own log and against arithmetic."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.training import netprof

from netprof.analysis import analyze
from netprof.schema import MarkKind
from netprof.trace import TraceReader

pytest.importorskip("horovod.torch", reason="HOROVOD IS NOT TESTED: build it with examples/build_horovod")
pytestmark = [pytest.mark.timing, pytest.mark.skipif(os.geteuid() != 0, reason="attaching uprobes needs root")]

TRAIN = Path(__file__).parents[2] / "examples" / "horovod_train.py"
PARAMETERS = 2 * 8  # of the eight layers that 8.4 MB are
GRADIENT_BYTES = 8 * 4 * (512 * 512 + 512)


class Job:
    """A running `horovodrun`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        launcher = [sys.executable, "-m", "horovod.runner.launch"]
        command = [sys.executable, str(TRAIN), "--csv", str(directory / "rank{rank}.csv"), "--gradient-mb", "8.4"]
        paths = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
        self.output = directory / "output"
        with open(self.output, "w") as output:
            self.launcher = subprocess.Popen(
                [*launcher, "-np", "2", "--gloo", *command, "--seconds", "15"],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PATH": paths, "HOROVOD_TIMELINE": str(directory / "timeline.json")},
                start_new_session=True,
            )
        self.pids = self._wait_for_training()

    def _wait_for_training(self) -> list[int]:
        for _ in range(600):
            words = self.output.read_text().split()
            pids = [word.removeprefix("pid=") for word in words if word.startswith("pid=")]
            ranks = [word.removeprefix("rank=") for word in words if word.startswith("rank=")]
            if len(ranks) == 2:
                return [int(pid) for _, pid in sorted(zip(ranks, pids, strict=True))]
            assert self.launcher.poll() is None, self.output.read_text()
            time.sleep(0.1)
        raise AssertionError(f"the job did not start: {self.output.read_text()}")

    def log(self, rank: int) -> dict[str, np.ndarray]:
        text = (self.directory / f"rank{rank}.csv").read_text()
        rows = list(csv.DictReader(text[: text.rfind("\n")].splitlines()))
        return {name: np.array([int(row[name]) for row in rows]) for name in rows[0]}

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.launcher.pid, signal.SIGKILL)
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.launcher.wait(30)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Job, Path, dict[str, Any]]]:
    directory = tmp_path_factory.mktemp("horovod")
    job = Job(directory)
    try:
        trace = directory / "t.netprof"
        done = netprof("attach", str(job.launcher.pid), "--duration", "6s", "--json", "--no-live", "--out", str(trace))
        assert done.returncode == 0, done.stderr
        yield job, trace, json.loads(done.stdout)
    finally:
        job.stop()


def test_iterations_are_those_that_the_job_logged(recorded: tuple[Job, Path, dict[str, Any]]) -> None:
    job, trace, report = recorded
    reader = TraceReader(trace)
    found = analyze(reader).evidence.iterations
    assert report["iterations"]["source"] == "optimizer steps"
    for rank, pid in enumerate(job.pids):
        own = found.where(found.pid == pid)
        log = job.log(rank)
        which = np.searchsorted(log["backward_ns"], own.begin_ns, "right") - 1
        assert (np.diff(which) == 1).all(), "an iteration is missing or was found twice"
        inside = (log["backward_ns"] > reader.meta.started_ns) & (log["step_done_ns"] < (reader.meta.stopped_ns or 0))
        assert len(own) >= inside.sum() - 2, "only the edges are cut"
        assert len(own) > 10
        true_ns = np.diff(log["backward_ns"])[which]
        assert np.median(np.abs(own.duration_ns - true_ns)) < max(50_000, 1e-3 * np.median(true_ns))
        # All that step() does but the update itself is waiting; nothing waits outside of it, but for every tenth
        # iteration's question whether time is up.
        stepping_ns = (log["step_done_ns"] - log["backward_done_ns"])[which]
        asks = log["iteration"][which] % 10 == 9
        assert (own.exposed_phase_ns[~asks] <= stepping_ns[~asks]).all()
        assert np.median(own.exposed_phase_ns / stepping_ns) > 0.5


def test_every_tensor_is_enqueued_fused_and_done(recorded: tuple[Job, Path, dict[str, Any]]) -> None:
    job, trace, report = recorded
    tables = analyze(TraceReader(trace)).evidence
    for rank, pid in enumerate(job.pids):
        own = tables.iterations.where(tables.iterations.pid == pid)
        marks = tables.marks.where(
            (tables.marks.pid == pid)
            & (tables.marks.time_ns >= own.begin_ns[0])
            & (tables.marks.time_ns < own.end_ns[-1])
        )
        enqueued = marks.of(MarkKind.HOROVOD_ENQUEUE)
        checks = (len(own) + 9) // 10 + 1  # the job's own broadcasts, every tenth iteration
        assert len(own) * PARAMETERS <= len(enqueued) <= len(own) * PARAMETERS + checks
        assert (np.diff(enqueued.arg0) == 1).all()
        transfers = marks.of(MarkKind.HOROVOD_TRANSFER)
        assert (transfers.arg0 * transfers.arg1)[transfers.arg2 == 0].sum() == len(own) * GRADIENT_BYTES
        responses = marks.of(MarkKind.HOROVOD_RESPONSE)
        reduces = responses.where(responses.arg0 == 0)
        assert ((reduces.arg2 - reduces.arg1) // 32).sum() == len(own) * PARAMETERS
        summary = next(each for each in report["horovod"] if each["pid"] == pid)
        stages = ("negotiating_ns", "packing_ns", "transferring_ns", "unpacking_ns")
        assert sum(summary[stage] for stage in stages) == summary["outstanding_ns"]
        assert min(summary[stage] for stage in stages) > 0
        assert summary["tensors_per_response"] > 1, f"rank {rank} fused nothing"


def test_the_wire_carries_what_the_all_reduces_need(recorded: tuple[Job, Path, dict[str, Any]]) -> None:
    _, _, report = recorded
    kinds = {(each["backend"], each["kind"]): each for each in report["collectives"]["by_kind"]}
    assert kinds["horovod", "all-reduce"]["bus_bandwidth_bps"] > 0
    assert 1 < report["collectives"]["payload_to_algorithm_ratio"] < 1.02  # negotiation goes the same way
    assert report["world_size"] == 2
    assert any(probe["name"] == "marks:horovod" for probe in report["probes"]["started"])
    assert not [probe for probe in report["probes"]["skipped"] if "horovod" in probe["name"]]


def test_the_jobs_own_timeline_agrees(recorded: tuple[Job, Path, dict[str, Any]]) -> None:
    job, _, report = recorded
    assert job.launcher.wait(60) == 0, "the job did not survive being profiled"
    out = job.directory / "timeline.netprof"
    done = netprof("timeline", str(job.directory / "timeline.json"), "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    imported = json.loads(done.stdout)
    assert imported["world_size"] == 2
    (own,) = imported["horovod"]
    seen = next(each for each in report["horovod"] if each["pid"] == job.pids[0])
    assert own["tensors_per_response"] == pytest.approx(seen["tensors_per_response"], rel=0.5)
    marks = TraceReader(out).table("marks").to_pandas()
    reduced = marks[(marks.kind == MarkKind.HOROVOD_TRANSFER) & (marks.arg2 == 0)]
    assert (reduced.arg0 * reduced.arg1).sum() == len(job.log(0)["iteration"]) * GRADIENT_BYTES
    assert any("imported from a Horovod timeline" in note for note in imported["notes"])
