"""What a framework's table is made of: which function means what, and which of its arguments to keep.

A mark is recorded when a function is *entered*; the end of something needs a function of its own that is called then.
C++ member functions have `this` as their first argument.
"""

from __future__ import annotations

from dataclasses import dataclass

from netprof.schema import MarkKind

MAX_ARGUMENTS = 3


@dataclass(frozen=True)
class Register:
    """The function's argument `number` (1 to 6) itself: an integer or a pointer."""

    number: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= 6:
            raise ValueError(f"argument {self.number} is not in a register")


@dataclass(frozen=True)
class Memory:
    """An unsigned integer of `size` bytes at the pointer in argument `register`, plus `offset` bytes.

    Where a field lies is a matter of the library's version. `valid` is the check of that: the values which the field
    can have. A record with another value is thrown away, and the recording says so.
    """

    register: int
    offset: int
    size: int
    valid: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.register <= 6 or self.size not in (1, 2, 4, 8):
            raise ValueError(f"{self} cannot be read")


@dataclass(frozen=True)
class Mark:
    """A function whose entry is an event: the row's `kind`, and what becomes its `arg0..arg2`.

    The function is found by the beginning of its mangled name, since the end moves with compilers and versions.
    `sampled` marks come so often that they are dropped after some iterations.
    """

    kind: MarkKind
    symbol_prefix: str
    args: tuple[Register | Memory, ...] = ()
    sampled: bool = False

    def __post_init__(self) -> None:
        if len(self.args) > MAX_ARGUMENTS or not self.symbol_prefix:
            raise ValueError(f"{self.kind.name} needs a symbol and has room for {MAX_ARGUMENTS} arguments")


@dataclass(frozen=True)
class Framework:
    """A training framework or communication library: its name, its file (a shell pattern) and its marks."""

    name: str
    library: str
    marks: tuple[Mark, ...]
