"""Rows of several hosts are handed on together: as far as all have come, and in steps."""

from __future__ import annotations

from netprof.analysis.live.in_step import InStep


def rows(*times: int) -> dict[str, list[int]]:
    return {"time_ns": list(times), "pid": [1] * len(times)}


def test_rows_wait_until_all_hosts_have_come_as_far():
    step = InStep(2)
    step.add(0, "marks", rows(1, 2, 5))
    step.add(1, "flows", {"flow_id": [1]})
    assert step.take() == (None, [("flows", {"flow_id": [1]})]), "what has no time waits for nobody"
    step.add(1, "marks", rows(3))
    assert step.take()[0] is None, "of the second host nothing is surely whole yet"
    through_ns, taken = step.take()
    assert through_ns == 3
    assert [list(found["time_ns"]) for _, found in taken] == [[1, 2], [3]]
    assert step.take([1])[0] == 5, "a host that is quiet is not waited for"
    assert step.take([0, 1])[0] == 5


def test_rows_are_handed_on_in_steps():
    step = InStep(1, 10)
    for newest in (1, 5, 20):
        step.add(0, "marks", rows(newest))
        step.settle()
        through_ns, taken = step.take()
        assert (through_ns, len(taken)) == {1: (1, 1), 5: (None, 0), 20: (20, 2)}[newest]
