"""Collectives that are compared before they run, and ranks that only shadow the others."""

from pathlib import Path

from support.synthetic import ITERATION_NS, MS, START_NS, Job, K

from netprof.analysis import analyze
from netprof.analysis.findings.collectives.detail_and_join import DETAIL_AND_JOIN
from netprof.trace import TraceReader


def test_comparisons_last_until_the_collective_is_handed_over(tmp_path: Path) -> None:
    job = Job(iterations=10).fill()
    for step in range(10):
        at = START_NS + step * ITERATION_NS
        job.mark(at + 30 * MS, 100, K.COLLECTIVE_CHECK)
        job.mark(at + 33 * MS, 100, K.COLLECTIVE_ENQUEUE, 7)
        job.mark(at + 37 * MS, 100, K.COLLECTIVE_ENQUEUE, 8)
    analysis = analyze(TraceReader(job.write(tmp_path / "t.netprof")))
    found = analysis.of(DETAIL_AND_JOIN)
    assert (found.checks, found.checks_ns) == (10, 10 * 7 * MS)
    assert any("TORCH_DISTRIBUTED_DEBUG=DETAIL" in note for note in analysis.notes)


def test_a_rank_without_passes_that_still_takes_part_is_out_of_data(tmp_path: Path) -> None:
    job = Job(iterations=12).fill()
    assert analyze(TraceReader(job.write(tmp_path / "all.netprof"))).of(DETAIL_AND_JOIN).shadows == ()
    since_ns = START_NS + 4 * ITERATION_NS
    job.without([K.DDP_FORWARD, K.DDP_BACKWARD, K.DDP_WAIT], pid=101, between=(since_ns, 1 << 62))
    found = analyze(TraceReader(job.write(tmp_path / "t.netprof"))).of(DETAIL_AND_JOIN)
    assert [name for name, _ in found.shadows] == ["rank 1"]
    assert found.shadows[0][1] in (3, 4)


def test_a_rank_that_never_trained_is_not_out_of_data(tmp_path: Path) -> None:
    """As one that evaluates, and gets the weights by broadcasts."""
    job = Job(iterations=12, ranks=3, world_size=3).fill()
    collectives = (K.COLLECTIVE_BEGIN, K.COLLECTIVE_SIZE, K.COLLECTIVE_END)
    job.marks = [mark for mark in job.marks if mark[1] != 102 or mark[3] in collectives]
    assert analyze(TraceReader(job.write(tmp_path / "t.netprof"))).of(DETAIL_AND_JOIN).shadows == ()
