"""Packets of the job's flows that this host drops, and why: rows of table `drops`."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netprof.probes.flow.records import FlowRecords
from netprof.probes.kernel.loader import BpfObject
from netprof.probes.kernel.rtnetlink import device_name
from netprof.probes.kernel.types import enumerators

DROP_RECORD = np.dtype(
    [
        ("time_ns", "u8"),
        ("flow_id", "u4"),
        ("bytes", "u4"),
        ("direction", "u4"),
        ("reason", "u4"),
        ("device", "S16"),
    ]
)
"""`struct drop_record` of flow.h."""

_PREFIX = "SKB_DROP_REASON_"


class Drops(FlowRecords):
    """Takes the drops of a loaded flow object."""

    def __init__(self, loaded: BpfObject) -> None:
        super().__init__(loaded, "drops", DROP_RECORD)

    def drain(self, published: NDArray[np.uint32], used: NDArray[np.uint32]) -> dict[str, Any]:
        """Return the rows since the last call; as `take`."""
        records = self.take(published, used)
        numbers = records["reason"].tolist()
        return {
            **{name: records[name] for name in ("time_ns", "flow_id", "bytes", "direction")},
            "reason": [self._reasons.get(number, str(number)) for number in numbers],
            "device": [device_name(name) for name in records["device"].tolist()],
        }

    @cached_property
    def _reasons(self) -> dict[int, str]:
        """The kernel's own names of its reasons, of which each version has more."""
        return {number: name.removeprefix(_PREFIX) for number, name in enumerators("skb_drop_reason").items()}
