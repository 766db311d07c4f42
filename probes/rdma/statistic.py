"""Counters that belong to single queue pairs, over rdma netlink: bound, read, and unbound.

As `rdma statistic qp bind link DEV/PORT lqpn N` does it (nldev_stat_set_mode_doit, nldev_stat_del_doit and
nldev_stat_get_dumpit of the kernel's drivers/infiniband/core/nldev.c).
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from netprof.probes.kernel.netlink import DUMP, attribute, attributes, each_attribute, number
from netprof.probes.rdma.queue_pairs import DEV_INDEX, LQPN, NLDEV, PORT_INDEX, RES_QP, RdmaSocket

_STAT_SET, _STAT_GET, _STAT_DEL = NLDEV + 16, NLDEV + 17, NLDEV + 18
_MODE, _RES, _COUNTER, _COUNTER_ID = 74, 75, 77, 79  # enum rdma_nldev_attr
_HARDWARE, _ENTRY_NAME, _ENTRY_VALUE = 80, 82, 83
_MANUAL = 2  # RDMA_COUNTER_MODE_MANUAL
_U32 = struct.Struct("=I")


@dataclass(frozen=True)
class PairCounter:
    """A counter, its port, the queue pairs bound to it, and what it has counted by the driver's names."""

    device: str
    port: int
    id: int
    pairs: tuple[int, ...]
    values: Mapping[str, int]


class StatisticSocket(RdmaSocket):
    """A netlink socket that binds counters. Methods raise OSError."""

    def bind(self, device: str, port: int, pair: int) -> int:
        """Bind a counter of its own to a queue pair, and return the counter's number."""
        body = self._about(device, port) + _number(_MODE, _MANUAL) + _number(LQPN, pair)
        for answer in self.request(_STAT_SET, 0, body):
            return number(attributes(answer).get(_COUNTER_ID, b""))
        raise OSError(errno.EPROTO, "the kernel did not say which counter")

    def unbind(self, device: str, port: int, pair: int, counter: int) -> None:
        """Unbind the counter from the queue pair."""
        body = self._about(device, port) + _number(_COUNTER_ID, counter) + _number(LQPN, pair)
        list(self.request(_STAT_DEL, 0, body))

    def read(self) -> list[PairCounter]:
        """Return all counters that are bound to queue pairs."""
        found = []
        for index, device in self.devices().items():
            body = _number(DEV_INDEX, index) + _number(_RES, RES_QP)
            for answer in self.request(_STAT_GET, DUMP, body):
                entries = each_attribute(attributes(answer).get(_COUNTER, b""))
                found += [_counter(device, attributes(entry)) for _, entry in entries]
        return found

    def _about(self, device: str, port: int) -> bytes:
        """Return what says which port; raises OSError where the device is gone."""
        indexes = [index for index, name in self.devices().items() if name == device]
        if not indexes:
            raise OSError(errno.ENODEV, "there is no such device any more")
        return _number(DEV_INDEX, indexes[0]) + _number(PORT_INDEX, port) + _number(_RES, RES_QP)


def _number(kind: int, value: int) -> bytes:
    return attribute(kind, _U32.pack(value))


def _counter(device: str, told: Mapping[int, bytes]) -> PairCounter:
    pairs = [number(attributes(entry).get(LQPN, b"")) for _, entry in each_attribute(told.get(RES_QP, b""))]
    values = {}
    for _, entry in each_attribute(told.get(_HARDWARE, b"")):
        each = attributes(entry)
        name = each.get(_ENTRY_NAME, b"").rstrip(b"\0").decode("utf-8", "backslashreplace")
        values[name] = number(each.get(_ENTRY_VALUE, b""))
    port, counter = (number(told.get(kind, b"")) for kind in (PORT_INDEX, _COUNTER_ID))
    return PairCounter(device, port, counter, tuple(pairs), values)
