"""Function symbols of an ELF file: where a function begins, as the file offset that a uprobe wants.

The file belongs to the traced process, so nothing in it is believed: every offset and size is checked
against the file before it is read, and the file is read with pread (a mapping of a file that its owner
cuts short would kill us with SIGBUS). Headers are parsed here and not by pyelftools, which needs 35 ms to
import and 30 ms to walk the sections of libtorch, more than everything below together.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from netprof.errors import NetprofError

X86_64, AARCH64 = 62, 183
"""Values of `e_machine` that netprof knows."""

_SHT_SYMTAB, _SHT_DYNSYM = 2, 11
_PT_LOAD, _PF_X, _STT_FUNC = 1, 1, 2
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_FUNCTION_BYTES = 16  # more than the longest instruction
_CHUNK_BYTES = 4 << 20
_MAX_NAME_BYTES = 4096
_MAX_TABLE_BYTES = 128 << 20  # libtorch_cpu.so: 13 MB of symbols
_MAX_NAMES_BYTES = 1 << 30  # libtorch_cpu.so: 76 MB, read in chunks
_MAX_OCCURRENCES = 10_000

_SECTION = np.dtype(
    {
        "names": ["name", "type", "flags", "addr", "offset", "size", "link", "info", "align", "entry"],
        "formats": ["<u4", "<u4", "<u8", "<u8", "<u8", "<u8", "<u4", "<u4", "<u8", "<u8"],
    }
)
_SEGMENT = np.dtype(
    {
        "names": ["type", "flags", "offset", "vaddr", "paddr", "filesz", "memsz", "align"],
        "formats": ["<u4", "<u4", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8"],
    }
)
_SYMBOL = np.dtype(
    {
        "names": ["name", "info", "other", "shndx", "value", "size"],
        "formats": ["<u4", "u1", "u1", "<u2", "<u8", "<u8"],
    }
)

_Rows = npt.NDArray[np.void]


@dataclass(frozen=True)
class Symbol:
    """A function: its mangled name, its offset in the file in bytes, and its first bytes of code."""

    name: str
    offset: int
    code: bytes


@dataclass(frozen=True)
class Symbols:
    """The functions found for each prefix (in the order of the file), and the file's `e_machine`."""

    machine: int
    functions: dict[str, tuple[Symbol, ...]]
    has_symbol_table: bool


def find_functions(descriptor: int, prefixes: Sequence[str]) -> Symbols:
    """Find the functions whose mangled name starts with each of `prefixes` in the open ELF file.

    `.dynsym` is searched first, `.symtab` only for prefixes that `.dynsym` does not have. A stripped file gives
    empty tuples. Raises NetprofError if the file is not a 64-bit little-endian ELF file or contradicts itself.
    """
    elf = _Elf(descriptor)
    found: dict[str, tuple[Symbol, ...]] = dict.fromkeys(prefixes, ())
    tables = [elf.sections[elf.sections["type"] == kind][:1] for kind in (_SHT_DYNSYM, _SHT_SYMTAB)]
    for table in np.concatenate(tables):
        missing = [prefix for prefix in prefixes if not found[prefix]]
        if missing:
            found.update(_search_table(elf, table, missing))
    return Symbols(elf.machine, found, any(len(table) for table in tables))


def names_any(descriptor: int, functions: Sequence[str]) -> bool:
    """Tell whether the dynamic symbols of the open ELF file, its own or those it wants, have one of these functions.

    Raises NetprofError as `find_functions`.
    """
    elf = _Elf(descriptor)
    for table in elf.sections[elf.sections["type"] == _SHT_DYNSYM]:
        begin, size = _strings(elf, table)
        if any(_occurrences(elf, begin, size, [name.encode() + b"\0" for name in functions])):
            return True
    return False


def choose(candidates: Sequence[Symbol], prefix: str) -> Symbol | None:
    """Pick the one function that a prefix means, or None where that is not clear.

    1. The parts that a compiler splits off (`.cold`, `.part.0`, `.constprop.0`: a dot after the prefix) are
       never it. 2. A name that *is* the prefix beats longer ones. 3. Several names of one address are one
    function (C++ constructors). 4. Several addresses are overloads: one may call the other, so that an event
    would count twice, or hold other arguments. None then: no mark is better than a wrong one.
    """
    whole = [symbol for symbol in candidates if "." not in symbol.name[len(prefix) :]]
    exact = [symbol for symbol in whole if symbol.name == prefix]
    chosen = exact or whole
    return chosen[0] if len({symbol.offset for symbol in chosen}) == 1 else None


