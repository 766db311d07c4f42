"""What the kernel does with the first instruction of a probed function: it decides what a hit costs.

A uprobe replaces the instruction by a breakpoint. The kernel emulates a few kinds in place; any other is executed
alone from a copy and trapped again, which can cost more than ten times as much. The kinds that every kernel emulates
are those of its arch/x86/kernel/uprobes.c and arch/arm64/kernel/probes/decode-insn.c. Which others it does, and what a
hit on those costs, differs from kernel to kernel and from machine to machine: `costs` measures it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netprof.probes.marks.symbols import AARCH64, X86_64

_ENDBR64 = bytes.fromhex("f30f1efa")


@dataclass(frozen=True)
class Entry:
    """Where to put the probe: `skip_bytes` after the symbol, and whether every kernel emulates what is there.

    `like` names the function of our own (native/entries.c) at which a hit costs the same; "" if that is not known.
    """

    skip_bytes: int
    emulated: bool
    instruction: str
    like: str = ""


def examine_entry(code: bytes, machine: int) -> Entry:
    """Choose the place of an entry probe from a function's first bytes.

    A function built for control-flow enforcement begins with `endbr64`, which is not emulated. Where a `push` follows,
    the probe goes to that: every call passes it, with the arguments still in place, and no loop leads back to it, since
    each round would grow the stack.
    """
    if machine == X86_64:
        return _examine_x86(code)
    return _examine_arm64(code) if machine == AARCH64 else Entry(0, False, code[:8].hex(" "))


def _examine_x86(code: bytes) -> Entry:
    if code.startswith(_ENDBR64) and _is_push(code[len(_ENDBR64) :]):
        return Entry(len(_ENDBR64), True, "endbr64, then push", "push")
    if emulated := _x86_emulated(code):
        return Entry(0, True, emulated, "push")
    like = next((name for name, beginning in _X86_LIKE if code.startswith(beginning)), "other")
    return Entry(0, False, like if like == "endbr64" else code[:8].hex(" "), like)


def _examine_arm64(code: bytes) -> Entry:
    word = int.from_bytes(code[:4], "little") if len(code) >= 4 else 0
    if emulated := _first_match(_ARM64_SIMULATED, word):
        return Entry(0, True, emulated, "b")
    like = _first_match(_ARM64_LIKE, word)
    return Entry(0, False, like or code[:4].hex(" "), like or "other")


def _first_match(kinds: Sequence[tuple[str, int, int]], word: int) -> str:
    return next((name for name, mask, value in kinds if word & mask == value), "")


def _is_push(code: bytes) -> bool:
    return code[:1] in _PUSHES or (code[:1] == b"\x41" and code[1:2] in _PUSHES)


_PUSHES = tuple(bytes([opcode]) for opcode in range(0x50, 0x58))


def _x86_emulated(code: bytes) -> str | None:
    if _is_push(code):
        return "push"
    if code[:1] in (b"\xeb", b"\xe9"):
        return "jmp"
    if code[:1] == b"\xe8":
        return "call"
    if code[:1] == b"\x90" or code[:2] == b"\x66\x90":
        return "nop"
    if b"\x70" <= code[:1] <= b"\x7f" or (code[:1] == b"\x0f" and b"\x80" <= code[1:2] <= b"\x8f"):
        return "conditional jump"
    return None


_ARM64_SIMULATED = (
    # (name, mask, value), as the kernel's arm_probe_decode_insn tells them
    ("b", 0xFC000000, 0x14000000),
    ("bl", 0xFC000000, 0x94000000),
    ("b.cond", 0xFF000010, 0x54000000),
    ("cbz", 0x7E000000, 0x34000000),
    ("tbz", 0x7E000000, 0x36000000),
    ("adr", 0x1F000000, 0x10000000),
    ("ldr literal", 0xBF000000, 0x18000000),
    ("ldrsw literal", 0xFF000000, 0x98000000),
    ("br", 0xFFFFFC1F, 0xD61F0000),
    ("blr", 0xFFFFFC1F, 0xD63F0000),
    ("ret", 0xFFFFFC1F, 0xD65F0000),
)


_ARM64_LIKE = (
    # What some kernels emulate as well; only pushes of the frame pointer and the return address count as stp.
    ("stp", 0xFFC07FFF, 0xA9807BFD),
    ("sub", 0xFFC003FF, 0xD10003FF),
    ("nop", 0xFFFFFFFF, 0xD503201F),
    ("paciasp", 0xFFFFFFFF, 0xD503233F),
    ("bti", 0xFFFFFF3F, 0xD503241F),
)

_X86_LIKE = (
    ("endbr64", _ENDBR64),
    ("nop5", bytes.fromhex("0f1f440000")),
    ("sub", bytes.fromhex("4883ec")),
    ("sub", bytes.fromhex("4881ec")),
    ("mov", bytes.fromhex("4889")),
    ("mov", bytes.fromhex("4989")),
    ("lea", bytes.fromhex("488d")),
    ("lea", bytes.fromhex("4c8d")),
)
