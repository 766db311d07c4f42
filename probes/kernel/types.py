"""The kernel's description of its own types and functions (BTF)."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path

from netprof.probes.kernel.libbpf import libbpf

KERNEL_BTF = Path("/sys/kernel/btf/vmlinux")
_ENUM, _FUNCTION = 6, 12  # BTF_KIND_ENUM, BTF_KIND_FUNC


def described_by_kernel() -> bool:
    """Tell whether the kernel describes its types."""
    return KERNEL_BTF.exists()


@contextmanager
def _described(name: str, kind: int) -> Iterator[tuple[int, int]]:
    """Give the kernel's types, and the number of the one of this name; below 1 where it describes no such type."""
    types = libbpf().btf__load_vmlinux_btf()
    if not types:
        yield 0, 0
        return
    try:
        yield types, libbpf().btf__find_by_name_kind(types, name.encode(), kind)
    finally:
        libbpf().btf__free(types)


@lru_cache(maxsize=8)
def has_function(name: str) -> bool:
    """Tell whether the running kernel describes a function of this name; False where it describes nothing."""
    with _described(name, _FUNCTION) as (_, number):
        return number > 0


def enumerators(name: str) -> dict[int, str]:
    """Return the names of an enum's values in the running kernel, by value; none where it describes no such enum."""
    with _described(name, _ENUM) as (types, number):
        if number <= 0:
            return {}
        address = libbpf().btf__type_by_id(types, number)
        _, info, _ = struct.unpack("=III", ctypes.string_at(address, 12))
        values = ctypes.string_at(address + 12, 8 * (info & 0xFFFF))
        text_at = partial(libbpf().btf__name_by_offset, types)
        return {value: text_at(at).decode() for at, value in struct.iter_unpack("=Ii", values)}


def for_this_kernel(name: str) -> str:
    """Return the name of the object to load: where the kernel describes no types, the one beside it that needs none."""
    return name if described_by_kernel() else f"{name}/untyped"
