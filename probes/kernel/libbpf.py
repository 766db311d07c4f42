"""The C functions of the bundled library: libbpf's, and the few of native/netprof.c."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_ulong, c_void_p
from functools import lru_cache
from pathlib import Path

from netprof.errors import NetprofError

LIBRARY = Path(__file__).parent / "native" / "libnetprof.so"

_FUNCTIONS: dict[str, tuple[type | None, list[object]]] = {
    "bpf_object__open_mem": (c_void_p, [c_char_p, c_size_t, c_void_p]),
    "bpf_object__load": (c_int, [c_void_p]),
    "bpf_object__close": (None, [c_void_p]),
    "bpf_object__find_map_by_name": (c_void_p, [c_void_p, c_char_p]),
    "bpf_object__find_program_by_name": (c_void_p, [c_void_p, c_char_p]),
    "bpf_object__next_program": (c_void_p, [c_void_p, c_void_p]),
    "bpf_map__fd": (c_int, [c_void_p]),
    "bpf_map__max_entries": (c_uint32, [c_void_p]),
    "bpf_map__value_size": (c_uint32, [c_void_p]),
    "bpf_map__set_max_entries": (c_int, [c_void_p, c_uint32]),
    "bpf_map__reuse_fd": (c_int, [c_void_p, c_int]),
    "bpf_map__initial_value": (c_void_p, [c_void_p, POINTER(c_size_t)]),
    "bpf_map_create": (c_int, [c_int, c_char_p, c_uint32, c_uint32, c_uint32, c_void_p]),
    "bpf_map_update_elem": (c_int, [c_int, c_char_p, c_char_p, c_uint64]),
    "bpf_map_lookup_elem": (c_int, [c_int, c_char_p, c_char_p]),
    "bpf_map_delete_elem": (c_int, [c_int, c_char_p]),
    "bpf_map_get_next_key": (c_int, [c_int, c_char_p, c_char_p]),
    "bpf_prog_load": (c_int, [c_int, c_char_p, c_char_p, c_char_p, c_size_t, c_void_p]),
    "bpf_program__fd": (c_int, [c_void_p]),
    "bpf_program__name": (c_char_p, [c_void_p]),
    "bpf_program__set_autoload": (c_int, [c_void_p, ctypes.c_bool]),
    "bpf_program__set_expected_attach_type": (c_int, [c_void_p, c_int]),
    "bpf_program__attach": (c_void_p, [c_void_p]),
    "bpf_program__attach_iter": (c_void_p, [c_void_p, c_void_p]),
    "bpf_program__attach_uprobe_opts": (c_void_p, [c_void_p, c_int, c_char_p, c_size_t, c_void_p]),
    "bpf_program__attach_perf_event": (c_void_p, [c_void_p, c_int]),
    "bpf_link__fd": (c_int, [c_void_p]),
    "bpf_link__destroy": (c_int, [c_void_p]),
    "bpf_iter_create": (c_int, [c_int]),
    "bpf_enable_stats": (c_int, [c_int]),
    "btf__load_vmlinux_btf": (c_void_p, []),
    "btf__find_by_name_kind": (c_int, [c_void_p, c_char_p, c_uint32]),
    "btf__type_by_id": (c_void_p, [c_void_p, c_uint32]),
    "btf__name_by_offset": (c_char_p, [c_void_p, c_uint32]),
    "btf__free": (None, [c_void_p]),
    "netprof_call_is_filtered": (c_int, [c_uint32]),
    "netprof_log_start": (None, []),
    "netprof_log": (c_char_p, []),
    "netprof_bins": (c_ulong, [c_void_p, c_ulong, c_int, c_void_p, c_void_p, c_ulong]),
    "netprof_ring_open": (c_void_p, [c_int, c_ulong, c_uint32]),
    "netprof_ring_close": (None, [c_void_p]),
    "netprof_store_32": (None, [c_void_p, c_uint32]),
    "netprof_store_64": (None, [c_void_p, c_uint64]),
    "netprof_ring_records": (c_ulong, [c_void_p]),
    "netprof_ring_drain": (c_ulong, [c_void_p, c_void_p, c_ulong]),
    "netprof_uprobe_multi": (c_int, [c_int, c_char_p, c_void_p, c_void_p, c_uint32, c_uint32, c_int]),
    "netprof_time_calls": (c_ulong, [c_void_p, c_uint32]),
    "netprof_program_statistics": (c_int, [c_int, POINTER(c_uint64), POINTER(c_uint64), POINTER(c_uint64)]),
}


@lru_cache(maxsize=1)
def libbpf() -> ctypes.CDLL:
    """Load the bundled library, with the argument types of every function we call declared.

    Raises NetprofError when it was not built into this installation.
    """
    try:
        library = ctypes.CDLL(str(LIBRARY), use_errno=True)
    except OSError as error:
        raise NetprofError(
            f"the native library of netprof cannot be loaded: {error}",
            "install netprof from its wheel, or run 'make inplace' in a checkout",
        ) from error
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    library.netprof_log_start()
    return library
