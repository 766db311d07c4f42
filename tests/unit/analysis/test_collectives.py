"""Collectives and buckets against marks whose partners are known."""

from dataclasses import replace

import numpy as np
from support.synthetic import BUCKETS, DONE, ELEMENTS, ITERATION_NS, MS, START_NS, WAIT, Job, K, mark_columns

from netprof.analysis import analyze
from netprof.analysis.events.buckets import find_buckets, outstanding_by_process
from netprof.analysis.events.collectives import find_collectives
from netprof.analysis.events.iterations import find_iterations
from netprof.analysis.findings.collectives.collectives import COLLECTIVES, summarize_collectives
from netprof.analysis.findings.collectives.ranks import RANKS
from netprof.analysis.findings.links.links import LINKS
from netprof.analysis.tables.columns import UNKNOWN
from netprof.analysis.tables.marks import read_marks
from netprof.schema import CollectiveKind
from netprof.trace import TraceReader


def parts(job):
    marks = read_marks(mark_columns(job.marks))
    iterations = find_iterations(marks).iterations
    collectives = find_collectives(marks).collectives
    return iterations, find_buckets(marks, iterations, collectives), collectives


def within(columns, name):
    """A column's times as offsets into their iteration."""
    values = getattr(columns, name)
    return ((values - START_NS) % ITERATION_NS).tolist()


def test_collectives_pair_per_thread_and_carry_their_size():
    found = find_collectives(read_marks(mark_columns(Job(iterations=1, ranks=1).fill().marks)))
    collectives = found.collectives
    assert len(found.unpaired_ns) == 0
    assert within(collectives, "begin_ns") == [BUCKETS[0][1], BUCKETS[1][1]] * 2
    assert within(collectives, "end_ns") == [BUCKETS[0][2], BUCKETS[1][2]] * 2
    assert collectives.bytes.tolist() == [4 * ELEMENTS[0], 4 * ELEMENTS[1]] * 2


def test_one_thread_id_in_two_processes_is_two_threads():
    job = Job()
    for pid, begin, end in ((1, 10, 40), (2, 20, 30)):
        job.mark(begin, pid, K.COLLECTIVE_BEGIN, tid=9)
        job.mark(end, pid, K.COLLECTIVE_END, tid=9)
    found = find_collectives(read_marks(mark_columns(job.marks)))
    assert len(found.unpaired_ns) == 0
    assert found.collectives.duration_ns.tolist() == [30, 10]
    assert found.collectives.bytes.tolist() == [UNKNOWN, UNKNOWN]
    assert len(found.collectives.all_reduces()) == 0


def test_only_all_reduces_are_all_reduces():
    job = Job(iterations=2, ranks=1).fill()
    for step in range(3):  # the buffers are broadcast in the forward pass
        at = START_NS + step * ITERATION_NS + 5 * MS
        job.marks += [
            (at, 100, 300, int(K.COLLECTIVE_BEGIN), 0, 0),
            (at + 1, 100, 300, int(K.COLLECTIVE_SIZE), 1000, 4, int(CollectiveKind.BROADCAST)),
            (at + MS, 100, 300, int(K.COLLECTIVE_END), 0, 0),
        ]
    _, buckets, collectives = parts(job)
    assert len(collectives) == 9
    assert collectives.kind.tolist() == [3, 0, 0] * 3
    assert collectives.bytes.tolist()[0] == 4000
    assert len(collectives.all_reduces()) == 6
    assert buckets.from_collective.tolist() == [1] * 4


def test_begins_and_ends_without_a_partner_are_counted_and_dropped():
    job = Job()
    for time, kind in (
        (5, K.COLLECTIVE_SIZE),  # the recording began inside a collective
        (6, K.COLLECTIVE_END),
        (10, K.COLLECTIVE_BEGIN),  # its end is lost
        (20, K.COLLECTIVE_BEGIN),
        (21, K.COLLECTIVE_SIZE),
        (30, K.COLLECTIVE_END),
        (40, K.COLLECTIVE_END),  # its begin is lost
        (50, K.COLLECTIVE_BEGIN),  # the recording ended inside it
    ):
        job.mark(time, 1, kind, 8, 4)
    found = find_collectives(read_marks(mark_columns(job.marks)))
    assert found.collectives.begin_ns.tolist() == [20]
    assert found.collectives.end_ns.tolist() == [30]
    assert found.collectives.bytes.tolist() == [32]
    assert len(found.unpaired_ns) == 4


def test_an_end_does_not_close_a_begin_of_another_thread():
    job = Job()
    job.mark(10, 1, K.COLLECTIVE_BEGIN, tid=8)  # the recording ends inside it
    job.mark(20, 1, K.COLLECTIVE_END, tid=9)  # the recording began inside it
    found = find_collectives(read_marks(mark_columns(job.marks)))
    assert len(found.collectives) == 0
    assert len(found.unpaired_ns) == 2


