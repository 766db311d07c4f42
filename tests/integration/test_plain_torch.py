"""`netprof attach` on jobs without DDP: fully sharded, averaging by hand; and gloo's collectives, each by its kind."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.training import free_port, netprof, training

from netprof.analysis import analyze
from netprof.model import Meta
from netprof.probes.marks.probe import MarkProbe
from netprof.schema import NOT_SAID, CollectiveKind, MarkKind
from netprof.trace import TraceReader

pytest.importorskip("torch", reason="the job to profile is a PyTorch one")
pytestmark = [pytest.mark.timing, pytest.mark.skipif(os.geteuid() != 0, reason="BPF needs root")]

TRAIN = Path(__file__).parents[2] / "examples" / "fsdp_train.py"
OPS = Path(__file__).parents[1] / "programs" / "gloo_ops.py"
LAYERS, LAYER_BYTES = 8, 4 * (512 * 512 + 512)


@contextmanager
def ranks(script: Path, *options: str, **streams: Any) -> Iterator[list[subprocess.Popen[str]]]:
    """Start two ranks on loopback, for the block."""
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    place |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    running = [
        subprocess.Popen(
            [sys.executable, str(script), *options],
            env=os.environ | place | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
            **streams,
        )
        for rank in range(2)
    ]
    try:
        for each in running:
            assert each.stdout is not None
            assert each.stdout.readline().startswith("training"), "the job did not start"
        yield running
    finally:
        for each in running:
            each.kill()
            each.wait(30)


def read_log(path: Path) -> dict[str, np.ndarray]:
    text = path.read_text()
    rows = list(csv.DictReader(text[: text.rfind("\n")].splitlines()))
    return {name: np.array([int(row[name]) for row in rows]) for name in rows[0]}


@pytest.fixture(scope="module", params=["sharded", "by-hand"])
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, dict[str, Any]]:
    """A recorded job: how it trains, the folder with its trace and logs, and the report."""
    folder = tmp_path_factory.mktemp(request.param)
    options = ["--how", request.param, "--gradient-mb", "8.4", "--seconds", "100", "--csv", str(folder / "{rank}.csv")]
    if request.param == "by-hand":
        options += ["--accumulate", "3"]
    with ranks(TRAIN, *options) as running:
        pids = [str(each.pid) for each in running]
        trace = folder / "t.netprof"
        done = netprof("attach", *pids, "--duration", "5s", "--json", "--no-live", "--out", str(trace))
        assert done.returncode == 0, done.stderr
        (folder / "pids").write_text("\n".join(pids))
    return request.param, folder, json.loads(done.stdout)


@pytest.mark.core
def test_iterations_and_phases_are_those_that_the_job_logged(job: tuple[str, Path, dict[str, Any]]) -> None:
    how, folder, report = job
    reader = TraceReader(folder / "t.netprof")
    found = analyze(reader).evidence.iterations
    assert report["iterations"]["source"] == "optimizer steps"
    assert report["iterations"]["phases_s"]["forward"] is None
    for rank, pid in enumerate((folder / "pids").read_text().split()):
        own, log = found.where(found.pid == int(pid)), read_log(folder / f"{rank}.csv")
        which = np.searchsorted(log["backward_ns"], own.begin_ns, "right") - 1
        assert (np.diff(which) == 1).all(), "an iteration is missing or was found twice"
        assert (own.begin_ns < log["step_ns"][which]).all()
        inside = (log["backward_ns"] > reader.meta.started_ns) & (log["step_done_ns"] < (reader.meta.stopped_ns or 0))
        assert len(own) >= inside.sum() - 2, "only the edges are cut"
        assert len(own) > 10
        true_ns = np.diff(log["backward_ns"])[which]
        assert np.median(np.abs(own.duration_ns - true_ns)) < max(50_000, 1e-3 * np.median(true_ns))
        # None where gloo's threads took this one's CPU and were done before it came to wait, as on a busy machine.
        assert (own.exposed_phase_ns >= 0).all()
        assert np.median(own.exposed_phase_ns) > 0
        phases = own.backward_phase_ns + own.exposed_phase_ns + own.rest_phase_ns
        assert (phases == own.duration_ns).all()
        if how == "by-hand":  # nothing waits outside of backward and average(), but for the question whether time is up
            before_step = (log["step_ns"] - log["backward_ns"])[which]
            quiet = log["iteration"][which] % 10 != 9
            assert (own.exposed_phase_ns[quiet] < before_step[quiet]).all()


def test_collectives_are_counted_by_kind(job: tuple[str, Path, dict[str, Any]]) -> None:
    how, folder, report = job
    tables = analyze(TraceReader(folder / "t.netprof")).evidence
    pid = int((folder / "pids").read_text().split()[0])
    own = tables.iterations.where(tables.iterations.pid == pid)
    collectives = tables.collectives.where(tables.collectives.pid == pid)
    inside = (collectives.begin_ns > own.begin_ns[0]) & (collectives.begin_ns < own.end_ns[-1])
    collectives, count = collectives.where(inside), len(own)
    reduces = collectives.where(collectives.kind == CollectiveKind.ALL_REDUCE)
    gathers = collectives.where(collectives.kind == CollectiveKind.ALL_GATHER)
    assert reduces.bytes.sum() == count * LAYERS * LAYER_BYTES
    kinds = {each["kind"]: each for each in report["collectives"]["by_kind"]}
    reduce = kinds["all-reduce"]
    assert reduce["bus_bandwidth_bps"] == pytest.approx(reduce["algorithm_bandwidth_bps"])  # 2(n-1)/n of two
    if how == "sharded":
        # Every layer is gathered for its forward and again for its backward pass.
        assert gathers.bytes.sum() == pytest.approx(2 * count * LAYERS * LAYER_BYTES, rel=1.5 / count)
        assert kinds["all-gather"]["bus_bandwidth_bps"] == pytest.approx(
            kinds["all-gather"]["algorithm_bandwidth_bps"] / 2
        )
        assert any("reduce-scatters ran as all-reduces" in note for note in report["notes"])
    else:
        assert len(gathers) == 0
        assert len(reduces) == count * LAYERS * 2
    assert 1 < report["collectives"]["payload_to_algorithm_ratio"] < 1.02


def groups_of(table: Any, pid: int) -> list[tuple[int, int, int]]:
    """Return (ranks, this one's number, the context's number) of every collective of a process, as they began."""
    rows = np.flatnonzero((table["pid"] == pid) & (table["kind"] == MarkKind.COLLECTIVE_GROUP))
    rows = rows[np.argsort(table["time_ns"][rows], kind="stable")]
    contexts = list(dict.fromkeys(table["arg0"][rows].tolist()))
    return [(int(table["arg1"][row]), int(table["arg2"][row]), contexts.index(int(table["arg0"][row]))) for row in rows]


def orders_of(table: Any, pid: int) -> list[tuple[int, int]]:
    """Return (root, place in the sequence) of every collective of a process, as they began."""
    rows = np.flatnonzero((table["pid"] == pid) & (table["kind"] == MarkKind.COLLECTIVE_ORDER))
    rows = rows[np.argsort(table["time_ns"][rows], kind="stable")]
    return [(int(table["arg0"][row]), int(table["arg1"][row])) for row in rows]


@pytest.mark.core
def test_every_collective_of_gloo_with_its_size() -> None:
    with ranks(OPS, stdin=subprocess.PIPE) as running:
        with MarkProbe([each.pid for each in running]) as probe:
            for each in running:
                assert each.stdin is not None
                each.stdin.write("go\n")
                each.stdin.flush()
            outputs = [each.communicate(timeout=60)[0] for each in running]
            table = probe.drain()["marks"]
            assert probe.skipped == []
        assert all(each.returncode == 0 for each in running)
    orders, names = orders_of(table, running[0].pid), [name for name, _ in json.loads(outputs[0])["collectives"]]
    assert orders == orders_of(table, running[1].pid), "the same on all ranks, where each alone does the same too"
    calls, every = orders[: 2 * (len(names) - 2)], range(orders[0][1], orders[0][1] + 2 * (len(names) - 2))
    assert [place for _, place in calls] == list(every), "a barrier follows each"
    rooted = ("BROADCAST", "REDUCE", "GATHER", "SCATTER")
    assert [root for root, _ in calls[::2]] == [0 if name in rooted else NOT_SAID for name in names[:-2]]
    for each, output in zip(running, outputs, strict=True):
        rows = np.flatnonzero((table["pid"] == each.pid) & (table["kind"] == MarkKind.COLLECTIVE_SIZE))
        rows = rows[np.argsort(table["time_ns"][rows], kind="stable")]
        found = [
            [CollectiveKind(table["arg2"][row]).name, int(table["arg0"][row] * table["arg1"][row])] for row in rows
        ]
        assert [pair for pair in found if pair[0] != "BARRIER"] == json.loads(output)["collectives"]
        assert groups_of(table, each.pid) == [tuple(group) for group in json.loads(output)["groups"]]
        for kind, name in ((MarkKind.SEND_POSTED, "sent"), (MarkKind.RECEIVE_POSTED, "received")):
            posted = table["arg0"][(table["pid"] == each.pid) & (table["kind"] == kind)]
            assert posted.tolist() == json.loads(output)[name]


def check_forward_marks(marks: Any, log: dict[str, np.ndarray], meta: Meta) -> None:
    """Every forward pass is marked once, between its begin and its end in the job's own log, and nothing else is."""
    found = np.sort(marks.where(marks.kind == MarkKind.FORWARD).time_ns)
    inside = (log["begin_ns"] > meta.started_ns) & (log["end_ns"] < (meta.stopped_ns or 0))
    inside &= np.isin(log["kind"], ["sync", "local"])
    begin_ns, done_ns = log["begin_ns"][inside], log["forward_done_ns"][inside]
    assert {"sync", "local"} <= set(log["kind"][inside])
    assert (np.searchsorted(found, done_ns) - np.searchsorted(found, begin_ns) == 1).all()
    between = np.searchsorted(found, begin_ns[1:]) - np.searchsorted(found, done_ns[:-1])
    assert (between == 0).all(), "a forward pass that the job did not do"