class _Elf:
    """An open ELF file's headers, checked against its size."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.size_bytes = os.fstat(descriptor).st_size
        raw = os.pread(descriptor, _HEADER.size, 0)
        if len(raw) < _HEADER.size or raw[:6] != b"\x7fELF\x02\x01":
            raise NetprofError("not a 64-bit little-endian ELF file")
        header = _HEADER.unpack(raw)
        self.machine: int = header[2]
        segments_at, sections_at = header[5], header[6]
        segment_bytes, segment_count, section_bytes, section_count = header[9:13]
        if segment_bytes not in (0, _SEGMENT.itemsize) or section_bytes not in (0, _SECTION.itemsize):
            raise NetprofError("its ELF headers have an unknown size")
        self.segments: _Rows = self.read_table(segments_at, segment_count * _SEGMENT.itemsize, _SEGMENT)
        # No section headers (a file stripped of them), or more than fit in 16 bits: no library is like that.
        self.sections: _Rows = self.read_table(sections_at, section_count * _SECTION.itemsize, _SECTION)

    def read(self, offset: int, size: int) -> bytes:
        """Read exactly `size` bytes; raises NetprofError if the file does not have them."""
        if offset < 0 or size < 0 or size > _MAX_TABLE_BYTES or offset + size > self.size_bytes:
            raise NetprofError("its ELF headers point outside of the file")
        parts = []
        while size:
            part = os.pread(self.descriptor, size, offset)
            if not part:
                raise NetprofError("the file became shorter while it was read")
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return b"".join(parts)

    def read_table(self, offset: int, size: int, row: np.dtype[np.void]) -> _Rows:
        """Read the whole rows in `size` bytes at `offset`."""
        return np.frombuffer(self.read(offset, size - size % row.itemsize), dtype=row)

    def chunks(self, offset: int, size: int, overlap: int) -> Iterator[tuple[int, bytes]]:
        """Yield (position, bytes) of a section piece by piece, each reaching `overlap` bytes into the next."""
        for start in range(0, size, _CHUNK_BYTES):
            yield start, self.read(offset + start, min(_CHUNK_BYTES + overlap, size - start))

    def file_offset(self, address: int) -> int | None:
        """Turn a virtual address of code into a file offset; None if no executable segment of the file holds it."""
        for segment in self.segments:
            begin, size = int(segment["vaddr"]), int(segment["filesz"])
            executable = segment["type"] == _PT_LOAD and segment["flags"] & _PF_X
            if executable and begin <= address < begin + size:
                offset = address - begin + int(segment["offset"])
                return offset if offset < self.size_bytes else None
        return None


def _search_table(elf: _Elf, table: np.void, prefixes: Sequence[str]) -> dict[str, tuple[Symbol, ...]]:
    begin, size = _strings(elf, table)
    occurrences = _occurrences(elf, begin, size, [prefix.encode() for prefix in prefixes])
    if not any(occurrences):
        return {}
    symbols = elf.read_table(int(table["offset"]), int(table["size"]), _SYMBOL)
    symbols = symbols[(symbols["info"] & 15 == _STT_FUNC) & (symbols["shndx"] != 0)]
    found = {}
    for prefix, places in zip(prefixes, occurrences, strict=True):
        # Linkers let a name point into the tail of a longer one (ncclX in pncclX), so every place counts.
        rows = symbols[np.isin(symbols["name"], np.array(places, dtype=np.uint32))]
        named = [(row, _name(elf, begin, size, int(row["name"]))) for row in rows[:_MAX_OCCURRENCES]]
        found[prefix] = tuple(symbol for row, name in named if (symbol := _symbol(elf, row, name)) is not None)
    return found


def _strings(elf: _Elf, table: np.void) -> tuple[int, int]:
    """Return where the names of a symbol table begin in the file, and their bytes."""
    if int(table["link"]) >= len(elf.sections) or int(table["size"]) > _MAX_TABLE_BYTES:
        raise NetprofError("its ELF symbol table has no names")
    strings = elf.sections[int(table["link"])]
    if int(strings["size"]) > _MAX_NAMES_BYTES:  # a sparse file can claim any size
        raise NetprofError("its ELF symbol names are too long to read")
    return int(strings["offset"]), int(strings["size"])


def _occurrences(elf: _Elf, begin: int, size: int, prefixes: Sequence[bytes]) -> list[list[int]]:
    """Return, for each prefix, all its places in the string table."""
    places: list[list[int]] = [[] for _ in prefixes]
    overlap = max(len(prefix) for prefix in prefixes) - 1
    for start, chunk in elf.chunks(begin, size, overlap):
        for prefix, found in zip(prefixes, places, strict=True):
            at = chunk.find(prefix)
            while 0 <= at < _CHUNK_BYTES:
                found.append(start + at)
                if len(found) > _MAX_OCCURRENCES:
                    raise NetprofError("its ELF symbol names repeat without end")
                at = chunk.find(prefix, at + 1)
    return places


def _name(elf: _Elf, begin: int, size: int, at: int) -> str:
    raw = elf.read(begin + at, min(_MAX_NAME_BYTES, size - at))
    return raw.partition(b"\0")[0].decode("utf-8", "backslashreplace")


def _symbol(elf: _Elf, row: np.void, name: str) -> Symbol | None:
    offset = elf.file_offset(int(row["value"]))
    if offset is None:
        return None
    return Symbol(name, offset, elf.read(offset, min(_FUNCTION_BYTES, elf.size_bytes - offset)))
