"""Rows on their way in: what no recorder writes (`netprof.domains`) is found before anybody sees a row."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from netprof.domains import AROUND_NS, LONGEST_TEXT_BYTES, MARK_ARGUMENTS, Domain, domain
from netprof.model import Meta
from netprof.trace.columns import to_numpy

_TIMES = frozenset({"time_ns", "bin_start_ns", "first_ns", "last_ns"})
"""Columns of times in the recording; others may hold 0 for "never", or times before it."""

_Numbers = npt.NDArray[Any]


class Impossible(ValueError):
    """A batch holds what no recorder writes: says which column, what, and what could be there."""


def check_batch(table: str, batch: pa.RecordBatch, meta: Meta) -> None:
    """Raise Impossible where a batch holds what its columns cannot hold. Nulls are columns of a later schema."""
    numbers = {}
    for name, values in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_string(values.type):
            _check_texts(name, values)
        elif not values.null_count and len(values):
            numbers[name] = to_numpy(values)
            _check_numbers(name, numbers[name], domain(name, table))
    if table == "marks" and "kind" in numbers:
        _check_arguments(numbers)
    for name in _TIMES & numbers.keys():
        _check_times(name, numbers[name], meta)


def _check_texts(name: str, values: pa.Array[Any]) -> None:
    offsets = np.frombuffer(memoryview(values.buffers()[1] or b""), np.int32)
    longest = int(np.diff(offsets[values.offset : values.offset + len(values) + 1]).max(initial=0))
    if longest > LONGEST_TEXT_BYTES:
        raise Impossible(
            f"column {name} holds a text of {longest} bytes, where at most {LONGEST_TEXT_BYTES} are possible"
        )


def _check_numbers(name: str, values: _Numbers, possible: Domain) -> None:
    if _are_inside(values, possible):
        return
    impossible = next(value for value in np.unique(values).tolist() if not possible.holds(value))
    raise Impossible(f"column {name} holds {impossible}, where {possible} is possible")


def _are_inside(values: _Numbers, possible: Domain) -> bool:
    """Say whether all numbers are possible, in one pass over them where that is enough."""
    if possible.values:
        return bool(_known(possible.values)[values].all()) if values.dtype == np.uint8 else False
    if values.dtype.kind == "f":
        inside = (values >= possible.low) & (values <= possible.high)
        return bool((inside | (values == 0)).all() if possible.or_zero else inside.all())
    limits = np.iinfo(values.dtype)
    if possible.low <= limits.min and limits.max <= possible.high:
        return True
    if possible.low == 0:  # a negative number is a large one
        return int(values.view(f"u{values.dtype.itemsize}").max()) <= possible.high
    return int(values.min()) >= possible.low and int(values.max()) <= possible.high


def _check_arguments(numbers: dict[str, _Numbers]) -> None:
    kind = numbers["kind"]
    for name in MARK_ARGUMENTS:
        beyond = numbers[name] > _most(name)[kind] if name in numbers else np.zeros(0, bool)
        if beyond.any():
            row = int(beyond.argmax())
            raise Impossible(f"column {name} holds {numbers[name][row]}, which marks of kind {kind[row]} never do")


def _check_times(name: str, times: _Numbers, meta: Meta) -> None:
    first, last = int(times.min()), int(times.max())
    end_ns = (1 << 60) if meta.stopped_ns is None else meta.stopped_ns + AROUND_NS
    if first < meta.started_ns - AROUND_NS or last > end_ns:
        raise Impossible(f"column {name} holds times that lie more than an hour outside of the recording")


@cache
def _known(values: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    return np.isin(np.arange(256), values)


@cache
def _most(name: str) -> npt.NDArray[np.uint64]:
    """Return the largest value of an argument by kind of mark."""
    most = np.full(256, np.iinfo(np.uint64).max)
    for kind, value in MARK_ARGUMENTS[name].items():
        most[kind] = value
    return most
