"""Memory that is free goes back to the system: what allocators keep of it lies in pieces too small for what comes next.

Over the pieces of a long recording it adds up.
"""

from __future__ import annotations

import ctypes

import pyarrow as pa


def give_back() -> None:
    """Return what Arrow and the C library hold and nobody uses; without glibc, only Arrow's."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))
