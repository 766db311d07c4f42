"""Rows of what was posted: whichever way totals come, they add up to what the kernel has."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from netprof.probes.nccl.posted_rows import CONNECTION, RECORD, TOTALS, PostedRows
from netprof.schema import tables

MS = 1_000_000


class Kernel:
    """What the program does with its connections; `lazy` leaves the ring full at times."""

    def __init__(self, rng: random.Random, slots: int = 5) -> None:
        self.connections = np.zeros(slots, CONNECTION)
        self.connections["address"] = np.arange(slots) + 0x7000
        self.connections["pid"] = 4711
        self.ring: list[Any] = []
        self.rng = rng
        self.clock_ns = 0

    def post(self, slot: int, now_ns: int, size: int, refused: bool) -> None:
        each = self.connections[slot]
        now_ns = self.clock_ns = max(now_ns, self.clock_ns + 1)
        if now_ns >= each["bin_end_ns"]:
            if not each["bin_end_ns"] or self._hand_over(slot):
                each["first_ns"] = now_ns
            each["bin_end_ns"] = now_ns - now_ns % MS + MS
        each["last_ns"] = now_ns
        if refused:
            each["totals"]["refused"] += 1
        else:
            each["totals"]["posts"] += 1
            each["totals"]["bytes"] += size

    def _hand_over(self, slot: int) -> bool:
        if self.rng.random() < 0.1:
            return False
        each = self.connections[slot]
        self.ring.append((slot, 0, each["first_ns"], each["last_ns"], each["totals"].copy()))
        return True

    def records(self) -> Any:
        found, self.ring = np.array(self.ring, RECORD), []
        return found


@pytest.mark.parametrize("seed", range(20))
def test_rows_add_up_to_the_totals(seed: int) -> None:
    rng = random.Random(seed)
    kernel, rows = Kernel(rng), PostedRows(MS, 5)
    taken, now_ns = [], 10**12
    for _ in range(400):
        now_ns += rng.choice((1000, 50_000, 900_000, 3 * MS))
        for _ in range(rng.randrange(4)):
            kernel.post(rng.randrange(5), now_ns + rng.randrange(500), rng.randrange(1 << 20), rng.random() < 0.3)
        if rng.random() < 0.2:
            silent = rows.silent(kernel.connections, max(now_ns, kernel.clock_ns))
            for _ in range(rng.randrange(3)):  # what happens in between
                kernel.post(rng.randrange(5), now_ns + 600 + rng.randrange(2 * MS), 7, False)
            taken.append(rows.columns(kernel.connections, kernel.records(), silent))
    taken.append(
        rows.columns(kernel.connections, kernel.records(), rows.silent(kernel.connections, now_ns, final=True))
    )
    for slot in range(5):
        own = kernel.connections[slot]
        mine = [{name: values[each["connection"] == own["address"]] for name, values in each.items()} for each in taken]
        for total, column in (("bytes", "posted_bytes"), ("posts", "posts"), ("refused", "refused")):
            assert sum(int(each[column].sum()) for each in mine) == own["totals"][total]
    assert all(list(each) == tables()["nccl_posted"].names for each in taken)
    assert all((each["first_ns"] <= each["last_ns"]).all() for each in taken)


def test_a_connection_that_posts_on_is_not_silent() -> None:
    kernel, rows = Kernel(random.Random(0)), PostedRows(MS, 5)
    kernel.post(0, 10 * MS, 100, False)
    assert len(rows.silent(kernel.connections, 12 * MS)) == 0
    assert len(rows.silent(kernel.connections, 14 * MS)) == 1


def test_nothing_is_no_row() -> None:
    rows, none = PostedRows(MS, 5), np.zeros(0, RECORD)
    found = rows.columns(np.zeros(5, CONNECTION), none, none)
    assert [len(values) for values in found.values()] == [0] * len(found)


def test_the_layouts_are_the_programs() -> None:
    assert (TOTALS.itemsize, CONNECTION.itemsize, RECORD.itemsize) == (16, 64, 40)
    assert CONNECTION.fields is not None
    assert CONNECTION.fields["bin_end_ns"][1] == 16
