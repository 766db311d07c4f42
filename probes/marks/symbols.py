"""Function symbols of an ELF file: where a function begins, as the file offset that a uprobe wants.

The file belongs to the traced process: nothing in it is believed, and its names are read in pieces.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from netprof.errors import NetprofError
from netprof.probes.kernel.elf import DYNSYM, SYMBOL, SYMTAB, Elf

X86_64, AARCH64 = 62, 183
"""Values of `e_machine` that netprof knows."""

_STT_FUNC = 2
_FUNCTION_BYTES = 16  # more than the longest instruction
_MAX_NAME_BYTES = 4096
_CHUNK_BYTES = (4 << 20) - _MAX_NAME_BYTES
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


def find_functions(
    descriptor: int, prefixes: Sequence[str], until_s: float = math.inf, *, exported: Collection[str] = ()
) -> Symbols:
    """Find the functions whose mangled name starts with each of `prefixes` in the open ELF file.

    `.dynsym` is searched first, `.symtab` only for prefixes that `.dynsym` does not have, and where there is a
    `.dynsym` not for those that a library exports if it has them. A stripped file gives empty tuples. Raises
    NetprofError if the file is not a 64-bit little-endian ELF file, contradicts itself, or is not read by `until_s`
    (time.monotonic).
    """
    elf = Elf(descriptor, until_s)
    functions: dict[str, tuple[Symbol, ...]] = dict.fromkeys(prefixes, ())
    tables = [elf.sections[elf.sections["type"] == kind][:1] for kind in (DYNSYM, SYMTAB)]
    for table in np.concatenate(tables):
        is_dynamic = table["type"] == DYNSYM or not len(tables[0])
        missing = [prefix for prefix in prefixes if not functions[prefix] and (is_dynamic or prefix not in exported)]
        if missing:
            functions.update(_search_table(elf, table, missing))
    return Symbols(elf.machine, functions, any(len(table) for table in tables))


def names_any(descriptor: int, functions: Sequence[str], until_s: float = math.inf) -> bool:
    """Tell whether the dynamic symbols of the open ELF file, its own or those it wants, have one of these functions.

    Raises NetprofError as `find_functions`.
    """
    elf = Elf(descriptor, until_s)
    for table in elf.sections[elf.sections["type"] == DYNSYM]:
        wanted = [name.encode() + b"\0" for name in functions]
        for _, chunk in _chunks(elf, *_strings(elf, table), max(map(len, wanted)) - 1):
            if any(name in chunk for name in wanted):
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
    symbols = elf.read_table(int(table["offset"]), int(table["size"]), SYMBOL)
    symbols = symbols[(symbols["info"] & 15 == _STT_FUNC) & (symbols["shndx"] != 0)]
    order = np.argsort(symbols["name"], kind="stable")
    at = symbols["name"][order].astype(np.int64)
    wanted = tuple(prefix.encode() for prefix in prefixes)
    named: dict[str, list[tuple[int, str]]] = {prefix: [] for prefix in prefixes}
    for start, chunk in _chunks(elf, begin, size, _MAX_NAME_BYTES):
        first, last = np.searchsorted(at, [start, start + _CHUNK_BYTES])
        for place in _alike(chunk, at[first:last] - start, wanted).tolist():
            begins = int(at[first + place]) - start
            if not chunk.startswith(wanted, begins):
                continue
            raw = chunk[begins : begins + _MAX_NAME_BYTES].partition(b"\0")[0]
            name = raw.decode("utf-8", "backslashreplace")
            for prefix in (each for each in prefixes if name.startswith(each)):
                named[prefix].append((int(order[first + place]), name))
                if len(named[prefix]) > _MAX_OCCURRENCES:
                    raise NetprofError("its ELF symbol names repeat without end")
    return {
        prefix: tuple(symbol for row, name in sorted(rows) if (symbol := _symbol(elf, symbols[row], name)) is not None)
        for prefix, rows in named.items()
    }


def _alike(chunk: bytes, at: npt.NDArray[np.int64], prefixes: Sequence[bytes]) -> npt.NDArray[np.intp]:
    """Return which of the names at some places of a chunk begin as one of the prefixes does, as far as whole words go.

    A comparison of eight bytes at once: of the 60,000 functions of libtorch_cpu.so it leaves a few hundred.
    """
    whole = min(map(len, prefixes)) // 8 * 8
    left = np.flatnonzero(at + whole <= len(chunk))
    for begin in range(0, whole if len(left) else 0, 8):
        words = np.ndarray((len(chunk) - 7,), "<u8", chunk, strides=(1,))[at[left] + begin]
        heads = {int.from_bytes(prefix[begin : begin + 8], "little") for prefix in prefixes}
        left = left[np.logical_or.reduce([words == np.uint64(head) for head in heads])]
    return left


def _strings(elf: Elf, table: np.void) -> tuple[int, int]:
    """Return where the names of a symbol table begin in the file, and their bytes."""
    strings = elf.section(int(table["link"]))
    if int(strings["size"]) > _MAX_NAMES_BYTES:  # a sparse file can claim any size
        raise NetprofError("its ELF symbol names are too long to read")
    return int(strings["offset"]), int(strings["size"])


def _chunks(elf: Elf, offset: int, size: int, overlap: int) -> Iterator[tuple[int, bytes]]:
    """Yield (position, bytes) of a section piece by piece, each reaching `overlap` bytes into the next."""
    for start in range(0, size, _CHUNK_BYTES):
        yield start, elf.read(offset + start, min(_CHUNK_BYTES + overlap, size - start))


def _symbol(elf: Elf, row: np.void, name: str) -> Symbol | None:
    offset = elf.file_offset(int(row["value"]))
    if offset is None:
        return None
    return Symbol(name, offset, elf.read(offset, min(_FUNCTION_BYTES, elf.size_bytes - offset)))
