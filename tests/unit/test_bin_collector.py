"""Every bin becomes a row once: handed over by the kernel, read in place, or both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netprof.probes.flow.bin_collector import BIN_RECORD, BinCollector
from netprof.probes.kernel.btf import layout

BIN_NS, SLOTS = 1_000, 4
STREAM = layout("flow", "stream")


class Kernel:
    """What the BPF programs do, in Python: one filling bin per stream, handed over when the next one begins."""

    def __init__(self) -> None:
        self.streams = np.zeros((SLOTS, 2), dtype=STREAM)
        self.ids = np.arange(1, SLOTS + 1, dtype=np.uint32)
        self.ring: list[Any] = []
        self.is_full = False
        self.sent: dict[tuple[int, int, int], int] = {}

    def packet(self, slot: int, direction: int, time_ns: int, size: int) -> None:
        stream = self.streams[slot, direction]
        number = time_ns // BIN_NS
        if stream["bin_end_ns"] <= time_ns:
            if stream["packets"] and self.is_full:
                number = stream["bin_end_ns"] // BIN_NS - 1  # the bin goes on
            elif stream["packets"]:
                self._hand_over(slot, direction)
            self.streams[slot, direction]["bin_end_ns"] = (number + 1) * BIN_NS
        if not stream["packets"]:
            stream["first_ns"] = time_ns
        stream["last_ns"] = time_ns
        for name, amount in (("payload_bytes", size), ("wire_bytes", size + 66), ("packets", 1)):
            self.streams[slot, direction][name] += amount
        key = (slot + 1, direction, number * BIN_NS)
        self.sent[key] = self.sent.get(key, 0) + size

    def drain(self) -> np.ndarray:
        records = np.array(self.ring, dtype=BIN_RECORD)
        self.ring.clear()
        return records

    def _hand_over(self, slot: int, direction: int) -> None:
        stream = self.streams[slot, direction]
        record = np.zeros((), dtype=BIN_RECORD)
        record["flow_id"], record["place"] = self.ids[slot], slot * 2 + direction
        for name in ("payload_bytes", "wire_bytes", "packets", "first_ns", "last_ns"):
            record[name] = stream[name]
        self.ring.append(record)
        self.streams[slot, direction] = np.zeros((), dtype=STREAM)


STEPS = st.lists(
    st.tuples(st.integers(0, SLOTS - 1), st.integers(0, 1), st.integers(0, 5_000), st.integers(1, 9), st.booleans()),
    max_size=60,
)


@pytest.mark.slow
@given(STEPS)
def test_every_byte_in_its_bin_once(steps: list[tuple[int, int, int, int, bool]]) -> None:
    kernel, collector = Kernel(), BinCollector(BIN_NS, SLOTS)
    got: dict[tuple[int, int, int], int] = {}

    def collect(now_ns: int, ahead: int = 0) -> None:
        silent = collector.silent(kernel.ids, kernel.streams, now_ns // BIN_NS + ahead)
        columns = collector.columns(kernel.drain(), silent)
        names = ("flow_id", "direction", "bin_start_ns", "payload_bytes")
        rows = zip(*(columns[name].tolist() for name in names), strict=True)
        for flow, direction, start, size in rows:
            got[flow, direction, start] = got.get((flow, direction, start), 0) + size

    now_ns = 10_000
    for slot, direction, wait_ns, size, drain in steps:
        now_ns += wait_ns
        kernel.packet(slot, direction, now_ns, size)
        if drain:
            collect(now_ns)
    collect(now_ns, ahead=4)
    collect(now_ns, ahead=4)
    assert got == kernel.sent


def test_a_woken_flow_adds_only_what_is_new_to_a_bin_already_given() -> None:
    kernel, collector = Kernel(), BinCollector(BIN_NS, SLOTS)
    kernel.packet(0, 0, 10_000, 5)
    first = collector.columns(kernel.drain(), collector.silent(kernel.ids, kernel.streams, 20))
    assert first["payload_bytes"].tolist() == [5]
    kernel.packet(0, 0, 10_500, 2)  # late, into the very bin that was read in place
    kernel.packet(0, 0, 30_000, 1)
    second = collector.columns(kernel.drain(), collector.silent(kernel.ids, kernel.streams, 30))
    assert (second["payload_bytes"].tolist(), second["bin_start_ns"].tolist()) == ([2], [10_000])


def test_a_recycled_slot_owes_nothing_to_its_last_flow() -> None:
    kernel, collector = Kernel(), BinCollector(BIN_NS, SLOTS)
    kernel.packet(0, 0, 10_000, 5)
    collector.columns(kernel.drain(), collector.silent(kernel.ids, kernel.streams, 20))
    collector.forget(np.array([0]))
    kernel.streams[0] = np.zeros(2, dtype=STREAM)
    kernel.ids[0] = 99
    kernel.packet(0, 0, 10_000, 7)
    rows = collector.columns(kernel.drain(), collector.silent(kernel.ids, kernel.streams, 20))
    assert (rows["flow_id"].tolist(), rows["payload_bytes"].tolist()) == ([99], [7])


def test_a_bin_that_goes_on_while_the_ring_is_full_is_one_row_of_all_that_time() -> None:
    kernel, collector = Kernel(), BinCollector(BIN_NS, SLOTS)
    kernel.packet(0, 0, 10_000, 5)
    kernel.is_full = True
    for time_ns in (11_500, 13_200):
        kernel.packet(0, 0, time_ns, 5)
    kernel.is_full = False
    kernel.packet(0, 0, 14_100, 1)
    rows = collector.columns(kernel.drain(), collector.silent(kernel.ids, kernel.streams, 14))
    names = ("bin_start_ns", "first_ns", "last_ns", "payload_bytes")
    assert [rows[name].tolist() for name in names] == [[10_000], [10_000], [13_200], [15]]


def test_what_was_given_of_such_a_bin_is_over_when_the_rest_begins() -> None:
    kernel, collector = Kernel(), BinCollector(BIN_NS, SLOTS)
    kernel.packet(0, 0, 10_100, 4)
    kernel.packet(0, 0, 10_400, 1)
    collector.columns(kernel.drain(), collector.silent(kernel.ids, kernel.streams, 20))
    kernel.is_full = True
    kernel.packet(0, 0, 25_000, 7)
    kernel.is_full = False
    kernel.packet(0, 0, 30_000, 1)
    rows = collector.columns(kernel.drain(), collector.silent(kernel.ids, kernel.streams, 30))
    names = ("bin_start_ns", "first_ns", "last_ns", "payload_bytes")
    assert [rows[name].tolist() for name in names] == [[10_000], [10_400], [25_000], [7]]


def test_what_is_added_to_a_bin_that_was_given_is_given_too_if_nothing_follows() -> None:
    """The ring is full, the flow goes on and ends: its last bin stays where it is."""
    kernel, collector = Kernel(), BinCollector(BIN_NS, SLOTS)
    kernel.packet(0, 0, 10_100, 4)
    collector.columns(kernel.drain(), collector.silent(kernel.ids, kernel.streams, 20))
    kernel.is_full = True
    kernel.packet(0, 0, 25_000, 7)
    given = [collector.columns(kernel.drain(), collector.silent(kernel.ids, kernel.streams, 30)) for _ in range(2)]
    assert [rows["payload_bytes"].tolist() for rows in given] == [[7], []]


class Moving(np.ndarray):
    """Memory that changes between the look at all of it and the look at some."""

    meanwhile: Any = None

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple) and isinstance(key[0], np.ndarray) and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return np.asarray(self)[key]


def test_a_bin_that_begins_while_one_looks_is_not_silent() -> None:
    """The recorder stood still between two looks: the bin is another one then, and not over."""
    kernel, collector = Kernel(), BinCollector(BIN_NS, SLOTS)
    kernel.packet(0, 0, 10_000, 5)
    moving = kernel.streams.view(Moving)
    moving.meanwhile = lambda: kernel.packet(0, 0, 50_000, 3)
    assert len(collector.silent(kernel.ids, moving, 20)) == 0
    kernel.packet(0, 0, 50_400, 4)
    rows = collector.columns(kernel.drain(), collector.silent(kernel.ids, kernel.streams, 60))
    assert sorted(rows["payload_bytes"].tolist()) == [5, 7]
