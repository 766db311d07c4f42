"""What the kernel does with the first instruction of a probed function: it decides what a hit costs.

A uprobe replaces the instruction by a breakpoint. The kernel emulates a few kinds in place; any other is executed
alone from a copy and trapped again, which can cost more than ten times as much. The kinds that every kernel emulates
are those of its arch/x86/kernel/uprobes.c and arch/arm64/kernel/probes/decode-insn.c. Which others it does, and what a
hit on those costs, differs from kernel to kernel and from machine to machine: `costs` measures it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from netprof.probes.marks.symbols import AARCH64, X86_64

_ENDBR64 = bytes.fromhex("f30f1efa")
_X86_PUSH = re.compile(rb"\x41?[\x50-\x57]")
_X86_EMULATED = re.compile(
    rb"(?P<push>\x41?[\x50-\x57])|(?P<jmp>[\xeb\xe9])|(?P<call>\xe8)|(?P<nop>\x66?\x90)"
    rb"|(?P<conditional_jump>[\x70-\x7f]|\x0f[\x80-\x8f])"
)
_X86_LIKE = re.compile(
    rb"(?P<endbr64>\xf3\x0f\x1e\xfa)|(?P<nop5>\x0f\x1f\x44\x00\x00)|(?P<sub>\x48[\x83\x81]\xec)"
    rb"|(?P<mov>[\x48\x49]\x89)|(?P<lea>[\x48\x4c]\x8d)"
)


@dataclass(frozen=True)
class FirstInstruction:
    """Where to put the probe: `skip_bytes` after the symbol, and whether every kernel emulates what is there.

    `like` names the function of our own (native/entries.c) at which a hit costs the same; "" if that is not known.
    """

    skip_bytes: int
    emulated: bool
    instruction: str
    like: str = ""


def examine_entry(code: bytes, machine: int) -> FirstInstruction:
    """Choose the place of an entry probe from a function's first bytes.

    A function built for control-flow enforcement begins with `endbr64`, which is not emulated. Where a `push` follows,
    the probe goes to that: every call passes it, with the arguments still in place, and no loop leads back to it, since
    each round would grow the stack.
    """
    if machine == X86_64:
        return _examine_x86(code)
    return _examine_arm64(code) if machine == AARCH64 else FirstInstruction(0, False, code[:8].hex(" "))


def _examine_x86(code: bytes) -> FirstInstruction:
    if code.startswith(_ENDBR64) and _X86_PUSH.match(code, len(_ENDBR64)):
        return FirstInstruction(len(_ENDBR64), True, "endbr64, then push", "push")
    if emulated := _X86_EMULATED.match(code):
        return FirstInstruction(0, True, str(emulated.lastgroup).replace("_", " "), "push")
    match = _X86_LIKE.match(code)
    like = str(match.lastgroup) if match else "other"
    return FirstInstruction(0, False, like if like == "endbr64" else code[:8].hex(" "), like)


def _examine_arm64(code: bytes) -> FirstInstruction:
    word = int.from_bytes(code[:4], "little") if len(code) >= 4 else 0
    if emulated := _first_match(_ARM64_SIMULATED, word):
        return FirstInstruction(0, True, emulated, "b")
    like = _first_match(_ARM64_LIKE, word)
    return FirstInstruction(0, False, like or code[:4].hex(" "), like or "other")


def _first_match(kinds: Sequence[tuple[str, int, int]], word: int) -> str:
    return next((name for name, mask, value in kinds if word & mask == value), "")


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
