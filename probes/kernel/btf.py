"""Type information (BTF) of compiled programs: its types, and the structures that they share with user space."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from netprof.probes.kernel.elf import section_bytes
from netprof.probes.kernel.loader import object_path

_INT, _ARRAY, STRUCT, UNION, TYPEDEF = 1, 3, 4, 5, 8
QUALIFIERS = (TYPEDEF, 9, 10, 11)  # and volatile, const, restrict
_EXTRA_BYTES = {_INT: 4, _ARRAY: 12, 14: 4, 17: 4}  # behind a type, by kind; the others: variable, declaration tag
_MEMBER_BYTES = {4: 12, 5: 12, 6: 8, 13: 8, 15: 12, 19: 12}  # each of vlen: members, enumerators, parameters, ...
_SIGNED = 1 << 24


@dataclass(frozen=True)
class BtfType:
    """A type: `at` is where it is in the types' bytes, `extra` are the numbers behind it.

    Of each member: its name and type, the word with its offset, and where that is.
    """

    kind: int
    name: str
    at: int
    size_or_type: int
    members: tuple[tuple[str, int, int, int], ...]
    has_bits: bool
    extra: tuple[int, ...] = ()


def read_types(data: bytes) -> list[BtfType]:
    """Return the types of a BTF section, by number."""
    _, _, _, header, types_at, types_size, strings_at, strings_size = struct.unpack_from("<HBBIIIII", data)
    strings = data[header + strings_at :][:strings_size]
    table, at = [BtfType(0, "", 0, 0, (), False)], header + types_at
    while at < header + types_at + types_size:
        name, info, size = struct.unpack_from("<III", data, at)
        kind, count = info >> 24 & 31, info & 0xFFFF
        body, members = at + 12, []
        if kind in (STRUCT, UNION):
            for place in range(body, body + 12 * count, 12):
                member, of_type, word = struct.unpack_from("<III", data, place)
                members.append((_text(strings, member), of_type, word, place + 8))
        extra = struct.unpack_from(f"<{_EXTRA_BYTES.get(kind, 0) // 4}I", data, body)
        table.append(BtfType(kind, _text(strings, name), at, size, tuple(members), bool(info >> 31), extra))
        at = body + 4 * len(extra) + _MEMBER_BYTES.get(kind, 0) * count
    return table


def resolved(table: list[BtfType], number: int) -> int:
    """Return the type behind names and qualifiers."""
    while table[number].kind in QUALIFIERS:
        number = table[number].size_or_type
    return number


def layout(programs: str, name: str) -> np.dtype[Any]:
    """Return a structure of compiled programs, as "flow" has, for numpy: C alone declares it. Raises KeyError."""
    table = _types_of(programs)
    for number, described in enumerate(table):
        if described.kind == STRUCT and described.name == name:
            return _dtype(table, number)
    raise KeyError(f"{programs} has no structure {name}")


@lru_cache(maxsize=8)
def _types_of(programs: str) -> list[BtfType]:
    with object_path(programs).open("rb") as file:
        return read_types(section_bytes(file.fileno(), ".BTF"))


def _dtype(table: list[BtfType], number: int) -> np.dtype[Any]:
    described = table[resolved(table, number)]
    if described.kind == _ARRAY:
        of_type, _, count = described.extra
        inner = table[resolved(table, of_type)]
        return np.dtype(f"S{count}") if inner.name == "char" else np.dtype((_dtype(table, of_type), count))
    if described.kind == STRUCT:
        return np.dtype(
            {
                "names": [member for member, _, _, _ in described.members],
                "formats": [_dtype(table, of_type) for _, of_type, _, _ in described.members],
                "offsets": [word // 8 for _, _, word, _ in described.members],
                "itemsize": described.size_or_type,
            }
        )
    return np.dtype(f"{'i' if described.extra[0] & _SIGNED else 'u'}{described.size_or_type}")


def _text(strings: bytes, at: int) -> str:
    return strings[at : strings.index(b"\0", at)].decode()
