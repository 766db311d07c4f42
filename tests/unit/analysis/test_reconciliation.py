"""TCP's totals against what was counted: what is missing is named, recovered, or on its way, and never two of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.synthetic import START_NS, Job

from netprof.analysis import analyze
from netprof.analysis.findings.flows.flows import FLOWS
from netprof.analysis.findings.flows.reconciliation import RECONCILIATION, ReconciliationFinding
from netprof.analysis.tables.totals import Differences, differences, last_totals
from netprof.schema import recorded_columns, tables
from netprof.trace import TraceReader

SENT = 240 * 124_000
"""What each flow of the job moves each way: three steps of 80 bins."""


def job(**changes: list[int]) -> Job:
    made = Job(iterations=2)
    made.totals_changes = dict(changes)
    return made.fill()


def found(tmp_path: Path, made: Job) -> ReconciliationFinding:
    return analyze(TraceReader(made.write(tmp_path / "t.netprof"))).of(RECONCILIATION)


def one(**values: int) -> Differences:
    """Return the differences of a flow whose totals are 0 but for `values`."""
    columns: dict[str, Any] = {name: [values.get(name, 0)] for name in tables()["totals"].names}
    return differences(last_totals(columns))


def amounts(difference: Differences) -> dict[str, int]:
    return {name: value for name in Differences.__dataclass_fields__ if (value := int(getattr(difference, name)[0]))}


def test_what_agrees_is_nothing() -> None:
    agreed = {"sent_bytes": 9, "resent_bytes": 2, "received_bytes": 5, "sent_segments": 3, "received_segments": 4}
    counted = {"counted_sent_bytes": 9, "counted_resent_bytes": 2, "counted_received_bytes": 5}
    counted |= {"counted_sent_packets": 3, "counted_received_packets": 4}
    assert amounts(one(settled=1, **agreed, **counted)) == {}


@pytest.mark.parametrize("end", ["settled", "closed"])
def test_a_retransmission_that_no_hook_saw_is_recovered(end: str) -> None:
    """The retransmissions of a lossy link once seen: 136,096 B of 138,952, in two packets."""
    sent, counted = 12_138_952, 12_136_096
    totals = {"sent_bytes": sent, "resent_bytes": 138_952, "sent_segments": 8_500}
    seen = {"counted_sent_bytes": counted, "counted_resent_bytes": 136_096, "counted_sent_packets": 8_498}
    recovered = {"recovered_resent_bytes": 2_856, "recovered_sent_segments": 2}
    assert amounts(one(**{end: 1}, **totals, **seen)) == recovered


def test_payload_that_is_missing_is_unseen() -> None:
    """New bytes that TCP sent are no retransmission, even if something was sent again too."""
    totals = one(settled=1, sent_bytes=1000, resent_bytes=100, counted_sent_bytes=650, counted_resent_bytes=50)
    assert amounts(totals) == {"unseen_sent_bytes": 300, "recovered_resent_bytes": 50}
    assert amounts(one(settled=1, received_bytes=7, counted_received_bytes=4)) == {"unseen_received_bytes": 3}


def test_what_a_busy_flow_has_in_a_queue_is_on_its_way() -> None:
    """The memory of a packet is larger than its payload: what is beyond it cannot be in the queue."""
    assert amounts(one(sent_bytes=1000, counted_sent_bytes=400, queued_bytes=800)) == {"on_its_way_bytes": 600}
    beyond = {"on_its_way_bytes": 500, "unseen_sent_bytes": 100}
    assert amounts(one(sent_bytes=1000, counted_sent_bytes=400, queued_bytes=500)) == beyond
    assert amounts(one(received_bytes=1000, counted_received_bytes=400)) == {"on_its_way_bytes": 600}


def test_what_a_socket_leaves_behind_when_it_ends_is_unseen() -> None:
    left = one(sent_bytes=1000, counted_sent_bytes=400, queued_bytes=800, closed=1)
    assert amounts(left) == {"unseen_sent_bytes": 600}


def test_what_was_in_a_queue_when_counting_began_may_be_counted() -> None:
    earlier = {"earlier_queued_bytes": 500, "settled": 1, "sent_bytes": 1000}
    assert amounts(one(counted_sent_bytes=1500, **earlier)) == {}
    assert amounts(one(counted_sent_bytes=1501, **earlier)) == {"beyond_bytes": 1}


def test_counts_of_segments_begin_again() -> None:
    counted = (1 << 32) + 10
    totals = one(settled=1, received_segments=13, counted_received_packets=counted)
    assert amounts(totals) == {"recovered_received_segments": 3}
    assert amounts(one(settled=1, received_segments=8, counted_received_packets=counted)) == {}


@given(st.lists(st.integers(0, 1 << 40), min_size=6, max_size=6), st.booleans(), st.booleans())
def test_no_byte_is_two_things(amount: list[int], settled: bool, closed: bool) -> None:
    new, again, counted_new, counted_again, queued, earlier = amount
    found = one(
        sent_bytes=new + again,
        resent_bytes=again,
        counted_sent_bytes=counted_new + counted_again,
        counted_resent_bytes=counted_again,
        queued_bytes=queued,
        earlier_queued_bytes=earlier,
        settled=settled,
        closed=closed,
    )
    parts = amounts(found)
    missing = new + again - counted_new - counted_again
    explained = sum(parts.get(name, 0) for name in ("on_its_way_bytes", "unseen_sent_bytes", "recovered_resent_bytes"))
    assert explained == max(0, missing)
    assert parts.get("beyond_bytes", 0) == max(0, -missing - earlier)


def test_the_last_totals_of_a_flow_count() -> None:
    columns: dict[str, Any] = {name: np.zeros(3, np.int64) for name in tables()["totals"].names}
    columns |= {"flow_id": [2, 1, 2], "time_ns": [50, 10, 40], "sent_bytes": [9, 5, 7], "settled": [1, 0, 0]}
    last = last_totals(columns)
    assert (last.flow_id.tolist(), last.sent_bytes.tolist(), last.settled.tolist()) == ([1, 2], [5, 9], [False, True])


def test_in_full(tmp_path: Path) -> None:
    finding = found(tmp_path, job())
    assert (finding.holds, finding.unseen_bytes, len(finding.unread)) == (True, 0, 0)


def test_unseen_bytes_are_a_loss(tmp_path: Path) -> None:
    analysis = analyze(TraceReader(job(sent_bytes=[SENT, SENT + 5_000]).write(tmp_path / "t.netprof")))
    assert analysis.of(RECONCILIATION).holds is False
    assert analysis.document()["reconciliation"]["unseen_bytes"] == 5_000
    (check,) = (check for check in analysis.document()["checks"] if check["name"] == "tcp_totals")
    assert check["holds"] is False
    assert "5.00 kB that TCP moved in 1 flow went by unseen: they are in no number here" in analysis.notes


def test_what_is_recovered_is_part_of_the_flow(tmp_path: Path) -> None:
    """Its headers are as long as those of the flow's other packets."""
    again = {"resent_bytes": [1_400, 0], "sent_bytes": [SENT + 1_400, SENT]}
    made = job(**again, sent_segments=[1, 0])
    seen, with_it = (
        analyze(TraceReader(replace(made, totals_changes=changes).write(tmp_path / name))).of(FLOWS)
        for name, changes in (("a.netprof", {}), ("b.netprof", made.totals_changes))
    )
    before, after = (next(flow for flow in flows if flow.flow_id == 1).tx for flows in (seen, with_it))
    assert after.retransmitted_bytes - before.retransmitted_bytes == 1_400
    assert after.packets - before.packets == 1
    assert after.wire_bytes - before.wire_bytes == 1_400 + round(
        (before.wire_bytes - before.payload_bytes) / before.packets
    )


