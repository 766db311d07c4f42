"""Jobs of which no mark tells anything: what their waiting, their links and their threads tell."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.synthetic import ITERATION_NS, MS, START_NS, Job

from netprof.analysis import analyze
from netprof.analysis.account.causes import LATE_RANK, LINK_FULL
from netprof.analysis.account.late_peers import late_peers
from netprof.analysis.findings.iterations.iterations import ITERATIONS
from netprof.analysis.findings.stalls.hang import HANG
from netprof.analysis.findings.verdict.first_screen import first_screen
from netprof.analysis.findings.verdict.grounds import Case
from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.analysis.section import Analysis
from netprof.analysis.tables.blocked import read_blocked
from netprof.analysis.tables.intervals import Intervals, interval, merge
from netprof.schema import BlockedIn
from netprof.trace import TraceReader

Row = tuple[int, int, int, BlockedIn]  # begin, length, pid, kind; ns
STEPS = 30


def plain(rows: list[Row], bytes_from: int, bytes_to: int, per_bin: int = 124_000, steps: int = STEPS) -> Job:
    """Two processes without a framework that exchange bytes in a part of each 200 ms, for `steps` times."""
    job = Job(iterations=STEPS)
    for step in range(steps):
        at = START_NS + step * ITERATION_NS
        for bin_ns in range(at + bytes_from, at + bytes_to, MS):
            job.wire += [(flow, way, bin_ns, per_bin, per_bin * 125 // 124) for flow in (1, 2) for way in (0, 1)]
    begin, length, pid, kind = zip(*rows, strict=True) if rows else ((), (), (), ())
    job.extra["blocked"] = {
        "time_ns": [one + other for one, other in zip(begin, length, strict=True)],
        "period_ns": list(length),
        "pid": list(pid),
        "tid": list(pid),
        "kind": [int(each) for each in kind],
    }
    targets = job.meta().targets
    job.changes["targets"] = tuple(replace(each, frameworks=(), rank=-1, world_size=None) for each in targets)
    job.flow_changes["rank"] = [-1, -1]
    return job


def each_step(offset: int, length: int, pid: int, kind: BlockedIn, steps: int = STEPS) -> list[Row]:
    return [(START_NS + step * ITERATION_NS + offset, length, pid, kind) for step in range(steps)]


def concluded(job: Job, folder: Path) -> Analysis:
    return analyze(TraceReader(job.write(folder / "t.netprof")))


def test_a_full_link_is_the_verdict_and_the_rhythm_of_waiting_tells_the_step(tmp_path: Path) -> None:
    """The link is full for 180 of 200 ms; bytes of one step go on while the next one computes."""
    rows = [row for pid in (100, 101) for row in each_step(20 * MS, 180 * MS, pid, BlockedIn.SOCKET)]
    found = concluded(plain(rows, 15 * MS, 195 * MS), tmp_path)
    verdict, inferred = found.of(VERDICT), found.of(ITERATIONS).inferred
    assert verdict.case is LINK_FULL
    assert verdict.headline.startswith("NETWORK: the processes' links (1 Gbit/s) are full for 169 ms of every step")
    assert inferred is not None
    assert inferred.period_s == pytest.approx(0.2, rel=0.01)
    assert "no marks" in verdict.sentence
    assert verdict.step is not None
    assert sum(part.seconds for part in verdict.step.parts) == pytest.approx(verdict.step.seconds)


def test_a_process_that_sleeps_while_the_other_one_waits_is_named_with_what_it_does(tmp_path: Path) -> None:
    rows = each_step(20 * MS, 175 * MS, 100, BlockedIn.SOCKET) + each_step(20 * MS, 168 * MS, 101, BlockedIn.SLEEP)
    found = concluded(plain(rows, 190 * MS, 195 * MS), tmp_path)
    verdict = found.of(VERDICT)
    assert verdict.case is LATE_RANK
    assert verdict.headline == "HELD UP BY PROCESS 101: late, 164 ms of a mean step, asleep in a timer"


def test_without_a_rhythm_shares_are_of_all_time_and_no_step_is_said_to_have_ended(tmp_path: Path) -> None:
    begins = np.cumsum(np.random.default_rng(3).integers(60, 300, 20)) * MS + START_NS
    rows = [(int(at), 50 * MS, pid, BlockedIn.SOCKET) for at in begins for pid in (100, 101)]
    job = plain(rows, 0, 0)
    for at, length in zip(begins.tolist(), np.random.default_rng(4).integers(20, 50, 20).tolist(), strict=True):
        span = range(at, at + length * MS, MS)
        job.wire += [(flow, way, bin_ns, 124_000, 125_000) for bin_ns in span for flow in (1, 2) for way in (0, 1)]
    found = concluded(job, tmp_path)
    assert found.of(ITERATIONS).inferred is None
    screen = first_screen(found)
    assert screen.headline.startswith("NETWORK: the processes' links (1 Gbit/s) are full for")
    assert screen.headline.endswith("% of the time")
    assert "no marks tell of steps" in screen.sentence
    assert "no whole step" not in str(screen.advice)


def test_a_link_that_is_full_all_the_time_is_said_where_no_thread_was_watched(tmp_path: Path) -> None:
    verdict = concluded(plain([], 5 * MS, 195 * MS), tmp_path).of(VERDICT)
    assert verdict.case is LINK_FULL
    assert "serves 9" in verdict.headline
    assert "not known" in verdict.sentence
    half = concluded(plain([], 5 * MS, 105 * MS), tmp_path / "half").of(VERDICT)
    assert half.case is Case.ITERATIONS_UNKNOWN


@pytest.mark.parametrize(("steps", "hangs"), [(STEPS - 15, True), (STEPS - 5, False)])
def test_nothing_that_moves_for_longer_than_ever_is_a_stall(steps: int, hangs: bool, tmp_path: Path) -> None:
    since = START_NS + steps * ITERATION_NS
    rows = each_step(20 * MS, 175 * MS, 100, BlockedIn.SOCKET, steps)
    rows += [(since + 20 * MS, (STEPS + 1 - steps) * ITERATION_NS, 100, BlockedIn.SOCKET)]
    rows += [(since, (STEPS + 1 - steps) * ITERATION_NS + 20 * MS, 101, BlockedIn.SLEEP)]
    found = concluded(plain(rows, 150 * MS, 190 * MS, steps=steps), tmp_path)
    hang = found.of(HANG)
    assert (hang is not None) is hangs
    if hang is not None:
        assert hang.headline == "STALLED for 3.21 s: pid 101 is asleep in a timer"


def test_a_step_that_computes_for_as_long_as_others_did_is_no_stall(tmp_path: Path) -> None:
    """Bytes move each 2 s: that nothing moves for 1.8 s at the end is what every step does."""
    rows: list[Row] = []
    job = plain(rows, 0, 0)
    for at in range(START_NS, START_NS + 5 * 10**9, 2 * 10**9):
        job.wire += [(flow, way, at + bin_ns, 124_000, 125_000) for bin_ns in range(0, 20 * MS, MS) for flow in (1, 2) for way in (0, 1)]  # fmt: skip  # noqa: E501
    whole = job.extra["blocked"]
    whole |= {"time_ns": [START_NS + 62 * 10**8], "period_ns": [62 * 10**8], "pid": [100], "tid": [100]}
    whole["kind"] = [int(BlockedIn.SOCKET)]
    assert concluded(job, tmp_path).of(HANG) is None


def _times(*spans: tuple[int, int]) -> Intervals:
    return merge(np.array([begin for begin, _ in spans]), np.array([end for _, end in spans]))


def test_who_is_waited_for_is_the_nearest_that_does_something_else() -> None:
    """A ring of four: 0 waits for its neighbours, which wait too, but for 1 in the end; 2 computes all along."""
    traffic = {(a, b): 1.0 for a in range(4) for b in ((a + 1) % 4, (a - 1) % 4)}
    busy = {0: _times((200, 300)), 1: _times((80, 100)), 2: _times((0, 100)), 3: _times((95, 99))}
    late = late_peers({0: interval(0, 110)}, busy, traffic)
    told = list(zip(late.begin_ns.tolist(), late.end_ns.tolist(), late.culprit.tolist(), strict=True))
    by_culprit = {who: sum(end - begin for begin, end, one in told if one == who) for who in (1, 2, 3)}
    assert by_culprit == {1: 20, 2: 80, 3: 0}
    assert late_peers({0: interval(0, 110)}, busy, {(0, 1): 1000.0, (0, 2): 1.0}).culprit.tolist() == [1]


def test_all_threads_of_a_process_that_no_mark_tells_of_have_to_wait() -> None:
    kinds = [BlockedIn.LOCK, BlockedIn.SOCKET, BlockedIn.SOCKET]
    table = {"time_ns": [100, 40, 90], "period_ns": [100, 30, 30], "pid": [1] * 3, "tid": [1, 2, 2], "kind": kinds}
    found = read_blocked({name: np.array(values) for name, values in table.items()}).of_process(1)
    assert {kind.name: times.total_ns for kind, times in found.items()} == {"LOCK": 80}, "from 40 to 60 thread 2 runs"
