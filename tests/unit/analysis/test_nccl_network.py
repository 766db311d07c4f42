"""What NCCL posted to its network: sums by process and connection, beside what flows moved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.synthetic import ITERATION_NS, MS, PAYLOAD_PER_BIN, START_NS, WIRE_FROM, WIRE_TO, Job, trace_of

from netprof.analysis import Analysis, analyze
from netprof.analysis.findings.collectives.nccl_network import NCCL_NETWORK
from netprof.analysis.pieces import PieceSize
from netprof.model import StartedProbe
from netprof.schema import NCCL_NETWORK_PROBE, RECEIVE, TRANSMIT, NcclNetwork, tables
from netprof.trace import TraceReader
from netprof.views.json_report import to_json
from netprof.views.markdown import render

ITERATIONS = 10
SENT = PAYLOAD_PER_BIN * (WIRE_TO - WIRE_FROM) // MS * (ITERATIONS + 1)
"""Payload of a rank's flow over all steps."""
POSTED = 100_000


def posted(*rows: dict[str, Any]) -> dict[str, Any]:
    """Columns of `nccl_posted`, each row with what it does not say as of rank 0's connection."""
    usual = {"pid": 100, "connection": 0x7F00, "direction": TRANSMIT, "network": int(NcclNetwork.SOCKET), "refused": 0}
    usual |= {"posts": 1, "posted_bytes": POSTED, "first_ns": START_NS, "last_ns": START_NS + 5}
    whole = [usual | row for row in rows]
    return {
        name: np.array([row.get(name, row["first_ns"] // MS * MS) for row in whole])
        for name in tables()["nccl_posted"].names
    }


def each_bin(pid: int, connection: int, share: float = 0.99, network: NcclNetwork = NcclNetwork.SOCKET) -> list[Any]:
    """Rows of a rank that posts all that its flow sends, but for headers, on one connection."""
    return [
        {
            **{"pid": pid, "connection": connection, "network": int(network), "posts": 4, "refused": 1},
            "posted_bytes": round(PAYLOAD_PER_BIN * share),
            **{"first_ns": at + 100, "last_ns": at + MS - 100},
        }
        for step in range(ITERATIONS + 1)
        for at in range(START_NS + step * ITERATION_NS + WIRE_FROM, START_NS + step * ITERATION_NS + WIRE_TO, MS)
    ]


def analysed(path: Path, *rows: dict[str, Any], size: PieceSize | None = None) -> Analysis:
    started = (StartedProbe(NCCL_NETWORK_PROBE, "network Socket of libnccl.so.2, 2 functions found by symbol"),)
    job = Job(iterations=ITERATIONS, extra={"nccl_posted": posted(*rows)}, changes={"probes_started": started}).fill()
    return analyze(TraceReader(job.write(path / "t.netprof")), size=size)


def test_sums_of_processes_and_connections(tmp_path: Path) -> None:
    rows = [*each_bin(100, 0xA, 0.6), *each_bin(100, 0xB, 0.39), *each_bin(101, 0xA)]
    document = to_json(analysed(tmp_path, *rows))["nccl_network"]
    first, second = document["processes"]
    assert (first["pid"], first["rank"], second["pid"], second["rank"]) == (100, 0, 101, 1)
    assert first["posts"] == 2 * second["posts"] == 2 * 4 * 80 * 11
    assert first["sending"] == 2
    assert first["posted_bytes"] == pytest.approx(0.99 * SENT, rel=1e-4)
    assert first["sent_bytes"] == SENT
    assert first["sent_to_posted"] == pytest.approx(1 / 0.99, rel=1e-4)
    assert [each["connection"] for each in first["connections"]] == ["0xa", "0xb"], "the largest first"
    assert sum(each["posted_bytes"] for each in first["connections"]) == first["posted_bytes"]
    assert first["refused"] == 2 * 80 * 11
    assert "by symbol" in document["found"][0]


def test_times_of_a_connection_are_from_its_first_post_to_its_last(tmp_path: Path) -> None:
    ends = {"first_ns": START_NS + 50 * MS, "last_ns": START_NS + 51 * MS}
    analysis = analysed(tmp_path, {}, ends, {"first_ns": START_NS + 2 * MS, "last_ns": START_NS + 3 * MS})
    ((connection,),) = (use["connections"] for use in to_json(analysis)["nccl_network"]["processes"])
    assert connection["last_s"] - connection["first_s"] == pytest.approx(0.051)


def test_receives_are_no_bytes(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, {}, {"direction": RECEIVE, "posted_bytes": 1 << 30, "posts": 3})
    (use,) = to_json(analysis)["nccl_network"]["processes"]
    assert (use["posted_bytes"], use["room_bytes"], use["receives"], use["receiving"]) == (POSTED, 1 << 30, 3, 1)


def test_what_goes_over_rdma_is_not_held_to_flows(tmp_path: Path) -> None:
    analysis = analysed(
        tmp_path, *each_bin(100, 1, 5.0, NcclNetwork.INFINIBAND), *each_bin(101, 1, 5.0, NcclNetwork.PLUGIN)
    )
    uses = to_json(analysis)["nccl_network"]["processes"]
    assert [(use["network"], use["sent_bytes"], use["sent_to_posted"]) for use in uses] == [
        ("infiniband", None, None),
        ("plugin", None, None),
    ]
    assert not [note for note in analysis.notes if "NCCL posted more" in note]


def test_more_posted_than_sent_is_said(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, *each_bin(100, 1, 1.5))
    (note,) = [note for note in analysis.notes if "NCCL posted more" in note]
    assert "rank 0: 0.667" in note


@pytest.mark.slow
def test_pieces_say_what_the_whole_says(tmp_path: Path) -> None:
    rows = [*each_bin(100, 0xA, 0.6), *each_bin(100, 0xB, 0.39), *each_bin(101, 0xA)]
    (tmp_path / "pieces").mkdir()
    whole = to_json(analysed(tmp_path, *rows))["nccl_network"]
    size = PieceSize(rows=500, at_once=1, shortest_ns=1)
    pieces = to_json(analysed(tmp_path / "pieces", *rows, size=size))["nccl_network"]
    assert pieces == whole


def test_every_view_draws_it(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, *each_bin(100, 0xA))
    text = render(analysis)
    assert "NCCL's network" in text
    assert "0xa" in text
    assert any("isend" in term.text for term in analysis.definitions)


def test_without_any_nothing_is_said(tmp_path: Path) -> None:
    analysis = analyze(TraceReader(trace_of()))
    assert analysis.parts(NCCL_NETWORK) == ()
    assert to_json(analysis)["nccl_network"]["processes"] == []
