"""BPF objects, maps, programs and links as context managers. Nothing is pinned: all of it ends with the process."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netprof.closing import Closing
from netprof.errors import NetprofError, NotPermittedError
from netprof.probes.kernel.elf import variables
from netprof.probes.kernel.libbpf import libbpf
from netprof.probes.kernel.pids import OWN_PID_NAMESPACE, own_namespace

_PROBES = Path(__file__).parent.parent
_MAP_TYPE_HASH = 1  # BPF_MAP_TYPE_HASH
_ITERATOR_BYTES = 1 << 16


def object_path(name: str) -> Path:
    """Return where compiled programs lie, beside their source: "flow", or "flow/untyped" for others of one folder."""
    return _PROBES / name.partition("/")[0] / f"{name.rpartition('/')[2]}.bpf.o"


class KernelMemoryError(NetprofError):
    """The kernel has no memory for a map: the machine's is used up, or the limit of a container is reached."""


class BpfLink(Closing):
    """One attachment of a program; closing it detaches."""

    def __init__(self, handle: int | None = None, descriptor: int = -1) -> None:
        self._handle = handle
        self._descriptor = descriptor

    def fd(self) -> int:
        """Return the link's file descriptor."""
        return int(libbpf().bpf_link__fd(self._handle)) if self._handle else self._descriptor

    def close(self) -> None:
        """Detach. May be called twice."""
        if self._handle:
            libbpf().bpf_link__destroy(self._handle)
        elif self._descriptor >= 0:
            os.close(self._descriptor)
        self._handle, self._descriptor = None, -1


