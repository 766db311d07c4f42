"""Watching the processes of a job: who joins, who becomes another, who ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from support.process_trees import PROGRAM, Start, node, rank, torchrun, until

from netprof.probes.job import watch as watch_module
from netprof.probes.job.processes import find_job
from netprof.probes.job.watch import Starts, Watch
from netprof.schema import UNKNOWN_RANK


@pytest.mark.slow
def test_a_watch_sees_processes_join_and_end(start: Start, port: int) -> None:
    first = start(torchrun(port))
    with Watch(find_job([first["rank0"]])) as watch:
        assert {target.pid for target in watch.training()} == {first["rank0"], first["rank1"]}
        assert len(watch.alive()) == 4, "with torchrun's agent, and the data loader"
        late = start(rank(2, port, TORCHELASTIC_RUN_ID="7"))["rank2"]
        assert [target.pid for target in watch.refresh()] == [late]
        assert watch.refresh() == []
        assert not watch.wait(0)
        os.kill(first["rank1"], signal.SIGKILL)
        assert watch.wait(10)
        assert first["rank1"] not in {target.pid for target in watch.alive()}
        assert {target.pid for target in watch.training()} == {first["rank0"], late}


class Told:
    """Says of programs that started what it is given, as the kernel's program does."""

    def __init__(self) -> None:
        self.started: list[tuple[set[int], bool]] = []

    def drain(self) -> tuple[set[int], bool]:
        return self.started.pop(0) if self.started else (set(), True)

    def close(self) -> None:
        pass


def test_a_rank_that_starts_elsewhere_is_heard_of_once(
    start: Start, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "LISTEN_EVERY_S", 0.0)
    first = start(rank(0, port))["rank0"]
    starts = Told()
    with Watch(find_job([first]), cast(Starts, starts)) as watch:
        watch.refresh()
        assert not watch.heard()
        stranger = start(node("stranger"))["stranger"]
        starts.started.append(({stranger}, True))
        assert not watch.heard(), "no rank of this job"
        late = start(rank(1, port))["rank1"]
        starts.started.append(({late}, True))
        assert watch.heard()
        assert [target.pid for target in watch.refresh()] == [late]
        assert not watch.heard()
        starts.started.append((set(), False))
        assert not watch.heard(), "nothing started"
        starts.started.append(({stranger}, False))
        assert watch.heard(), "some of what started is not known"


def test_a_watch_does_not_take_up_a_process_with_a_reused_pid(start: Start) -> None:
    pids = start(node("plain"))
    (target,) = find_job([pids["plain"]])
    with Watch([replace(target, start_ticks=target.start_ticks - 1)]) as watch:
        assert watch.alive() == []


def test_what_a_watched_process_becomes_is_news(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    tree = node("python", torch=True)
    script = 'read line < "$1"; export RANK=1 WORLD_SIZE=2; exec "$2" "$3" "$4" 1'
    command = ["sh", "-c", script, "sh", str(gate), sys.executable, str(PROGRAM), json.dumps(tree)]
    shell = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        with Watch(find_job([shell.pid])) as watch:
            assert watch.training() == []
            gate.write_text("go\n")
            assert shell.stdout is not None
            assert shell.stdout.readline().split() == ["python", str(shell.pid)]
            (news,) = watch.refresh()
            assert (news.pid, news.rank, news.frameworks) == (shell.pid, 1, ("torch",))
            assert watch.training() == [news]
    finally:
        shell.kill()
        shell.communicate()


@pytest.mark.parametrize("given", ["torchrun", "rank1"])
def test_what_started_the_ranks_is_watched_and_is_no_rank_when_they_have_ended(
    start: Start, port: int, given: str
) -> None:
    pids = start(torchrun(port))
    with Watch(find_job([pids[given]])) as watch:
        assert [target.pid for target in watch.launchers()] == [pids["torchrun"]]
        for name in ("rank0", "rank1", "loader"):
            os.kill(pids[name], signal.SIGKILL)
        until(lambda: len(watch.alive()) == 1)
        watch._thorough_at_s = 0.0
        assert watch.refresh() == []
        assert [target.pid for target in watch.launchers()] == [pids["torchrun"]]
        assert watch.training() == []
        os.kill(pids["torchrun"], signal.SIGKILL)
        until(lambda: not watch.alive())
        assert watch.launchers() == []


def test_that_a_process_says_nothing_more_of_itself_as_it_ends_is_no_news(start: Start, port: int) -> None:
    """Its memory, and with it its environment and command line, is gone a moment before it has ended."""
    (target,) = find_job([start(rank(0, port))["rank0"]])
    with Watch([target]) as watch:
        assert watch._is_news(replace(target, rank=1))
        assert not watch._is_news(replace(target, command="", rank=UNKNOWN_RANK, frameworks=()))
