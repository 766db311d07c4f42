"""Who works on many items: by a Dask cluster, here within this process."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.cluster_work import same, square, total

from netprof.errors import NetprofError, NotPermittedError, TraceError, UsageError
from netprof.session import cluster as cluster_module
from netprof.session.cluster import Cluster, Work, workers
from netprof.version import __version__

LISTENING: dict[str, Any] = {"protocol": "tcp://", "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
made: list[int] = []


def noted(item: int) -> int:
    made.append(item)
    return square(item)


def expected(items: int) -> int:
    return sum(number * number for number in range(items))


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    distributed = pytest.importorskip("distributed")
    options = {"processes": False, "n_workers": 1, "threads_per_worker": 1}
    with distributed.LocalCluster(**options, **LISTENING) as found:
        yield found.scheduler_address


@pytest.mark.slow
@pytest.mark.parametrize("items", [1, 2, 3, 16, 17, 70])
def test_a_cluster_puts_together_every_item(items: int, scheduler: str) -> None:
    with workers(scheduler) as team:
        assert isinstance(team, Cluster)
        made.clear()
        assert team.reduce(range(items), Work(noted, total, same)) == expected(items)
        assert team.reduce(range(items), Work(noted, total, same)) == expected(items)
        assert sorted(made) == sorted([*range(items)] * 2), "what was made of files that changed is not used again"


def test_a_cluster_is_nobody_else_s_default(scheduler: str) -> None:
    import distributed

    with workers(scheduler), pytest.raises(ValueError, match="No clients found"):
        distributed.client.default_client()


def test_workers_that_are_killed_again_and_again(scheduler: str) -> None:
    from distributed import KilledWorker

    with pytest.raises(NetprofError, match="killed again and again"), workers(scheduler):
        raise KilledWorker("task", cast(Any, "worker"), 3)


def test_a_scheduler_without_workers() -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(processes=False, n_workers=0, **LISTENING) as found,
        pytest.raises(NetprofError, match="has no workers"),
        workers(found.scheduler_address),
    ):
        pass


NO_ADDRESSES = ["foo", "", "127.0.0.1", "http://x", "inproc://", "inproc://127.0.0.1/1/1", "tcp://", "tcp://x:y"]


@pytest.mark.parametrize("address", [*NO_ADDRESSES, "tcp://:1", "tcp://127.0.0.1:0", "tcp://127.0.0.1:65536"])
def test_what_is_no_address_is_refused_at_once(address: str) -> None:
    pytest.importorskip("distributed")
    began_s = time.monotonic()
    with pytest.raises(UsageError, match="is no address"), workers(address):
        pass
    assert time.monotonic() - began_s < 5, "nothing is waited for"


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "tcp://localhost:65535", "tls://[::1]:8786"])
def test_addresses_that_are_some(address: str) -> None:
    pytest.importorskip("distributed")
    cluster_module._check_address(address)


def test_workers_that_have_another_netprof(scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "_own_version", lambda: "0.0")
    with (
        pytest.raises(NetprofError, match=r"Dask worker \S+ has netprof 0\.0") as caught,
        workers(scheduler),
    ):
        pass
    assert caught.value.hint == f"install netprof {__version__} where the workers run"


def test_workers_that_have_none(scheduler: str) -> None:
    class Without:
        def run(self, asked: Any, on_error: str) -> dict[str, Any]:
            assert on_error == "return"
            return {"tcp://w:1": __version__, "tcp://w:2": ModuleNotFoundError("No module")}

    with pytest.raises(NetprofError, match=r"Dask worker tcp://w:2 does not have this netprof \(No module\)"):
        cluster_module._check_workers(cast(Any, Without()))


def test_without_dask_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match="needs Dask, which is not installed"), workers("tcp://127.0.0.1:1"):
        pass


def test_what_a_worker_cannot_read_must_lie_where_it_looks(scheduler: str) -> None:
    with pytest.raises(TraceError, match="cannot read it") as caught, workers(scheduler):
        raise TraceError("cannot read it", "look there")
    assert caught.value.hint == "look there; what is named must lie at the same place for all workers"


def test_mistakes_of_ours_are_raised_as_they_are(scheduler: str) -> None:
    with pytest.raises(ZeroDivisionError), workers(scheduler):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("error", "status", "workers", "said"),
    [
        (CancelledError("gone"), "running", 2, "the cluster at tcp://x:1 failed: gone"),
        (CancelledError(), "running", 2, "the cluster at tcp://x:1 failed: CancelledError"),
        (OSError("reset"), "running", 0, "all workers of tcp://x:1 are gone"),
        (OSError("reset"), "closed", 2, "the Dask scheduler at tcp://x:1 is gone"),
        (OSError(2, "no such file", "digest"), "closed", 0, None),
        (ValueError("ours"), "closed", 0, None),
    ],
)
def test_what_is_said_of_a_cluster_that_fails(error: Exception, status: str, workers: int, said: str | None) -> None:
    pytest.importorskip("distributed")
    client = SimpleNamespace(status=status, scheduler_info=lambda n_workers: {"workers": range(workers)})
    found = cluster_module._lost(error, cast(Any, client), "tcp://x:1")
    assert (found and found.message) == said


@pytest.mark.parametrize("name", ["comm.CommClosedError", "exceptions.Reschedule"])
def test_errors_of_dask_s_own_are_the_cluster_s(name: str) -> None:
    distributed = pytest.importorskip("distributed")

    def unreachable(n_workers: int) -> None:
        raise OSError

    client = SimpleNamespace(status="running", scheduler_info=unreachable)
    error = attrgetter(name)(distributed)("closed")
    found = cluster_module._lost(error, cast(Any, client), "tcp://x:1")
    assert found is not None
    assert found.message == "all workers of tcp://x:1 are gone"


@pytest.mark.slow
@pytest.mark.parametrize("who", ["nobody", "mute", "http", "worker", "without TLS"])
def test_where_no_scheduler_answers_that_is_one_line(who: str, scheduler: str) -> None:
    """Whoever else is there: as a program, which prints what objects that cannot be closed have to complain of."""
    answer = b"HTTP/1.0 400 Bad Request\r\n\r\n" * 20 if who == "http" else b""
    address = next(iter(_identity(scheduler)["workers"])) if who == "worker" else "tcp://127.0.0.1:1"
    with socket.create_server(("127.0.0.1", 0)) as server:
        if who in ("mute", "http", "without TLS"):
            threading.Thread(target=_answering, args=(server, answer), daemon=True).start()
            address = f"{'tls' if who == 'without TLS' else 'tcp'}://127.0.0.1:{server.getsockname()[1]}"
        code = f"from netprof.session import cluster; cluster._PATIENCE_S = 2.0; ASKED = {address!r}\n" + ASKS
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    assert done.stdout == f"no Dask scheduler answers at {address}\n"


ASKS = """
from netprof.errors import NetprofError
try:
    with cluster.workers(ASKED):
        pass
except NetprofError as error:
    print(error.message)
"""


def _identity(scheduler: str) -> dict[str, Any]:
    import distributed

    with distributed.Client(scheduler, set_as_default=False) as client:
        return dict(client.scheduler_info())


def _answering(server: socket.socket, answer: bytes) -> None:
    """Say the same to everybody, and keep each connection."""
    kept = []
    with contextlib.suppress(OSError):
        while True:
            kept.append(server.accept()[0])
            kept[-1].sendall(answer)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to be misused")
def test_root_on_behalf_of_another_unpickles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a scheduler answers is unpickled."""
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")
    with pytest.raises(NotPermittedError, match="--scheduler needs to give up root"), workers("tcp://127.0.0.1:1"):
        pass
