"""Gradient logs and addition tables as text: the artifact's format and plain CSV, every line checked."""

from __future__ import annotations

import math

import numpy as np

from netprof.analysis.tables.columns import Float64
from netprof.analysis.whatif.schedule import GradientSchedule
from netprof.analysis.whatif.transports import AddTable
from netprof.errors import NetprofError

_FORMATS = "a gradient log is 'ready_s,bytes' a line, or the format described in the README"
_HEADER = "ready_s,bytes"
_US = 1e-6


def parse_gradient_log(text: str, name: str, compute_s: float) -> GradientSchedule:
    """Parse a gradient log: plain CSV of `ready_s,bytes` (header optional), or the format of arXiv 2006.10103.

    The latter: a comment, the number of batches, the number of gradients, then one line per gradient in the order they
    become ready: microseconds since the one before, bytes. Of several batches the waits are averaged. `name` is the
    file's, for messages. Raises NetprofError naming the line that is malformed.
    """
    lines = text.splitlines()
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise NetprofError(f"{name} is empty", _FORMATS)
    ready, size = _artifact(lines, name) if _is_artifact(lines) else _plain(lines, name)
    return GradientSchedule(ready, size, compute_s)


def parse_add_table(text: str, name: str) -> AddTable:
    """Parse measured vector additions, `bytes,seconds` a line. Raises NetprofError naming the malformed line."""
    rows: dict[float, float] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        size, seconds = _pair(line, number, name, "bytes,seconds")
        if size in rows:
            raise NetprofError(f"{name} line {number}: {size:.0f} bytes were measured twice", "keep one of the two")
        rows[size] = seconds
    if not rows:
        raise NetprofError(f"{name} is empty", "an addition table is 'bytes,seconds' a line")
    sizes = np.array(sorted(rows), dtype=np.float64)
    return AddTable(sizes, np.array([rows[size] for size in sizes], dtype=np.float64))


def _is_artifact(lines: list[str]) -> bool:
    """Tell the artifact's format: prose first, then one number (the count of batches)."""
    first = lines[0].replace(" ", "").lower()
    if first == _HEADER or first.replace(",", "", 1).replace(".", "").isdigit():
        return False
    return "," not in (lines[1] if len(lines) > 1 else lines[0])


def _plain(lines: list[str], name: str) -> tuple[Float64, Float64]:
    first = 1 if lines[0].replace(" ", "").lower() == _HEADER else 0
    rows: list[tuple[float, float]] = []
    for number, line in enumerate(lines[first:], first + 1):
        ready, size = _pair(line, number, name, "ready_s,bytes")
        if rows and ready < rows[-1][0]:
            raise NetprofError(
                f"{name} line {number}: ready at {ready} s, before the gradient above it", "sort the lines by ready_s"
            )
        rows.append((ready, size))
    if not rows:
        raise NetprofError(f"{name} holds no gradient", _FORMATS)
    ready_s, sizes = np.array(rows, dtype=np.float64).T.copy()
    return ready_s, sizes


def _artifact(lines: list[str], name: str) -> tuple[Float64, Float64]:
    batches, gradients = _count(lines, 2, name, "batches"), _count(lines, 3, name, "gradients")
    count = len(lines) - 3
    if count != batches * gradients:
        raise NetprofError(
            f"{name} line {len(lines)}: {batches} x {gradients} gradients announced, {count} lines found",
            "the log is cut short, or lines 2 and 3 are wrong",
        )
    rows = [_pair(line, number, name, "microseconds,bytes") for number, line in enumerate(lines[3:], 4)]
    table = np.array(rows, dtype=np.float64).reshape(batches, gradients, 2)
    resized = np.argwhere(table[:, :, 1] != table[0, :, 1])
    if len(resized):
        batch, gradient = (int(index) for index in resized[0])
        number = 4 + batch * gradients + gradient
        raise NetprofError(f"{name} line {number}: this gradient has another size than in the first batch")
    waits = table[:, :, 0].mean(axis=0) * _US
    return np.cumsum(waits), table[0, :, 1].copy()


def _count(lines: list[str], number: int, name: str, what: str) -> int:
    text = lines[number - 1].strip() if len(lines) >= number else ""
    if not (text.isascii() and text.isdigit() and 0 < int(text[:12]) < 10**9 and len(text) < 12):
        raise NetprofError(f"{name} line {number}: expected the number of {what}, found '{_short(text)}'", _FORMATS)
    return int(text)


def _pair(line: str, number: int, name: str, columns: str) -> tuple[float, float]:
    """Parse two finite numbers, neither below zero."""
    fields = line.split(",")
    try:
        first, second = (float(field) for field in fields)
    except ValueError:
        first = second = math.nan
    if not (math.isfinite(first) and math.isfinite(second)):
        raise NetprofError(f"{name} line {number}: expected {columns}, found '{_short(line)}'", _FORMATS)
    if first < 0 or second < 0:
        raise NetprofError(f"{name} line {number}: {columns} below zero: '{_short(line)}'", "neither can be negative")
    return first, second


def _short(text: str) -> str:
    """Return a hostile line fit to print."""
    shown = "".join(c if c.isprintable() else "?" for c in text.strip())
    return shown if len(shown) <= 60 else shown[:57] + "..."
