"""Function symbols of an ELF file: where a function begins, as the file offset that a uprobe wants.

The file belongs to the traced process: nothing in it is believed, and its names are read in pieces.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from netprof.errors import NetprofError
from netprof.probes.kernel.elf import DYNSYM, SYMBOL, SYMTAB, Elf

X86_64, AARCH64 = 62, 183
"""Values of `e_machine` that netprof knows."""

_STT_FUNC = 2
_FUNCTION_BYTES = 16  # more than the longest instruction
_CHUNK_BYTES = 4 << 20
_MAX_NAME_BYTES = 4096
_MAX_NAMES_BYTES = 256 << 20  # libtorch_cpu.so: 76 MB, read in chunks
_MAX_OCCURRENCES = 10_000


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


def find_functions(descriptor: int, prefixes: Sequence[str], until_s: float = math.inf) -> Symbols:
    """Find the functions whose mangled name starts with each of `prefixes` in the open ELF file.

    `.dynsym` is searched first, `.symtab` only for prefixes that `.dynsym` does not have. A stripped file gives
    empty tuples. Raises NetprofError if the file is not a 64-bit little-endian ELF file, contradicts itself, or is not
    read by `until_s` (time.monotonic).
    """
    elf = Elf(descriptor, until_s)
    found: dict[str, tuple[Symbol, ...]] = dict.fromkeys(prefixes, ())
    tables = [elf.sections[elf.sections["type"] == kind][:1] for kind in (DYNSYM, SYMTAB)]
    for table in np.concatenate(tables):
        missing = [prefix for prefix in prefixes if not found[prefix]]
        if missing:
            found.update(_search_table(elf, table, missing))
    return Symbols(elf.machine, found, any(len(table) for table in tables))


def names_any(descriptor: int, functions: Sequence[str], until_s: float = math.inf) -> bool:
    """Tell whether the dynamic symbols of the open ELF file, its own or those it wants, have one of these functions.

    Raises NetprofError as `find_functions`.
    """
    elf = Elf(descriptor, until_s)
    for table in elf.sections[elf.sections["type"] == DYNSYM]:
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


def _search_table(elf: Elf, table: np.void, prefixes: Sequence[str]) -> dict[str, tuple[Symbol, ...]]:
    begin, size = _strings(elf, table)
    occurrences = _occurrences(elf, begin, size, [prefix.encode() for prefix in prefixes])
    if not any(occurrences):
        return {}
    symbols = elf.read_table(int(table["offset"]), int(table["size"]), SYMBOL)
    symbols = symbols[(symbols["info"] & 15 == _STT_FUNC) & (symbols["shndx"] != 0)]
    found = {}
    for prefix, places in zip(prefixes, occurrences, strict=True):
        # Linkers let a name point into the tail of a longer one (ncclX in pncclX), so every place counts.
        rows = symbols[np.isin(symbols["name"], np.array(places, dtype=np.uint32))]
        named = [(row, _name(elf, begin, size, int(row["name"]))) for row in rows[:_MAX_OCCURRENCES]]
        found[prefix] = tuple(symbol for row, name in named if (symbol := _symbol(elf, row, name)) is not None)
    return found


def _strings(elf: Elf, table: np.void) -> tuple[int, int]:
    """Return where the names of a symbol table begin in the file, and their bytes."""
    strings = elf.section(int(table["link"]))
    if int(strings["size"]) > _MAX_NAMES_BYTES:  # a sparse file can claim any size
        raise NetprofError("its ELF symbol names are too long to read")
    return int(strings["offset"]), int(strings["size"])


def _occurrences(elf: Elf, begin: int, size: int, prefixes: Sequence[bytes]) -> list[list[int]]:
    """Return, for each prefix, all its places in the string table."""
    places: list[list[int]] = [[] for _ in prefixes]
    overlap = max(len(prefix) for prefix in prefixes) - 1
    for start, chunk in _chunks(elf, begin, size, overlap):
        for prefix, found in zip(prefixes, places, strict=True):
            at = chunk.find(prefix)
            while 0 <= at < _CHUNK_BYTES:
                found.append(start + at)
                if len(found) > _MAX_OCCURRENCES:
                    raise NetprofError("its ELF symbol names repeat without end")
                at = chunk.find(prefix, at + 1)
    return places


def _chunks(elf: Elf, offset: int, size: int, overlap: int) -> Iterator[tuple[int, bytes]]:
    """Yield (position, bytes) of a section piece by piece, each reaching `overlap` bytes into the next."""
    for start in range(0, size, _CHUNK_BYTES):
        yield start, elf.read(offset + start, min(_CHUNK_BYTES + overlap, size - start))


def _name(elf: Elf, begin: int, size: int, at: int) -> str:
    raw = elf.read(begin + at, min(_MAX_NAME_BYTES, size - at))
    return raw.partition(b"\0")[0].decode("utf-8", "backslashreplace")


def _symbol(elf: Elf, row: np.void, name: str) -> Symbol | None:
    offset = elf.file_offset(int(row["value"]))
    if offset is None:
        return None
    return Symbol(name, offset, elf.read(offset, min(_FUNCTION_BYTES, elf.size_bytes - offset)))
