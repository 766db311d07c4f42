"""What a rank does beside training: connections to elsewhere, and threads that wait for collectives of their own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.synthetic import ITERATION_NS, MS, START_NS, Job, K, tcp_columns, wire_columns

from netprof.analysis import analyze
from netprof.analysis.account.causes import LOSS
from netprof.analysis.findings.waiting.waiting import WAITING
from netprof.analysis.wire import peers
from netprof.analysis.wire.peers import find_peers
from netprof.schema import TRANSMIT
from netprof.trace import TraceReader


def shares(job: Job, path: Path) -> dict[str, Any]:
    waiting = analyze(TraceReader(job.write(path))).of(WAITING)
    assert waiting is not None
    return {each.cause.name: pytest.approx(each.share, abs=0.02) for each in waiting.causes}


def with_far_flow(job: Job) -> Job:
    """A connection of rank 0 to the internet, as flow 3."""
    more = {"flow_id": 3, "local_port": 55_555, "remote_addr": "35.186.228.49", "remote_port": 443}
    job.flow_changes = {name: [*column, more.get(name, column[0])] for name, column in job.flows().items()}
    return job


def samples(count: int, **columns: Any) -> dict[str, Any]:
    """Rows of table `tcp` of flow 3."""
    first = {name: [column[0]] * count for name, column in tcp_columns(1, START_NS + MS).items()}
    return first | {"flow_id": [3] * count} | columns


def with_silences() -> Job:
    """50 ms of silence in each step, which both ranks end: a host is behind it."""
    job = Job(rate_bps=10e9).fill()
    job.wire = [row for row in job.wire if not 70 * MS <= (row[2] - START_NS) % ITERATION_NS < 110 * MS]
    return job


def test_a_far_connection_does_not_tell_what_a_silence_is(tmp_path: Path) -> None:
    job = with_far_flow(with_silences())
    job.wire.append((3, 0, START_NS, 200, 400))
    job.extra["tcp"] = samples(1, rtt_us=[150_000], min_rtt_us=[150_000])
    assert shares(job, tmp_path / "far.netprof") == shares(with_silences(), tmp_path / "near.netprof")


def test_an_upload_that_loses_packets_is_not_what_ranks_wait_for(tmp_path: Path) -> None:
    job = with_far_flow(Job(rate_bps=10e9).fill())
    rows = [
        (3, 0, START_NS + step * ITERATION_NS + at * MS, 3000, 6500) for step in range(11) for at in range(45, 138, 3)
    ]
    job.extra["wire"] = wire_columns(rows) | {"retransmitted_bytes": np.full(len(rows), 3000)}
    times = [START_NS + place * 10 * MS for place in range(250)]
    job.extra["tcp"] = samples(250, rtt_us=[20_000] * 250, time_ns=times, retransmits=list(range(250)))
    assert LOSS.name not in shares(job, tmp_path / "t.netprof")


def with_checkpoint(job: Job) -> Job:
    """Both ranks' checkpoint threads meet in a group of their own: rank 0's waits for seconds for rank 1's."""
    end = START_NS + 8 * ITERATION_NS + 3 * MS
    for rank, step in ((0, 0), (1, 8)):
        at, pid, tid, worker, work = START_NS + step * ITERATION_NS + MS, 100 + rank, 900 + rank, 950 + rank, 0x5000
        job.mark(at, pid, K.COLLECTIVE_ENQUEUE, work, tid=tid)
        job.mark(at + 10, pid, K.WORK_WAIT, work, tid=tid)
        job.mark(at + 20, pid, K.COLLECTIVE_BEGIN, work, tid=worker)
        job.marks.append((at + 20, pid, worker, int(K.COLLECTIVE_GROUP), 0xA000 + rank, 2, rank))
        job.mark(at + 21, pid, K.COLLECTIVE_SIZE, 10, 1, tid=worker)
        job.mark(end, pid, K.COLLECTIVE_END, work, tid=worker)
    return job


def in_a_group(job: Job) -> Job:
    marks = []
    for mark in job.marks:
        rank = mark[1] - 100
        group = (mark[0], mark[1], mark[2], int(K.COLLECTIVE_GROUP), 0x9000 + rank, 2, rank)
        marks += [mark, group] if mark[3] == K.COLLECTIVE_BEGIN else [mark]
    job.marks = marks
    return job


def test_training_does_not_wait_for_what_a_checkpoints_thread_waits_for(tmp_path: Path) -> None:
    alone = shares(in_a_group(Job().fill()), tmp_path / "alone.netprof")
    assert shares(with_checkpoint(in_a_group(Job().fill())), tmp_path / "beside.netprof") == alone


def test_ends_of_flows_are_looked_for_where_their_streams_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a thousand flows without a peer, few pairs are compared; two that are one are found, also across the wrap."""
    count = 1000
    random = np.random.default_rng(0)
    position = random.integers(0, 1 << 32, (2, count))
    position[:, 1] = position[::-1, 0]
    position[TRANSMIT, 2], position[1 - TRANSMIT, 2] = (1 << 32) - 10, 7
    position[TRANSMIT, 3], position[1 - TRANSMIT, 3] = 7, 5
    compared, ends = [], peers._are_ends

    def compare(*pair: Any) -> bool:
        compared.append(pair[:2])
        return ends(*pair)

    monkeypatch.setattr(peers, "_are_ends", compare)
    found = find_peers(far_flows(count), np.full((2, count), 1 << 17), position)
    assert found[:4].tolist() == [1, 0, 3, 2]
    assert len(compared) < count * count / 100


def far_flows(count: int) -> Any:
    """Flows to one server that was not recorded."""
    fields = {
        "local_addr": np.array(["10.0.0.1"] * count, object),
        "local_port": 1024 + np.arange(count),
        "remote_addr": np.array(["52.0.0.1"] * count, object),
        "remote_port": np.full(count, 443),
    }
    return SimpleNamespace(**fields)
