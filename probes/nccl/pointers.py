"""The pointers in a library's data: what the loader will write there, read from the file."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from netprof.probes.kernel.elf import DYNSYM, Elf
from netprof.probes.marks.symbols import AARCH64, X86_64

_RELA, _PT_LOAD, _PF_X, _SHF_EXECINSTR = 4, 1, 1, 4
_RELATIVE = {X86_64: 8, AARCH64: 1027}  # R_X86_64_RELATIVE, R_AARCH64_RELATIVE
_OF_SYMBOL = {X86_64: 1, AARCH64: 257}  # R_X86_64_64, R_AARCH64_ABS64
_ENTRY = np.dtype([("offset", "<u8"), ("kind", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])  # info: low and high half
_POINTER_BYTES = 8
_LONGEST_TEXT = 64

_Addresses = npt.NDArray[np.int64]


class Pointers:
    """Addresses at which the library holds a pointer, ascending, and where each points.

    Raises NetprofError where the file contradicts itself, or is not read in time.
    """

    def __init__(self, elf: Elf) -> None:
        self._elf = elf
        self._code = _code(elf)
        relocations = elf.sections[elf.sections["type"] == _RELA]
        tables = [elf.read_table(int(each["offset"]), int(each["size"]), _ENTRY) for each in relocations]
        entries = np.concatenate(tables) if tables else np.zeros(0, _ENTRY)
        relative = entries["kind"] == _RELATIVE.get(elf.machine, -1)
        named = entries["kind"] == _OF_SYMBOL.get(elf.machine, -1)
        values = np.where(named, self._symbol_values(entries["symbol"] * named), 0) + entries["addend"]
        kept = np.flatnonzero(relative | named)
        kept = kept[np.argsort(entries["offset"][kept], kind="stable")]
        self.at: _Addresses = entries["offset"][kept].astype(np.int64)
        self.to: _Addresses = values[kept].astype(np.int64)

    def is_code(self, addresses: _Addresses) -> npt.NDArray[np.bool_]:
        """Say which addresses are of code."""
        inside = np.zeros(len(addresses), bool)
        for begin, size in self._code:
            inside |= (addresses >= begin) & (addresses < begin + size)
        return inside

    def read(self, address: int, count: int) -> _Addresses:
        """Return `count` pointers from `address` on; NULL where there is none."""
        size = count * _POINTER_BYTES
        pointers: _Addresses = np.frombuffer(self._bytes(address, size), "<i8").copy()  # of a linker that packs them
        first, last = np.searchsorted(self.at, (address, address + size))
        pointers[(self.at[first:last] - address) // _POINTER_BYTES] = self.to[first:last]
        return pointers

    def text(self, address: int) -> str:
        """Return the characters at an address up to the next NUL; "" where there are none, or too many."""
        raw, ended, _ = self._bytes(address, _LONGEST_TEXT, at_most=True).partition(b"\0")
        return raw.decode("ascii", "replace") if ended else ""

    def _symbol_values(self, numbers: npt.NDArray[np.uint32]) -> _Addresses:
        """Return the addresses of dynamic symbols by number; 0 of those that are another library's."""
        for _, symbols in self._elf.symbol_tables(DYNSYM):
            if not len(symbols):
                break
            values = np.where(symbols["shndx"] != 0, symbols["value"], 0).astype(np.int64)
            return np.where(numbers < len(values), values[np.minimum(numbers, len(values) - 1)], 0)
        return np.zeros(len(numbers), np.int64)

    def _bytes(self, address: int, size: int, *, at_most: bool = False) -> bytes:
        """Read the file's contents at an address; zeros where it has none, or with `at_most` what there is."""
        for segment in self._elf.segments:
            begin, length = int(segment["vaddr"]), int(segment["filesz"])
            if segment["type"] == _PT_LOAD and begin <= address < begin + length:
                there = self._elf.read(address - begin + int(segment["offset"]), min(size, begin + length - address))
                return there if at_most else there.ljust(size, b"\0")
        return b"" if at_most else bytes(size)


def _code(elf: Elf) -> list[tuple[int, int]]:
    """Return where code lies, as addresses and sizes: a segment that may be executed can hold texts too."""
    sections = [(each["addr"], each["size"]) for each in elf.sections if each["flags"] & _SHF_EXECINSTR]
    segments = [(e["vaddr"], e["filesz"]) for e in elf.segments if e["type"] == _PT_LOAD and e["flags"] & _PF_X]
    return [(int(begin), int(size)) for begin, size in sections or segments if begin + size < 1 << 62]
