"""How many bytes a record batch takes when it is unpacked, read from its description: before anything is unpacked.

Arrow's compressed buffers each begin with their size; it is allocated as it stands there, whatever was packed. The
description is a flatbuffer (Message.fbs and Schema.fbs of Arrow; flatbuffers' internals: a table begins with the
distance back to its vtable, which holds where its fields are).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable

import numpy as np

BATCH = 3
"""`MessageHeader` of a record batch."""

_CONTINUES = 0xFFFFFFFF
_MOST_DESCRIPTION_BYTES = 16 << 20
_SIZE_BYTES = 8
_HEADER_TYPE, _HEADER = 1, 2  # fields of Message
_BUFFERS, _COMPRESSION = 2, 3  # fields of RecordBatch

ALLOWANCE_BYTES, MOST_TIMES = 64 << 20, 100
"""What a table may unpack to: this much, and so many times its file; tables of recordings unpack to 10 times that."""


def budget_bytes(packed_bytes: int) -> int:
    """Return what a file, or a message, of so many bytes may unpack to."""
    return ALLOWANCE_BYTES + MOST_TIMES * packed_bytes


class UnpackBudget:
    """Adds up what the batches of one file unpack to, each once, however often the file is read."""

    def __init__(self) -> None:
        self._counted_to = 0
        self._unpacked_bytes = 0

    def spend(self, descriptor: int, offset: int) -> None:
        """Count the message at `offset`.

        Raises ValueError where the file unpacks to more than it may or describes a batch at a length that none has,
        OSError.
        """
        if offset < self._counted_to:
            return
        head = os.pread(descriptor, 8, offset)
        marker, length = struct.unpack("<II", head) if len(head) == 8 else (0, 0)
        begin = offset + (8 if marker == _CONTINUES else 4)  # files of before Arrow 0.15 have no marker
        length = length if marker == _CONTINUES else marker
        if not length:
            return  # the end, of which Arrow knows more
        description = os.pread(descriptor, min(length, _MOST_DESCRIPTION_BYTES + 1), begin)
        if len(description) > _MOST_DESCRIPTION_BYTES:
            raise ValueError(f"a batch is described in more than {_MOST_DESCRIPTION_BYTES >> 20} MiB")
        if len(description) < length:
            return
        body = begin + length
        try:
            self._unpacked_bytes += unpacked_bytes(description, lambda at: os.pread(descriptor, _SIZE_BYTES, body + at))
        except EOFError:
            return  # the file ends inside of it: Arrow will say so
        self._counted_to = body
        packed_bytes = os.fstat(descriptor).st_size
        if self._unpacked_bytes > budget_bytes(packed_bytes):
            raise ValueError(f"its {packed_bytes} bytes unpack to more than {self._unpacked_bytes}")


def unpacked_bytes(description: bytes, size_at: Callable[[int], bytes]) -> int:
    """Return the bytes that a message's buffers unpack to; `size_at` returns 8 bytes of its body. 0 for no batch.

    Raises ValueError for a description that makes no sense, EOFError for one of more than there is.
    """
    try:
        (root,) = struct.unpack_from("<I", description)
        kind, header = _field(description, root, _HEADER_TYPE), _field(description, root, _HEADER)
        if kind is None or header is None or description[kind] != BATCH:
            return 0
        batch = _target(description, header)
        buffers = _field(description, batch, _BUFFERS)
        places = np.zeros((0, 2), np.int64) if buffers is None else _pairs(description, _target(description, buffers))
        if _field(description, batch, _COMPRESSION) is None:
            return int(places[:, 1].sum())
        return sum(_size(size_at(offset), length) for offset, length in places.tolist() if length > 0)
    except (struct.error, IndexError, ValueError) as error:
        raise ValueError("a batch is described in a way that makes no sense") from error


def _size(stated: bytes, length: int) -> int:
    if len(stated) < _SIZE_BYTES:
        raise EOFError
    (size,) = struct.unpack("<q", stated)
    return int(length if size == -1 else size) if size >= -1 else 1 << 62


def _field(data: bytes, table: int, number: int) -> int | None:
    """Return where a field of a table is; None where it is left out."""
    vtable = table - int(struct.unpack_from("<i", data, table)[0])
    (size,) = struct.unpack_from("<H", data, vtable)
    if 4 + 2 * number >= size:
        return None
    (offset,) = struct.unpack_from("<H", data, vtable + 4 + 2 * number)
    return table + offset if offset else None


def _target(data: bytes, at: int) -> int:
    return at + int(struct.unpack_from("<I", data, at)[0])


def _pairs(data: bytes, vector: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    (count,) = struct.unpack_from("<I", data, vector)
    return np.frombuffer(data, "<i8", 2 * count, vector + 4).reshape(-1, 2)
