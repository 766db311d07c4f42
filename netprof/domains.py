"""What the numbers of a trace can be: the columns of its tables, the entries of `meta.json`, the arguments of marks.

A trace is read by people who did not write it, as root at times. What lies outside of this was written by no recorder,
and no conclusion is drawn from it. The limits are wide: they keep out what is damaged or made up, not what is rare.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from netprof.schema import (
    Backend,
    CollectiveKind,
    GpuMetric,
    HopKind,
    LinkState,
    MarkKind,
    NcclNetwork,
    NcclRankState,
    Profiled,
    Unsent,
)

LONGEST_TEXT_BYTES = 1 << 16
"""The most that a text of a trace takes as UTF-8."""

AROUND_NS = 3_600_000_000_000
"""How long before its beginning and after its end a recording may speak of: what is sampled at its edges."""


@dataclass(frozen=True)
class Domain:
    """The numbers from `low` to `high`, or those of `values` alone; with `or_zero` also 0, which says "unknown"."""

    low: float
    high: float
    values: tuple[int, ...] = ()
    or_zero: bool = False

    def holds(self, value: float) -> bool:
        """Say whether a number is one of these; NaN never is."""
        inside = value in self.values if self.values else self.low <= value <= self.high
        return inside or (self.or_zero and value == 0)

    def __str__(self) -> str:
        """Return what may be there, for a person."""
        if self.values:
            return "one of " + ", ".join(map(str, self.values)) if len(self.values) < 8 else "a value that is known"
        return f"{self.low:.4g} to {self.high:.4g}"


def _one_of(*values: int) -> Domain:
    return Domain(min(values), max(values), tuple(sorted(values)))


_NUMBER = Domain(0, (1 << 63) - 1)
_PID = Domain(0, 1 << 22)  # PID_MAX_LIMIT
_RATE = Domain(1, 1e18)
_YES_OR_NO = _one_of(0, 1)
_BYTES_IN_A_BIN = Domain(0, 1 << 40)
_COUNTER = Domain(0, 1 << 62)  # of a device, since it came up

_UNITS = (
    ("_ns", Domain(0, 1 << 60)),  # CLOCK_MONOTONIC: 36 years since boot
    ("_us", Domain(0, 1 << 50)),
    ("bytes_per_s", Domain(0, 1e17)),
    ("_s", Domain(0, 1e9)),
    ("_bytes", Domain(0, 1 << 50)),
    ("bps", _RATE),
)
"""By the unit that ends a name, where `_DOMAINS` has no other."""

_DOMAINS = {
    "pid": _PID,
    "tid": _PID,
    "inner_pid": _PID,
    "rank": Domain(-1, 1 << 20),
    "world_size": Domain(1, 1 << 20),
    "realtime_ns": Domain(0, 1 << 62),
    "bin_ns": Domain(1, 60e9),
    "flow_id": Domain(0, (1 << 31) - 1),  # a capture beside a trace numbers its own above
    "flows.family": _one_of(4, 6),
    "direction": _YES_OR_NO,
    "wire.unsent": _one_of(*Unsent),
    "hop_direction": _YES_OR_NO,
    "flow_paths.kind": _one_of(*HopKind),
    "wire.payload_bytes": _BYTES_IN_A_BIN,
    "wire.wire_bytes": _BYTES_IN_A_BIN,
    "wire.retransmitted_bytes": _BYTES_IN_A_BIN,
    "marks.kind": _one_of(*MarkKind),
    "marks.arg0": Domain(0, (1 << 64) - 1),  # the job's own registers and memory
    "marks.arg1": Domain(0, (1 << 64) - 1),
    "marks.arg2": Domain(0, (1 << 64) - 1),
    "tcp.ca_state": Domain(0, 15),
    "totals.closed": _YES_OR_NO,
    "totals.settled": _YES_OR_NO,
    "nic.tx_bytes": _COUNTER,
    "nic.rx_bytes": _COUNTER,
    "link_changes.state": _one_of(*LinkState),
    "link_changes.line_rate_bps": Domain(_RATE.low, _RATE.high, or_zero=True),
    "link_changes.receive_rate_bps": Domain(_RATE.low, _RATE.high, or_zero=True),
    "nccl_posted.network": _one_of(*NcclNetwork),
    "nccl_posted.posted_bytes": Domain(0, 1 << 56),
    "nccl_ranks.size": Domain(0, 1 << 20),
    "nccl_ranks.state": _one_of(*NcclRankState),
    "profiled.kind": _one_of(*Profiled),
    "gpu.metric": _one_of(*GpuMetric),
    "gpu.value": Domain(0, 1e18),
    "counters.value": Domain(-(1 << 62), 1 << 62),
}

_SIZES = (MarkKind.COLLECTIVE_SIZE, MarkKind.COLLECTIVE_PART, MarkKind.HOROVOD_TRANSFER)
_BACKENDS = (MarkKind.COLLECTIVE_BEGIN, MarkKind.SEND_POSTED, MarkKind.RECEIVE_POSTED)
MARK_ARGUMENTS: dict[str, dict[MarkKind, int]] = {
    "arg0": {MarkKind.HOROVOD_RESPONSE: max(CollectiveKind)},
    "arg1": dict.fromkeys(_BACKENDS, max(Backend)),
    "arg2": dict.fromkeys(_SIZES, max(CollectiveKind)),
}
"""The largest value of those arguments of marks that the recorder writes, by kind; all others are the job's."""


@cache
def domain(name: str, table: str = "") -> Domain:
    """Return what column `name` of a table can hold, or an entry of that name of `meta.json`."""
    named = _DOMAINS.get(f"{table}.{name}") or _DOMAINS.get(name)
    return named or next((possible for unit, possible in _UNITS if name.endswith(unit)), _NUMBER)
