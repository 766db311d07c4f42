"""One RDMA port being watched: rows of what it moved, of what it reports, and of what becomes of it."""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress

from netprof.model import Device, LineRate
from netprof.probes.nic.history import link_change
from netprof.probes.nic.line_rate import Condition
from netprof.probes.probe import Row, row_of
from netprof.probes.rdma.counters import PortCounters, PortTotals
from netprof.probes.rdma.drivers import BYTES_RECEIVED, BYTES_SENT, PACKETS_RECEIVED, PACKETS_SENT, Driver
from netprof.probes.rdma.ports import Port
from netprof.probes.series import SeriesRows
from netprof.schema import NIC_COUNTERS, LinkState

KIND = "RDMA port"
_SAY_AGAIN_NS = 1_000_000_000  # a port that stands still has a row this often
_QUANTITIES = (BYTES_SENT, BYTES_RECEIVED, PACKETS_SENT, PACKETS_RECEIVED)
_STILL = 1.5  # times the period of its changes, after which a port moves nothing


class WatchedPort:
    """A port of namespace `netns` from when it was found. Raises OSError where its counters cannot be read at all.

    `override_bps` is a person's line rate, for a port that says none.
    """

    def __init__(self, port: Port, driver: Driver, netns: int, override_bps: float | None = None) -> None:
        self.port, self.driver = port, driver
        self.changes = Changes()
        self._netns = netns
        self._override_bps = override_bps
        self.counters = PortCounters(port, driver)
        self._condition: tuple[LinkState, LineRate] = (LinkState.GONE, LineRate(None, "unknown"))
        self._last: PortTotals | None = None  # of which there is a row
        self._row_amounts = dict.fromkeys(NIC_COUNTERS, 0)  # in a row: what is unknown now stays what it was
        self._still: PortTotals | None = None  # a later sample that holds the same
        self._away_ns: int | None = None  # since when it cannot be read

    def device(self, period_ns: int) -> Device:
        """Return what it is like now; it is seen every `period_ns` at best."""
        period_ns = max(period_ns, self.changes.period_ns)
        return Device(self.port.name, self._netns, self._condition[1], kind=KIND, period_ns=period_ns)

    def read(self) -> PortTotals | None:
        """Return what it has moved; None while it is not there. May take long."""
        with suppress(OSError):
            return self.counters.moved()
        return None

    def take(self, now: PortTotals | None, rows: SeriesRows, *, final: bool = False) -> list[Row]:
        """Return the rows of table `nic` that a reading makes. Without bytes both ways, `rows` takes what is known."""
        if now is None:
            self._away_ns = self._away_ns or time.monotonic_ns()
            self._last = self._still = None
            return []
        self._away_ns = None
        if self._last is None or now.amounts != self._last.amounts:
            self.changes.see(now.time_ns)
        samples = self._with_rows(now, final=final)
        if None not in now.amounts[:2]:
            return [self._row(sample) for sample in samples]
        for quantity, total in zip(_QUANTITIES, now.amounts, strict=True):
            if total is not None:
                rows.see(now.time_ns, self.port.name, quantity, total)
        return []

    def become(self, condition: tuple[LinkState, LineRate], now_ns: int) -> list[Row]:
        """Return a row of table `link_changes` if it is not what it was, given its condition."""
        state, rate = condition
        if self._away_ns is not None:
            state, now_ns = LinkState.GONE, self._away_ns
        if rate.bps is None and self._override_bps is not None:
            rate = LineRate(self._override_bps, "--line-rate")
        if (state, rate) == self._condition:
            return []
        self._condition = state, rate
        now = Condition(self.port.name, state, rate, receive_rate=rate)
        return [link_change(self._netns, self.port.name, now_ns, now)]

    def _with_rows(self, now: PortTotals, *, final: bool) -> list[PortTotals]:
        """Return the samples that become rows: what moves, and where it stood still for long.

        Between two rows its counters grow evenly or not at all. Counters that are brought up to date less often than
        they are read stand still in between although the port moves: that is no silence.
        """
        last, still = self._last, self._still
        stands = last is not None and now.amounts == last.amounts
        if last is not None and stands and not final and now.time_ns - last.time_ns < _SAY_AGAIN_NS:
            self._still = now
            return []
        self._last, self._still = now, None
        if last is None or still is None or stands:
            return [now]
        return [still, now] if still.time_ns - last.time_ns > _STILL * self.changes.period_ns else [now]

    def _row(self, moved: PortTotals) -> Row:
        amounts = zip(NIC_COUNTERS, moved.amounts, strict=False)
        self._row_amounts |= {name: amount for name, amount in amounts if amount is not None}
        return row_of("nic", device=self.port.name, netns=self._netns, time_ns=moved.time_ns, **self._row_amounts)


_ASSUMED_NS = 50_000_000
"""How long counters that move may stand still before it is known how often they change."""
_ENOUGH, _KEPT = 16, 256
_FINEST_TENTH = 0.1


class Changes:
    """How often a port's counters change while they move: the finest tenth of the times between two changes."""

    def __init__(self) -> None:
        self._between_ns: deque[int] = deque(maxlen=_KEPT)
        self._last_ns: int | None = None

    def see(self, time_ns: int) -> None:
        """Take note of a change."""
        if self._last_ns is not None:
            self._between_ns.append(time_ns - self._last_ns)
        self._last_ns = time_ns

    @property
    def measured(self) -> bool:
        """Whether there were enough changes to tell."""
        return len(self._between_ns) >= _ENOUGH

    @property
    def period_ns(self) -> int:
        """How often they change; until that is known, a time that is long for it."""
        if not self.measured:
            return _ASSUMED_NS
        return sorted(self._between_ns)[int(_FINEST_TENTH * len(self._between_ns))]
