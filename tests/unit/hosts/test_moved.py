"""A host's rows as rows of the job: times, numbers, and time bins on the job's grid."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.synthetic import MS, Job, mark_columns

from netprof.analysis.findings.host.hosts import HOSTS, HostSummary
from netprof.analysis.form import Grid
from netprof.analysis.hosts.joined_meta import meta_of_hosts, meta_of_job
from netprof.analysis.hosts.moved import Mover, on_grid
from netprof.analysis.hosts.numbers import Numbers
from netprof.analysis.tables.columns import int64_column
from netprof.model import Cost, Host, HostClock, Series
from netprof.schema import COUNT, PROCESS_SERIES, MarkKind, tables

AMOUNTS = ("payload_bytes", "wire_bytes", "retransmitted_bytes", "packets")


def wire(first: Any, last: Any, start: Any, wire_bytes: int = 10_001) -> dict[str, Any]:
    columns = {name: np.atleast_1d(np.array(value, np.int64)) for name, value in
               (("first_ns", first), ("last_ns", last), ("bin_start_ns", start))}  # fmt: skip
    size = len(columns["first_ns"])
    amounts = {name: np.full(size, wire_bytes) for name in AMOUNTS}
    return columns | amounts | {"stream_position": np.full(size, 77), "stream_position_ns": columns["last_ns"]}


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, MS), st.integers(0, MS)), min_size=1, max_size=20))
def test_no_byte_is_lost_and_every_row_is_in_one_bin(bins):
    start = np.array([each[0] for each in bins])
    inside = np.sort(np.array([each[1:] for each in bins]), axis=1)
    rows, of = on_grid(wire(start + inside[:, 0], start + inside[:, 1], start), MS)
    for name in AMOUNTS:
        assert np.bincount(of, weights=rows[name], minlength=len(bins)).tolist() == [10_001] * len(bins)
    assert (rows["bin_start_ns"] % MS == 0).all()
    assert (rows["first_ns"] >= rows["bin_start_ns"]).all()
    assert (rows["last_ns"] <= rows["bin_start_ns"] + MS).all()


def test_a_bin_is_cut_where_its_bytes_passed_an_edge():
    rows, of = on_grid(wire(3_900_000, 4_300_000, 3_500_000, wire_bytes=400), MS)
    assert of.tolist() == [0, 0]
    assert rows["wire_bytes"].tolist() == [100, 300]
    assert rows["bin_start_ns"].tolist() == [3 * MS, 4 * MS]
    assert rows["last_ns"].tolist() == [4 * MS, 4_300_000]
    assert rows["stream_position_ns"].tolist() == [0, 4_300_000]


def test_what_was_merged_while_the_recorder_was_held_up_stays_so():
    rows, _ = on_grid(wire(3_900_000, 9_300_000, 3_500_000), MS)
    assert len(rows["first_ns"]) == 1
    assert rows["last_ns"] - rows["bin_start_ns"] > MS


def moved(name: str, columns: dict[str, Any], numbers: Numbers | None = None) -> pa.RecordBatch:
    numbers = numbers or Numbers(np.zeros(0, np.int64), np.zeros(0, np.int64))
    mover = Mover(HostClock("flows", 1e9, 0.0, 0), numbers, MS, MS, 0, 1 << 62)
    schema = tables()[name]
    batch = pa.RecordBatch.from_arrays([pa.array(columns[field.name], field.type) for field in schema], schema=schema)
    return mover.move(name, batch)


def test_changes_of_links_are_moved():
    job = Job(rate_changes=[("eth0", 5 * 10**9, 1e9)])
    found = moved("link_changes", job.link_changes())
    assert found.column("since_ns").to_pylist()[-1] == 4 * 10**9


def test_a_forked_process_is_called_the_same_everywhere():
    numbers = Numbers(np.array([5, 6]), np.array([5]), pids=1 << 22)
    rows = [(2 * 10**9, 5, 5, int(MarkKind.PROCESS_FORK), 6, 0), (3 * 10**9, 6, 6, int(MarkKind.DDP_FORWARD), 6, 0)]
    found = moved("marks", mark_columns(rows), numbers)
    child = (1 << 22) + 6
    assert found.column("pid").to_pylist() == [5, child]
    assert found.column("arg0").to_pylist() == [child, 6]


def test_what_two_recorders_on_one_host_counted_is_there_once():
    series = Series(0, "host", "cpu0", "steal", "ns", COUNT, "")
    meta = replace(Job().meta(), series=(series,))
    numbers = [Numbers(np.zeros(0, np.int64), np.zeros(0, np.int64), series=host) for host in (0, 1)]
    both = [Host("a", meta, "a"), Host("b", meta, "b")]
    assert [each.subject for each in meta_of_job(both, numbers, (0, 1)).series] == ["cpu0 of a"]
    other = [both[0], Host("b", replace(meta, boot_id="another"), "b")]
    found = meta_of_job(other, numbers, (0, 1)).series
    assert [(each.id, each.subject) for each in found] == [(0, "cpu0 of a"), (1, "cpu0 of b")]
    assert meta_of_job(both[:1], numbers[:1], (0, 1)).series == (series,)  # as of a recording of one host


def test_processes_of_two_containers_on_one_host_keep_their_counts():
    """Both may have number 7, each in its own PID namespace."""
    meta = replace(Job().meta(), series=(Series(0, PROCESS_SERIES, "pid 7", "on_cpu", "us", COUNT, ""),))
    numbers = [Numbers(np.zeros(0, np.int64), np.zeros(0, np.int64), series=host) for host in (0, 1)]
    found = meta_of_job([Host("a", meta, "a"), Host("b", meta, "b")], numbers, (0, 1)).series
    assert [(each.id, each.subject) for each in found] == [(0, "pid 7 of a"), (1, "pid 7 of b")]


def test_what_a_thread_is_blocked_in_as_the_recording_ends_is_kept():
    """Its row is written once it is over, or as the recorder stops: after the time that all hosts recorded."""
    columns = {"time_ns": [50 * MS, 900 * MS], "period_ns": [40 * MS, 800 * MS], "pid": [1, 1], "tid": [1, 1]}
    cut = Mover(HostClock(), Numbers(np.zeros(0, np.int64), np.zeros(0, np.int64)), MS, MS, 0, 100 * MS)
    batch = pa.RecordBatch.from_pydict({**columns, "kind": [3, 3]}, schema=tables()["blocked"])
    assert cut.move("blocked", batch).column(0).to_pylist() == [50 * MS, 900 * MS]


def test_recorders_take_as_much_of_a_core_as_each_does():
    """What it takes to start is apart, for several hosts as for one."""
    cost = Cost(wall_s=10.0, cpu_s=0.9, start_s=1.0, start_cpu_s=0.7)
    meta = replace(Job().meta(), cost=cost)
    both = [Host("a", meta, "a"), Host("b", meta, "b")]
    assert meta_of_hosts(both, (0, 1)).cost.cpu_share == pytest.approx(cost.cpu_share)
    table = HOSTS.parts(tuple(HostSummary(host, ()) for host in both))[0].bodies[0]
    assert isinstance(table, Grid)
    assert [row[-1] for row in table.rows] == ["2.2 %", "2.2 %"]


def cut(name: str, columns: dict[str, Any]) -> list[int]:
    """The times, in milliseconds, of what is kept of a table for a report of 100 to 900 ms."""
    mover = Mover(HostClock(), Numbers(np.zeros(0, np.int64), np.zeros(0, np.int64)), MS, MS, 100 * MS, 900 * MS)
    schema = tables()[name]
    batch = pa.RecordBatch.from_arrays([pa.array(columns[each.name], each.type) for each in schema], schema=schema)
    return [at_ns // MS for at_ns in int64_column(mover.move(name, batch), "time_ns").tolist()]


def test_a_process_that_ended_before_the_common_time_has_ended():
    kinds = (MarkKind.DDP_FORWARD, MarkKind.PROCESS_EXIT, MarkKind.NCCL_COMM_INIT)
    rows = [(at * MS, 7, 7, int(kind), 0, 0) for kind in kinds for at in (50, 500, 950)]
    assert cut("marks", mark_columns(rows)) == [500, 50, 500, 50, 500, 950]


def test_what_was_told_of_ranks_before_the_common_time_holds_in_it():
    columns: dict[str, Any] = {name: [1, 1, 1] for name in tables()["nccl_ranks"].names}
    columns |= {name: ["a", "a", "a"] for name in ("communicator", "host")}
    assert cut("nccl_ranks", columns | {"time_ns": [50 * MS, 500 * MS, 950 * MS]}) == [50, 500]


def test_devices_that_flows_were_recorded_of_are_those_of_all_hosts():
    metas = [replace(Job().meta(), only_devices=only) for only in ((), ("ib0",), ("ib0", "ib1"))]
    numbers = [Numbers(np.zeros(0, np.int64), np.zeros(0, np.int64))] * 3
    hosts = [Host(name, meta, name) for name, meta in zip("abc", metas, strict=True)]
    assert meta_of_job(hosts, numbers, (0, 1)).only_devices == ("ib0", "ib1")
