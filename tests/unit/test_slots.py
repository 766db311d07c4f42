"""Which slots of the table of flows are free again, and what is kept of the flows that gave theirs up."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from netprof.probes.flow import slots as module
from netprof.probes.flow.probe import MAX_FLOWS, still_needed
from netprof.probes.flow.slots import FLOW, PARKED, Slots

SECOND = 1_000_000_000
COUNT = 8


class Table:
    """A loaded object without a kernel: its maps are files in memory, its counters plain numbers."""

    def __init__(self) -> None:
        self.values = {"next_slot": 0, "reused_slots": 0, "freed_slots": 0}
        self.files = {name: os.memfd_create(name) for name in ("flows", "free_slots", "parked_flows")}
        for descriptor in self.files.values():
            os.ftruncate(descriptor, 1 << 16)
        self.parked: dict[int, Any] = {}

    def map_fd(self, name: str) -> int:
        return self.files[name]

    def counters(self, *names: str) -> dict[str, int]:
        return {name: self.values[name] for name in names}

    def set_counter(self, name: str, value: int) -> None:
        self.values[name] = value


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    made = Table()

    def park(descriptor: int, key: bytes, value: bytes) -> None:
        made.parked[int.from_bytes(key, "little")] = np.frombuffer(value, PARKED)[0]

    monkeypatch.setattr(module, "map_update", park)
    return made


def filled(table: Table, ids: list[int], last_ns: int) -> Slots:
    """Return the slots with flows of these ids in the first of them, which moved something at `last_ns`."""
    slots = Slots(table, COUNT, 1_000_000)  # type: ignore[arg-type]
    table.values["next_slot"] = len(ids)
    used = slots.used()
    used["id"] = used["holder"] = ids
    used["streams"]["last_ns"][:, 0] = last_ns
    return slots


def freed(table: Table) -> list[int]:
    ring = np.frombuffer(os.pread(table.files["free_slots"], 8 * COUNT, 0), np.uint32)[::2]
    return list(ring[: table.values["freed_slots"]].tolist())


def test_the_layout_is_that_of_the_kernel_programs() -> None:
    assert FLOW.itemsize == 320
    assert FLOW.fields is not None
    assert FLOW.fields["streams"][1] % 64 == 0
    assert FLOW.fields["local_addr"][1] == 64
    assert PARKED.itemsize == 128


def test_a_closed_flow_frees_its_slot_some_time_later(table: Table) -> None:
    slots = filled(table, [1, 2, 3], SECOND)
    slots.used()["closed"][1] = 1
    assert slots.recycle(SECOND).size == slots.recycle(SECOND + 1_999_999_999).size == 0
    assert slots.recycle(SECOND + 2 * SECOND).tolist() == freed(table) == [1]
    assert slots.used()["id"].tolist() == [1, 0, 3]
    assert table.parked == {}
    assert slots.recycle(9 * SECOND).size == 0


def test_silent_flows_keep_their_slots_while_there_are_enough(table: Table) -> None:
    slots = filled(table, [1, 2, 3, 4], SECOND)
    for now_s in range(2, 20):
        assert slots.recycle(now_s * SECOND).size == 0


def test_where_slots_are_few_the_silent_are_parked_where_they_stood(table: Table) -> None:
    slots = filled(table, [1, 2, 3, 4, 5], SECOND)
    used = slots.used()
    used["streams"]["last_ns"][2, 1] = 10 * SECOND  # the third is not silent
    used["streams"]["next_sequence"][:, 0], used["streams"]["next_sequence"][:, 1] = 77, 88
    used["streams"]["holes_bytes"][:, 1], used["streams"]["segments"][:, 1] = 5, 6
    used["adoption"]["sent_bytes"], used["told"] = 1234, 1
    slots.recycle(10 * SECOND)
    assert used["holder"].tolist() == [0, 0, 3, 0, 0]
    used["holder"][4] = used["id"][4] = 4  # it came back, in another slot
    used["streams"]["last_ns"][4] = 11 * SECOND
    slots.recycle(12 * SECOND)
    assert sorted(table.parked) == [1, 2]
    kept = table.parked[1]
    assert kept["next_sequence"].tolist() == [77, 88]
    assert (kept["holes_bytes"], kept["segments"], kept["told"], kept["adoption"]["sent_bytes"]) == (5, 6, 1, 1234)
    assert freed(table) == [0, 1, 3]


def test_the_ring_of_free_slots_goes_round(table: Table) -> None:
    slots = filled(table, list(range(1, COUNT + 1)), 0)
    for turn in range(5):
        used = slots.used()
        used["id"] = used["holder"] = np.arange(1, COUNT + 1)
        used["closed"] = [1, 0, 1, 0, 1, 0, 0, 0]
        used["streams"]["last_ns"] = np.iinfo(np.int64).max // 2
        slots.recycle(turn * 10 * SECOND + 1)
        assert slots.recycle(turn * 10 * SECOND + 1 + 2 * SECOND).tolist() == [0, 2, 4]
        assert table.values["freed_slots"] == 3 * (turn + 1)
        table.values["reused_slots"] = table.values["freed_slots"]


def test_of_flows_that_are_left_out_the_newest_and_those_in_slots_are_remembered() -> None:
    few, used = set(range(2 * MAX_FLOWS)), np.array([7], np.uint32)
    assert still_needed(few, used) is few
    assert still_needed(few | {2 * MAX_FLOWS}, used) == {7, *range(MAX_FLOWS + 1, 2 * MAX_FLOWS + 1)}
