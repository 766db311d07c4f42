"""A lane that grows while rows are added to it."""

from __future__ import annotations

from netprof.analysis.wire.bins import Bins, combine

_WORTH_IT = 1 << 16


class GrowingLane:
    """The sum of all that was added, put together when asked for and whenever it may have doubled.

    So every bin is touched a few times at most, in however many parts and in whatever order bins come.
    """

    def __init__(self) -> None:
        self._parts: list[Bins] = []
        self._added = 0  # bins since the last time

    def add(self, bins: Bins) -> None:
        """Add bins, which may be some that are held already."""
        self._parts.append(bins)
        self._added += len(bins)
        if self._added > max(_WORTH_IT, len(self._parts[0])):
            self.bins()

    def bins(self) -> Bins | None:
        """Return what was added so far, None if nothing was; later parts do not change what was returned."""
        whole = combine(self._parts)
        self._parts = [whole] if whole is not None else []
        self._added = 0
        return whole
