"""What a recorder collects, handed to a live view in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.synthetic import ITERATION_NS, START_NS, Job

from netprof.session.live import RecordingSource
from netprof.session.recorder import Recorder
from netprof.trace import TraceReader


class Collecting:
    """A recorder that has collected a trace's rows; `observer` is who looks on."""

    def __init__(self, reader: TraceReader) -> None:
        self.meta, self.options = reader.meta, SimpleNamespace(bin_ns=reader.meta.bin_ns)
        self.collected_ns = START_NS
        self.job = SimpleNamespace(waiting="")
        self.observers: list[Any] = []
        self.observe = self.observers.append


@pytest.mark.slow
def test_a_view_sees_what_was_collected_and_is_told_once_where_to_look(tmp_path: Any) -> None:
    job = Job(ranks=2, iterations=10).fill()
    reader = TraceReader(job.write(tmp_path / "t.netprof"))
    recorder, source = Collecting(reader), RecordingSource()
    assert source.look() is None, "nothing is known before the recording has begun"
    source.feed(cast(Recorder, recorder))
    (observer,) = recorder.observers
    for name in ("flows", "marks", "wire"):
        table = reader.table(name)
        texts = {field.name for field in table.schema if str(field.type) == "string"}
        observer(
            name, {key: table[key].to_pylist() if key in texts else table[key].to_numpy() for key in table.schema.names}
        )
    recorder.collected_ns = START_NS + 10 * ITERATION_NS
    recorder.job.waiting = "waiting for ranks"
    source.feed(cast(Recorder, recorder))
    assert len(recorder.observers) == 1
    recent = source.look()
    assert recent is not None
    assert source.notice == "waiting for ranks"
    assert sorted(recent.ranks.values()) == [0, 1]
    assert all(len(recent.past.of_pid(pid).number) >= 8 for pid in recent.ranks)
    assert recent.through_ns == recorder.collected_ns
