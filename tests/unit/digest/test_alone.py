"""Digests that were each made alone say what the ranks wait for, as the report of all traces does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shifted_clock import shift
from support.made_alone import apart, digested, document, of_traces, who
from support.synthetic import MS, RATE_BPS, Job, collectives, in_parts, parts_of, with_late_rank

from netprof.analysis import analyze
from netprof.analysis.digest.gather import GATHERED
from netprof.analysis.digest.host_in_job import JobHost, check_size
from netprof.analysis.digest.last_arrivals import NEVER
from netprof.analysis.digest.ways import spread_over
from netprof.analysis.digest.world import Group, World
from netprof.analysis.events.collectives import Collectives
from netprof.analysis.pieces import PieceSize
from netprof.analysis.tables.columns import concatenate
from netprof.analysis.tables.intervals import NOTHING, Windows
from netprof.errors import TraceError
from netprof.model import Device, LineRate
from netprof.session.digest import write_digests
from netprof.session.digested import analyze_digests
from netprof.trace import TraceReader
from netprof.trace.digest import digests_in
from netprof.trace.meta import open_trace, write_meta

Whole = Callable[[Job], list[Path]]


@pytest.fixture
def hosts(tmp_path: Path) -> Whole:
    """Write a job as traces of one host each."""

    def write(job: Job) -> list[Path]:
        return apart(job.write(tmp_path / "whole.netprof"), tmp_path)

    return write


def same_waiting(found: dict[str, Any], whole: dict[str, Any], *, in_words: bool = True) -> None:
    """What both say of the waiting is the same, and so are who holds the job up and the verdict."""
    mine, its = found["waiting"], whole["waiting"]
    assert mine["exposed_s"] == pytest.approx(its["exposed_s"])
    assert mine["exposed_share_of_all_time"] == pytest.approx(its["exposed_share_of_all_time"])
    assert [each["cause"] for each in mine["causes"]] == [each["cause"] for each in its["causes"]]
    for one, other in zip(mine["causes"], its["causes"], strict=True):
        assert who(one) == who(other)
        said = one["sentence"].replace("in at least ", "in ")  # of a link that is not the fullest no host is asked
        assert not in_words or (said, one["advice"]) == (other["sentence"], other["advice"])
        for name in ("seconds", "share", "saves_s"):
            assert one[name] == pytest.approx(other[name]), (one["cause"], name)
    for one, other in zip(mine["by_rank"], its["by_rank"], strict=True):
        assert (one["rank"], one["causes_s"]) == (other["rank"], pytest.approx(other["causes_s"]))
    assert mine["worst_iterations"] == its["worst_iterations"]
    assert found["verdict_case"] == whole["verdict_case"]
    assert not in_words or found["verdict"] == whole["verdict"]
    named = ("kind", "rank", "ranks", "link", "cause", "doing", "iterations", "first_iteration", "since_ns")
    shares = [[each["share"] for each in one["stragglers"]] for one in (found, whole)]
    assert shares[0] == pytest.approx(shares[1], rel=1e-3)
    assert [{name: each[name] for name in named} for each in found["stragglers"]] == [
        {name: each[name] for name in named} for each in whole["stragglers"]
    ]
    assert found["scaling_factor"] == whole["scaling_factor"]
    assert found["collectives"]["bus_bandwidth_bps"] == pytest.approx(whole["collectives"]["bus_bandwidth_bps"])


def late(ranks: int = 3, iterations: int = 30, rate_bps: float = RATE_BPS) -> Job:
    job = Job(ranks=ranks, world_size=ranks, iterations=iterations, rate_bps=rate_bps)
    return with_late_rank(job.fill(), ranks - 1, 40 * MS)


@pytest.mark.slow
def test_a_late_rank(hosts, tmp_path):
    traces = hosts(late())
    found = digested(traces, tmp_path / "digests")
    whole = of_traces(traces)
    same_waiting(found, whole)
    assert {name: found[name] for name in ("cost", "losses")} == {name: whole[name] for name in ("cost", "losses")}
    assert {"late_rank": 2}.items() <= {each["cause"]: each.get("rank") for each in found["waiting"]["causes"]}.items()
    assert [(each["rank"], each["doing"]) for each in found["stragglers"]] == [(2, "compute")]


@pytest.mark.slow
def test_full_links(hosts, tmp_path):
    traces = hosts(Job(ranks=3, world_size=3, iterations=30).fill())
    found = digested(traces, tmp_path / "digests")
    same_waiting(found, of_traces(traces))
    assert found["verdict_case"] == "link_full"


@pytest.mark.slow
def test_a_recording_in_pieces(hosts, tmp_path):
    traces = hosts(late())
    size = PieceSize(rows=1000, at_once=1, shortest_ns=10**9)
    found = digested(traces, tmp_path / "digests", size)
    same_waiting(found, of_traces(traces))


@pytest.mark.slow
def test_a_link_of_one_host_holds_the_ranks_of_all(hosts, tmp_path):
    devices = tuple(Device(f"eth{rank}", 7, LineRate(rate, "tbf")) for rank, rate in enumerate((1e10, 1e9, 1e10)))
    traces = hosts(Job(ranks=3, world_size=3, iterations=30, changes={"devices": devices}).fill())
    found = digested(traces, tmp_path / "digests")
    same_waiting(found, of_traces(traces), in_words=False)  # where all are in one namespace, devices are of no host
    (first, *_) = found["waiting"]["causes"]
    assert (first["cause"], first["ranks"]) == ("link_full", [1])
    assert "eth1 of rank 1 on h1" in first["sentence"]
    assert "while the other links have room" in first["sentence"]
    assert all(each["causes_s"]["link_full"] > 1.0 for each in found["waiting"]["by_rank"])
    assert [each["ranks"] for each in found["stragglers"] if each["kind"] == "link"] == [[1]]


@pytest.mark.slow
def test_of_a_single_link_nobody_knows_whether_others_have_room(hosts, tmp_path):
    traces = hosts(Job(ranks=3, world_size=3, iterations=30).fill())[:1]
    found, whole = digested(traces, tmp_path / "digests"), of_traces(traces)
    for each in (found, whole):
        (full,) = [cause for cause in each["waiting"]["causes"] if cause["cause"] == "link_full"]
        assert full["link"] == "eth0"
        assert "other links" not in full["sentence"]
        assert "the others" not in full["advice"]


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "size"), [(4, 2), (6, 3), (8, 4), (8, 2)])
def test_parts_of_the_job_on_several_hosts(hosts, tmp_path, ranks, size):
    """The mates of a late rank wait for it, nobody else does; who they are nothing but the connections tells."""
    job = in_parts(late(ranks, rate_bps=1e10), size)  # of links that are all full any may be named
    traces = hosts(job)
    found, whole = digested(traces, tmp_path / "digests"), of_traces(traces)
    same_waiting(found, whole)
    (mates,) = (set(part) for part in parts_of(ranks, size) if ranks - 1 in part)
    waiting = {each["rank"]: each["causes_s"]["late_rank"] for each in found["waiting"]["by_rank"]}
    assert {rank for rank, seconds in waiting.items() if seconds > 0.3} == mates - {ranks - 1}
    assert [(each["rank"], each["doing"]) for each in found["stragglers"]] == [(ranks - 1, "compute")]
    assert not any("part of the job" in note for note in found["notes"])


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "size"), [(4, 2), (6, 3), (8, 4)])
def test_a_slow_link_of_a_part_of_the_job(hosts, tmp_path, ranks, size):
    rates = [1e10] * ranks
    rates[1] = 1e9
    devices = tuple(Device(f"eth{rank}", 7, LineRate(rate, "tbf")) for rank, rate in enumerate(rates))
    job = in_parts(Job(ranks=ranks, world_size=ranks, iterations=30, changes={"devices": devices}).fill(), size)
    traces = hosts(job)
    found = digested(traces, tmp_path / "digests")
    same_waiting(found, of_traces(traces), in_words=False)
    (full,) = [each for each in found["waiting"]["causes"] if each["cause"] == "link_full"]
    assert full["ranks"] == [1]
    held = {each["rank"] for each in found["waiting"]["by_rank"] if each["causes_s"]["link_full"] > 1.0}
    assert [held] == [set(part) for part in parts_of(ranks, size) if 1 in part]


@pytest.mark.slow
def test_where_clocks_do_not_tell_who_was_last_nobody_is_said_to_be_busy(tmp_path):
    """Two pairs of hosts that nothing joins, each with a clock of its own: who waits may wait for the other one."""
    whole = in_parts(late(4, rate_bps=1e10), 2)
    whole.flow_changes["remote_addr"] = ["10.9.9.9"] * 8
    whole.wire = [(flow, way, at, payload - 7 * flow, wire) for flow, way, at, payload, wire in whole.wire]
    trace = whole.write(tmp_path / "whole.netprof")
    traces = [
        shift(trace, tmp_path / f"h{rank}.netprof", rank, host=f"h{rank}", pids=[100 + rank]) for rank in range(4)
    ]
    found, every = digested(traces, tmp_path / "digests"), of_traces(traces)
    for each in (found, every):
        shares = {cause["cause"]: cause["share"] for cause in each["waiting"]["causes"]}
        assert shares.pop("unseen") > 0.85
        assert set(shares) <= {"host"}, "once all bytes of a collective have come, it is the host's own time"
        assert each["stragglers"] == []


@pytest.mark.slow
@pytest.mark.parametrize("others", [1, 2, 3])
def test_the_median_of_mates_on_several_hosts_is_that_of_the_account(hosts, tmp_path, others):
    """As many as two wait for a late rank on hosts of their own; one of them posts early, and waits for longer.

    What late ranks have in common is not asked of digests that were made alone, if no single one stands out.
    """
    job = late(others + 1, rate_bps=1e10)
    traces = hosts(with_late_rank(job, 0, 30 * MS))
    same_waiting(digested(traces, tmp_path / "digests"), of_traces(traces), in_words=others != 2)


def test_what_one_host_alone_saw_of_the_job_s_communicator_is_of_it_too():
    """At the beginning its recorder saw a collective more than the others': a rank is late since it ends that first."""
    own_collectives = concatenate(
        Collectives, [collectives(102, [0, 5, 9], [6, 8, 12]), collectives(102, [7], [8], group=2)]
    )
    one, nobody = np.ones(2, np.int64), np.zeros(0, np.int64)
    job = Group(
        first_ns=4 * one, ready_ns=5 * one, last_pid=102 * one, last_host=0 * one, untold_ns=0 * one,
        last_number=-one, root_ns=NEVER * one, root_pid=NEVER * one, root_host=0 * one,
        seen=3 * one, turn=NOTHING, all_seen=NOTHING, ranks=3, pids=frozenset(),
    )  # fmt: skip
    world = World({0: job}, np.zeros(1), Windows(nobody, nobody), (0, 12), 3, 1000 * one, bounded=False)
    group, event = np.array([0, 0, 0, -1]), np.array([-1, 0, 1, -1])
    host = SimpleNamespace(ways=(), told_ranks={102: 2})
    own = SimpleNamespace(number=0, collectives=own_collectives, group=group, event=event, host=host)
    found = world.members_on(cast("JobHost", own))
    assert found.group.tolist() == [0, 0, 0, 1]
    assert found.ranks.tolist() == [3, 3, 3, 2]
    assert found.seen.tolist() == [1, 3, 3, 1]