class _OpenOptions(ctypes.Structure):
    """libbpf's `struct bpf_object_open_opts`, as of 1.1."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("object_name", ctypes.c_char_p),
        ("relaxed_maps", ctypes.c_bool),
        ("pin_root_path", ctypes.c_char_p),
        ("removed", ctypes.c_uint64),
        ("kconfig", ctypes.c_char_p),
        ("btf_custom_path", ctypes.c_char_p),
    )


class BpfObject(Closing):
    """One compiled BPF object, loaded into the kernel.

    `rodata` sets `const volatile` integers by name before loading, `max_entries` resizes maps, `reuse` shares maps
    of another object by descriptor, `autoload` leaves programs out, `expected_attach_type` sets a program's type,
    `types` is a file of type information to take instead of the kernel's own. Programs that have pids are told of which
    namespace netprof's are.
    Raises NotPermittedError without the rights or the kernel for it, KernelMemoryError without the memory, NetprofError
    when a program is rejected.
    """

    def __init__(
        self,
        name: str,
        *,
        rodata: Mapping[str, int] | None = None,
        max_entries: Mapping[str, int] | None = None,
        reuse: Mapping[str, int] | None = None,
        autoload: Mapping[str, bool] | None = None,
        expected_attach_type: Mapping[str, int] | None = None,
        types: Path | None = None,
    ) -> None:
        self.name = name
        self._links: list[BpfLink] = []
        self._counters: NDArray[np.uint8] | None = None
        self._places: dict[str, tuple[int, int]] = {}
        self._library = libbpf()
        path = object_path(name)
        image = _read_object(path)
        self.constants = {**_pids(path), **(rodata or {})}
        self._library.netprof_log_start()
        options = _OpenOptions(size=ctypes.sizeof(_OpenOptions), btf_custom_path=types and os.fsencode(types))
        self._handle: int | None = self._library.bpf_object__open_mem(image, len(image), ctypes.byref(options))
        if not self._handle:
            raise NetprofError(f"{path} is not a usable BPF object", "reinstall netprof", detail=_log())
        try:
            self._set_rodata(path, self.constants)
            for map_name, entries in (max_entries or {}).items():
                _check(self._library.bpf_map__set_max_entries(self._map(map_name), entries), map_name)
            for map_name, descriptor in (reuse or {}).items():
                _check(self._library.bpf_map__reuse_fd(self._map(map_name), descriptor), map_name)
            for program, wanted in (autoload or {}).items():
                self._library.bpf_program__set_autoload(self.program_handle(program), wanted)
            for program, kind in (expected_attach_type or {}).items():
                self._library.bpf_program__set_expected_attach_type(self.program_handle(program), kind)
            if error := -self._library.bpf_object__load(self._handle):
                raise _kernel_refusal(f"the kernel refused the BPF programs of {name}", error)
        except BaseException:
            self.close()
            raise

    def map_fd(self, name: str) -> int:
        """Return the descriptor of map `name`."""
        return int(self._library.bpf_map__fd(self._map(name)))

    def max_entries(self, name: str) -> int:
        """Return the size of map `name`."""
        return int(self._library.bpf_map__max_entries(self._map(name)))

    def program_fd(self, name: str) -> int:
        """Return the descriptor of program `name`."""
        return int(self._library.bpf_program__fd(self.program_handle(name)))

    def program_handle(self, name: str) -> int:
        """Return libbpf's handle of program `name`."""
        handle = self._library.bpf_object__find_program_by_name(self._handle, name.encode())
        if not handle:
            raise KeyError(f"{self.name} has no program {name}")
        return int(handle)

    def programs(self) -> list[str]:
        """Return the names of the programs that are loaded."""
        names, handle = [], self._library.bpf_object__next_program(self._handle, None)
        while handle:
            if self._library.bpf_program__fd(handle) >= 0:
                names.append(self._library.bpf_program__name(handle).decode())
            handle = self._library.bpf_object__next_program(self._handle, handle)
        return names

    def attach(self, program: str) -> BpfLink:
        """Attach `program` where its section says. The link closes with the object. Raises NetprofError."""
        return self._attach(program, self._library.bpf_program__attach)

    def attach_iterator(self, program: str) -> BpfLink:
        """Attach an iterator program; run it with `run_iterator`. Raises NetprofError."""
        return self._attach(program, self._library.bpf_program__attach_iter, None)

    def attach_perf_event(self, program: str, descriptor: int) -> BpfLink:
        """Attach `program` to an open perf event, which is closed with the link. Raises NetprofError."""
        try:
            return self._attach(program, self._library.bpf_program__attach_perf_event, descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    def counters(self, *names: str) -> dict[str, int]:
        """Return the present values of the object's zero-initialized global integers, by name."""
        if self._counters is None:
            size = int(self._library.bpf_map__value_size(self._map(".bss")))
            self._counters = map_array(self.map_fd(".bss"), size, 1, writable=True)[0]
        unknown = set(names) - self._places.keys()
        if unknown:
            self._places.update(_symbols(object_path(self.name), ".bss", unknown))
        places = {name: self._places[name] for name in names}
        values = self._counters
        return {name: int.from_bytes(values[at : at + size].tobytes(), "little") for name, (at, size) in places.items()}

    def set_counter(self, name: str, value: int) -> None:
        """Set one of those, of 4 or 8 bytes; a program that sees it also sees what was written to maps before."""
        self.counters(name)
        assert self._counters is not None
        at, size = self._places[name]
        store = self._library.netprof_store_32 if size == 4 else self._library.netprof_store_64
        store(self._counters.ctypes.data + at, value)

    def close(self) -> None:
        """Detach everything and unload. May be called twice."""
        for link in self._links:
            link.close()
        self._links.clear()
        if self._handle:
            self._library.bpf_object__close(self._handle)
        self._handle = None

    def _attach(self, program: str, function: Callable[..., int | None], *arguments: int | None) -> BpfLink:
        self._library.netprof_log_start()
        handle = function(self.program_handle(program), *arguments)
        if not handle:
            raise _kernel_refusal(f"cannot attach the BPF program {program}", ctypes.get_errno())
        link = BpfLink(handle)
        self._links.append(link)
        return link

    def _map(self, name: str) -> int:
        handle = self._library.bpf_object__find_map_by_name(self._handle, name.encode())
        if not handle:
            raise KeyError(f"{self.name} has no map {name}")
        return int(handle)

    def _set_rodata(self, path: Path, values: Mapping[str, int]) -> None:
        if not values:
            return
        size = ctypes.c_size_t()
        address = self._library.bpf_map__initial_value(self._map(".rodata"), ctypes.byref(size))
        for name, (offset, width) in _symbols(path, ".rodata", set(values)).items():
            data = values[name].to_bytes(width, "little")
            ctypes.memmove(address + offset, data, width)


class RingBuffer(Closing):
    """A BPF ring buffer of a loaded object, of records of one `kind`.

    A thread of the native library takes records out of it before it fills, and keeps them until they are asked for:
    what is in the kernel never waits for the program, whatever that waits for.
    """

    def __init__(self, loaded: BpfObject, name: str, kind: np.dtype[Any]) -> None:
        self._library, self._kind = libbpf(), kind
        size_bytes = loaded.max_entries(name)
        self._ring: int | None = self._library.netprof_ring_open(loaded.map_fd(name), size_bytes, kind.itemsize)
        if not self._ring:
            raise _kernel_refusal("cannot map a BPF ring buffer", ctypes.get_errno())

    def waiting(self) -> int:
        """Return how many finished records there are."""
        return int(self._library.netprof_ring_records(self._ring))

    def drain(self) -> NDArray[Any]:
        """Take every finished record."""
        out = np.empty(self.waiting(), self._kind)
        count = self._library.netprof_ring_drain(self._ring, out.ctypes.data, len(out))
        return out[:count]

    def close(self) -> None:
        """Unmap. May be called twice."""
        if self._ring:
            self._library.netprof_ring_close(self._ring)
        self._ring = None


def map_array(map_fd: int, value_bytes: int, entries: int, *, writable: bool = False) -> NDArray[np.uint8]:
    """Map an mmapable BPF array: shape (entries, value_bytes), changing under the reader's eyes."""
    stride = (value_bytes + 7) // 8 * 8
    length = (stride * entries + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE
    access = mmap.PROT_READ | mmap.PROT_WRITE if writable else mmap.PROT_READ
    mapping = mmap.mmap(map_fd, length, flags=mmap.MAP_SHARED, prot=access)
    return np.frombuffer(mapping, dtype=np.uint8)[: stride * entries].reshape(entries, stride)[:, :value_bytes]


def create_hash(name: str, key_bytes: int, value_bytes: int, entries: int) -> int:
    """Create a hash map that belongs to no object and return its descriptor; objects take it over by `reuse`.

    Raises NotPermittedError without the rights for it, NetprofError when the kernel refuses it.
    """
    library = libbpf()
    library.netprof_log_start()
    descriptor = int(library.bpf_map_create(_MAP_TYPE_HASH, name.encode(), key_bytes, value_bytes, entries, None))
    if descriptor < 0:
        raise _kernel_refusal(f"cannot create the BPF map {name}", ctypes.get_errno())
    return descriptor


def u32(number: int) -> bytes:
    """Return a key of 4 bytes, or a value."""
    return number.to_bytes(4, "little")


def map_update(map_fd: int, key: bytes, value: bytes) -> None:
    """Set an entry of a map (or push to a queue with an empty key). Raises NetprofError."""
    if libbpf().bpf_map_update_elem(map_fd, key or None, value, 0):
        raise _kernel_refusal("cannot write to a BPF map", ctypes.get_errno())


def map_delete(map_fd: int, key: bytes) -> None:
    """Delete an entry of a map; an absent one is fine."""
    libbpf().bpf_map_delete_elem(map_fd, key)


def map_lookup(map_fd: int, key: bytes, value_bytes: int) -> bytes | None:
    """Return the value at `key`, or None."""
    value = ctypes.create_string_buffer(value_bytes)
    return None if libbpf().bpf_map_lookup_elem(map_fd, key, value) else value.raw


def map_keys(map_fd: int, key_bytes: int) -> Iterator[bytes]:
    """Yield the keys of a map."""
    key, following = None, ctypes.create_string_buffer(key_bytes)
    while libbpf().bpf_map_get_next_key(map_fd, key, following) == 0:
        key = following.raw
        yield key


def run_iterator(link: BpfLink) -> bytes:
    """Run an attached iterator program to its end and return what it printed. Raises NetprofError, OSError."""
    descriptor = libbpf().bpf_iter_create(link.fd())
    if descriptor < 0:
        raise _kernel_refusal("cannot run a BPF iterator", ctypes.get_errno())
    parts: list[bytes] = []
    try:
        while True:
            with suppress(BlockingIOError):  # after 1,000,000 objects without output: go on
                if not (part := os.read(descriptor, _ITERATOR_BYTES)):
                    return b"".join(parts)
                parts.append(part)
    finally:
        os.close(descriptor)


def attach_uprobe_multi(
    program_fd: int, path: str, offsets: list[int], cookies: list[int], pid: int, at_return: bool = False
) -> BpfLink:
    """Attach one program at many file offsets of `path`, in one process (pid) or all (0). Raises NetprofError.

    The offsets are where functions begin; `at_return` runs the program when they return. Needs kernel 6.6 and a program
    loaded with expected attach type 48.
    """
    count = len(offsets)
    array = ctypes.c_uint64 * count
    descriptor = libbpf().netprof_uprobe_multi(
        program_fd, os.fsencode(path), array(*offsets), array(*cookies), count, pid, at_return
    )
    if descriptor < 0:
        raise _kernel_refusal(f"cannot attach uprobes to {path}", ctypes.get_errno())
    return BpfLink(descriptor=descriptor)


class _UprobeOptions(ctypes.Structure):
    """libbpf's `struct bpf_uprobe_opts`, as of 1.1."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("ref_ctr_offset", ctypes.c_size_t),
        ("bpf_cookie", ctypes.c_uint64),
        ("retprobe", ctypes.c_bool),
        ("func_name", ctypes.c_char_p),
    )


def attach_uprobe_perf(
    program: int, path: str, offset: int, cookie: int, pid: int = -1, at_return: bool = False
) -> BpfLink:
    """Attach one program (libbpf's handle) at one file offset through a perf event: any kernel. Raises NetprofError.

    In one process or all (-1); `at_return` runs it when the function there returns.
    """
    options = _UprobeOptions(size=ctypes.sizeof(_UprobeOptions), bpf_cookie=cookie, retprobe=at_return)
    handle = libbpf().bpf_program__attach_uprobe_opts(program, pid, os.fsencode(path), offset, ctypes.byref(options))
    if not handle:
        raise _kernel_refusal(f"cannot attach a uprobe to {path}", ctypes.get_errno())
    return BpfLink(handle)


def program_statistics(program_fd: int) -> tuple[int, int]:
    """Return (run time in ns, runs) that the kernel counted for a program while its statistics were on."""
    time_ns, runs, missed = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_uint64()
    libbpf().netprof_program_statistics(program_fd, ctypes.byref(time_ns), ctypes.byref(runs), ctypes.byref(missed))
    return time_ns.value, runs.value


@contextmanager
def run_time_statistics() -> Iterator[None]:
    """Let the kernel time BPF programs inside the block; it stops by itself if this process dies."""
    descriptor = libbpf().bpf_enable_stats(0)
    if descriptor < 0:
        raise _kernel_refusal("cannot turn on BPF run time statistics", ctypes.get_errno())
    try:
        yield
    finally:
        os.close(descriptor)


def _read_object(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise NetprofError(
            f"{path} is missing from this installation",
            "install netprof from its wheel, or run 'make inplace' in a checkout",
        ) from error


def _pids(path: Path) -> dict[str, int]:
    """Return what the programs of an object that have pids must know; nothing in the initial pid namespace."""
    namespace = own_namespace()
    knows = namespace and (".rodata", OWN_PID_NAMESPACE) in _symbol_table(path)
    return {OWN_PID_NAMESPACE: namespace} if knows else {}


def _symbols(path: Path, section: str, names: set[str]) -> dict[str, tuple[int, int]]:
    """Return (offset in its section, size) of each variable."""
    table = _symbol_table(path)
    absent = sorted(name for name in names if (section, name) not in table)
    if absent:
        raise KeyError(f"{path.name} has no variable {', '.join(absent)} in {section}")
    return {name: table[section, name] for name in names}


@lru_cache(maxsize=8)
def _symbol_table(path: Path) -> dict[tuple[str, str], tuple[int, int]]:
    """Return (offset, size) of every variable of an object, by (section, name)."""
    with open(path, "rb") as file:
        return variables(file.fileno(), (".rodata", ".bss"))


def _check(result: int, what: str) -> None:
    if result:
        raise _kernel_refusal(f"cannot prepare the BPF map {what}", -result)


def _log() -> str:
    text = libbpf().netprof_log()
    return text.decode(errors="replace") if text else ""


def _kernel_refusal(what: str, error: int) -> NetprofError:
    """Turn an errno and libbpf's log into one line, the verifier's last line first."""
    log = _log()
    if error in (errno.EPERM, errno.EACCES) and not _verifier_line(log):
        return NotPermittedError(
            f"{what}: {os.strerror(error)}",
            "'netprof doctor' says what is missing, and how to get it",
            detail=log,
        )
    if error in (errno.EMFILE, errno.ENFILE):
        return NetprofError(f"{what}: {os.strerror(error)}", "allow more open files with 'ulimit -n 65536'")
    if error == errno.ENOMEM and not _verifier_line(log):
        return KernelMemoryError(f"{what}: {os.strerror(error)}", "raise the memory limit of the container", detail=log)
    reason = _verifier_line(log) or os.strerror(error)
    return NetprofError(
        f"{what}: {reason}", "'netprof doctor' says what this kernel allows; -v shows the log", detail=log
    )


def _verifier_line(log: str) -> str:
    """Return the line in which the verifier says what it objects to, or nothing."""
    match = re.search(r"BEGIN PROG LOAD LOG --\n(.*?)\n?-- END PROG LOAD LOG", log, re.DOTALL)
    if match is None:
        return ""
    lines = [line for line in match[1].splitlines() if line and not line.startswith(("processed ", "stack depth "))]
    return lines[-1] if lines else ""
