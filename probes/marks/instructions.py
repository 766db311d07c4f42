"""What the kernel does with the first instruction of a probed function: it decides what a hit costs.

A uprobe replaces the instruction by a breakpoint. The kernel emulates a few kinds in place; any other is executed
alone from a copy and trapped again, which costs 10 to 16 µs a hit instead of 0.8 (x86-64). The kinds are those of
the kernel's arch/x86/kernel/uprobes.c and arch/arm64/kernel/probes/decode-insn.c; examples/benchmarks/uprobe_cost.py
measures each of the x86-64 ones on the kernel at hand. Nops of 4 and 5 bytes are cheap on 6.18, on older kernels they
were not tried, so they are not counted as emulated. The arm64 kinds are not measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from netprof.probes.marks.symbols import AARCH64, X86_64

_ENDBR64 = bytes.fromhex("f30f1efa")


@dataclass(frozen=True)
class Entry:
    """Where to put the probe: `skip_bytes` after the symbol, and whether the kernel emulates what is there."""

    skip_bytes: int
    emulated: bool
    instruction: str


def examine_entry(code: bytes, machine: int) -> Entry:
    """Choose the place of an entry probe from a function's first bytes.

    A function built for control-flow enforcement begins with `endbr64`, which is not emulated. Where a `push` follows,
    the probe goes to that: every call passes it, with the arguments still in place, and no loop leads back to it, since
    each round would grow the stack.
    """
    if machine == X86_64 and code.startswith(_ENDBR64):
        after = code[len(_ENDBR64) :]
        if _is_push(after):
            return Entry(len(_ENDBR64), True, "endbr64, then push")
        return Entry(0, False, "endbr64")
    emulated = _x86_emulated(code) if machine == X86_64 else _arm64_emulated(code) if machine == AARCH64 else None
    return Entry(0, emulated is not None, emulated or code[:8].hex(" "))


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


def _arm64_emulated(code: bytes) -> str | None:
    word = int.from_bytes(code[:4], "little") if len(code) >= 4 else 0
    return next((name for name, mask, value in _ARM64_SIMULATED if word & mask == value), None)
