"""The layouts that user space shares with the mark program (marks.h), and the check of what comes back."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from netprof.probes.frameworks.table import (
    MAX_ARGUMENTS,
    Argument,
    Chain,
    Constant,
    Handle,
    Mark,
    MemoryField,
    Pair,
    Register,
)
from netprof.probes.kernel.btf import layout

MAX_SPECS = 1024

RECORD = layout("marks", "mark_record")

_NONE, _REGISTER, _MEMORY, _CHAIN, _PAIR = 0, 1, 2, 3, 4
_NOTHING = (_NONE, 0, 0, 0, 0)
_ARGUMENT = struct.Struct("<BBBBi")
_SPEC = struct.Struct("<BB2x")
_IN_REGISTERS = 6
_COLUMNS = {"time_ns": np.int64, "pid": np.int32, "tid": np.int32, "kind": np.uint8}

_Records = npt.NDArray[np.void]
_Good = npt.NDArray[np.bool_]


def pack_spec(mark: Mark) -> bytes:
    """Return the `struct mark_spec` of a table's row."""
    arguments = [*map(_layout, mark.args), *[_NOTHING] * (MAX_ARGUMENTS - len(mark.args))]
    needs_stack = any(
        first > _IN_REGISTERS or (how in (_REGISTER, _PAIR) and second > _IN_REGISTERS)
        for how, first, _, second, _ in arguments
    )
    return _SPEC.pack(mark.kind, needs_stack) + b"".join(_ARGUMENT.pack(*argument) for argument in arguments)


def check_records(records: _Records, marks: Sequence[Mark]) -> tuple[_Records, Counter[int]]:
    """Finish the records of the table's rows `marks`; returns those that count, and how many of a row were thrown away.

    Events that a row's `only` does not name are dropped. A record is thrown away where memory could not be read, or
    holds a value that its field never has: the library lays out its data otherwise than the table says.
    """
    wanted, good = np.ones(len(records), bool), records["unreadable"] == 0
    for row in np.unique(records["row"]).tolist():
        if _is_whole(marks[row]):
            continue
        rows = np.flatnonzero(records["row"] == row)
        wanted[rows] = _is_named(records[rows], marks[row])
        good[rows] &= _can_be(records["arguments"][rows], marks[row])
        _fill_in(records["arguments"], rows, marks[row])
    return records[wanted & good], Counter(records["row"][wanted & ~good].tolist())


def columns(records: _Records) -> dict[str, npt.NDArray[np.generic]]:
    """Turn records into the columns of the trace's `marks` table."""
    arguments = {f"arg{index}": np.ascontiguousarray(records["arguments"][:, index]) for index in range(MAX_ARGUMENTS)}
    return {name: np.ascontiguousarray(records[name], kind) for name, kind in _COLUMNS.items()} | arguments


def called_often(records: _Records, calls_per_s: int, least_s: float) -> set[int]:
    """Return the rows of functions that a process calls more often than that, by as many records as `least_s` has."""
    if len(records) < calls_per_s * least_s:
        return set()
    key = records["pid"].astype(np.int64) << 16 | records["row"]
    keys, place, count = np.unique(key, return_inverse=True, return_counts=True)
    first, last = np.full(len(keys), np.iinfo(np.int64).max), np.zeros(len(keys), np.int64)
    time_ns = records["time_ns"].astype(np.int64)
    np.minimum.at(first, place, time_ns)
    np.maximum.at(last, place, time_ns)
    often = (count >= calls_per_s * least_s) & (count * 1e9 > calls_per_s * (last - first))
    return set((keys[often] & 0xFFFF).tolist())


def _is_whole(mark: Mark) -> bool:
    """Tell whether a mark's records are as the kernel hands them over: nothing to check, nothing to fill in."""
    plain = (
        isinstance(argument, Register | Pair)
        or (isinstance(argument, MemoryField) and not argument.valid)
        or (isinstance(argument, Chain) and not argument.below and argument.below_argument is None)
        for argument in mark.args
    )
    return not mark.only and all(plain)


def _is_named(records: _Records, mark: Mark) -> _Good:
    """Tell which records hold the texts that the mark is told by; one that cannot be read holds 0, so none."""
    named = np.ones(len(records), bool)
    for index, text in enumerate(mark.only):
        bits = 8 * len(text.encode())
        head = records["arguments"][:, index] & np.uint64((1 << bits) - 1)
        named &= head == np.uint64(int.from_bytes(text.encode(), "little"))
    return named


def _can_be(values: npt.NDArray[np.uint64], mark: Mark) -> _Good:
    """Tell which records hold values that their fields can have."""
    good = np.ones(len(values), bool)
    for index, argument in enumerate(mark.args):
        if isinstance(argument, MemoryField) and argument.valid:
            good &= is_any_of(values[:, index], argument.valid)
        if isinstance(argument, Chain) and argument.below:
            good &= values[:, index] < np.uint64(argument.below)
        if isinstance(argument, Chain) and argument.below_argument is not None:
            good &= values[:, index] < values[:, argument.below_argument]
    return good


def is_any_of(values: npt.NDArray[np.generic], wanted: Sequence[int]) -> _Good:
    """Tell which values are one of a few: np.isin sorts, and takes many times as long for the rows of one batch."""
    is_wanted = np.zeros(len(values), bool)
    for value in wanted:
        is_wanted |= values == value
    return is_wanted


def _fill_in(values: npt.NDArray[np.uint64], rows: npt.NDArray[np.intp], mark: Mark) -> None:
    """Write what the row itself says: its constants, what handles stand for, and nothing where a text was."""
    for index, argument in enumerate(mark.args):
        if index < len(mark.only):
            values[rows, index] = 0
        elif isinstance(argument, Constant):
            values[rows, index] = argument.value
        elif isinstance(argument, Handle):
            handles = values[rows, index] & np.uint64(argument.mask)
            values[rows, index] = 0
            for value, meaning in argument.meanings:
                values[rows[handles == value], index] = meaning


def _layout(argument: Argument) -> tuple[int, int, int, int, int]:
    """Return the fields of a `struct mark_argument`."""
    if isinstance(argument, Register):
        return _REGISTER, argument.number, argument.size, *(argument.unless or (0, 0))
    if isinstance(argument, Handle):
        return _REGISTER, argument.number, 4, 0, 0
    if isinstance(argument, MemoryField):
        return _MEMORY, argument.register, argument.size, 0, argument.offset
    if isinstance(argument, Chain):
        return _CHAIN, argument.register, argument.size, argument.then, argument.offset
    return (_PAIR, argument.low, 8, argument.high, 0) if isinstance(argument, Pair) else _NOTHING
