"""The probe that asks NCCL's RAS: whom, how often, what becomes rows, and what goes wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.ras_server import Communicator, Rank, RasServer

from netprof.model import Target
from netprof.probes.probe import Shared
from netprof.probes.ras import probe as ras_probe
from netprof.probes.ras.probe import RasProbe
from netprof.schema import MarkKind, NcclRankState, tables

WAIT_S = 20


class Asking:
    """A probe that asks often, and all its rows."""

    def __init__(self, *targets: Target, ras: bool = True, spacing_s: float = 0.05, is_used: bool = True) -> None:
        kind = cast("type[RasProbe]", type("Often", (RasProbe,), {"spacing_s": spacing_s, "share": 1.0}))
        self.probe = kind.open(cast(Shared, SimpleNamespace(ras=ras)))
        self.probe.follow(targets)
        if is_used:
            self.probe.notice("marks", {"kind": [int(MarkKind.NCCL_ALL_REDUCE)]})
        self.rows: list[dict[str, Any]] = []

    def drain(self, *, final: bool = False) -> None:
        columns = self.probe.drain(final=final).get("nccl_ranks", {})
        if columns:
            assert list(columns) == tables()["nccl_ranks"].names
        self.rows += [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def until(self, true: Callable[[], Any]) -> None:
        deadline_s = time.monotonic() + WAIT_S
        while not true():
            assert time.monotonic() < deadline_s, (self.rows, self.probe.describe())
            time.sleep(0.01)
            self.drain()


@pytest.fixture
def process() -> Iterator[Callable[[str], Target]]:
    """Start processes with an address of RAS in their environment."""
    running: list[subprocess.Popen[bytes]] = []

    def start(address: str, **environment: str) -> Target:
        command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
        said = {**os.environ, "NCCL_RAS_ADDR": address, **environment}
        running.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=said))
        assert running[-1].stdout is not None
        running[-1].stdout.readline()
        return Target(running[-1].pid, 1, frameworks=("nccl",))

    yield start
    for each in running:
        each.communicate()


def test_ranks_are_told_when_they_change_and_at_the_end(process: Callable[..., Target]) -> None:
    with RasServer([]) as server:
        target = process(server.address)
        ranks = [Rank(0, target.pid, collectives=5), Rank(1, 1 << 21, "192.0.2.7", collectives=5)]
        server.communicators.append(Communicator(0xFEED, ranks))
        asking = Asking(target)
        asking.until(lambda: len(asking.rows) == 2)
        ranks[0].collectives = 9
        ranks[1].missing = True
        asking.until(lambda: len(asking.rows) == 3)
        asking.drain(final=True)
        asking.probe.close()
    assert [(row["rank"], row["state"], row["pid"], row["process"]) for row in asking.rows[:2]] == [
        (0, NcclRankState.RUNNING, target.pid, target.pid),
        (1, NcclRankState.RUNNING, 0, 1 << 21),
    ]
    assert (asking.rows[2]["rank"], asking.rows[2]["state"]) == (1, NcclRankState.MISSING)
    assert [(row["rank"], row["collectives"]) for row in asking.rows[3:]] == [(0, 9)]
    (started,) = asking.probe.describe().started
    assert server.address in started.detail


def test_ever_new_communicators_leave_no_trace_in_memory(
    process: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What RAS names no more is forgotten; rows after the most that a recording takes are said to be left out."""
    monkeypatch.setattr(ras_probe, "_MOST_ROWS", 5)
    with RasServer([]) as server:
        target = process(server.address)
        asking = Asking(target)
        for number in range(4):
            ranks = [Rank(0, target.pid), Rank(1, 1 << 21, "192.0.2.7")]
            server.communicators[:] = [Communicator(0xFEED + number, ranks)]
            before = asking.probe._answers
            asking.until(lambda before=before: asking.probe._answers >= before + 2)  # type: ignore[misc]
        asking.drain(final=True)
        assert set(asking.probe._written) == set(asking.probe._known)
        (started,) = asking.probe.describe().started
        asking.probe.close()
    assert len(asking.rows) == 5
    assert "rows after the first 5 are left out" in started.detail


@pytest.mark.slow
def test_it_is_not_asked_more_than_it_should(process: Callable[..., Target]) -> None:
    with RasServer([]) as server:
        target = process(server.address)
        asking = Asking(target, spacing_s=0.5)
        begin_s = time.monotonic()
        asking.until(lambda: server.said.count("status") >= 4)
        assert time.monotonic() - begin_s > 1.4
        asking.probe.close()
    assert RasProbe.spacing_s >= 1, "at most one query a second"


def test_another_jobs_ras_is_not_believed(process: Callable[..., Target]) -> None:
    with RasServer([Communicator(1, [Rank(0, 1 << 21)])]) as server:
        asking = Asking(process(server.address))
        asking.until(lambda: asking.probe.describe().skipped)
        assert asking.rows == []
        (skipped,) = asking.probe.describe().skipped
        asking.probe.close()
    assert "another job" in skipped.reason


@pytest.mark.parametrize(
    ("environment", "reason"), [({}, "nobody answers at localhost:1"), ({"NCCL_RAS_ADDR": "nonsense"}, "no address")]
)
def test_where_nobody_listens_that_is_one_line(
    environment: dict[str, str], reason: str, process: Callable[..., Target]
) -> None:
    asking = Asking(process("localhost:1", **environment))
    asking.until(lambda: asking.probe.describe().skipped)
    (skipped,) = asking.probe.describe().skipped
    asking.probe.close()
    assert reason in skipped.reason
    assert asking.rows == []


def test_of_a_job_that_has_nccl_and_does_not_call_it_nothing_is_said(process: Callable[..., Target]) -> None:
    asking = Asking(process("localhost:1"), is_used=False)
    time.sleep(0.3)  # of which nothing is to come
    assert asking.probe.describe().skipped == ()
    asking.probe.close()


def test_nobody_is_asked_where_a_person_does_not_want_it(process: Callable[..., Target]) -> None:
    with RasServer([]) as server:
        asking = Asking(process(server.address), ras=False)
        (skipped,) = asking.probe.describe().skipped
        asking.drain(final=True)
        asking.probe.close()
    assert server.said == []
    assert "--no-ras" in skipped.remedy


def test_nobody_is_asked_where_nccl_has_it_off_or_is_not_there(process: Callable[..., Target]) -> None:
    with RasServer([]) as server:
        off = process(server.address, NCCL_RAS_ENABLE="0")
        asking = Asking(off, Target(os.getpid(), 1, frameworks=("gloo",)))
        time.sleep(0.3)  # of which nothing is to come
        asking.probe.close()
    assert server.said == []
