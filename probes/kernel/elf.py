"""ELF files of 64-bit little-endian machines: their headers, sections, segments and symbols.

A file may belong to a traced process, so nothing in it is believed: every offset and size is checked against the file
before it is read, and the file is read with pread (a mapping of a file that its owner cuts short would kill us with
SIGBUS). pyelftools does the same job, but needs 35 ms to import and 30 ms to walk the sections of libtorch, more than
all the rest of attaching to it.
"""

from __future__ import annotations

import math
import os
import struct
import time
from collections.abc import Collection, Iterator

import numpy as np
import numpy.typing as npt

from netprof.errors import NetprofError

SYMTAB, DYNSYM = 2, 11
"""Values of a section's `type`."""

MAX_TABLE_BYTES = 128 << 20
"""The most that is read at once; the symbols of libtorch_cpu.so are 13 MB."""

_AT_ONCE_BYTES = 4 << 20
_PT_LOAD, _PF_X = 1, 1
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")

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
SYMBOL = np.dtype(
    {
        "names": ["name", "info", "other", "shndx", "value", "size"],
        "formats": ["<u4", "u1", "u1", "<u2", "<u8", "<u8"],
    }
)
"""A symbol: `value` is its place in section `shndx`, or its address."""

Rows = npt.NDArray[np.void]


class TooLongError(NetprofError):
    """A file was not read within the time given for it."""


class Elf:
    """An open ELF file's headers, checked against its size.

    Raises NetprofError if it is not a 64-bit little-endian ELF file or contradicts itself, TooLongError where reading
    goes on after `until_s` (time.monotonic): a hostile file is as large as it likes.
    """

    def __init__(self, descriptor: int, until_s: float = math.inf) -> None:
        self.descriptor = descriptor
        self._until_s = until_s
        self.size_bytes = os.fstat(descriptor).st_size
        raw = os.pread(descriptor, _HEADER.size, 0)
        if len(raw) < _HEADER.size or raw[:6] != b"\x7fELF\x02\x01":
            raise NetprofError("not a 64-bit little-endian ELF file")
        header = _HEADER.unpack(raw)
        self.machine: int = header[2]
        segments_at, sections_at = header[5], header[6]
        segment_bytes, segment_count, section_bytes, section_count, self._names_section = header[9:14]
        if segment_bytes not in (0, _SEGMENT.itemsize) or section_bytes not in (0, _SECTION.itemsize):
            raise NetprofError("its ELF headers have an unknown size")
        self.segments: Rows = self.read_table(segments_at, segment_count * _SEGMENT.itemsize, _SEGMENT)
        # No section headers (a file stripped of them), or more than fit in 16 bits: no library is like that.
        self.sections: Rows = self.read_table(sections_at, section_count * _SECTION.itemsize, _SECTION)

    def read(self, offset: int, size: int) -> bytes:
        """Read exactly `size` bytes; raises NetprofError if the file does not have them."""
        if offset < 0 or size < 0 or size > MAX_TABLE_BYTES or offset + size > self.size_bytes:
            raise NetprofError("its ELF headers point outside of the file")
        parts = []
        while size:
            if time.monotonic() > self._until_s:
                raise TooLongError("reading its ELF symbols takes too long")
            part = os.pread(self.descriptor, min(size, _AT_ONCE_BYTES), offset)
            if not part:
                raise NetprofError("the file became shorter while it was read")
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return b"".join(parts)

    def read_table(self, offset: int, size: int, row: np.dtype[np.void]) -> Rows:
        """Read the whole rows in `size` bytes at `offset`."""
        return np.frombuffer(self.read(offset, size - size % row.itemsize), dtype=row)

    def file_offset(self, address: int) -> int | None:
        """Turn a virtual address of code into a file offset; None if no executable segment of the file holds it."""
        for segment in self.segments:
            begin, size = int(segment["vaddr"]), int(segment["filesz"])
            executable = segment["type"] == _PT_LOAD and segment["flags"] & _PF_X
            if executable and begin <= address < begin + size:
                offset = address - begin + int(segment["offset"])
                return offset if offset < self.size_bytes else None
        return None

    def section(self, index: int) -> np.void:
        """Return the header of a section; raises NetprofError if there is no such section."""
        if index >= len(self.sections):
            raise NetprofError("its ELF headers name a section that is not there")
        section: np.void = self.sections[index]
        return section

    def contents(self, section: np.void) -> bytes:
        """Read a section whole."""
        return self.read(int(section["offset"]), int(section["size"]))

    def symbol_tables(self, *kinds: int) -> Iterator[tuple[np.void, Rows]]:
        """Yield of the first symbol table of each kind the section of its names, and its rows (SYMBOL)."""
        for kind in kinds:
            for table in self.sections[self.sections["type"] == kind][:1]:
                symbols = self.read_table(int(table["offset"]), int(table["size"]), SYMBOL)
                yield self.section(int(table["link"])), symbols

    def section_names(self) -> list[str]:
        """Return the name of every section."""
        names = self.contents(self.section(self._names_section))
        return [_text(names, int(section["name"])) for section in self.sections]


def section_bytes(descriptor: int, name: str) -> bytes:
    """Return the contents of a section; raises NetprofError where there is none of that name."""
    elf = Elf(descriptor)
    names = elf.section_names()
    if name not in names:
        raise NetprofError(f"it has no section {name}")
    return elf.contents(elf.section(names.index(name)))


def variables(descriptor: int, sections: Collection[str]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return (offset in its section, size), in bytes, of every variable of an object file, by (section, name).

    Raises NetprofError for a file that is no such object.
    """
    elf = Elf(descriptor)
    names = elf.section_names()
    places = {}
    for of_names, symbols in elf.symbol_tables(SYMTAB):
        strings = elf.contents(of_names)
        for symbol in symbols:
            section = names[symbol["shndx"]] if symbol["shndx"] < len(names) else ""
            if section in sections:
                places[section, _text(strings, int(symbol["name"]))] = int(symbol["value"]), int(symbol["size"])
    return places


def _text(strings: bytes, at: int) -> str:
    end = strings.find(b"\0", at)
    return strings[at : end if end >= 0 else len(strings)].decode("utf-8", "backslashreplace")
