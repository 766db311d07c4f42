"""Packets of a capture as columns over one block of its bytes, and reading numbers out of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Interface:
    """Where packets were captured: the link type (of the LINKTYPE_ registry) and a name, "" where nothing says it."""

    link_type: int
    name: str = ""


@dataclass(frozen=True, eq=False)
class Packets:
    """Packets whose bytes are in `data`, in the order of the file.

    `at` is where each begins there, `captured` how many of its bytes are there, `length` how many there were on the
    link. `interface` is a number into the capture's list of interfaces, `time_ns` the realtime clock.
    """

    data: Bytes
    at: Int64
    captured: Int64
    length: Int64
    time_ns: Int64
    interface: Int64

    def __len__(self) -> int:
        return len(self.at)

    def where(self, rows: Bool | Int64) -> Packets:
        """Return some of the packets, by mask or number."""
        names = ("at", "captured", "length", "time_ns", "interface")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def bytes_of(self, row: int) -> bytes:
        """Return what was captured of a packet."""
        return self.data[self.at[row] : self.at[row] + self.captured[row]].tobytes()


def number(data: Bytes, at: Int64, size: int, *, little: bool = False) -> Int64:
    """Return the unsigned numbers of `size` bytes (at most 7) that begin at `at`; beyond the data's end: anything."""
    found = np.zeros(len(at), np.int64)
    if not len(data):
        return found
    for place in range(size):
        byte = data.take(at + place, mode="clip").astype(np.int64)
        found |= byte << (8 * (place if little else size - 1 - place))
    return found
