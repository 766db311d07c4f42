"""The round-trip time of each flow, from TCP's samples."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from netprof.analysis.tables.transport import round_trips_ns


class Rows:
    """Two flows."""

    def __len__(self) -> int:
        return 2

    def positions(self, flow: Any) -> Any:
        return flow - 1


def test_the_median_of_each_flow_is_taken_and_of_none_nothing() -> None:
    table = pa.table({"flow_id": [1, 1, 1, 1, 1], "rtt_us": [900, 100, 300, 200, 0]})
    rows: Any = Rows()
    assert round_trips_ns(table, rows).tolist() == [300_000, 0], "of an even number the higher one; 0 is none"
    table = pa.table({"flow_id": [2, 1, 2, 1, 2], "rtt_us": [50, 7, 10, 9, 40]})
    assert round_trips_ns(table, rows).tolist() == [9000, 40_000]