@pytest.mark.slow
def test_hosts_of_one_name_have_a_digest_each(hosts, tmp_path):
    """However often each is made again."""
    traces = hosts(late())
    for trace, boot in zip(traces, ("one", "other", "third"), strict=True):
        meta = TraceReader(trace).meta
        write_meta(open_trace(trace), replace(meta, host="node", boot_id=boot * 5))
    for force in (False, True):
        for trace in traces:
            reader = TraceReader(trace)
            write_digests(analyze(reader, more=(GATHERED,)), reader, tmp_path / "d", "job", force=force)
    folders = sorted(folder.name for folder in (tmp_path / "d/job=job").glob("host=*"))
    assert folders == ["host=node", "host=node-otheroth", "host=node-thirdthi"]
    found = document(analyze_digests(digests_in(tmp_path / "d")))
    assert sorted(host["host"] for host in found["hosts"]) == ["h0", "h1", "h2"], "as the report of the traces has it"
    with pytest.raises(TraceError, match="holds a digest already"):
        write_digests(analyze(reader, more=(GATHERED,)), reader, tmp_path / "d", "job")


@pytest.mark.slow
def test_processes_say_what_one_says(hosts, tmp_path, monkeypatch):
    traces = hosts(late())
    here = digested(traces, tmp_path / "digests")
    monkeypatch.setattr("netprof.session.cluster._AT_ONCE", 1)
    assert document(analyze_digests(digests_in(tmp_path / "digests"))) == here


