"""The iteration that goes on: what it waits for is known already, as far as it has come."""

import numpy as np
import pytest
from support.synthetic import BUCKETS, DONE, ITERATION_NS, MS, START_NS, WAIT, Job, mark_columns, wire_columns

from netprof.analysis.evidence import Evidence
from netprof.analysis.live.now import last_seen
from netprof.analysis.live.past_iterations import usual_range_ns
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.tables.intervals import interval
from netprof.analysis.wire.fold import WireFold
from netprof.schema import tables as every_table

LINK = LinkKey(7, "eth0")


def evidence(job, through_ns):
    """What is known at an instant of the second iteration after the whole ones."""
    tables = {"marks": mark_columns([m for m in job.marks if m[0] < through_ns]), "flows": job.flows()}
    tables["link_changes"] = job.link_changes()
    for table in ("nccl_ranks", "flow_devices", "flow_paths", "blocked"):
        tables[table] = {name: np.zeros(0, np.int64) for name in every_table()[table].names}

    def fold(asking):
        made = WireFold(asking.flows, MS)
        made.add(wire_columns(job.wire))
        return made

    return Evidence(job.meta(), tables.__getitem__, fold, is_recent=True)


@pytest.mark.parametrize(
    ("at", "cause"),
    [
        (10 * MS, "no_gradient"),
        (35 * MS, "gradients_waiting"),
        (41 * MS - 1, "gradients_waiting"),
        (WAIT + MS, "gradients_waiting"),
        (120 * MS, "gradients_waiting"),
        (DONE + 10 * MS, "after_last_byte"),
        (ITERATION_NS - MS, "after_last_byte"),
    ],
)
def test_the_cause_is_known_before_the_iteration_is_over(at, cause):
    job = Job(ranks=1, iterations=3).fill()
    last_ns = START_NS + 3 * ITERATION_NS
    causes = last_seen(evidence(job, last_ns + at), last_ns + at).causes[LINK]
    just_now = interval(last_ns + at - 1000, last_ns + at)
    assert (getattr(causes, cause) & just_now).total_ns == 1000
    assert causes.window.total_ns == 3 * ITERATION_NS + at


def test_what_is_over_is_not_changed_by_what_goes_on():
    job = Job(ranks=2, iterations=3).fill()
    through_ns = START_NS + 3 * ITERATION_NS + 100 * MS
    found = evidence(job, through_ns)
    whole, until_now = found.cause_times(LINK), last_seen(found, through_ns).causes[LINK]
    before = interval(START_NS, START_NS + 3 * ITERATION_NS)
    for cause in ("no_gradient", "gradients_waiting", "nothing_outstanding", "after_last_byte"):
        assert (getattr(until_now, cause) & before).total_ns == getattr(whole, cause).total_ns
    launch = START_NS + 3 * ITERATION_NS + BUCKETS[0][0]
    assert (until_now.gradients_waiting & interval(launch, through_ns)).total_ns == through_ns - launch


def test_an_outlier_does_not_set_the_range():
    durations = np.array([200, 201, 199, 200, 205, 198, 9000]) * MS
    assert usual_range_ns(durations) == (198 * MS, 198 * MS * 11 // 10)
    assert usual_range_ns(np.array([100, 200, 300, 400]) * MS) == (100 * MS, 400 * MS)
    assert usual_range_ns(np.array([100]) * MS) == (100 * MS, 110 * MS)
