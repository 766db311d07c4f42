"""What a framework's table is made of: which function means what, and which of its arguments to keep.

A mark is recorded when a function is *entered*; of plain C it may also be a function's return. The end of something in
C++ needs a function of its own that is called then. C++ member functions have `this` as their first argument.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from netprof.schema import MarkKind

MAX_ARGUMENTS = 3
_SIZES = (1, 2, 4, 8)
_ARGUMENTS = range(1, 9)  # in registers, or on x86-64 the seventh and the eighth on the stack
_MANGLED = ("_Z", "_R")  # C++, Rust


@dataclass(frozen=True)
class Register:
    """The function's argument `number` (1 to 8) itself: its lower `size` bytes, an integer or a pointer.

    An `int` needs `size=4`: what the caller leaves in the upper half of its register is anybody's guess. On x86-64
    arguments 7 and 8 are on the stack. `unless` is another argument and a value of that (32 bits, signed) with which
    this one means nothing: all bits are set then.
    """

    number: int
    size: int = 8
    unless: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.number not in _ARGUMENTS or (self.unless and self.unless[0] not in _ARGUMENTS):
            raise ValueError(f"argument {self.number} is not in a register, nor among the first on the stack")
        if self.size not in _SIZES:
            raise ValueError(f"{self} cannot be read")


@dataclass(frozen=True)
class Handle:
    """What the `int` in argument `number` stands for, 0 where the table does not say that.

    `meanings` are pairs of a value and its meaning; only the bits of `mask` are compared with the values.
    """

    number: int
    mask: int
    meanings: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if self.number not in _ARGUMENTS or any(value & ~self.mask for value, _ in self.meanings):
            raise ValueError(f"{self} cannot be read")


@dataclass(frozen=True)
class MemoryField:
    """An unsigned integer of `size` bytes at the pointer in argument `register`, plus `offset` bytes.

    Where a field lies is a matter of the library's version. `valid` is the check of that: the values which the field
    can have. A record with another value is thrown away, and the recording says so.
    """

    register: int
    offset: int
    size: int
    valid: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.register not in _ARGUMENTS or self.size not in _SIZES:
            raise ValueError(f"{self} cannot be read")


@dataclass(frozen=True)
class Chain:
    """An unsigned integer of `size` bytes, `then` bytes (0 to 255) after the pointer that lies at a `MemoryField`.

    What is behind a pointer in an object: the characters of a `std::string`, the size of a buffer that it owns.
    `below` is the check of a size: one that is not smaller is thrown away, as by `MemoryField.valid`; 0: any. So is one
    that is not smaller than the mark's argument with the index `below_argument`, from 0: a rank is below the size.
    """

    register: int
    offset: int
    then: int
    size: int = 8
    below: int = 0
    below_argument: int | None = None

    def __post_init__(self) -> None:
        if self.register not in _ARGUMENTS or self.size not in _SIZES or not 0 <= self.then <= 255:
            raise ValueError(f"{self} cannot be read")


@dataclass(frozen=True)
class Pair:
    """Two arguments in one number: the lowest byte of argument `low`, and above it the pointer in argument `high`.

    Nothing is lost for a `low` below 256 and a `high` below 2**56, as every address of a program is.
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low not in _ARGUMENTS or self.high not in _ARGUMENTS:
            raise ValueError(f"{self} cannot be read")


@dataclass(frozen=True)
class Constant:
    """A number that the function's name says: which collective it is, for instance."""

    value: int


Argument = Register | Handle | MemoryField | Chain | Pair | Constant


@dataclass(frozen=True)
class Mark:
    """A function whose entry or return is an event: the row's `kind`, and what becomes its `arg0..arg2`.

    The function is found by the beginning of its mangled name, since the end moves with compilers and versions.
    `sampled` marks come so often that they are dropped after some iterations. `seldom` says that a call goes with so
    much work that even a slow probe (10 µs) is nothing beside it. `newer` functions are missing from older versions of
    the library, which then needs no mention. `only` keeps the events whose first arguments are these texts, of up to 8
    characters each, and drops the texts: a function that is called for many things is one event among them.

    `at_return` is for functions of plain C that nothing leaves in another way, since the kernel puts an address of its
    own in the place of the return address: an exception that comes by ends the process. Mangled names are refused, and
    of the arguments nothing is left by then. Several marks of one function are recorded in the table's order.
    `since` and `until` are functions by which versions of the library are told apart: the mark is meant for libraries
    that have the first, and not the second.
    """

    kind: MarkKind
    symbol_prefix: str
    args: tuple[Argument, ...] = ()
    sampled: bool = False
    seldom: bool = False
    newer: bool = False
    only: tuple[str, ...] = ()
    at_return: bool = False
    since: str = ""
    until: str = ""

    def __post_init__(self) -> None:
        if len(self.args) > MAX_ARGUMENTS or not self.symbol_prefix:
            raise ValueError(f"{self.kind.name} needs a symbol and has room for {MAX_ARGUMENTS} arguments")
        if len(self.only) > len(self.args) or any(not 0 < len(text.encode()) <= 8 for text in self.only):
            raise ValueError(f"{self.kind.name} needs texts in its first arguments, of up to 8 bytes each")
        if self.at_return and any(_alike(self.symbol_prefix, mangled) for mangled in _MANGLED):
            raise ValueError(f"{self.symbol_prefix} is not plain C: its return cannot be probed")
        if self.at_return and not all(isinstance(argument, Constant) for argument in self.args):
            raise ValueError(f"{self.kind.name} is at a return, where no argument is left")


def _alike(prefix: str, mangled: str) -> bool:
    """Tell whether a name can begin with both."""
    return prefix.startswith(mangled) or mangled.startswith(prefix)


@dataclass(frozen=True)
class Framework:
    """A training framework or communication library: its name, its file (a pattern of `file_names`) and its marks.

    A process with that file is said to train with `family`, or with the framework itself where that is empty: tables
    for several parts of one library are one family; `trains` is false of what other processes have too. `throwing` are
    functions by which a C++ program can make an exception pass through those of this library: in a process with a file
    that wants one of them, and throws, no return is probed.
    """

    name: str
    library: str
    marks: tuple[Mark, ...]
    family: str = ""
    throwing: tuple[str, ...] = ()
    trains: bool = True


@lru_cache
def file_names(pattern: str) -> bytes:
    """Return a regular expression for what file names a pattern means: `*` any text, `?` any byte, `{a,b}` either."""
    return b"".join(_WILD.get(character, re.escape(character.encode())) for character in pattern)


_WILD = {"*": rb"[^/\n]*", "?": rb"[^/\n]", "{": b"(?:", ",": b"|", "}": b")"}