@pytest.mark.slow
def test_what_a_rank_without_a_digest_does_is_unseen(hosts, tmp_path):
    traces = hosts(late())
    found = digested(traces[:2], tmp_path / "digests")
    whole = of_traces(traces[:2])
    assert found["waiting"]["causes"][0]["cause"] == whole["waiting"]["causes"][0]["cause"]
    shares = {each["cause"]: each["share"] for each in found["waiting"]["causes"]}
    assert shares["unseen"] > 0.05
    assert "late_rank" not in shares
    assert any("what 1 rank of 3 do" in note for note in found["notes"])


@pytest.mark.slow
def test_a_digest_of_another_run_is_left_out(hosts, tmp_path):
    traces = hosts(late())
    again = shift(traces[2], tmp_path / "again.netprof", host="again")
    found = digested([*traces, again], tmp_path / "digests")
    assert [host["host"] for host in found["hosts"]] == ["again", "h0", "h1"]
    assert "host=h2: it has rank 2 as again has" in found["digest"]["left_out"][0]


@pytest.mark.slow
def test_a_damaged_answer_is_left_out(hosts, tmp_path):
    traces = hosts(late())
    digested(traces, tmp_path / "digests")
    (tmp_path / "digests" / "job=job" / "host=h1" / "did.parquet").write_bytes(b"PAR1")
    found = document(analyze_digests(digests_in(tmp_path / "digests")))
    assert "host=h1/did.parquet is damaged" in found["digest"]["left_out"][0]
    assert found["waiting"]["by_rank"][1]["rank"] == 1, "what it waits for is known all the same"