def test_a_connection_that_came_late(tmp_path: Path) -> None:
    """What was there at the attach may have moved anything before: that is no part of the recording."""
    made = job()
    made.flow_changes = {"earlier_sent_bytes": [700, 0], "earlier_received_bytes": [300, 50], "adopted_ns": [0, 0]}
    assert found(tmp_path, made).unseen_bytes == 0
    made.flow_changes |= {"adopted_ns": [START_NS, 0]}
    late = found(tmp_path / "late", made)
    assert (late.holds, late.unseen_bytes) == (False, 1_000)


def test_what_was_counted_and_is_in_no_row_is_missing(tmp_path: Path) -> None:
    """TCP and the kernel's programs agree; of what they counted, some never came into the trace."""
    changes = {name: [SENT + 7_000, SENT] for name in ("sent_bytes", "counted_sent_bytes")}
    analysis = analyze(TraceReader(job(**changes).write(tmp_path / "t.netprof")))
    books = analysis.document()["reconciliation"]
    assert (books["holds"], books["unseen_bytes"], books["unrecorded_bytes"]) == (False, 7_000, 7_000)
    assert [flow["unrecorded_bytes"] for flow in books["flows"]] == [7_000, 0]
    assert "7.00 kB of 1 flow were counted and did not come into the trace" in " ".join(analysis.notes)


