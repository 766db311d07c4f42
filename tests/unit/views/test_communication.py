"""What the report says of jobs that are more, or other, than DDP on gloo."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.synthetic import MS, START_NS, Job

from netprof.analysis import analyze
from netprof.schema import CollectiveKind
from netprof.schema import MarkKind as K
from netprof.trace import TraceReader
from netprof.views.console import render
from netprof.views.json_report import to_json


def report(job: Job, path: Path, width: int = 100) -> tuple[str, dict[str, Any]]:
    """Return the text with all spaces alike, and the document."""
    analysis = analyze(TraceReader(job.write(path / "t.netprof")))
    file = io.StringIO()
    render(analysis, Console(file=file, width=width))
    assert max(len(line.rstrip()) for line in file.getvalue().splitlines()) <= width
    document: dict[str, Any] = json.loads(json.dumps(to_json(analysis), allow_nan=False))
    return " ".join(file.getvalue().split()), document


def mark(job: Job, time_ns: int, pid: int, kind: int, *args: int) -> None:
    """Add a mark with up to three arguments."""
    job.marks.append((time_ns, pid, pid, int(kind), *(*args, 0, 0, 0)[:2], (*args, 0, 0, 0)[2]))


def horovod() -> Job:
    """Two ranks that hand two tensors to Horovod in every iteration."""
    job = Job(iterations=8).fill()
    job.marks = []
    for rank in range(2):
        pid = 100 + rank
        for step in range(10):
            at, handle = START_NS + step * 200 * MS, 2 * step
            for when, kind, *args in (
                (0, K.BACKWARD),
                (10, K.HOROVOD_ENQUEUE, handle),
                (20, K.HOROVOD_ENQUEUE, handle + 1),
                (30, K.OPTIMIZER_STEP),
                (31, K.HOROVOD_WAIT, handle + 1),
                (60, K.HOROVOD_RESPONSE, CollectiveKind.ALL_REDUCE, 0, 64),
                (70, K.HOROVOD_TRANSFER, 2_500_000, 4, CollectiveKind.ALL_REDUCE),
                (120, K.HOROVOD_UNPACK),
                (130, K.HOROVOD_DONE, handle + 1),
                (130.5, K.HOROVOD_DONE, handle + 2),
                (131, K.OPTIMIZER_STEP),
            ):
                mark(job, at + round(when * MS), pid, kind, *args)
    return job


def nccl() -> Job:
    """One rank that enqueues an all-reduce of 5 MB every 200 ms."""
    job = Job(iterations=8, ranks=1).fill()
    job.marks = []
    for step in range(9):
        mark(job, START_NS + step * 200 * MS + 45 * MS, 100, K.NCCL_ALL_REDUCE, 1_250_000, 0x5000 << 8 | 7, 0x7000)
    return job


@pytest.mark.parametrize("width", [50, 100])
def test_horovod(tmp_path: Path, width: int) -> None:
    text, document = report(horovod(), tmp_path, width)
    assert "told by the optimizer's steps" in text
    assert "rest + forward" in text
    assert "Horovod" in text
    assert document["iterations"]["source"] == "optimizer steps"
    phases = document["iterations"]["phases_s"]
    assert phases.pop("forward") is None
    assert phases == pytest.approx({"backward": 0.030, "exposed_communication": 0.099, "rest": 0.071})
    assert all(row["iterations"]["phases_s"]["forward"] is None for row in document["ranks"])
    assert [each["tensors_per_response"] for each in document["horovod"]] == [2.0, 2.0]
    assert document["horovod"][0]["transferring_ns"] == 10 * 50 * MS
    assert document["collectives"]["by_kind"][0]["backend"] == "horovod"


@pytest.mark.parametrize("width", [50, 100])
def test_nccl(tmp_path: Path, width: int) -> None:
    text, document = report(nccl(), tmp_path, width)
    assert "what was enqueued" in text
    assert "9 enqueued" in text, "at every width"
    assert "NCCL only enqueues" in text
    (summary,) = document["nccl"]
    assert summary["bytes"] == 9 * 5_000_000
    assert (summary["ranks"], summary["ranks_source"]) == ([2], "environment")
    assert summary["median_wire_time_s"] == pytest.approx(0.080)
    (kind,) = document["collectives"]["by_kind"]
    assert (kind["timing"], kind["running_ns"], kind["algorithm_bandwidth_bps"]) == ("enqueue times only", None, None)
    assert document["iterations"]["source"] in (None, "inferred")


@pytest.mark.slow
def test_a_ddp_job_needs_none_of_it(tmp_path: Path) -> None:
    text, document = report(Job().fill(), tmp_path)
    assert "Collectives by kind" not in text
    assert document["iterations"]["source"] == "ddp"
    assert document["horovod"] == document["nccl"] == []
