"""Buckets of gradients that travel together."""

from __future__ import annotations

from dataclasses import dataclass

from netprof.analysis.tables.columns import Float64


@dataclass(frozen=True, eq=False)
class Buckets:
    """Buckets in the order they are launched: `launch_s` (seconds, any origin) and `bytes`, both of shape (K,)."""

    launch_s: Float64
    bytes: Float64

    def __len__(self) -> int:
        return len(self.launch_s)
