"""How much one user may take of what an exporter has for all: recordings, files, memory, clients, series."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

PARTS = 3
"""A user may have a third of what the others leave: however many come, the next one finds room."""


class Shares:
    """What each user has taken of a `capacity`."""

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity
        self._taken = Counter[Hashable]()

    def has_room(self, user: Hashable, amount: float = 1) -> bool:
        """Tell whether a user may take so much more; one of something may be all that the others leave."""
        mine = self._taken[user]
        left = self.capacity - (self._taken.total() - mine)
        return mine + amount <= min(left, max(left / PARTS, 1))

    def take(self, user: Hashable, amount: float = 1) -> None:
        """Count so much more as taken."""
        self._taken[user] += amount  # type: ignore[assignment]

    def give_back(self, user: Hashable, amount: float = 1) -> None:
        """Count so much less; a user with nothing is forgotten."""
        self._taken[user] -= amount  # type: ignore[assignment]
        if self._taken[user] <= 0:
            del self._taken[user]

    def taken(self, user: Hashable) -> float:
        """Return what a user has."""
        return self._taken[user]

    @property
    def total(self) -> float:
        """What all have together."""
        return self._taken.total()

    @property
    def largest(self) -> Hashable:
        """Who has most; None where nobody has anything."""
        return max(self._taken, key=self._taken.__getitem__, default=None)
