"""Digests on a real Dask cluster: a scheduler and two workers, each a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from many_digests import multiply
from support.cluster_work import Slowly, same, total
from support.synthetic import MS, Job, with_late_rank

from netprof.analysis import analyze
from netprof.analysis.hosts.open_job import open_job
from netprof.analysis.pieces import PieceSize
from netprof.errors import NetprofError
from netprof.session.cluster import Work, workers
from netprof.session.digest import write_digests
from netprof.session.slices import analyze_on
from netprof.trace import TraceReader
from netprof.trace.named import traces_named
from netprof.views.json_report import to_json

pytest.importorskip("distributed")
HOSTS = 6
ITEMS = 24
SIZE = PieceSize(rows=1, at_once=1, shortest_ns=10**9)
"""Pieces of a second: a short recording has several."""
TESTS = Path(__file__).parents[1]


class Dask:
    """A scheduler and two workers on loopback."""

    def __init__(self, place: Path) -> None:
        self.file = place / "scheduler.json"
        listen = ["--host", "127.0.0.1", "--no-dashboard"]
        self.scheduler = self._start("scheduler", *listen, "--port", "0", "--scheduler-file", str(self.file))
        self.address = self._address()
        self.workers = [self.worker(place) for _ in range(2)]

    def _start(self, *words: str) -> subprocess.Popen[str]:
        path = os.pathsep.join((str(TESTS), os.environ.get("PYTHONPATH", "")))
        command = [sys.executable, "-m", "distributed.cli.dask_" + words[0], *words[1:]]
        return subprocess.Popen(command, text=True, env=os.environ | {"PYTHONPATH": path})

    def _address(self) -> str:
        for _ in range(600):
            if self.file.exists() and (text := self.file.read_text()):
                return str(json.loads(text)["address"])
            assert self.scheduler.poll() is None, "the scheduler did not start"
            time.sleep(0.1)
        raise AssertionError("the scheduler does not say where it is")

    def worker(self, place: Path) -> subprocess.Popen[str]:
        options = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1", "--memory-limit", "0"]
        return self._start("worker", self.address, *options, "--local-directory", str(place))

    def stop(self) -> None:
        for each in (*self.workers, self.scheduler):
            each.kill()  # told to end while the scheduler does, a worker waits for it
            each.wait()


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dask]:
    cluster = Dask(tmp_path_factory.mktemp("dask"))
    try:
        wait_for_workers(cluster, 2)
        yield cluster
    finally:
        cluster.stop()


def wait_for_workers(cluster: Dask, number: int) -> None:
    from distributed import Client

    with Client(cluster.address, timeout="30s", set_as_default=False) as client:
        client.wait_for_workers(number, timeout=60)


@pytest.fixture(scope="module")
def digests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("digests")
    made = with_late_rank(Job(ranks=2, iterations=60).fill(), 1, 40 * MS).write(place / "t.netprof")
    (host,) = write_digests(TraceReader(made), place / "one", "job")
    return multiply(host, place / "many", HOSTS)


@pytest.mark.core
def test_a_cluster_says_what_one_process_says(dask, digests):
    places = traces_named([digests])
    assert len(places) == HOSTS
    found = to_json(analyze_on(dask.address, places, size=SIZE))
    assert found == to_json(analyze(open_job(places), size=SIZE))
    assert found["waiting"]["exposed_s"] > 0
    assert len(found["waiting"]["by_rank"]) == 2 * HOSTS


def test_the_command_asks_the_cluster(dask, digests):
    words = [sys.executable, "-m", "netprof", "report", str(digests), "--json"]
    asked = subprocess.run([*words, "--scheduler", dask.address], capture_output=True, text=True)
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout) == json.loads(subprocess.check_output(words, text=True))


def test_a_worker_that_is_killed_in_the_middle_loses_nothing(dask, digests, tmp_path):
    """The first worker dies with what it has made, when half of the work is done."""
    half = threading.Event()

    def kill() -> None:
        while len(list(tmp_path.iterdir())) < ITEMS // 2:
            time.sleep(0.01)
        os.kill(dask.workers[0].pid, signal.SIGKILL)
        half.set()

    threading.Thread(target=kill, daemon=True).start()
    with workers(dask.address) as team:
        found = team.reduce(list(range(ITEMS)), Work(Slowly(tmp_path), total, same))
    assert half.is_set()
    assert found == sum(range(ITEMS))
    dask.workers[0].wait()
    assert len(list(tmp_path.iterdir())) > ITEMS, "what the killed one had made was made again"
    places = traces_named([digests])
    report = to_json(analyze_on(dask.address, places, size=SIZE))
    assert report == to_json(analyze(open_job(places), size=SIZE))
    dask.workers[0] = dask.worker(tmp_path.parent)
    wait_for_workers(dask, 2)


WITHOUT_NETPROF = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "netprof":
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, Absent())
"""


def test_a_worker_without_netprof_is_named(dask, digests, tmp_path, monkeypatch):
    """Dask would wait for ever: for that worker to take what all are given."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_NETPROF)
    with monkeypatch.context() as now:
        now.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", ""))))
        without = dask.worker(tmp_path)
    try:
        wait_for_workers(dask, 3)
        with pytest.raises(NetprofError, match=r"does not have this netprof .*No module named 'netprof'") as raised:
            analyze_on(dask.address, traces_named([digests]), size=SIZE)
        assert raised.value.hint.startswith("install netprof ")
    finally:
        without.kill()
        without.wait()


@pytest.mark.parametrize("gone", ["workers", "scheduler"])
def test_a_cluster_that_is_gone_in_the_middle_is_a_line(gone, tmp_path):
    cluster = Dask(tmp_path)
    marks = tmp_path / "marks"
    marks.mkdir()

    def kill() -> None:
        while len(list(marks.iterdir())) < ITEMS // 4:
            time.sleep(0.01)
        for each in cluster.workers if gone == "workers" else [cluster.scheduler]:
            each.kill()

    try:
        wait_for_workers(cluster, 2)
        threading.Thread(target=kill, daemon=True).start()
        said = "all workers of .* are gone" if gone == "workers" else "the Dask scheduler at .* is gone"
        with pytest.raises(NetprofError, match=said), workers(cluster.address) as team:
            team.reduce(list(range(ITEMS)), Work(Slowly(marks), total, same))
    finally:
        cluster.stop()


def test_a_damaged_digest_is_left_out_and_named(dask, digests, tmp_path):
    place = tmp_path / "digests"
    shutil.copytree(digests, place)
    damaged = sorted(place.rglob("meta.json"))[HOSTS // 2]
    damaged.write_bytes(damaged.read_bytes()[:-100])
    asked = to_json(analyze_on(dask.address, traces_named([place]), size=SIZE))
    assert len(asked["hosts"]) == HOSTS - 1
    assert any("is left out" in note for note in asked["notes"]), "by name"
    assert asked == to_json(analyze(open_job(traces_named([place])), size=SIZE))


def test_nobody_answers(digests):
    done = subprocess.run(
        [sys.executable, "-m", "netprof", "report", str(digests), "--scheduler", "tcp://127.0.0.1:9"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "no Dask scheduler answers" in done.stderr
    assert "Traceback" not in done.stderr
