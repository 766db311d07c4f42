"""A kernel's answers over rdma netlink, scripted: queue pairs, and counters that can be bound to them."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from netprof.probes.kernel.netlink import attribute, attributes, number
from netprof.probes.rdma.statistic import StatisticSocket

NLDEV = 5 << 10
GET, STAT_SET, STAT_GET, STAT_DEL = NLDEV + 1, NLDEV + 16, NLDEV + 17, NLDEV + 18
DEV_INDEX, DEV_NAME, PORT, RES_QP, RES_QP_ENTRY, LQPN = 1, 2, 3, 19, 20, 21
MODE, RES, COUNTER, COUNTER_ENTRY, COUNTER_ID, HARDWARE, HARDWARE_ENTRY, ENTRY_NAME, ENTRY_VALUE = (
    *(74, 75, 77, 78, 79, 80, 81, 82, 83),
)
MANUAL = 2


def u32(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=I", value))


@dataclass
class Kernel:
    """One device, `mlx5_0`. `bound` are counters by queue pair, `values` what each counts; `refuse` is an errno."""

    pairs: set[int]
    refuse: int = 0
    most: int = 1 << 20
    bound: dict[int, int] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=lambda: {"rdma_tx_bytes": 0, "rdma_rx_bytes": 0, "unknown": 3})
    binds: list[int] = field(default_factory=list)
    next_id: int = 7

    def socket(self) -> StatisticSocket:
        return _Scripted(self)

    def bind(self, pair: int) -> int:
        if self.refuse:
            raise OSError(self.refuse, os.strerror(self.refuse))
        if pair not in self.pairs:
            raise OSError(errno.ENOENT, "No such file or directory")
        if len(self.bound) >= self.most:
            raise OSError(errno.ENOSPC, "No space left on device")
        if pair in self.bound:
            raise OSError(errno.EINVAL, "Invalid argument")
        self.bound[pair], self.next_id = self.next_id, self.next_id + 1
        self.binds.append(pair)
        return self.bound[pair]

    def unbind(self, pair: int, counter: int) -> None:
        if self.bound.get(pair) != counter:
            raise OSError(errno.EINVAL, "Invalid argument")
        del self.bound[pair]

    def counters(self) -> Iterator[bytes]:
        for pair, counter in self.bound.items():
            values = [
                attribute(HARDWARE_ENTRY, attribute(ENTRY_NAME, name.encode() + b"\0") + _u64(value))
                for name, value in self.values.items()
            ]
            pairs = attribute(RES_QP, attribute(RES_QP_ENTRY, u32(LQPN, pair)))
            about = u32(PORT, 1) + u32(COUNTER_ID, counter) + pairs + attribute(HARDWARE, b"".join(values))
            yield attribute(COUNTER, attribute(COUNTER_ENTRY, about))


def _u64(value: int) -> bytes:
    return attribute(ENTRY_VALUE, struct.pack("=Q", value))


class _Scripted(StatisticSocket):
    """A socket that this kernel answers."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def request(self, kind: int, flags: int, body: bytes) -> Iterator[bytes]:
        told = {name: number(value) for name, value in attributes(body).items()}
        if kind == GET:
            yield u32(DEV_INDEX, 4) + attribute(DEV_NAME, b"mlx5_0\0") + u32(PORT, 1)
            return
        assert (told[DEV_INDEX], told[RES]) == (4, RES_QP)
        if kind == STAT_SET:
            assert (told[PORT], told[MODE]) == (1, MANUAL)
            yield u32(COUNTER_ID, self._kernel.bind(told[LQPN]))
        elif kind == STAT_DEL:
            self._kernel.unbind(told[LQPN], told[COUNTER_ID])
            yield u32(COUNTER_ID, told[COUNTER_ID])
        elif kind == STAT_GET:
            yield from self._kernel.counters()

    def close(self) -> None:
        pass
