"""Connections that never came to be, and ranks that have too little CPU."""

from pathlib import Path

import pytest
from support.synthetic import ITERATION_NS, MS, START_NS, Job

from netprof.analysis import analyze
from netprof.analysis.findings.flows.connects import CONNECTS
from netprof.analysis.findings.stragglers.cpu_shortage import CpuShortage, CpuShortages
from netprof.analysis.findings.stragglers.doing import CPU_TAKEN, GARBAGE
from netprof.analysis.findings.verdict.grounds import Case
from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.schema import MarkKind
from netprof.trace import TraceReader


@pytest.mark.parametrize(("answered", "payload", "failed"), [(False, 0, 1), (True, 0, 1), (True, 100, 0)])
def test_a_connection_that_carries_nothing_has_failed(
    answered: bool, payload: int, failed: int, tmp_path: Path
) -> None:
    job = Job(iterations=3)
    job.wire = [(1, 0, START_NS + n * MS, payload, 74) for n in range(3)]
    if answered:
        job.wire += [(1, 1, START_NS + n * MS, payload, 54) for n in range(3)]
    found = analyze(TraceReader(job.write(tmp_path / "t.netprof"))).of(CONNECTS)
    assert len(found) == failed
    if failed:
        assert found[0].answered == answered
        assert ("refused" if answered else "not answered") in found[0].sentence


def test_in_what_a_ring_kept_an_idle_connection_has_not_failed(tmp_path: Path) -> None:
    """It may have been established in what the ring let go of, and its keepalives look like tries that are refused."""
    job = Job(iterations=3)
    job.wire = [(1, way, START_NS + n * MS, 0, 66) for n in range(3) for way in (0, 1)]
    assert analyze(TraceReader(job.write(tmp_path / "t.netprof"))).of(CONNECTS)
    job.changes["trimmed"] = True
    assert not analyze(TraceReader(job.write(tmp_path / "r.netprof"))).of(CONNECTS)


def test_one_rank_alone_has_nothing_to_communicate(tmp_path: Path) -> None:
    job = Job(ranks=1, world_size=1).fill()
    found = analyze(TraceReader(job.write(tmp_path / "t.netprof"))).of(VERDICT)
    assert found.case is Case.ALONE


def test_what_the_source_says_it_stalls_for_is_the_verdict(tmp_path: Path) -> None:
    job = Job().fill()
    job.wire = []
    job.changes["stalled"] = "tensor grad.2 waits for rank 3 for 60.0 s"
    found = analyze(TraceReader(job.write(tmp_path / "t.netprof"))).of(VERDICT)
    assert (found.case, "rank 3" in found.sentence) == (Case.STALLED, True)


def _rank(rank: int, periods: int = 0, throttled: int = 0, waits_for: float = 0.0) -> CpuShortage:
    return CpuShortage(100 + rank, f"rank {rank}", rank, periods, throttled, waits_for)


def test_a_quota_that_throttles_is_named_before_cpus_that_all_want() -> None:
    short = CpuShortages((_rank(0, waits_for=1.5), _rank(1, 100, 59, 1.6)))
    assert "CPU quota of rank 1 throttles it in 59 %" in short.sentence
    assert short.explains(CPU_TAKEN.name, 1)
    assert not short.explains(CPU_TAKEN.name, 0)
    every = CpuShortages((_rank(0, waits_for=1.5), _rank(1, waits_for=0.7)))
    assert "0.7 to 1.5 CPUs" in every.sentence
    assert every.explains(CPU_TAKEN.name, 0)
    assert not every.explains(GARBAGE.name, 0)


def test_enough_cpus_are_not_mentioned() -> None:
    assert CpuShortages((_rank(0, waits_for=1.5), _rank(1, waits_for=0.1))).sentence == ""
    assert CpuShortages((_rank(0, 8, 8), _rank(1))).sentence == "", "too few periods"


def test_a_hand_of_steps_in_a_long_recording_is_too_little(tmp_path: Path) -> None:
    job = stepping(3)
    job.changes["stopped_ns"] = START_NS + 100 * ITERATION_NS
    found = analyze(TraceReader(job.write(tmp_path / "t.netprof"))).of(VERDICT)
    assert found.case is Case.TOO_LITTLE


def stepping(steps: int) -> Job:
    """Two ranks with an optimizer step each 200 ms, and no byte."""
    job = Job(iterations=steps)
    for step in range(steps + 1):
        for pid in (100, 101):
            job.mark(START_NS + step * ITERATION_NS, pid, MarkKind.BACKWARD)
            job.mark(START_NS + step * ITERATION_NS + 150 * MS, pid, MarkKind.OPTIMIZER_STEP)
    return job


def test_a_connection_that_idles_was_not_refused(tmp_path: Path) -> None:
    """Keepalives of one that was there before, and their answers."""
    job = Job().fill()
    more = {"flow_id": 3, "local_port": 55_555, "remote_addr": "35.186.228.49", "remote_port": 443}
    job.flow_changes = {name: [*column, more.get(name, column[0])] for name, column in job.flows().items()}
    job.wire += [(3, way, START_NS + n * 400 * MS, 0, 66) for n in range(4) for way in (0, 1)]
    new = analyze(TraceReader(job.write(tmp_path / "new.netprof"))).of(CONNECTS)
    assert [(each.remote, each.answered) for each in new] == [("35.186.228.49:443", True)]
    job.flow_changes["earlier_received_packets"] = [0, 0, 60]
    assert analyze(TraceReader(job.write(tmp_path / "old.netprof"))).of(CONNECTS) == ()