def test_buckets_end_with_their_collective():
    iterations, buckets, _ = parts(Job(iterations=2, ranks=2).fill())
    assert len(buckets) == 8
    assert within(buckets, "launch_ns") == [BUCKETS[0][0], BUCKETS[1][0]] * 4
    assert within(buckets, "begin_ns") == [BUCKETS[0][1], BUCKETS[1][1]] * 4
    assert within(buckets, "end_ns") == [BUCKETS[0][2], BUCKETS[1][2]] * 4
    assert buckets.bytes.tolist() == [4 * ELEMENTS[0], 4 * ELEMENTS[1]] * 4
    assert (iterations.pid[buckets.iteration] == buckets.pid).all()
    assert (iterations.begin_ns[buckets.iteration] < buckets.launch_ns).all()


def test_buckets_without_collectives_end_when_they_are_unpacked():
    job = Job(iterations=2, ranks=1).fill().without([K.COLLECTIVE_BEGIN])
    _, buckets, _ = parts(job)
    assert buckets.from_collective.tolist() == [0] * 4
    assert within(buckets, "end_ns") == [BUCKETS[0][2] + 1000, BUCKETS[1][2] + 1000] * 2
    assert set(buckets.bytes.tolist()) == {UNKNOWN}


def test_another_collective_in_the_wait_makes_the_match_uncertain_so_it_is_not_made():
    job = Job(iterations=2, ranks=1).fill()
    for time, kind in ((100, K.COLLECTIVE_BEGIN), (101, K.COLLECTIVE_SIZE), (102, K.COLLECTIVE_END)):
        job.mark(START_NS + time * MS, 100, kind, 1, 4, tid=999)
    _, buckets, _ = parts(job)
    assert buckets.from_collective.tolist() == [0, 0, 1, 1]


def test_a_collective_that_begins_before_its_bucket_is_not_its_collective():
    job = Job(iterations=1, ranks=1).fill()
    moved = START_NS + BUCKETS[1][1]
    job.marks = [(START_NS + 35 * MS, *m[1:]) if m[0] == moved and m[3] == K.COLLECTIVE_BEGIN else m for m in job.marks]
    _, buckets, _ = parts(job)
    assert buckets.from_collective.tolist() == [0, 0]


def test_a_bucket_whose_done_mark_is_lost_ends_with_the_step():
    job = Job(iterations=2, ranks=1).fill().without([K.COLLECTIVE_BEGIN])
    job.without([K.BUCKET_DONE], between=(START_NS + 138 * MS, START_NS + 139 * MS))
    _, buckets, _ = parts(job)
    assert within(buckets, "end_ns") == [BUCKETS[0][2] + 1000, DONE, BUCKETS[0][2] + 1000, BUCKETS[1][2] + 1000]


def outstanding(job):
    iterations, buckets, collectives = parts(job)
    times = outstanding_by_process(iterations, buckets, collectives)[100]
    return ((times.begin_ns - START_NS).tolist(), (times.end_ns - START_NS).tolist())


def test_outstanding_is_from_the_first_launch_to_the_last_end_where_buckets_overlap():
    assert outstanding(Job(iterations=1).fill()) == ([BUCKETS[0][0]], [BUCKETS[1][2]])


def test_outstanding_falls_back_to_the_collectives_and_then_to_the_exposed_wait():
    job = Job(iterations=1).fill().without([K.BUCKET_LAUNCH, K.BUCKET_DONE])
    assert outstanding(job) == ([BUCKETS[0][1]], [BUCKETS[1][2]])
    job.without([K.COLLECTIVE_BEGIN])
    assert outstanding(job) == ([WAIT], [DONE])


def test_row_order_does_not_matter():
    job = Job(iterations=4).fill()
    _, buckets, collectives = parts(job)
    np.random.default_rng(1).shuffle(job.marks)
    _, again, shuffled = parts(job)
    assert again.frame().equals(buckets.frame())
    columns = ["pid", "begin_ns", "end_ns", "bytes"]
    key = ["begin_ns", "pid"]
    assert (
        shuffled.frame()[columns]
        .sort_values(key, ignore_index=True)
        .equals(collectives.frame()[columns].sort_values(key, ignore_index=True))
    )


def test_another_hosts_device_of_the_same_name_limits_no_rank(tmp_path):
    """Digests of several hosts have the same number of a network namespace: that of the host."""
    whole = analyze(TraceReader(Job().fill().write(tmp_path / "t.netprof")))
    ranks = [replace(rank, host=host) for rank, host in zip(whole.of(RANKS), "ab", strict=True)]
    links = [link for host in "ab" for link in (replace(each, host=host) for each in whole.of(LINKS))]
    slow = [
        replace(link, path_rate_bps=1e6) if (link.host, link.key) == ("b", ranks[0].link) else link for link in links
    ]
    found, alone = (summarize_collectives(ranks, each, 2, 0, 0).line_rate_share for each in (slow, links))
    assert found == alone == whole.of(COLLECTIVES).summary.line_rate_share
    assert found is not None
