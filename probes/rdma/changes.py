"""How often counters really change, found out while they are read."""

from __future__ import annotations

from collections import deque

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
