"""The layouts that user space shares with the mark program (probes/bpf/marks.h), and the check of what comes back."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from netprof.probes.frameworks import Mark, Memory, Register
from netprof.probes.frameworks.table import MAX_ARGUMENTS
from netprof.schema import MarkKind

MAX_SPECS = 64

RECORD = np.dtype(
    {
        "names": ["time_ns", "pid", "tid", "kind", "unreadable", "args"],
        "formats": ["<i8", "<i4", "<i4", "u1", "u1", ("<u8", MAX_ARGUMENTS)],
        "offsets": [0, 8, 12, 16, 17, 24],
        "itemsize": 24 + 8 * MAX_ARGUMENTS,
    }
)

_NONE, _REGISTER, _MEMORY = 0, 1, 2
_ARGUMENT = struct.Struct("<BBBxi")
_KIND = struct.Struct("<B3x")


def pack_spec(mark: Mark) -> bytes:
    """Return the `struct mark_spec` of a table's row."""
    arguments = [_pack_argument(argument) for argument in mark.args]
    arguments += [_ARGUMENT.pack(_NONE, 0, 0, 0)] * (MAX_ARGUMENTS - len(arguments))
    return _KIND.pack(mark.kind) + b"".join(arguments)


def check_records(
    records: npt.NDArray[np.void], marks: Sequence[Mark]
) -> tuple[npt.NDArray[np.void], Counter[MarkKind]]:
    """Throw away the records whose arguments cannot be what the table says; returns the rest, and how many of a kind.

    A record fails where memory could not be read, or holds a value that its field never has.
    """
    good = records["unreadable"] == 0
    for mark in marks:
        for index, argument in enumerate(mark.args):
            if isinstance(argument, Memory) and argument.valid:
                values = np.array(argument.valid, dtype=np.uint64)
                good &= (records["kind"] != mark.kind) | np.isin(records["args"][:, index], values)
    rejected = Counter({MarkKind(kind): count for kind, count in Counter(records["kind"][~good].tolist()).items()})
    return records[good], rejected


def columns(records: npt.NDArray[np.void]) -> dict[str, npt.NDArray[np.generic]]:
    """Turn records into the columns of the trace's `marks` table."""
    table = {name: np.ascontiguousarray(records[name]) for name in ("time_ns", "pid", "tid", "kind")}
    return table | {f"arg{index}": np.ascontiguousarray(records["args"][:, index]) for index in range(MAX_ARGUMENTS)}


def _pack_argument(argument: Register | Memory) -> bytes:
    if isinstance(argument, Register):
        return _ARGUMENT.pack(_REGISTER, argument.number, 0, 0)
    return _ARGUMENT.pack(_MEMORY, argument.register, argument.size, argument.offset)
