"""Counters of the device against samples whose increase is known."""

from support.synthetic import BYTES_PER_BIN, MS, START_NS, Job, wire_columns

from netprof.analysis.findings.links.nic import drops_by_device, nic_totals
from netprof.analysis.tables.flow_table import LinkKey, read_flows
from netprof.analysis.wire.fold import WireFold
from netprof.analysis.wire.lanes import Lanes
from netprof.schema import NIC_COUNTERS

COUNTERS = (*NIC_COUNTERS, "qdisc_drops")


def samples(rows):
    """Rows of (device, time, value); every counter has the value, receive ones twice of it."""
    columns = {"device": [r[0] for r in rows], "netns": [7] * len(rows), "time_ns": [r[1] for r in rows]}
    return columns | {name: [r[2] * (2 if name[0] == "r" else 1) for r in rows] for name in COUNTERS}


def test_increase_per_device_in_any_order_and_over_a_reset():
    totals = nic_totals(
        samples([("b", 30, 5), ("a", 10, 100), ("b", 20, 1000), ("b", 10, 900), ("a", 20, 150)]), Lanes({})
    )
    assert totals[LinkKey(7, "a")].tx_bytes == 50
    assert totals[LinkKey(7, "a")].rx_drops == 100
    assert totals[LinkKey(7, "b")].tx_packets == 100 + 5  # the device was reset between 20 and 30
    assert (totals[LinkKey(7, "b")].first_ns, totals[LinkKey(7, "b")].last_ns) == (10, 30)
    assert totals[LinkKey(7, "b")].samples == 3


def test_the_jobs_part_is_counted_between_the_same_two_samples():
    job = Job(iterations=1).fill()
    fold = WireFold(read_flows(job.flows(), {}), MS)
    fold.add(wire_columns(job.wire))
    rows = [("eth0", START_NS + 60 * MS, 0), ("eth0", START_NS + 70 * MS, 3_000_000)]
    total = nic_totals(samples(rows), fold.lanes())[LinkKey(7, "eth0")]
    assert total.job_tx_bytes == 10 * BYTES_PER_BIN
    assert total.tx_bytes == 3_000_000


def test_drops_are_told_between_the_samples_that_saw_them():
    rows = samples([("a", 30, 7), ("b", 10, 5), ("a", 10, 1), ("a", 20, 1), ("a", 40, 2), ("b", 20, 5)])
    found = drops_by_device(rows)
    assert list(found) == [LinkKey(7, "a")]
    drops = found[LinkKey(7, "a")]
    assert drops.begin_ns.tolist() == [20, 30]
    assert drops.end_ns.tolist() == [30, 40]
    assert drops.packets.tolist() == [6 + 12, 2 + 4]  # and after a reset what is counted from zero
