"""Memory that is freed and wanted again a moment later stays with the recorder: the system clears each page anew."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_KEPT_BYTES, _LARGEST_BYTES = 64 << 20, 32 << 20  # no more for the latter: mallopt(3)
_DEFAULT_BYTES = 128 << 10  # of both


@contextmanager
def kept_memory() -> Iterator[None]:
    """Give back what is free, and let the C library keep up to 64 MiB of it in the block; without glibc, do nothing.

    With 64 flows that are busy in every millisecond (examples/benchmarks/recorder_cost.py) the recorder takes a fifth
    less CPU time with it.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    _set(_KEPT_BYTES, _LARGEST_BYTES)
    try:
        yield
    finally:
        _set(_DEFAULT_BYTES, _DEFAULT_BYTES)


def _set(kept_bytes: int, largest_bytes: int) -> None:
    """Give back what is free beyond `kept_bytes`, and at once what is larger than `largest_bytes`."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, kept_bytes)
        mallopt(_M_MMAP_THRESHOLD, largest_bytes)