def test_ddp_with_accumulated_gradients_is_one_iteration_of_several_backward_passes(tmp_path: Path) -> None:
    starts = [subprocess.Popen, subprocess.Popen]
    options = ["--gradient-mb", "2", "--width", "256", "--no-sync", "3"]
    with training(starts, tmp_path, *options) as ddp:
        done = netprof(
            "attach", *map(str, ddp.pids), "--duration", "3s", "--json", "--no-live", "--out", str(tmp_path / "t")
        )
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        tables = analyze(reader := TraceReader(tmp_path / "t")).evidence
        for rank, pid in enumerate(ddp.pids):
            log = ddp.log(rank)
            sync = log["kind"] == "sync"
            begin_ns, end_ns = log["begin_ns"][sync], log["end_ns"][sync]
            own = tables.iterations.where(tables.iterations.pid == pid)
            which = np.searchsorted(begin_ns, own.begin_ns, "right") - 1
            assert (np.diff(which) == 1).all(), "an iteration is missing or was found twice"
            inside = (begin_ns > reader.meta.started_ns) & (end_ns < (reader.meta.stopped_ns or 0))
            assert len(own) >= inside.sum() - 2
            passes = tables.marks.where((tables.marks.pid == pid) & (tables.marks.kind == MarkKind.BACKWARD)).time_ns
            counts = np.searchsorted(passes, own.end_ns) - np.searchsorted(passes, own.begin_ns)
            assert (counts == 3).all(), "three backward passes an iteration"
            check_forward_marks(tables.marks.where(tables.marks.pid == pid), log, reader.meta)
    assert report["iterations"]["source"] == "ddp"