@pytest.mark.slow
@pytest.mark.parametrize("table", ["passages", "spans", "collectives"])
def test_where_the_first_host_is_damaged_streams_still_join_the_others(table, tmp_path):
    ends: dict[str, list[Any]] = {
        "remote_addr": ["10.0.0.9", "10.0.0.3", "10.0.0.2"],
        "remote_port": [1, 40_002, 40_001],
    }
    whole = Job(ranks=3, world_size=3, iterations=30, flow_changes=ends).fill().write(tmp_path / "whole.netprof")
    traces = [
        shift(whole, tmp_path / f"h{rank}.netprof", rank * 10**8, host=f"h{rank}", pids=[100 + rank])
        for rank in range(3)
    ]  # fmt: skip
    digested(traces, tmp_path / "digests")
    (tmp_path / "digests/job=job/host=h0" / f"{table}.parquet").unlink()
    found = document(analyze_digests(digests_in(tmp_path / "digests")))
    assert [(host["host"], host["clock"]["source"]) for host in found["hosts"]] == [
        ("h1", "reference"),
        ("h2", "flows"),
    ]
    assert found["hosts"][1]["clock"]["offset_s"] == pytest.approx(0.1, abs=1e-3)
    assert [each.partition(":")[0] for each in found["digest"]["left_out"]] != []
    assert not any("another time" in each for each in found["digest"]["left_out"])


@given(st.lists(st.integers(1, 100), min_size=1, max_size=8), st.lists(st.integers(1, 100), min_size=1, max_size=8))
def test_amounts_by_other_iterations_add_up(own, wanted):
    """Whatever falls into iterations that cover all of it, it is neither more nor less."""
    edges = np.concatenate(([0], np.cumsum(own)))
    last = max(int(edges[-1]), sum(wanted))
    others = np.unique(np.concatenate(([0], np.cumsum(wanted), [last])))
    values = np.stack((np.arange(len(own)) + 1.0, np.diff(edges).astype(float)))
    found = spread_over(values, (edges[:-1], edges[1:]), (others[:-1], others[1:]))
    assert found.sum(axis=1) == pytest.approx(values.sum(axis=1))
    covered = np.minimum(others[1:], edges[-1]) - np.minimum(others[:-1], edges[-1])
    assert found[1] == pytest.approx(covered.astype(float))


@pytest.mark.parametrize(
    ("rows", "windows", "fits"), [(8, 1 << 22, True), (8, (1 << 22) + 1, False), (0, 1 << 40, True)]
)
def test_more_cells_than_a_job_has_are_refused(rows, windows, fits):
    """What a digest says of iterations and processes decides how much memory is asked for."""
    with nullcontext() if fits else pytest.raises(TraceError, match="more than any job has"):
        check_size(rows, windows)
