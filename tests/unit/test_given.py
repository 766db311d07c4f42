"""Ranks and world size that a person names: against the environment, and against what cannot be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from netprof.errors import UsageError
from netprof.model import Target
from netprof.schema import RANK_GIVEN, RANK_OF_ENVIRONMENT, UNKNOWN_RANK
from netprof.session.job_processes import Job
from netprof.session.options import GivenRanks, RecordingOptions

SAYS = Target(10, 1, rank=1, world_size=2, frameworks=("torch",), rank_source=RANK_OF_ENVIRONMENT)
SILENT = Target(11, 1, frameworks=("torch",))
LAUNCHER = Target(12, 1)


def test_what_is_given_wins_and_what_is_not_stays() -> None:
    given = GivenRanks.parse(4, ["11=3"])
    own, silent, launcher = (given.of(target) for target in (SAYS, SILENT, LAUNCHER))
    assert (own.rank, own.world_size, own.rank_source) == (1, 4, RANK_OF_ENVIRONMENT)
    assert (silent.rank, silent.world_size, silent.rank_source) == (3, 4, RANK_GIVEN)
    assert launcher == LAUNCHER, "a launcher is in no group"
    assert GivenRanks().of(SAYS) == SAYS
    assert GivenRanks.parse(None, ["10=0"]).of(SAYS).rank_source == RANK_GIVEN


@pytest.mark.parametrize(
    ("world_size", "ranks", "message"),
    [
        (None, ["12"], "--rank 12 is not PID=N"),
        (None, ["12=-1"], "--rank 12=-1 is not PID=N"),
        (None, ["12=0x1"], "is not PID=N"),
        (None, ["12=" + "9" * 5000], "is not PID=N"),
        (None, ["١٢=1"], "is not PID=N"),
        (None, ["12=0", "12=1"], "--rank names process 12 twice"),
        (None, ["12=0", "13=0"], "--rank gives rank 0 to processes 12 and 13"),
        (2, ["12=2"], "--rank 12=2: of 2 ranks the last one is 1"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(world_size: int | None, ranks: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        RecordingOptions.parse(out=None, world_size=world_size, ranks=ranks)
    assert message in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("world_size", "ranks", "message"),
    [
        (None, ["99=0"], "--rank 99=0: the job has no process 99"),
        (None, ["11=1"], "--rank 11=1: process 10 is rank 1 by its environment"),
        (None, ["10=2"], "process 10 is rank 2: of 2 ranks the last one is 1"),
        (1, [], "process 10 is rank 1: of 1 ranks the last one is 0"),
    ],
)
def test_what_contradicts_the_job_is_a_usage_error(world_size: int | None, ranks: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        GivenRanks.parse(world_size, ranks).check([SAYS, SILENT, LAUNCHER])
    assert caught.value.message == message
    assert caught.value.hint


def test_an_environment_that_contradicts_itself_is_not_the_persons_fault() -> None:
    GivenRanks().check([SAYS, Target(13, 1, rank=7, world_size=2, frameworks=("torch",))])


def test_ranks_may_be_exchanged() -> None:
    other = Target(14, 1, rank=0, world_size=2, frameworks=("torch",))
    GivenRanks.parse(None, ["10=0", "14=1"]).check([SAYS, other])


def test_a_job_keeps_what_was_given_when_a_process_changes(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    script = 'read line < "$1"; export RANK=5; exec sleep 60'
    with subprocess.Popen(["sh", "-c", script, "sh", str(gate)]) as shell:
        stat = Path(f"/proc/{shell.pid}/stat").read_text().split()
        job = Job([Target(shell.pid, int(stat[21]))], GivenRanks.parse(None, [f"{shell.pid}=3"]))
        gate.write_text("go\n")
        job.expect_changes()
        while Path(f"/proc/{shell.pid}/comm").read_text() != "sleep\n":
            pass
        changed = job.changed()
        job.close()
        shell.kill()
    assert [(target.rank, target.rank_source) for target in changed] == [(3, RANK_GIVEN)]
    assert job.rank_of(shell.pid) == 3
    assert job.rank_of(1) == UNKNOWN_RANK


@pytest.mark.slow
def test_the_command_says_it_in_one_line_and_exits_with_2() -> None:
    for options, message in (
        (["--rank", "nonsense"], "netprof: --rank nonsense is not PID=N"),
        (["--rank", f"{os.getpid()}=4", "--world-size", "4"], "of 4 ranks the last one is 3"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "netprof", "attach", str(os.getpid()), *options], capture_output=True, text=True
        )
        assert done.returncode == UsageError.exit_code == 2
        assert message in done.stderr.splitlines()[0]
        assert "Traceback" not in done.stderr


def test_a_helper_with_the_rank_of_its_parent_contradicts_nobody() -> None:
    """As a data loader, which was started with the environment of its rank."""
    helper = Target(13, 1, rank=0, world_size=2, rank_source=RANK_OF_ENVIRONMENT)
    GivenRanks.parse(None, ["11=0"]).check([SAYS, SILENT, helper])