def test_what_was_counted_outside_of_the_recording_is_not_missing(tmp_path: Path) -> None:
    """Of two flows, one that moved 7 kB before the start, of which 2 kB were sent again."""
    made = job(**{name: [SENT + 7_000, SENT] for name in ("sent_bytes", "counted_sent_bytes")})
    amounts = {"payload_bytes": [5_000], "retransmitted_bytes": [2_000], "wire_bytes": [7_330], "packets": [5]}
    made.outside = {"time_ns": [START_NS], "flow_id": [1], "direction": [0]} | amounts
    books = analyze(TraceReader(made.write(tmp_path / "t.netprof"))).document()["reconciliation"]
    assert (books["holds"], books["unrecorded_bytes"]) == (True, 0)


def test_a_flow_that_moved_outside_of_the_recording_only_is_not_missing(tmp_path: Path) -> None:
    """As the connection by which a job's processes met, while netprof attached: it has no row in the recording."""
    made = job(**{name: [SENT, 7_000] for name in ("sent_bytes", "counted_sent_bytes")})
    made.totals_changes |= {name: [SENT, 500] for name in ("received_bytes", "counted_received_bytes")}
    made.wire = [row for row in made.wire if row[0] != 2]
    amounts = {"payload_bytes": [7_000, 500], "retransmitted_bytes": [0, 0], "wire_bytes": [7_330, 566]}
    made.outside = {"time_ns": [START_NS] * 2, "flow_id": [2, 2], "direction": [0, 1], "packets": [5, 1]} | amounts
    analysis = analyze(TraceReader(made.write(tmp_path / "t.netprof")))
    books = analysis.document()["reconciliation"]
    assert (books["holds"], books["unseen_bytes"], books["unrecorded_bytes"]) == (True, 0, 0)
    assert not any("the recorder is at fault" in note for note in analysis.notes)


def test_a_flow_that_could_not_be_read_is_unknown(tmp_path: Path) -> None:
    moved = ("counted_sent_bytes", "counted_received_bytes", "sent_bytes", "received_bytes")
    one_alone = {name: [SENT, 0] for name in moved}
    analysis = analyze(TraceReader(job(flow_id=[1, 9], **one_alone).write(tmp_path / "t.netprof")))
    books = analysis.document()["reconciliation"]
    assert books["holds"] is None
    assert books["flows_not_read"] == [2]
    assert "TCP's own totals of 1 flow are not known: neither is what is missing" in analysis.notes


def test_a_trace_of_an_older_netprof_cannot_tell(tmp_path: Path) -> None:
    made = replace(job(), changes={"schema_version": 2})
    path = made.write(tmp_path / "t.netprof")
    (path / "totals.arrows").unlink()
    for name in ("flows", "tcp", "wire", "nic"):
        older = recorded_columns(name, 2)
        with pa.ipc.open_stream((path / f"{name}.arrows").read_bytes()) as stream:
            table = stream.read_all().select(older.names)
        with pa.ipc.new_stream(str(path / f"{name}.arrows"), older) as stream:
            stream.write_table(table)
    analysis = analyze(TraceReader(path))
    books = analysis.document()["reconciliation"]
    assert books["holds"] is books["unseen_bytes"] is books["tcp_sent_bytes"] is None
    assert not any("could not be read" in note for note in analysis.notes)
    assert "an older netprof" in str(analysis.parts(RECONCILIATION)[0])
