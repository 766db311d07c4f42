"""Which function an address of a process is in: by the symbols of the files that it has mapped.

The files are the job's, and so are the names in them: nothing in them is believed, and reading them ends in time.
"""

from __future__ import annotations

import contextlib
import re

import numpy as np

from netprof.errors import NetprofError
from netprof.probes.kernel.elf import DYNSYM, SYMBOL, SYMTAB, Elf
from netprof.probes.marks.libraries import Library, Mapping, executable_mappings, open_library
from netprof.probes.marks.reading import MAX_LIBRARIES, ReadingTime
from netprof.probes.stacks.chrome_trace import clean

_FUNC = 2
_LONGEST_NAME = 512
_LONGEST_SHOWN = 100
_QUALIFIERS = re.compile(r"_ZNK?|_Z")


class Functions:
    """The functions of an open ELF file by where they begin. Raises NetprofError for a file that is no such."""

    def __init__(self, library: Library, until_s: float) -> None:
        self._library, self._elf = library, Elf(library.descriptor, until_s)
        functions, strings = [], []
        for of_names, symbols in self._elf.symbol_tables(DYNSYM, SYMTAB):
            functions.append(symbols[(symbols["info"] & 15 == _FUNC) & (symbols["shndx"] != 0)])
            strings.append(np.full(len(functions[-1]), int(of_names["offset"])))
        symbols = np.concatenate(functions) if functions else np.zeros(0, SYMBOL)
        order = np.argsort(symbols["value"], kind="stable")
        self._begin, self._size = symbols["value"][order].astype(np.int64), symbols["size"][order].astype(np.int64)
        self._name_at = symbols["name"][order] + np.concatenate(strings)[order] if functions else self._begin

    def name_at(self, offset: int) -> str:
        """Return the name of the function that holds the byte at a file offset; "" if no symbol does."""
        for segment in self._elf.segments:
            address = offset - int(segment["offset"]) + int(segment["vaddr"])
            row = int(np.searchsorted(self._begin, address, "right")) - 1
            inside = 0 <= offset - int(segment["offset"]) < int(segment["filesz"])
            if inside and row >= 0 and address < self._begin[row] + max(int(self._size[row]), 1):
                at = int(self._name_at[row])
                raw = self._elf.read(at, min(_LONGEST_NAME, self._elf.size_bytes - at))
                return raw.partition(b"\0")[0].decode("utf-8", "replace")
        return ""


class FrameNames:
    """What a process executes at an address, in words, once it was looked at."""

    def __init__(self, pid: int, reading: ReadingTime) -> None:
        self._pid, self._reading = pid, reading
        self._mappings: list[tuple[int, int, Mapping]] = []
        self._files: dict[tuple[int, int], Functions | None] = {}
        self._libraries: list[Library] = []
        self._known: dict[int, str] = {}

    def look_again(self) -> None:
        """Read what is mapped now. Raises NetprofError for a process that may not be looked at."""
        mappings = []
        for mapping in executable_mappings(self._pid):
            begin, end = (int(part, 16) for part in mapping.address_range.split("-"))
            mappings.append((begin, end, mapping))
        if mappings != self._mappings:
            self._mappings = mappings
            self._known.clear()

    def of(self, address: int) -> str:
        """Return a frame such as `at::native::copy_ [libtorch_cpu.so]`; "" where no file is mapped."""
        if address not in self._known:
            self._known[address] = self._look_up(address)
        return self._known[address]

    def close(self) -> None:
        """Close the files."""
        for library in self._libraries:
            library.close()
        self._libraries.clear()
        self._files.clear()

    def _look_up(self, address: int) -> str:
        for begin, end, mapping in self._mappings:
            if begin <= address < end:
                name = ""
                with contextlib.suppress(NetprofError, OSError):
                    if (functions := self._functions(mapping)) is not None:
                        name = functions.name_at(address - begin + mapping.offset)
                return frame(readable(name) or "?", mapping.basename)
        return ""

    def _functions(self, mapping: Mapping) -> Functions | None:
        file = mapping.device, mapping.inode
        if file not in self._files:
            self._files[file] = None
            if len(self._libraries) < MAX_LIBRARIES:
                with contextlib.suppress(NetprofError, OSError), self._reading.for_one() as until_s:
                    library = open_library(self._pid, mapping)
                    self._libraries.append(library)
                    self._files[file] = Functions(library, until_s)
        return self._files[file]


def frame(name: str, file: str) -> str:
    """Return a frame in words."""
    return clean(f"{name[:_LONGEST_SHOWN]} [{file[:_LONGEST_SHOWN]}]")


def readable(name: str) -> str:
    """Return the names in a mangled C++ name, up to its first template argument; other names as they are.

    The Itanium C++ ABI: `_ZN2at6native5copy_E...` is at::native::copy_.
    """
    match, parts = _QUALIFIERS.match(name), list[str]()
    at = match.end() if match else 0
    if match and name.startswith("St", at):
        parts, at = ["std"], at + 2
    while match and (digits := re.compile(r"[1-9]\d{0,3}").match(name, at)):
        at = digits.end() + int(digits[0])
        part = name[digits.end() : at]
        parts.append("(anonymous)" if part.startswith("_GLOBAL__N") else part)
    return "::".join(parts) or name
