"""Packets of a capture as columns over one block of its bytes, and reading numbers out of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Int64 = npt.NDArray[np.int64]
UInt64 = npt.NDArray[np.uint64]
Bool = npt.NDArray[np.bool_]
_WORD = 8
AnyRows = TypeVar("AnyRows", bound="Rows")


@dataclass(frozen=True)
class Interface:
    """Where packets were captured: the link type (of the LINKTYPE_ registry) and a name, "" where nothing says it."""

    link_type: int
    name: str = ""


class Rows:
    """A dataclass whose fields are columns of the same rows, as arrays or such classes again, but for the `whole`."""

    whole: ClassVar[tuple[str, ...]] = ()

    def where(self: AnyRows, rows: Bool | Int64) -> AnyRows:
        """Return some of the rows, by mask or number."""
        if rows.dtype == np.bool_ and rows.all():
            return self
        columns = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return type(self)(
            **{
                name: column if name in self.whole else column.where(rows) if isinstance(column, Rows) else column[rows]
                for name, column in columns.items()
            }
        )


def joined(parts: Sequence[AnyRows]) -> AnyRows:
    """Return the rows of several of a kind, at least one, in their order; all its columns are arrays."""
    names = [field.name for field in fields(parts[0])]  # type: ignore[arg-type]
    return type(parts[0])(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


@dataclass(frozen=True, eq=False)
class Packets(Rows):
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
    whole = ("data",)

    def __len__(self) -> int:
        return len(self.at)

    def bytes_of(self, row: int) -> bytes:
        """Return what was captured of a packet."""
        return self.data[self.at[row] : self.at[row] + self.captured[row]].tobytes()


def number(data: Bytes, at: Int64, size: int, *, little: bool = False) -> Int64:
    """Return the unsigned numbers of `size` bytes (at most 7) that begin at `at`; beyond the data's end: anything."""
    values = wide_number(data, at, little=little)
    if little:
        values &= np.uint64((1 << 8 * size) - 1)
    else:
        values >>= np.uint64(64 - 8 * size)
    return values.view(np.int64)


def wide_number(data: Bytes, at: Int64, *, little: bool = False) -> UInt64:
    """Return the unsigned numbers of 8 bytes that begin at `at`; beyond the data's end zeros follow.

    They are read at once: a byte at a time takes ten times as long.
    """
    if len(data) < _WORD:
        data = np.append(data, np.zeros(_WORD - len(data), np.uint8))
    every = np.ndarray(len(data) - _WORD + 1, ">u8" if not little else "<u8", data, strides=(1,))
    last = len(every) - 1
    words: UInt64 = every[np.clip(at, 0, last)].astype(np.uint64)
    beyond = np.flatnonzero(at > last)
    if len(beyond):  # what is left of the data, as if zeros came after it
        missing = (8 * np.minimum(at[beyond] - last, _WORD - 1)).astype(np.uint64)
        words[beyond] = words[beyond] >> missing if little else words[beyond] << missing
    return words
