"""A trace that is not kept: for a recording of which only totals are wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from netprof.model import Meta


class DiscardedTrace:
    """Takes what a `TraceWriter` takes, and keeps nothing of it."""

    def append(self, name: str, columns: Mapping[str, Sequence[Any] | Any]) -> None:
        """Take rows."""

    def update_meta(self, meta: Meta) -> None:
        """Take a description."""

    def size_bytes(self) -> int:
        """Return 0."""
        return 0

    def discard(self) -> None:
        """Do nothing."""

    def close(self, meta: Meta) -> None:
        """Do nothing."""
