"""Counters bound to the job's queue pairs: each once, and unbound on every way out."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.rdma_kernel import Kernel
from support.rdma_tree import Tree

from netprof.model import Target
from netprof.probes.probe import Shared
from netprof.probes.rdma.binding import BoundPairs, mend
from netprof.probes.rdma.probe import RdmaProbe
from netprof.probes.rdma.queue_pairs import QueuePair
from netprof.schema import PAIR_RECEIVED, PAIR_SENT, RDMA_PAIRS

PID = os.getpid()
WAIT_S = 20


def pairs(*numbers: int) -> list[QueuePair]:
    return [QueuePair("mlx5_0", 1, PID, number, 0) for number in numbers]


def bound(kernel: Kernel, tmp_path: Path) -> BoundPairs:
    return BoundPairs(kernel.socket, tmp_path / "bound.json")


def test_every_queue_pair_is_bound_once_and_unbound(tmp_path: Path) -> None:
    kernel = Kernel({5, 6, 9})
    holder = bound(kernel, tmp_path)
    holder.bind(pairs(5, 6))
    holder.bind(pairs(5, 6, 9))
    assert kernel.binds == [5, 6, 9]
    kernel.values["rdma_tx_bytes"] = 1 << 40
    read = holder.read()
    assert [each.pairs for each in read] == [(5,), (6,), (9,)]
    assert {(each.device, each.port, each.values["rdma_tx_bytes"]) for each in read} == {("mlx5_0", 1, 1 << 40)}
    holder.close()
    holder.close()
    assert kernel.bound == {}
    assert holder.problem == ""
    assert json.loads((tmp_path / "bound.json").read_text()) == {}


def test_what_others_have_bound_stays_theirs(tmp_path: Path) -> None:
    kernel = Kernel({5, 6}, bound={5: 3})
    holder = bound(kernel, tmp_path)
    holder.bind(pairs(5, 6))
    assert kernel.binds == [6]
    assert [each.pairs for each in holder.read()] == [(5,), (6,)], "but it is read"
    holder.close()
    assert kernel.bound == {5: 3}


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.ENOMEM])
def test_a_driver_that_cannot_is_one_line(number: int, tmp_path: Path) -> None:
    kernel = Kernel({5, 6}, refuse=number)
    holder = bound(kernel, tmp_path)
    holder.bind(pairs(5, 6))
    assert "the driver of mlx5_0/1 does not bind counters" in holder.problem
    kernel.refuse = 0
    holder.bind(pairs(5, 6, 7))
    assert kernel.binds == [], "nothing more is tried"
    holder.close()
    assert json.loads((tmp_path / "bound.json").read_text()) == {}


def test_counters_that_are_too_few(tmp_path: Path) -> None:
    kernel = Kernel({5, 6, 7}, most=2)
    holder = bound(kernel, tmp_path)
    holder.bind(pairs(5, 6, 7))
    assert "has counters for 2 queue pairs of the job only" in holder.problem
    holder.close()
    assert kernel.bound == {}


def test_without_the_right_that_is_one_line(tmp_path: Path) -> None:
    kernel = Kernel({5}, refuse=errno.EPERM)
    holder = bound(kernel, tmp_path)
    holder.bind(pairs(5))
    assert "cannot be bound to queue pairs of mlx5_0/1: Operation not permitted" in holder.problem


def test_a_queue_pair_that_is_gone_by_then_is_left_out(tmp_path: Path) -> None:
    kernel = Kernel({6})
    holder = bound(kernel, tmp_path)
    holder.bind(pairs(5, 6))
    assert (kernel.binds, holder.problem) == ([6], "")
    holder.close()
    assert kernel.bound == {}


def test_a_queue_pair_whose_number_another_one_has_now_stays_bound(tmp_path: Path) -> None:
    kernel = Kernel({5})
    holder = bound(kernel, tmp_path)
    holder.bind(pairs(5))
    kernel.bound = {5: 99}  # ours was destroyed, and a person bound a counter to a new one of that number
    holder.close()
    assert kernel.bound == {5: 99}


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from support.rdma_kernel import Kernel
from netprof.probes.rdma.binding import BoundPairs
from netprof.probes.rdma.queue_pairs import QueuePair
kernel = Kernel({5, 6})
if sys.argv[1] == "while binding":
    bind = kernel.bind
    def bind_and_die(pair):
        bind(pair)
        os.kill(os.getpid(), signal.SIGKILL)
    kernel.bind = bind_and_die
holder = BoundPairs(kernel.socket, Path("bound.json"))
holder.bind([QueuePair("mlx5_0", 1, 1, number, 0) for number in (5, 6)])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("when", "left"), [("while binding", {5: 7}), ("later", {5: 7, 6: 8})])
def test_the_next_recorder_unbinds_what_a_killed_one_left(when: str, left: dict[int, int], tmp_path: Path) -> None:
    tests = Path(__file__).parents[2]
    command = [sys.executable, "-c", KILLED, when, str(tests)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    kernel = Kernel({5, 6, 8}, bound={**left, 8: 1})
    mend(kernel.socket, tmp_path / "bound.json")
    assert kernel.bound == {8: 1}
    mend(kernel.socket, tmp_path / "bound.json")


@pytest.mark.parametrize("text", ["", "[]", '{"../../etc": {"before": 0, "holders": []}}', '{"a/1/b": 5}'])
def test_notes_that_no_recorder_wrote_do_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "bound.json").write_text(text)
    kernel = Kernel({5}, bound={5: 3})
    mend(kernel.socket, tmp_path / "bound.json")
    assert kernel.bound == {5: 3}


def recorder(tree: Tree, kernel: Kernel, *, bind: bool) -> RdmaProbe:
    scripted: dict[str, Any] = {"sysfs": tree.root, "notes": tree.root / "notes.json"}
    scripted |= {"bound_notes": tree.root / "bound.json", "statistic": staticmethod(kernel.socket)}
    scripted["queue_pairs"] = staticmethod(lambda: pairs(*kernel.pairs))
    shared = SimpleNamespace(rank_of=lambda pid: 3, bin_ns=1_000_000, series_ids=count(), line_rate_bps=None)
    shared.devices, shared.rdma_refresh_ns = (), None
    shared.rdma_bind = bind
    kind = cast("type[RdmaProbe]", type("Scripted", (RdmaProbe,), scripted))
    return kind.open(cast(Shared, shared))


def test_bytes_of_queue_pairs_are_recorded(tmp_path: Path) -> None:
    tree, kernel = Tree(tmp_path), Kernel({5, 6})
    port = tree.port("mlx5")
    probe = recorder(tree, kernel, bind=True)
    probe.follow([Target(PID, 1)])
    values: dict[tuple[str, str], int] = {}
    deadline_s = time.monotonic() + WAIT_S
    while len(values) < 4 or min(values.values()) < 5000:
        assert time.monotonic() < deadline_s, values
        kernel.values |= {"rdma_tx_bytes": 7000, "rdma_rx_bytes": 5000}
        time.sleep(0.01)
        counters = probe.drain()["counters"]
        names = {each.id: (each.subject, each.name) for each in probe.describe().series if each.source == RDMA_PAIRS}
        rows = zip(counters["series"], counters["value"], strict=True)
        values |= {names[series]: value for series, value in rows if series in names}
    assert values == {
        (f"{port.name} QP {pair}", name): moved
        for pair in (5, 6)
        for name, moved in ((PAIR_SENT, 7000), (PAIR_RECEIVED, 5000))
    }
    probe.drain(final=True)
    probe.close()
    assert kernel.bound == {}


def test_nothing_is_bound_unless_a_person_asks_for_it(tmp_path: Path) -> None:
    tree, kernel = Tree(tmp_path), Kernel({5})
    tree.port("mlx5")
    probe = recorder(tree, kernel, bind=False)
    probe.follow([Target(PID, 1)])
    probe.drain(final=True)
    probe.close()
    assert kernel.binds == []


def test_a_refusal_is_one_line_and_the_port_is_recorded(tmp_path: Path) -> None:
    tree, kernel = Tree(tmp_path), Kernel({5}, refuse=errno.ENOMEM)
    tree.port("mlx5")
    probe = recorder(tree, kernel, bind=True)
    probe.follow([Target(PID, 1)])
    probe.drain(final=True)
    (skipped,) = [each for each in probe.describe().skipped if each.name == "rdma-bind"]
    assert "does not bind counters" in skipped.reason
    assert probe.describe().devices
    probe.close()
