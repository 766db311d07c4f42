"""Work that is worth doing often, but not at any price."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

_IN_A_HURRY = 4
"""How many times its share work may take while something happens."""


class Budget:
    """Spaces out some work: at least `least_s` apart, and so seldom that it takes no more than `share` of a core."""

    def __init__(self, share: float, least_s: float = 0.0) -> None:
        self._share, self.least_s = share, least_s
        self.times = 1.0
        """How much of the share is allowed, for more to look at than there usually is."""
        self.next_s = 0.0
        """When it is due again (monotonic)."""
        self._done_s = self._took_s = 0.0

    def hurry(self, apart_s: float) -> None:
        """Let it be due so long after it was done last, for once, but at no more than a few times its share."""
        self.next_s = min(self.next_s, self._done_s + max(apart_s, self._spaced_s / _IN_A_HURRY))

    @property
    def is_due(self) -> bool:
        """Whether it is time again."""
        return time.monotonic() >= self.next_s

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Do the work in this block; what it costs says when it is due again."""
        began_s = time.thread_time()
        try:
            yield
        finally:  # also what fails has its cost
            self._took_s = time.thread_time() - began_s
            self._done_s = time.monotonic()
            self.next_s = self._done_s + max(self.least_s, self._spaced_s)

    @property
    def _spaced_s(self) -> float:
        return self._took_s / (self.times * self._share)
