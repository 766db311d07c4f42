"""How often counters are read and how often they really change, both found out while they are."""

from __future__ import annotations

from collections import deque

BUDGET = 6e-3  # of a core, that reading what all ports have moved may take
EVENT_BUDGET = 1e-3  # and what they report of congestion and loss
FINEST_NS = 1_000_000
"""Reading more often than this would show nothing that a conclusion rests on."""
_ASSUMED_NS = 50_000_000
"""How long counters that move may stand still before it is known how often they change."""
_ENOUGH, _KEPT = 16, 256
_FINEST_TENTH = 0.1


class Pace:
    """How often something is read: as often as `finest_ns`, but for no more than its share of a core."""

    def __init__(self, budget: float, finest_ns: int) -> None:
        self.period_ns = self.finest_ns = finest_ns
        self.cost_ns = 0
        self._budget = budget

    def took(self, cpu_ns: int) -> None:
        """Take what the last reading took of a core; one that took long by chance is soon forgotten."""
        self.cost_ns = cpu_ns if not self.cost_ns else round(0.9 * self.cost_ns + 0.1 * cpu_ns)
        self.period_ns = max(self.finest_ns, round(self.cost_ns / self._budget))


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

    def forget(self) -> None:
        """Begin anew: something else decides from here on how often they change."""
        self._between_ns.clear()
        self._last_ns = None

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
