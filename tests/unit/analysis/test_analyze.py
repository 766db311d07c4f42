"""Whole traces whose every number is known in closed form, and everything that may be unknown."""

from dataclasses import replace

import pytest
from support.synthetic import (
    BACKWARD,
    BUCKET_BYTES,
    BUCKETS,
    BYTES_PER_BIN,
    DONE,
    ELEMENTS,
    ITERATION_NS,
    MS,
    PAYLOAD_PER_BIN,
    RATE_BPS,
    START_NS,
    WAIT,
    WIRE_FROM,
    WIRE_TO,
    Job,
    K,
    trace_of,
)

from netprof.analysis import analyze
from netprof.analysis.account.causes import LINK_FULL, TRANSPORT, UNSEEN
from netprof.analysis.findings.collectives.collectives import COLLECTIVES
from netprof.analysis.findings.collectives.ranks import RANKS
from netprof.analysis.findings.collectives.scaling import SCALING
from netprof.analysis.findings.flows.flow_properties import FLOW_PROPERTIES
from netprof.analysis.findings.flows.flows import FLOWS
from netprof.analysis.findings.iterations.iterations import ITERATIONS
from netprof.analysis.findings.links.links import LINKS
from netprof.analysis.findings.recording.recording import RECORDING
from netprof.analysis.findings.verdict.grounds import Case
from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.errors import TraceError
from netprof.model import LineRate, Losses, SkippedProbe, Target
from netprof.trace import TraceReader, TraceWriter

BUSY_BINS = (WIRE_TO - WIRE_FROM) // MS
LAUNCH, LAST_END = BUCKETS[0][0], BUCKETS[1][2]


@pytest.fixture
def analyzed(tmp_path):
    """Write a job and analyze it."""
    return lambda job: analyze(TraceReader(job.write(tmp_path / "t.netprof")))


def test_iterations_and_phases(analyzed):
    found = analyzed(Job(iterations=10).fill())
    assert found.of(ITERATIONS).count == 10
    assert found.of(ITERATIONS).durations.count == 20  # two ranks
    assert found.of(ITERATIONS).durations.median_s == found.of(ITERATIONS).durations.p90_s == 0.2
    phases = found.of(ITERATIONS).durations.phases
    assert phases.forward == pytest.approx(BACKWARD / 1e9)
    assert phases.backward == pytest.approx((WAIT - BACKWARD) / 1e9)
    assert phases.exposed_communication == pytest.approx((DONE - WAIT) / 1e9)
    assert phases.rest == pytest.approx((ITERATION_NS - DONE) / 1e9)
    assert phases.total == pytest.approx(0.2, rel=1e-12)
    assert found.of(SCALING).factor == pytest.approx(1 - (DONE - WAIT) / ITERATION_NS)
    assert [rank.rank for rank in found.of(RANKS)] == [0, 1]
    assert found.of(ITERATIONS).dropped.incomplete == 2
    assert found.of(ITERATIONS).dropped.damaged == 0
    assert found.notes == ()


def test_the_scaling_factor_against_a_single_worker(tmp_path):
    reader = TraceReader(trace_of())
    scaling = analyze(reader, baseline_s=0.15).of(SCALING)
    assert scaling is not None
    assert scaling.factor == pytest.approx(0.75)


def test_utilization_of_each_link_over_iterations_and_while_waiting(analyzed):
    found = analyzed(Job(iterations=10).fill())
    assert [link.device for link in found.of(LINKS)] == ["eth0", "eth1"]
    for link in found.of(LINKS):
        assert link.window == "iterations"
        assert link.window_ns == 10 * ITERATION_NS
        assert link.outstanding_ns == 10 * (LAST_END - LAUNCH)
        assert link.tx_bytes == link.rx_bytes == 10 * BUSY_BINS * BYTES_PER_BIN
        assert link.utilization_tx == pytest.approx(BUSY_BINS * MS / ITERATION_NS)
        assert link.utilization_outstanding_rx == pytest.approx(BUSY_BINS * MS / (LAST_END - LAUNCH))


