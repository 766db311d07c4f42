"""For how many steps every gradient is marked."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from netprof.model import Target
from netprof.probes.marks import probe as marks_probe
from netprof.probes.marks.mark_records import RECORD, called_often
from netprof.probes.marks.probe import MarkProbe
from netprof.probes.marks.step_counter import StepCounter
from netprof.schema import MarkKind


@pytest.mark.parametrize(
    ("steps", "enough"),
    [((19, 20), False), ((20, 20), True), ((99, 19), False), ((99, 0), False), ((100, 0), True)],
)
def test_a_process_that_takes_no_step_is_not_waited_for(
    steps: tuple[int, int], enough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parameter server, an evaluator: every parameter of the others would be marked for as long as is recorded."""
    monkeypatch.setattr(marks_probe, "is_same", lambda target: True)
    probe = MarkProbe.__new__(MarkProbe)
    probe._counter, probe._steps_at_sampling = StepCounter(), Counter()
    probe._training = {Target(pid, 0, frameworks=("torch",)) for pid in (1, 2)}
    pid = np.repeat([1, 2], steps)
    kind = np.full(len(pid), int(MarkKind.DDP_WAIT))
    probe._counter.see({"time_ns": np.arange(len(pid)), "pid": pid, "kind": kind, "arg0": pid})
    assert probe._sampled_enough() is enough


@pytest.mark.parametrize(
    ("calls", "apart_ns", "processes", "often"),
    [(8000, 40_000, 1, {3}), (8000, 60_000, 1, set()), (7999, 1, 1, set()), (12_000, 10, 2, set())],
)
def test_what_is_called_often_is_told_by_process_and_rate(
    calls: int, apart_ns: int, processes: int, often: set[int]
) -> None:
    """At 20,000 a second and over 0.4 s: a burst of fewer is none, nor are two processes one."""
    records = np.zeros(calls, RECORD)
    records["row"], records["pid"] = 3, 100 + np.arange(calls) % processes
    records["time_ns"] = np.arange(calls) * apart_ns
    assert called_often(records, 20_000, 0.4) == often
