"""Records about flows that the kernel hands over by a ring, and that may come before the flow's own row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from netprof.probes.kernel.loader import BpfObject, RingBuffer

_COMPARED = 1 << 16


class FlowRecords:
    """Takes records of type `kind`, which has a field `flow_id`, from a ring of a loaded flow object."""

    def __init__(self, loaded: BpfObject, ring: str, kind: np.dtype[Any]) -> None:
        self._ring = RingBuffer(loaded, ring, kind)
        self._early = np.zeros(0, kind)  # of flows that nobody has heard of yet

    def take(self, published: NDArray[np.uint32], used: NDArray[np.uint32]) -> NDArray[Any]:
        """Return the records since the last call of flows that are `published`.

        Those of other flows wait for that, as long as the flow is one of `used`.
        """
        fresh = self._ring.drain()
        if not len(fresh) and not len(self._early):
            return fresh
        records = np.concatenate([self._early, fresh]) if len(self._early) else fresh
        known = _are_among(records["flow_id"], published)
        if known.all():
            self._early = self._early[:0]
            return records
        self._early = records[~known & _are_among(records["flow_id"], used)]
        return records[known]

    def close(self) -> None:
        """Let go of the ring."""
        self._ring.close()


def _are_among(ids: NDArray[np.uint32], some: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Say which ids are among some: of the few flows of most jobs each is compared, as np.isin takes 50 µs at least."""
    if len(ids) * len(some) > _COMPARED:
        return np.isin(ids, some)
    return np.asarray((ids[:, None] == some).any(axis=1))