def test_idle_time_by_cause(analyzed):
    for link in analyzed(Job(iterations=10).fill()).of(LINKS):
        for idle in (link.idle, link.idle_tx, link.idle_rx):
            assert idle.no_gradient_ns == 10 * LAUNCH
            assert idle.gradients_waiting_ns == 10 * (WIRE_FROM - LAUNCH + LAST_END - WIRE_TO)
            assert idle.nothing_outstanding_ns == 0
            assert idle.after_last_byte_ns == 10 * (ITERATION_NS - LAST_END)
            assert idle.total_ns == 10 * (ITERATION_NS - BUSY_BINS * MS)


def test_idle_between_buckets_when_the_second_is_launched_after_the_first_has_ended(analyzed):
    job = Job(iterations=4)
    for rank in range(2):
        for step in range(5):
            at = START_NS + step * ITERATION_NS
            job.step(rank, at)
            old, new = at + BUCKETS[1][0], at + 100 * MS
            job.marks = [(new, *m[1:]) if m[0] == old and m[3] == K.BUCKET_LAUNCH else m for m in job.marks]
            old, new = at + BUCKETS[1][1], at + 101 * MS
            job.marks = [(new + m[0] - old, *m[1:]) if old <= m[0] <= old + 1 and m[3] >= 10 else m for m in job.marks]
    job.wire = [row for row in job.wire if not 90 <= (row[2] - START_NS) % ITERATION_NS // MS < 100]
    link = analyzed(job).of(LINKS)[0]
    assert link.idle.nothing_outstanding_ns == 4 * 10 * MS
    assert link.outstanding_ns == 4 * (90 - 30 + 138 - 100) * MS


def test_a_link_that_two_ranks_share_waits_if_either_does(analyzed):
    job = Job(iterations=10, one_device=True, rate_bps=2e9).fill()
    shift = 10 * MS
    job.marks = [(m[0] + shift, *m[1:]) if m[1] == 101 else m for m in job.marks]  # the second rank is late
    found = analyzed(job)
    (link,) = found.of(LINKS)
    assert link.ranks == (0, 1)
    assert link.window_ns == 10 * ITERATION_NS + shift
    assert link.outstanding_ns == 10 * (LAST_END + shift - LAUNCH)
    assert link.tx_bytes == 2 * 10 * BUSY_BINS * BYTES_PER_BIN
    assert link.utilization_tx == pytest.approx(10 * BUSY_BINS * MS / link.window_ns)
    idle = link.idle
    parts = (idle.no_gradient_ns, idle.gradients_waiting_ns, idle.nothing_outstanding_ns, idle.after_last_byte_ns)
    assert sum(parts) == idle.total_ns
    assert idle.gradients_waiting_ns == 10 * (WIRE_FROM - LAUNCH + LAST_END + shift - WIRE_TO)


def test_all_reduce_bandwidths(analyzed):
    found = analyzed(Job(iterations=10).fill()).of(COLLECTIVES).summary
    running_ns = 10 * (BUCKETS[1][2] - BUCKETS[0][1])
    assert found.count == 20
    assert found.bytes == 10 * BUCKET_BYTES
    assert found.running_ns == running_ns
    assert found.algorithm_bandwidth_bps == pytest.approx(10 * BUCKET_BYTES * 8e9 / running_ns)
    assert found.bus_bandwidth_bps == pytest.approx(found.algorithm_bandwidth_bps)  # 2(n-1)/n is 1 for n = 2
    assert found.line_rate_share == pytest.approx(found.bus_bandwidth_bps / RATE_BPS)
    single = [4 * size * 8e9 / (end - begin) for size, (_, begin, end) in zip(ELEMENTS, BUCKETS, strict=True)]
    assert found.median_algorithm_bandwidth_bps == pytest.approx(sum(single) / 2)
    assert found.wire_to_algorithm_ratio == pytest.approx(BUSY_BINS * BYTES_PER_BIN / BUCKET_BYTES)
    assert found.payload_to_algorithm_ratio == pytest.approx(BUSY_BINS * PAYLOAD_PER_BIN / BUCKET_BYTES)
    assert found.wire_bytes_per_iteration == BUSY_BINS * BYTES_PER_BIN


@pytest.mark.slow
def test_the_factor_of_four_ranks(analyzed):
    found = analyzed(Job(ranks=4, world_size=4).fill()).of(COLLECTIVES).summary
    assert found.bus_bandwidth_bps == pytest.approx(1.5 * found.algorithm_bandwidth_bps)
    assert found.wire_to_algorithm_ratio == pytest.approx(BUSY_BINS * BYTES_PER_BIN / (1.5 * BUCKET_BYTES))
    assert found.count == 20


def test_flows(analyzed):
    job = Job(iterations=10, one_device=True, rate_bps=2e9).fill()
    found = analyzed(job)
    first = found.of(FLOWS)[0]
    assert (first.local, first.remote, first.rank, first.device) == ("10.0.0.1:40000", "10.0.0.2:40001", 0, "eth0")
    assert first.tx.wire_bytes == first.rx.wire_bytes == 11 * BUSY_BINS * BYTES_PER_BIN
    assert first.tx.share == 0.5
    lasted_ns = 10 * ITERATION_NS + BUSY_BINS * MS
    assert first.tx.rate_bps == pytest.approx(first.tx.wire_bytes * 8e9 / lasted_ns)
    assert first.tcp.retransmits == 3
    assert first.tcp.rtt_us == 200
    flows = found.of(FLOW_PROPERTIES)
    properties = flows.by_iteration
    assert properties.windows == flows.iterations == 10
    assert properties.data_flows == 2
    assert properties.start_skew_s == 0
    assert properties.size_equality == 1
    assert flows.port_entropy_bits == pytest.approx(1), "two flows of one size"
    assert properties.completion == pytest.approx(BUSY_BINS * MS / (BUCKETS[1][2] - BUCKETS[0][1]))


@pytest.mark.slow
def test_flows_are_held_against_each_collective_too(analyzed, tmp_path):
    job = Job(iterations=10).fill()
    job.wire = [r for r in job.wire if r[0] == 1 or (r[2] - START_NS) % ITERATION_NS >= WIRE_FROM + 20 * MS]
    found = analyzed(job).of(FLOW_PROPERTIES)
    assert found.by_collective.windows == 11, "the last iteration is cut off, its collectives are not"
    assert found.alone == 0, "two of them overlap in each"
    assert found.by_collective.start_skew_s == pytest.approx(0.020)
    assert found.by_collective.completion == pytest.approx(BUSY_BINS * MS / (BUCKETS[1][2] - BUCKETS[0][1]))
    apart = {int(K.COLLECTIVE_BEGIN): 92 * MS, int(K.COLLECTIVE_SIZE): 92 * MS + 1}  # the second one of each iteration
    second = {BUCKETS[1][1], BUCKETS[1][1] + 1}
    job.marks = [
        (m[0] - (m[0] - START_NS) % ITERATION_NS + apart[m[3]], *m[1:])
        if m[3] in apart and (m[0] - START_NS) % ITERATION_NS in second
        else m
        for m in job.marks
    ]
    again = analyze(TraceReader(job.write(tmp_path / "apart.netprof"))).of(FLOW_PROPERTIES)
    assert again is not None
    assert again.by_collective is not None
    assert (again.by_collective.windows, again.alone) == (22, 22)


def test_a_late_and_smaller_flow_shows_in_the_flow_properties(analyzed):
    job = Job(iterations=10).fill()
    job.wire = [r for r in job.wire if r[0] == 1 or (r[2] - START_NS) % ITERATION_NS >= WIRE_FROM + 20 * MS]
    properties = analyzed(job).of(FLOW_PROPERTIES).by_iteration
    assert properties.start_skew_s == pytest.approx(0.020)
    assert properties.size_equality == pytest.approx((BUSY_BINS - 20) / BUSY_BINS)


def test_a_trickle_is_no_data_flow(analyzed):
    job = Job(iterations=10).fill()
    job.wire = [(*r[:3], 10, 76) if r[0] == 2 else r for r in job.wire]
    properties = analyzed(job).of(FLOW_PROPERTIES).by_iteration
    assert properties.data_flows == 1
    assert properties.start_skew_s is None
    assert properties.size_equality is None


def test_a_pause_does_not_change_the_typical_iteration_but_the_mean(analyzed):
    job = Job(iterations=10).fill()
    pause = START_NS + 5 * ITERATION_NS - MS
    job.marks = [(m[0] + 5000 * MS, *m[1:]) if m[0] > pause else m for m in job.marks]
    found = analyzed(job).of(ITERATIONS).durations
    assert found.phases.rest == pytest.approx((ITERATION_NS - DONE) / 1e9)
    assert found.phases.total == pytest.approx(found.median_s) == pytest.approx(0.2)
    assert found.max_s == pytest.approx(5.2)
    assert found.mean_s == pytest.approx(0.7)


def test_one_unknown_line_rate_of_two_leaves_the_share_unknown(analyzed):
    job = Job().fill()
    first, second = job.meta().devices
    job.changes["devices"] = (first, replace(second, line_rate=LineRate(None, "unknown")))
    found = analyzed(job)
    assert found.of(COLLECTIVES).summary.bus_bandwidth_bps is not None
    assert found.of(COLLECTIVES).summary.line_rate_share is None
    assert found.of(LINKS)[0].utilization_tx is not None


def test_ranks_that_only_talk_over_loopback_do_not_hide_the_line_rate(analyzed):
    job = Job().fill()
    first, second = job.meta().devices
    job.changes["devices"] = (first, replace(second, device="lo", line_rate=LineRate(None, "loopback")))
    job.flow_changes["device"] = ["eth0", "lo"]
    found = analyzed(job)
    assert {rank.link.device for rank in found.of(RANKS)} == {"eth0", "lo"}
    assert found.of(COLLECTIVES).summary.line_rate_share == pytest.approx(
        found.of(COLLECTIVES).summary.bus_bandwidth_bps / RATE_BPS
    )


def nulls(found):
    return {name for name in dir(found) if not name.startswith("_") and getattr(found, name) is None}


def test_without_a_line_rate_nothing_is_a_share_of_a_guess(analyzed):
    found = analyzed(Job(rate_bps=None).fill())
    assert nulls(found.of(LINKS)[0]) >= {
        "line_rate_bps",
        "utilization_tx",
        "utilization_rx",
        "utilization_outstanding_tx",
        "utilization_outstanding_rx",
    }
    assert found.of(COLLECTIVES).summary.line_rate_share is None
    assert found.of(COLLECTIVES).summary.bus_bandwidth_bps is not None
    assert found.of(LINKS)[0].idle.total_ns == 10 * (ITERATION_NS - BUSY_BINS * MS)  # bins without any packet
    assert found.of(LINKS)[0].idle_basis == "bins without a packet"
    assert found.of(VERDICT).case is TRANSPORT
    assert "--line-rate" in found.of(VERDICT).next[0].text
    assert any("line rate of eth0 is unknown" in note for note in found.notes)


@pytest.mark.parametrize("sizes", [(None, None), (2, 4)])
def test_without_one_world_size_there_is_no_bus_bandwidth(analyzed, sizes):
    job = Job().fill()
    job.changes["targets"] = tuple(
        replace(target, world_size=size) for target, size in zip(job.meta().targets, sizes, strict=True)
    )
    found = analyzed(job)
    assert nulls(found.of(COLLECTIVES).summary) == {
        "world_size",
        "bus_bandwidth_bps",
        "median_bus_bandwidth_bps",
        "line_rate_share",
        "wire_to_algorithm_ratio",
        "payload_to_algorithm_ratio",
    }
    assert found.of(COLLECTIVES).summary.algorithm_bandwidth_bps is not None
    assert any("number of ranks is unknown" in note for note in found.notes)


def test_without_marks_iterations_are_unknown_and_the_recording_is_the_window(analyzed):
    job = Job(iterations=10).fill()
    job.marks = []
    found = analyzed(job)
    assert found.of(ITERATIONS).count is None
    assert found.of(ITERATIONS).durations is None
    assert found.of(SCALING) is None
    assert found.of(FLOW_PROPERTIES) is None
    link = found.of(LINKS)[0]
    assert link.window == "recording"
    assert link.window_ns == found.of(RECORDING).recorded.total_ns == 11 * ITERATION_NS + 10 * MS
    assert link.utilization_tx == pytest.approx(11 * BUSY_BINS * MS / link.window_ns)
    assert nulls(link) == {
        "waiting_utilization",
        "outstanding_ns",
        "rated_outstanding_ns",
        "tx_bytes_outstanding",
        "rx_bytes_outstanding",
        "utilization_outstanding_tx",
        "utilization_outstanding_rx",
    }
    assert link.idle.total_ns == link.window_ns - 11 * BUSY_BINS * MS
    assert link.idle.gradients_waiting_ns is None
    assert found.of(VERDICT).case is Case.ITERATIONS_UNKNOWN


def test_without_collective_marks_there_are_phases_but_no_bandwidth(analyzed):
    found = analyzed(Job().fill().without([K.COLLECTIVE_BEGIN, K.COLLECTIVE_SIZE, K.COLLECTIVE_END]))
    assert found.of(ITERATIONS).durations.exposed_share == pytest.approx(0.49)
    assert found.of(COLLECTIVES).summary.count == 0
    assert found.of(COLLECTIVES).summary.algorithm_bandwidth_bps is None
    assert found.of(COLLECTIVES).summary.wire_to_algorithm_ratio is None
    assert any("have no collective of their own" in note for note in found.notes)


def test_without_traffic(analyzed):
    job = Job().fill()
    job.wire = []
    found = analyzed(job)
    assert found.of(FLOWS) == ()
    assert found.of(VERDICT).case is UNSEEN
    assert found.of(LINKS)[0].utilization_tx == 0


def test_an_empty_trace(tmp_path):
    meta = Job(ranks=0).meta()
    TraceWriter(tmp_path / "t", meta).close(meta)
    found = analyze(TraceReader(tmp_path / "t"))
    assert found.of(VERDICT).case is Case.NO_DATA
    assert found.of(LINKS) == ()
    assert found.of(RANKS) == ()
    assert found.of(ITERATIONS).count is None


def test_a_recorder_that_was_killed(tmp_path):
    job = Job(iterations=10).fill()
    job.changes["stopped_ns"] = None
    path = job.write(tmp_path / "t")
    wire = path / "wire.arrows"
    wire.write_bytes(wire.read_bytes()[:-40])
    found = analyze(TraceReader(path))
    assert found.of(RECORDING).recorded.truncated
    assert found.of(ITERATIONS).count == 10
    assert any("did not finish" in note for note in found.notes)


def test_a_flow_that_the_trace_does_not_describe_is_left_out_and_said(analyzed):
    job = Job().fill()
    job.wire.append((99, 0, START_NS, 1000, 1066))
    found = analyzed(job)
    assert any("1066 bytes belong to flows that the trace does not describe" in note for note in found.notes)
    assert sum(flow.tx.wire_bytes for flow in found.of(FLOWS)) == sum(r[4] for r in job.wire if r[1] == 0) - 1066


def test_losses_gaps_and_differing_counts_are_said(analyzed):
    job = Job(iterations=10).fill()
    job.marks = [mark for mark in job.marks if mark[1] == 100 or mark[0] < START_NS + 8 * ITERATION_NS + MS]
    job.without([K.DDP_WAIT], pid=100, between=(START_NS + 3 * ITERATION_NS, START_NS + 4 * ITERATION_NS))
    job.changes["losses"] = Losses(merged_bins=3, lost_marks=2, untracked_flows=1, late_flows=2, late_bytes=5_000_000)
    job.changes["probes_skipped"] = (SkippedProbe("tcp", "no permission", "CAP_BPF"),)
    job.changes["warnings"] = ("something odd",)
    notes = "\n".join(analyzed(job).notes)
    for part in (
        "2 marks were lost",
        "3 time bins were merged",
        "1 flow found the table of flows full",
        "2 flows were found after the recording had begun",
        "when their 5",
        "miss marks in the middle",
        "probe tcp was skipped: no permission (CAP_BPF)",
        "something odd",
    ):
        assert part in notes


def test_ranks_with_differing_counts_each_have_their_own(analyzed):
    job = Job(iterations=10).fill()
    job.marks = [mark for mark in job.marks if mark[1] == 100 or mark[0] < START_NS + 6 * ITERATION_NS + MS]
    found = analyzed(job)
    assert [rank.durations.count for rank in found.of(RANKS)] == [10, 6]
    assert found.of(ITERATIONS).count == 10
    assert any("between 6 and 10" in note for note in found.notes)
    assert found.of(LINKS)[1].window_ns == 6 * ITERATION_NS


def test_other_traffic_and_drops_on_the_device_are_said(analyzed):
    notes = analyzed(Job(other_traffic=0.25, drops=7).fill()).notes
    assert "20% of the bytes that eth0 counted are not the job's" in notes
    assert "eth1 counted 7 dropped packets and 0 errors" in notes


def test_two_training_processes_of_one_rank_are_said(analyzed):
    job = Job().fill()
    job.changes["targets"] = tuple(replace(target, rank=0) for target in job.meta().targets)
    assert any("the same rank" in note for note in analyzed(job).notes)


def test_nccl_times_are_called_launch_times(analyzed):
    job = Job(ranks=1).fill().without([K.COLLECTIVE_BEGIN, K.COLLECTIVE_SIZE, K.COLLECTIVE_END])
    job.changes["targets"] = (Target(100, 5, "train", 7, 0, 2, ("ddp", "nccl")),)
    found = analyzed(job)
    assert any("launch times" in note for note in found.notes)
    assert found.of(VERDICT).case is UNSEEN
    assert "NCCL only enqueues" in found.of(VERDICT).sentence


def test_a_library_that_is_there_and_not_used_changes_nothing(analyzed):
    """Gloo on a build of torch for CUDA."""
    job = Job(ranks=1).fill()
    job.changes["targets"] = (Target(100, 5, "train", 7, 0, 2, ("ddp", "gloo", "nccl")),)
    found = analyzed(job)
    assert not any("NCCL" in note for note in found.notes)
    assert found.of(VERDICT).case is LINK_FULL


def test_a_bin_width_of_nothing_is_damage(tmp_path):
    job = Job()
    job.changes["bin_ns"] = 0
    with pytest.raises(TraceError, match="bin_ns is 0"):
        analyze(TraceReader(job.write(tmp_path / "t")))


def test_a_trace_without_a_tcp_table(tmp_path):
    path = trace_of()
    (path / "tcp.arrows").unlink()
    assert all(flow.tcp is None for flow in analyze(TraceReader(path)).of(FLOWS))


def test_links_come_in_the_order_of_their_ranks(analyzed):
    job = Job(ranks=3, world_size=3).fill()
    job.changes["devices"] = job.meta().devices[::-1]
    found = analyzed(job).of(LINKS)
    assert [link.ranks for link in found] == [(0,), (1,), (2,)]
