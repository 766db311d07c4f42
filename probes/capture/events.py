"""What RoCE's headers report, as series of table `counters`: one for each queue pair and kind of event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import numpy as np

from netprof.model import Series
from netprof.probes.capture.flows import name_of
from netprof.probes.capture.grouped import Groups
from netprof.probes.capture.packets import Int64
from netprof.probes.capture.roce import EVENTS
from netprof.probes.capture.streams import Ends
from netprof.probes.probe import Columns
from netprof.probes.series import Quantity
from netprof.schema import COUNT

_MEANINGS = {
    "messages": "messages that ended: sends, writes, and answers to reads",
    "ecn_marked_packets": "packets that a switch marked for congestion (ECN)",
    "cnp_packets": "congestion notification packets, by which a receiver tells a sender to slow down",
    "resent_packets": "packets whose sequence number had been seen before",
    "negative_acknowledgements": "acknowledgements that say: a packet is missing, or the receiver is not ready",
}
_QUANTITIES = [
    Quantity(name, "messages" if name == "messages" else "packets", COUNT, _MEANINGS[name]) for name in EVENTS
]


class RoceEvents:
    """Counts the events of every RoCE stream. Series are numbered from `first_id` on."""

    def __init__(self, first_id: int = 0) -> None:
        self._next_id = first_id
        self._first_series: dict[int, int] = {}  # by stream
        self._totals: dict[int, list[int]] = {}
        self.series: list[Series] = []

    def rows(
        self, groups: Groups, stream: Int64, time_ns: Int64, events: Mapping[str, Int64], connections: list[Ends]
    ) -> Columns:
        """Return rows of table `counters` for packets in `groups` of one stream and bin; a series begins with zero."""
        sums = np.stack([groups.sums(events[name]) for name in EVENTS], axis=1).tolist()
        ends_ns = np.maximum.reduceat(time_ns, groups.starts).tolist()
        begins_ns = np.minimum.reduceat(time_ns, groups.starts).tolist()
        rows: list[tuple[int, int, int]] = []
        for each, begin_ns, end_ns, counts in zip(
            stream[groups.starts].tolist(), begins_ns, ends_ns, sums, strict=True
        ):
            if each not in self._first_series:
                rows += [(number, begin_ns - 1, 0) for number in self._begin(each, connections[each // 2])]
            totals = self._totals[each]
            for index, grown in enumerate(counts):
                if grown:
                    totals[index] += grown
                    rows.append((self._first_series[each] + index, end_ns, totals[index]))
        numbers, times_ns, values = zip(*rows, strict=True) if rows else ((), (), ())
        return {"series": numbers, "time_ns": times_ns, "value": values}

    def _begin(self, stream: int, ends: Ends) -> range:
        numbers = range(self._next_id, self._next_id + len(_QUANTITIES))
        self._next_id += len(_QUANTITIES)
        self._first_series[stream], self._totals[stream] = numbers[0], [0] * len(_QUANTITIES)
        for number, quantity in zip(numbers, _QUANTITIES, strict=True):
            self.series.append(Series(number, "capture", name_of(ends), **asdict(quantity)))
        return numbers
