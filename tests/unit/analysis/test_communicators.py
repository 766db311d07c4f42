"""NCCL's communicators as its RAS tells of them, and the ranks that they name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.synthetic import MS, START_NS, Job, trace_of

from netprof.analysis import Analysis, analyze
from netprof.analysis.findings.collectives.communicators import COMMUNICATORS
from netprof.analysis.pieces import PieceSize
from netprof.model import Target
from netprof.schema import UNKNOWN_RANK, NcclRankState, tables
from netprof.trace import TraceReader
from netprof.views.json_report import to_json

S = NcclRankState


def told(*rows: tuple[Any, ...]) -> dict[str, Any]:
    """Columns of `nccl_ranks` of rows (ms, communicator, size, rank, pid, state, collectives)."""
    names = ("at", "communicator", "size", "rank", "pid", "state", "collectives")
    columns: dict[str, Any] = {name: [row[index] for row in rows] for index, name in enumerate(names)}
    columns["time_ns"] = [START_NS + at * MS for at in columns.pop("at")]
    columns["host"] = ["10.0.0.1" if pid else "10.0.0.2" for pid in columns["pid"]]
    columns["process"] = [pid or 4000 + rank for pid, rank in zip(columns["pid"], columns["rank"], strict=True)]
    columns["process"] = [max(each, 0) for each in columns["process"]]
    return {name: columns[name] for name in tables()["nccl_ranks"].names}


def analysed(path: Path, *rows: tuple[Any, ...], size: PieceSize | None = None, **changes: Any) -> Analysis:
    job = Job(extra={"nccl_ranks": told(*rows)}, changes=changes).fill()
    return analyze(TraceReader(job.write(path / "t.netprof")), size=size)


ROWS = (
    (0, "0xf:a", 4, 0, 100, S.RUNNING, 5),
    (0, "0xf:a", 4, 1, 101, S.RUNNING, 5),
    (0, "0xf:a", 4, 2, 0, S.RUNNING, 5),
    (0, "0xf:a", 4, 3, 0, S.RUNNING, 5),
    (0, "0x2:b", 2, 0, 100, S.FAILED, 1),
    (500, "0xf:a", 4, 3, 0, S.MISSING, 0),
    (900, "0xf:a", 4, 0, 100, S.RUNNING, 90),
    (900, "0xf:a", 4, 1, 101, S.RUNNING, 88),
    (900, "0xf:a", 4, 2, 0, S.RUNNING, 90),
)


def test_the_last_that_was_said_of_each_rank(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, *ROWS)
    large, small = to_json(analysis)["nccl_communicators"]
    assert (large["name"], large["size"], large["missing"], large["failed"]) == ("0xf:a", 4, [3], [])
    assert (large["most_collectives"], large["behind"]) == (90, [1])
    assert [member["pid"] for member in large["members"]] == [100, 101, None, None]
    assert (small["size"], small["failed"], len(small["members"])) == (2, [0], 1)
    (note,) = [note for note in analysis.notes if "NCCL misses" in note]
    assert "3 (missing, process 4003 on 10.0.0.2)" in note
    (part,) = analysis.parts(COMMUNICATORS)
    assert part.title == "NCCL's communicators"


def test_rows_in_any_order(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    one, other = (
        to_json(analysed(path, *rows))["nccl_communicators"]
        for path, rows in (
            (tmp_path, ROWS),
            (tmp_path / "other", ROWS[::-1]),
        )
    )
    assert one == other


@pytest.mark.slow
def test_pieces_say_what_the_whole_says(tmp_path: Path) -> None:
    (tmp_path / "pieces").mkdir()
    whole = to_json(analysed(tmp_path, *ROWS))
    pieces = to_json(analysed(tmp_path / "pieces", *ROWS, size=PieceSize(rows=500, at_once=1, shortest_ns=1)))
    assert pieces["nccl_communicators"] == whole["nccl_communicators"]


def test_sizes_without_ranks(tmp_path: Path) -> None:
    (found,) = to_json(analysed(tmp_path, (0, "group 0", 8, UNKNOWN_RANK, 0, S.RUNNING, 0)))["nccl_communicators"]
    assert (found["size"], found["members"], found["most_collectives"]) == (8, [], None)


@pytest.mark.slow
@pytest.mark.parametrize("size", [None, PieceSize(rows=500, at_once=1, shortest_ns=1)])
def test_ranks_that_nothing_else_tells(size: PieceSize | None, tmp_path: Path) -> None:
    targets = tuple(Target(pid, 5, "python train.py", 7, UNKNOWN_RANK, None, ("nccl",)) for pid in (100, 101))
    rows = ((0, "0xf:a", 4, 2, 100, S.RUNNING, 5), (0, "0xf:a", 4, 3, 101, S.RUNNING, 5))
    analysis = analysed(tmp_path, *rows, size=size, targets=targets)
    assert {pid: analysis.evidence.ranks[pid] for pid in (100, 101)} == {100: 2, 101: 3}
    assert analysis.evidence.world_size == 4


def test_without_ras_nothing_is_said(tmp_path: Path) -> None:
    analysis = analyze(TraceReader(trace_of()))
    assert to_json(analysis)["nccl_communicators"] == []
    assert analysis.parts(COMMUNICATORS) == ()
