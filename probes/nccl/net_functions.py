"""The functions by which NCCL posts, found in a library's file: by symbol, else by the tables that hold them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from netprof.errors import NetprofError
from netprof.probes.kernel.elf import DYNSYM, Elf
from netprof.probes.marks.libraries import Library
from netprof.probes.marks.symbols import choose, find_functions
from netprof.probes.nccl.interface import (
    OWN,
    OWN_FUNCTIONS,
    PLUGIN_TABLES,
    POINTER_BYTES,
    VERSIONS,
    Call,
    Version,
    number_of_nccl,
    symbol_names,
    version_of,
)
from netprof.probes.nccl.pointers import Pointers
from netprof.schema import NcclNetwork

SYMBOL_TABLE, POINTER_TABLE, EXPORTED = "by symbol", "by its table", "in an exported table"
"""How a function was found."""

_CODE_BYTES = 16
_IN_A_ROW = 7  # functions that follow a table's name, in every version
_MOST_TABLES = 1000
_MOST_TEXT_BYTES = 64 << 20
_VERSION = re.compile(rb"NCCL version (\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True)
class NetFunction:
    """A function: its offset in the file and first bytes, what it is called with, and whose it is.

    `name` is its network's, as NCCL logs it.
    """

    offset: int
    code: bytes
    call: Call
    network: NcclNetwork
    name: str
    found_by: str


def find_net_functions(library: Library, until_s: float) -> list[NetFunction]:
    """Return the functions of the networks in an open library, those of each once.

    Raises NetprofError where the file cannot be read by `until_s` (time.monotonic), or is none.
    """
    elf = Elf(library.descriptor, until_s)
    of_nccl = list(_by_symbol(library.descriptor, until_s))
    pointers = Pointers(elf)
    functions = [*(of_nccl or find_by_tables(elf, pointers)), *_exported(elf, pointers)]
    return list({function.offset: function for function in reversed(functions)}.values())


def _by_symbol(descriptor: int, until_s: float) -> Iterator[NetFunction]:
    """Yield NCCL's own functions by their symbols; which version they are of their names say."""
    names = {
        symbol: (version.calls[direction], network)
        for functions, network in OWN_FUNCTIONS.items()
        for version in VERSIONS
        for direction in range(2)
        for symbol in symbol_names(functions[direction], version.symbols[direction])
    }
    candidates = find_functions(descriptor, sorted(names), until_s).functions
    for name, (call, network) in names.items():
        symbol = choose([each for each in candidates[name] if each.name == name], name)
        if symbol is not None:
            yield NetFunction(symbol.offset, symbol.code, call, OWN[network], network, SYMBOL_TABLE)


def find_by_tables(elf: Elf, pointers: Pointers) -> Iterator[NetFunction]:
    """Yield NCCL's own functions by its tables alone: a pointer to the network's name, and then pointers to code.

    Tables of other kinds begin alike (RMA and GIN, which have other names).
    """
    at, code = pointers.at, pointers.is_code(pointers.to)
    rows = np.arange(max(0, len(at) - _IN_A_ROW))
    for place in range(1, _IN_A_ROW + 1):
        rows = rows[code[rows + place] & (at[rows + place] == at[rows] + place * POINTER_BYTES)]
    rows = rows[~code[rows]][:_MOST_TABLES]
    tables = {int(at[row]): name for row in rows.tolist() if (name := pointers.text(int(pointers.to[row]))) in OWN}
    version = _version_inside(elf) if tables else None
    for address, name in tables.items():
        if version is not None:
            yield from _of_table(elf, pointers, address, version, name, POINTER_TABLE)


def _version_inside(elf: Elf) -> Version | None:
    """Return the interface that NCCL has inside, by its version among the library's texts."""
    for name, section in zip(elf.section_names(), elf.sections, strict=True):
        if name == ".rodata" and int(section["size"]) <= _MOST_TEXT_BYTES:
            match = _VERSION.search(elf.contents(section))
            return version_of(number_of_nccl(int(match[1]), int(match[2]))) if match else None
    return None


def _exported(elf: Elf, pointers: Pointers) -> Iterator[NetFunction]:
    """Yield the functions of the tables that a plugin exports, the newest version first."""
    addresses = _objects(elf, PLUGIN_TABLES)
    for name in reversed(PLUGIN_TABLES):
        version = version_of(int(name.rpartition("_v")[2]))
        if name in addresses and version is not None:
            network = pointers.text(int(pointers.read(addresses[name], 1)[0]))
            yield from _of_table(elf, pointers, addresses[name], version, network or name, EXPORTED)


def _objects(elf: Elf, names: Sequence[str]) -> dict[str, int]:
    """Return the addresses of some dynamic symbols that are the library's own."""
    addresses: dict[str, int] = {}
    for of_names, symbols in elf.symbol_tables(DYNSYM):
        texts = elf.contents(of_names)
        for name in names:
            at = texts.find(b"\0" + name.encode() + b"\0") + 1
            values = symbols["value"][(symbols["name"] == at) & (symbols["shndx"] != 0)]
            if at and len(values):
                addresses[name] = int(values[0])
    return addresses


def _of_table(
    elf: Elf, pointers: Pointers, address: int, version: Version, name: str, found_by: str
) -> Iterator[NetFunction]:
    """Yield the two functions of a table; nothing where what lies there is no such table."""
    functions = pointers.read(address + POINTER_BYTES, version.functions)
    needed = np.ones(len(functions), bool)
    needed[[place - 1 for place in version.optional]] = False
    is_code = pointers.is_code(functions)
    if not (is_code | (~needed & (functions == 0))).all():
        return
    for direction, call in enumerate(version.calls):
        offset = elf.file_offset(int(functions[version.place - 1 + direction]))
        if offset is None:
            raise NetprofError("its table of network functions points to no code")
        code = elf.read(offset, min(_CODE_BYTES, elf.size_bytes - offset))
        yield NetFunction(offset, code, call, OWN.get(name, NcclNetwork.PLUGIN), name, found_by)
