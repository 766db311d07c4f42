"""A trace that is still being written is told from one whose recorder was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.synthetic import Job, mark_columns

from netprof.analysis import Analysis, analyze
from netprof.analysis.findings.recording.recording import RECORDING
from netprof.trace import TraceReader, TraceWriter

HERE = Path(__file__).parents[1]
WRITES = """
import sys, time
from dataclasses import replace
from pathlib import Path
from support.synthetic import Job, mark_columns
from netprof.trace import TraceWriter
job = Job().fill()
writer = TraceWriter(Path(sys.argv[1]), replace(job.meta(), stopped_ns=None, stop_reason=""))
writer.append("flows", job.flows())
writer.append("marks", mark_columns(job.marks))
print("written", flush=True)
time.sleep(600)
"""


def report(path: Path) -> Analysis:
    return analyze(TraceReader(path))


@pytest.mark.slow
def test_a_recording_that_goes_on_misses_nothing_until_its_recorder_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "t.netprof"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    writer = subprocess.Popen([sys.executable, "-c", WRITES, path], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
        going_on = report(path)
        assert going_on.of(RECORDING).still_recording
        assert not going_on.of(RECORDING).recorded.truncated
        assert any("the recording goes on" in note for note in going_on.notes)
        assert not any("missing" in note for note in going_on.notes)
        assert going_on.document()["still_recording"] is True
        assert going_on.document()["losses"]["truncated"] is False
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
    killed = report(path)
    assert not killed.of(RECORDING).still_recording
    assert killed.of(RECORDING).recorded.truncated
    assert any("did not finish" in note for note in killed.notes)


def test_a_batch_that_is_being_written_is_not_missing(tmp_path: Path) -> None:
    job, path = Job().fill(), tmp_path / "t.netprof"
    writer = TraceWriter(path, replace(job.meta(), stopped_ns=None))
    writer.append("marks", mark_columns(job.marks))
    marks = path / "marks.arrows"
    os.truncate(marks, marks.stat().st_size - 5)
    reader = TraceReader(path)
    assert list(reader.batches("marks")) == []
    assert not reader.truncated
    writer.close(job.meta())
    os.truncate(marks, marks.stat().st_size - 50)
    reader = TraceReader(path)
    assert reader.table("marks").num_rows == 0
    assert reader.damage
    assert not reader.truncated
    assert not reader.still_recording
