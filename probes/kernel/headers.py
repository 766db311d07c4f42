"""Type information from the kernel's headers, where the kernel itself has none.

The programs say in their own type information (BTF) which fields of the kernel's structures they read. bcc compiles one
line of C for each against the headers of the running kernel, which says where it is; what is written down so, in the
form of the kernel's own type information, is what libbpf relocates the programs by.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from netprof.errors import NotPermittedError
from netprof.files import unnamed_file
from netprof.probes.kernel.btf import QUALIFIERS, STRUCT, TYPEDEF, UNION, BtfType, read_types, resolved
from netprof.probes.kernel.elf import section_bytes
from netprof.probes.kernel.types import KERNEL_BTF

REMEDY = "apt-get install python3-bpfcc linux-headers-$(uname -r), or boot a kernel built with CONFIG_DEBUG_INFO_BTF=y"

_HEADERS = (
    *("linux/skbuff.h", "linux/netdevice.h", "linux/tcp.h", "net/tcp.h", "net/inet_connection_sock.h"),
    *("net/net_namespace.h", "linux/sched.h", "linux/sched/signal.h"),
)
_BIT_OF = """
#define BIT_OF(name, type, path) int name(void *ctx) { \\
	static const union { type t; unsigned long long words[(sizeof(type) + 7) / 8]; } u = { .t = { .path = 1 } }; \\
	_Pragma("unroll") for (int i = 0; i < (sizeof(type) + 7) / 8; i++) \\
		if (u.words[i]) return i * 64 + __builtin_ctzll(u.words[i]); \\
	return -1; }
"""
_ASK = """
import json, sys
from bcc import BPF
asked = json.load(sys.stdin)
module = BPF(text=asked["text"], cflags=["-Wno-unused"])
print(json.dumps([int.from_bytes(module.dump_func(name)[4:8], "little") for name in asked["names"]]))
"""


@dataclass(frozen=True)
class _Question:
    """Something to ask for: where a field is in a type, in bits, or the type's size; and where to write the answer."""

    root: str
    path: tuple[str, ...]
    at: int
    bits: int = 0  # of a bit field
    parent: tuple[str, ...] = ()

    def text(self, name: str) -> str:
        if not self.path:
            return f"int {name}(void *ctx) {{ return sizeof({self.root}); }}"
        if self.bits:
            return f"BIT_OF({name}, {self.root}, {'.'.join(self.path)})"
        return f"int {name}(void *ctx) {{ return offsetof({self.root}, {'.'.join(self.path)}) * 8; }}"


@contextmanager
def described_by_headers(programs: Path) -> Iterator[Path]:
    """Write a file of type information for the programs of an object, there inside the block.

    Raises NotPermittedError where bcc or the headers are missing.
    """
    with programs.open("rb") as file:
        btf, relocations = (section_bytes(file.fileno(), name) for name in (".BTF", ".BTF.ext"))
    questions, types = list(_questions(btf, relocations)), bytearray(btf)
    answers = {
        (question.root, question.path): answer for question, answer in zip(questions, _ask(questions), strict=True)
    }
    for question in questions:
        answer = answers[question.root, question.path]
        if question.path:
            before = answers[question.root, question.parent] if question.parent else 0
            answer = (answer - before) | question.bits << 24
        struct.pack_into("<I", types, question.at, answer)
    with unnamed_file() as written:
        written.write(types)
        written.flush()
        yield Path(f"/proc/self/fd/{written.fileno()}")


def _ask(questions: list[_Question]) -> list[int]:
    """Return the answers of the compiler."""
    names = [f"f{number}" for number in range(len(questions))]
    functions = [question.text(name) for question, name in zip(questions, names, strict=True)]
    text = "\n".join([*(f"#include <{header}>" for header in _HEADERS), _BIT_OF, *functions])
    detail = ""
    for python in dict.fromkeys(
        (sys.executable, "/usr/bin/python3")
    ):  # Debian's has Debian's bcc; -I: nothing of the current folder
        asked = json.dumps({"text": text, "names": names}, allow_nan=False)
        done = subprocess.run([python, "-I", "-c", _ASK], input=asked, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            answers: list[int] = json.loads(done.stdout.splitlines()[-1])
            return answers
        detail = done.stderr
    raise NotPermittedError(
        f"this kernel has no BTF ({KERNEL_BTF}), and bcc cannot make up for it",
        REMEDY,
        detail=detail,
    )


def _questions(types: bytes, extra: bytes) -> Iterator[_Question]:
    """Yield what is to be asked: for every structure that a relocation begins at, its size and all that is in it."""
    table = read_types(types)
    for number in sorted(_roots(extra)):
        while table[number].kind in QUALIFIERS[1:]:
            number = table[number].size_or_type
        begin = table[number]
        root = begin.name if begin.kind == TYPEDEF else f"struct {begin.name}"
        inner = resolved(table, number)
        if table[inner].kind != STRUCT or not begin.name:
            continue
        yield _Question(root, (), table[inner].at + 8)
        yield from _below(table, inner, root, ())


def _below(table: list[BtfType], number: int, root: str, path: tuple[str, ...]) -> Iterator[_Question]:
    """Yield the members of a structure and those of the structures in it."""
    for name, member, word, at in table[number].members:
        bits = word >> 24 if table[number].has_bits else 0
        yield _Question(root, (*path, name), at, bits, path)
        inner = resolved(table, member)
        if table[inner].kind in (STRUCT, UNION):
            yield from _below(table, inner, root, (*path, name))


def _roots(extra: bytes) -> set[int]:
    """Return the types that relocations begin at, of a .BTF.ext section."""
    header, *_, begin, size = struct.unpack_from("<4xI4I2I", extra)
    at, end, roots = header + begin, header + begin + size, set[int]()
    (record_bytes,) = struct.unpack_from("<I", extra, at)
    at += 4
    while at < end:
        _, count = struct.unpack_from("<II", extra, at)
        at += 8
        for _ in range(count):
            roots.add(struct.unpack_from("<I", extra, at + 4)[0])
            at += record_bytes
    return roots
