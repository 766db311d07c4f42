"""How often something is read: as often as wanted, but for no more than its share of a core."""

from __future__ import annotations


class ReadingPace:
    """How often something is read: as often as `finest_ns`, but for no more than its share of a core."""

    def __init__(self, budget: float, finest_ns: int) -> None:
        self.period_ns = self.finest_ns = finest_ns
        self.cost_ns = 0
        self._budget = budget

    def took(self, cpu_ns: int) -> None:
        """Take what the last reading took of a core; one that took long by chance is soon forgotten."""
        self.cost_ns = cpu_ns if not self.cost_ns else round(0.9 * self.cost_ns + 0.1 * cpu_ns)
        self.period_ns = max(self.finest_ns, round(self.cost_ns / self._budget))
