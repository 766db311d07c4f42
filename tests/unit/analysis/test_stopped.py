"""Jobs that end because a process of theirs fails: which, how, and for whom it had waited."""

import signal
from pathlib import Path

import numpy as np
import pytest
from support.synthetic import ITERATION_NS, MS, START_NS, WAIT, Job, K

from netprof.analysis import analyze
from netprof.analysis.events.exits import Exit
from netprof.analysis.findings.stalls.after_exit import after_exit
from netprof.analysis.findings.stalls.stopped import STOPPED
from netprof.analysis.findings.verdict.grounds import Case
from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.analysis.section import Analysis
from netprof.schema import BlockedIn
from netprof.trace import TraceReader

STATUS = 1 << 32
STEPS = 10
SINCE = START_NS + STEPS * ITERATION_NS + WAIT
"""When rank 1 begins to wait in the step that does not end."""


def given_up(status: int, waited_s: float = 6.0, exits_after_s: float = 1.0, other: BlockedIn | None = None) -> Job:
    """Rank 1 waits for rank 0, which does something else, gives up and exits with a status; so does rank 0 later."""
    job = Job(iterations=STEPS).fill()
    cut = START_NS + STEPS * ITERATION_NS
    job.marks = [m for m in job.marks if m[0] < cut + (WAIT + MS if m[1] == 101 else 10 * MS)]
    until = SINCE + round(waited_s * 1e9)
    end = until + round(exits_after_s * 1e9)
    job.mark(end, 101, K.PROCESS_EXIT, STATUS | status)
    job.mark(end + 200 * MS, 100, K.PROCESS_EXIT, STATUS | 1 << 8)
    rows = [(SINCE, until, 101, BlockedIn.LOCK)] + ([(cut, end, 100, other)] if other is not None else [])
    rows += [] if other is not None else [(START_NS, START_NS + MS, 100, BlockedIn.CPU)]
    begin_ns, end_ns, pid, kind = (np.array(column) for column in zip(*rows, strict=True))
    length = end_ns - begin_ns
    job.extra["blocked"] = {"time_ns": end_ns, "period_ns": length, "pid": pid, "tid": pid, "kind": kind}
    job.changes["stopped_ns"] = end + 400 * MS
    return job


def concluded(job: Job, folder: Path) -> Analysis:
    return analyze(TraceReader(job.write(folder / "t.netprof")))


@pytest.mark.parametrize(("other", "does"), [(None, "computing"), (BlockedIn.SLEEP, "asleep in a timer")])
def test_who_gives_up_is_the_verdict_with_whom_it_waited_for(
    other: BlockedIn | None, does: str, tmp_path: Path
) -> None:
    verdict = concluded(given_up(1 << 8, other=other), tmp_path).of(VERDICT)
    assert verdict.case is Case.STALLED
    assert verdict.headline.startswith("STOPPED at ")
    assert "rank 1 gave up after 6.00 s of waiting for rank 0" in verdict.headline
    assert f"exited with code 1, after it had waited for 6.00 s for rank 0, which was {does}" in verdict.sentence
    assert not any("dmesg" in each.command for each in verdict.next)


def test_who_fails_without_a_wait_is_told_with_its_exit_code(tmp_path: Path) -> None:
    verdict = concluded(given_up(86 << 8, waited_s=0.1), tmp_path).of(VERDICT)
    assert verdict.headline.endswith("rank 1 (pid 101) exited with code 86")
    assert "until then" in verdict.sentence


@pytest.mark.parametrize("status", [0, signal.SIGTERM, (128 + signal.SIGTERM) << 8])
def test_a_job_that_is_ended_in_order_has_not_failed(status: int, tmp_path: Path) -> None:
    job = given_up(status, waited_s=0.1)
    job.marks = [m for m in job.marks if m[:2] != (job.marks[-1][0], 100)]
    assert concluded(job, tmp_path).of(STOPPED) is None


def test_only_sigkill_is_what_the_kernel_does_when_memory_is_short() -> None:
    for end, is_memory in ((Exit(1, 0, 9, None), True), (Exit(1, 0, None, 137), True), (Exit(1, 0, None, 86), False)):
        assert ("dmesg" in after_exit("rank 1", end).command) is is_memory
    assert "memory" not in after_exit("rank 1", Exit(1, 0, 11, None)).text
