"""What RoCE's headers report, as series of table `counters`: one for each queue pair and kind of event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import numpy as np

from netprof.model import Series
from netprof.probes.capture.connections import Ends
from netprof.probes.capture.flow_book import name_of
from netprof.probes.capture.grouped import Groups
from netprof.probes.capture.packets import Int64
from netprof.probes.capture.roce import EVENTS
from netprof.probes.probe import Columns
from netprof.probes.series import Measure
from netprof.schema import COUNT

_MEANINGS = {
    "messages": "messages that ended: sends, writes, and answers to reads",
    "ecn_marked_packets": "packets that a switch marked for congestion (ECN)",
    "cnp_packets": "congestion notification packets, by which a receiver tells a sender to slow down",
    "resent_packets": "packets whose sequence number had been seen before",
    "negative_acknowledgements": "acknowledgements that say: a packet is missing, or the receiver is not ready",
}
_QUANTITIES = [
    Measure(name, "messages" if name == "messages" else "packets", COUNT, _MEANINGS[name]) for name in EVENTS
]


_TOGETHER = -1

MOST_SERIES = 20_000
"""Series of one capture: all of them, with the most addresses that are hosts, can be described in a trace."""
OTHERS = "other queue pairs"


class RoceEvents:
    """Counts the events of every RoCE stream. Series are numbered from `first_id` on.

    A series begins with the first event of its kind. The first stream has one for every kind, so that what was never
    counted is known to be none. Events of streams beyond `most` series are counted together.
    """

    def __init__(self, first_id: int = 0, most: int = MOST_SERIES) -> None:
        self._first_id, self._most = first_id, most
        self._numbers: dict[tuple[int, int], int] = {}  # of a series, by stream (_TOGETHER: several) and kind of event
        self._totals: list[int] = []
        self._newest_ns: list[int] = []
        self._crowded: set[int] = set()
        self.series: list[Series] = []

    @property
    def together(self) -> int:
        """How many streams have events that are counted together."""
        return len(self._crowded)

    def rows(
        self, groups: Groups, stream: Int64, time_ns: Int64, events: Mapping[str, Int64], connections: list[Ends]
    ) -> Columns:
        """Return rows of table `counters` for packets in `groups` of one stream and bin; a series begins with zero."""
        sums = np.stack([groups.sums(events[name]) for name in EVENTS], axis=1)
        begins_ns = np.minimum.reduceat(time_ns, groups.starts)
        ends_ns = np.maximum.reduceat(time_ns, groups.starts)
        streams = stream[groups.starts]
        rows: list[tuple[int, int, int]] = []
        if not self.series:
            first = int(np.argmin(begins_ns))
            ends = connections[streams[first] // 2]
            rows += [self._begin(int(streams[first]), kind, ends, int(begins_ns[first])) for kind in range(len(EVENTS))]
        # By time: what several streams have together must grow.
        for row, kind in np.argwhere(sums[order := np.argsort(ends_ns, kind="stable")] > 0).tolist():
            row = int(order[row])
            owner = self._owner(int(streams[row]), kind)
            if (owner, kind) not in self._numbers:
                rows.append(self._begin(owner, kind, connections[owner // 2], int(begins_ns[row])))
            rows.append(self._grow(self._numbers[owner, kind], int(sums[row, kind]), int(ends_ns[row])))
        numbers, times_ns, values = zip(*rows, strict=True) if rows else ((), (), ())
        return {"series": numbers, "time_ns": times_ns, "value": values}

    def _owner(self, stream: int, kind: int) -> int:
        """Return the stream in whose series an event is counted."""
        if (stream, kind) in self._numbers or len(self.series) < self._most:
            return stream
        self._crowded.add(stream)
        return _TOGETHER

    def _begin(self, owner: int, kind: int, ends: Ends, begin_ns: int) -> tuple[int, int, int]:
        number = len(self.series)
        self._numbers[owner, kind] = number
        self._totals.append(0)
        self._newest_ns.append(begin_ns)
        subject = OTHERS if owner == _TOGETHER else name_of(ends)
        self.series.append(Series(self._first_id + number, "capture", subject, **asdict(_QUANTITIES[kind])))
        return self._first_id + number, begin_ns - 1, 0

    def _grow(self, number: int, grown: int, time_ns: int) -> tuple[int, int, int]:
        self._totals[number] += grown
        self._newest_ns[number] = max(self._newest_ns[number], time_ns)
        return self._first_id + number, self._newest_ns[number], self._totals[number]
