"""The kernel's description of its own types and functions (BTF)."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from netprof.probes.kernel.libbpf import libbpf

KERNEL_BTF = Path("/sys/kernel/btf/vmlinux")
_FUNCTION = 12  # BTF_KIND_FUNC


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


def for_this_kernel(name: str) -> str:
    """Return the name of the object to load: where the kernel describes no types, the one beside it that needs none."""
    return name if described_by_kernel() else f"{name}/untyped"
