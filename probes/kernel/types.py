"""The kernel's description of its own types and functions (BTF)."""

from __future__ import annotations

import ctypes
import struct
from functools import lru_cache
from pathlib import Path

from netprof.probes.kernel.libbpf import libbpf

KERNEL_BTF = Path("/sys/kernel/btf/vmlinux")
_ENUM, _FUNCTION = 6, 12  # BTF_KIND_ENUM, BTF_KIND_FUNC


def described_by_kernel() -> bool:
    """Tell whether the kernel describes its types."""
    return KERNEL_BTF.exists()


@lru_cache(maxsize=8)
def has_function(name: str) -> bool:
    """Tell whether the running kernel describes a function of this name; False where it describes nothing."""
    library = libbpf()
    types = library.btf__load_vmlinux_btf()
    if not types:
        return False
    found = library.btf__find_by_name_kind(types, name.encode(), _FUNCTION) > 0
    library.btf__free(types)
    return bool(found)


def enumerators(name: str) -> dict[int, str]:
    """Return the names of an enum's values in the running kernel, by value; none where it describes no such enum."""
    library = libbpf()
    types = library.btf__load_vmlinux_btf()
    if not types:
        return {}
    number = library.btf__find_by_name_kind(types, name.encode(), _ENUM)
    found = {}
    if number > 0:
        address = library.btf__type_by_id(types, number)
        _, info, _ = struct.unpack("=III", ctypes.string_at(address, 12))
        values = ctypes.string_at(address + 12, 8 * (info & 0xFFFF))
        found = {
            value: library.btf__name_by_offset(types, at).decode() for at, value in struct.iter_unpack("=Ii", values)
        }
    library.btf__free(types)
    return found


def for_this_kernel(name: str) -> str:
    """Return the name of the object to load: where the kernel describes no types, the one beside it that needs none."""
    return name if described_by_kernel() else f"{name}/untyped"
