"""Symbols, first instructions and memory maps: real files against pyelftools, and files that lie."""

import contextlib
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.profiles import examples

from netprof.errors import NetprofError
from netprof.probes.kernel.elf import variables
from netprof.probes.marks.instructions import FirstInstruction, examine_entry
from netprof.probes.marks.libraries import executable_mappings, matches, open_library
from netprof.probes.marks.reading import ReadingTime
from netprof.probes.marks.symbols import AARCH64, X86_64, Symbol, Symbols, choose, find_functions

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="the ELF files to read are made by gcc")

SOURCE = """
int tail_of_name(void) { return 1; }
int pnccl_all(void) { return 2; }
int nccl_all(void) { return 3; }
static int __attribute__((noinline)) only_local(void) { return 4; }
int exported(void) { return only_local(); }
int exported_too(void) { return 5; }
int data_exported_3 = 6;
extern int puts(const char *);
int user(void) { return puts("defined elsewhere"); }
"""


def find(path: Path, *prefixes: str) -> Symbols:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return find_functions(descriptor, prefixes)
    finally:
        os.close(descriptor)


def names(symbols: Symbols, prefix: str) -> list[str]:
    return sorted(symbol.name for symbol in symbols.functions[prefix])


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elf")
    (folder / "x.c").write_text(SOURCE)
    # -O2 lets the linker merge names with the tails of others, as it does for ncclX in pncclX.
    # noseparate-code puts address 0, that of undefined functions, into the executable segment.
    argv = ["gcc", "-O1", "-shared", "-fPIC", "-Wl,-O2", "-Wl,-z,noseparate-code", "x.c", "-o", "x.so"]
    subprocess.run(argv, cwd=folder, check=True)
    return folder / "x.so"


@needs_gcc
def test_prefixes_find_functions_and_nothing_else(library: Path) -> None:
    symbols = find(library, "exported", "data_exported", "puts", "nccl_all", "no_such", "only_local")
    assert names(symbols, "exported") == ["exported", "exported_too"]
    assert names(symbols, "data_exported") == []
    assert names(symbols, "puts") == []
    assert names(symbols, "no_such") == []
    assert names(symbols, "nccl_all") == ["nccl_all"], "a name merged into the tail of pnccl_all"
    assert names(symbols, "only_local") == ["only_local"], "a local function, of .symtab alone"


@needs_gcc
def test_names_across_the_edges_of_what_is_read_at_once(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = find(library, "exported", "nccl_all", "only_local")
    for chunk_bytes in (1, 7, 64):
        monkeypatch.setattr("netprof.probes.marks.symbols._CHUNK_BYTES", chunk_bytes)
        assert find(library, "exported", "nccl_all", "only_local") == whole


@needs_gcc
def test_addresses_that_are_not_offsets(tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text("int exported(void) { return 0x1234567; } int main(void) { return exported(); }")
    subprocess.run(["gcc", "-O0", "-no-pie", "-Wl,-Ttext-segment=0x700000", "x.c", "-o", "x"], cwd=tmp_path, check=True)
    (symbol,) = find(tmp_path / "x", "exported").functions["exported"]
    code = (tmp_path / "x").read_bytes()[symbol.offset :][:64]
    assert code.startswith(symbol.code)
    if platform.machine() == "x86_64":
        assert (0x1234567).to_bytes(4, "little") in code


@needs_gcc
def test_a_stripped_file_has_its_exported_functions_only(library: Path, tmp_path: Path) -> None:
    stripped = tmp_path / "stripped.so"
    subprocess.run(["strip", "--strip-all", "-o", stripped, library], check=True)
    symbols = find(stripped, "exported", "only_local")
    assert names(symbols, "exported") == ["exported", "exported_too"]
    assert names(symbols, "only_local") == []
    assert symbols.has_symbol_table


@needs_gcc
def test_without_any_symbol_table(tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text("int exported(void) { return 1; } int main(void) { return exported(); }")
    subprocess.run(["gcc", "-static", "-s", "x.c", "-o", "x"], cwd=tmp_path, check=True)
    symbols = find(tmp_path / "x", "exported")
    assert symbols.functions == {"exported": ()}
    assert not symbols.has_symbol_table


def _pyelftools(path: Path) -> Iterator[tuple[str, int]]:
    """Every function of .dynsym and its file offset, from another implementation."""
    with open(path, "rb") as file:
        elf = ELFFile(file)
        segments = [each.header for each in elf.iter_segments("PT_LOAD")]
        dynsym = elf.get_section_by_name(".dynsym")
        assert isinstance(dynsym, SymbolTableSection)
        for symbol in dynsym.iter_symbols():
            if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_shndx"] != "SHN_UNDEF":
                address = symbol["st_value"]
                segment = next(s for s in segments if s["p_vaddr"] <= address < s["p_vaddr"] + s["p_filesz"])
                yield symbol.name, address - segment["p_vaddr"] + segment["p_offset"]


@pytest.mark.slow
def test_functions_of_real_libraries_are_where_pyelftools_says() -> None:
    wanted = ("libc.so.*", "libm.so.*")
    mappings = [each for each in executable_mappings(os.getpid()) if any(matches(each, name) for name in wanted)]
    assert len(mappings) == 2
    for mapping in mappings:
        path = Path(os.fsdecode(mapping.path))
        image, expected = path.read_bytes(), set(_pyelftools(path))
        some = sorted(name for name, _ in expected)[::7]
        for name, found in find(path, *some).functions.items():
            assert {(symbol.name, symbol.offset) for symbol in found} == {
                each for each in expected if each[0].startswith(name)
            }
            assert all(image[symbol.offset :].startswith(symbol.code) for symbol in found)


def test_choosing_one_function() -> None:
    def function(name: str, offset: int = 0) -> Symbol:
        return Symbol(name, offset, b"\x55")

    plain, longer = function("f", 1), function("fE", 2)
    assert choose([], "f") is None
    assert choose([longer], "f") == longer
    assert choose([longer, plain], "f") == plain, "an exact name beats a longer one"
    assert choose([function("fE", 2), function("fF", 3)], "f") is None, "overloads"
    assert choose([function("fC1", 2), function("fC2", 2)], "f") is not None, "two names of one address"
    assert choose([function("f.cold", 9), plain], "f") == plain
    assert choose([function("fE.cold", 9), longer, function("fE.part.0", 8)], "f") == longer
    assert choose([function("f.cold", 9)], "f") is None


@needs_gcc
def test_variables_of_an_object_are_where_pyelftools_says(tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text("const long a = 1; static int b = 2; long c; static char d[3]; void *e[] = {&b, d};")
    subprocess.run(["gcc", "-O0", "-c", "x.c"], cwd=tmp_path, check=True)
    wanted = (".rodata", ".data", ".bss")
    with open(tmp_path / "x.o", "rb") as file:
        elf = ELFFile(file)
        sections = {elf.get_section_index(name): name for name in wanted}
        table = elf.get_section_by_name(".symtab")
        assert isinstance(table, SymbolTableSection)
        symbols = list(table.iter_symbols())
        expected = {
            (sections[symbol["st_shndx"]], symbol.name): (symbol["st_value"], symbol["st_size"])
            for symbol in symbols
            if symbol["st_info"]["type"] == "STT_OBJECT" and symbol["st_shndx"] in sections
        }
        found = variables(file.fileno(), wanted)
    assert len(expected) >= 3
    assert {key: place for key, place in found.items() if key[1]} == expected


NOT_ELF: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("empty", lambda data: b""),
    ("text", lambda data: b"#!/bin/sh\n" * 10),
    ("32 bits", lambda data: data[:4] + b"\x01" + data[5:]),
    ("big-endian", lambda data: data[:5] + b"\x02" + data[6:]),
    ("half a header", lambda data: data[:40]),
    ("no section table", lambda data: data[: len(data) // 2]),
    ("sections past the end", lambda data: data[:40] + struct.pack("<Q", 2**63) + data[48:]),
    ("sections of another size", lambda data: data[:58] + struct.pack("<H", 7) + data[60:]),
]


@needs_gcc
@pytest.mark.parametrize(("what", "damage"), NOT_ELF, ids=[what for what, _ in NOT_ELF])
def test_a_file_that_is_no_library(library: Path, tmp_path: Path, what: str, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "bad.so"
    path.write_bytes(damage(library.read_bytes()))
    with pytest.raises(NetprofError) as caught:
        find(path, "exported")
    assert caught.value.message


@needs_gcc
def test_a_sparse_file_with_names_without_end(library: Path, tmp_path: Path) -> None:
    image = bytearray(library.read_bytes())
    with open(library, "rb") as file:
        elf = ELFFile(file)
        index = elf.get_section_index(".dynstr")
        assert index is not None
        header_at = elf["e_shoff"] + 64 * index
    image[header_at + 32 : header_at + 40] = struct.pack("<Q", 1 << 42)
    path = tmp_path / "sparse.so"
    path.write_bytes(image)
    os.truncate(path, 1 << 43)
    with pytest.raises(NetprofError, match="too long"):
        find(path, "exported")


@needs_gcc
@pytest.mark.parametrize("damaged", ["section names", "names of symbols"])
def test_headers_that_name_a_section_that_is_not_there(library: Path, tmp_path: Path, damaged: str) -> None:
    image = bytearray(library.read_bytes())
    with open(library, "rb") as file:
        elf = ELFFile(file)
        symbols = elf.get_section_index(".symtab")
    assert symbols is not None
    link_at = elf["e_shoff"] + 64 * symbols + 40
    at = 62 if damaged == "section names" else link_at
    image[at : at + 2] = b"\xfe\xff"
    path = tmp_path / "bad.so"
    path.write_bytes(image)
    with open(path, "rb") as file, pytest.raises(NetprofError, match="not there"):
        variables(file.fileno(), (".data",))
    if damaged == "names of symbols":
        with pytest.raises(NetprofError, match="not there"):
            find(path, "only_local")


@pytest.mark.slow
@needs_gcc
@settings(examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_lying_file_never_crashes_the_reader(library: Path, tmp_path: Path, data: st.DataObject) -> None:
    """Overwrite header, section table, program headers, symbols or names with anything, and cut the file anywhere."""
    image = bytearray(library.read_bytes())
    with open(library, "rb") as file:
        elf = ELFFile(file)
        parts = [(0, 64), (elf["e_phoff"], 56 * elf["e_phnum"]), (elf["e_shoff"], 64 * elf["e_shnum"])]
        for name in (".dynsym", ".dynstr", ".symtab", ".strtab"):
            section = elf.get_section_by_name(name)
            assert section is not None
            parts.append((section["sh_offset"], section["sh_size"]))
    for _ in range(data.draw(st.integers(1, 6))):
        begin, size = data.draw(st.sampled_from(parts))
        patch = data.draw(st.binary(min_size=1, max_size=8) | st.sampled_from([b"\xff" * 8, b"\x00" * 8, b"\x7f" * 8]))
        at = begin + data.draw(st.integers(0, size - 1))
        image[at : at + len(patch)] = patch
    path = tmp_path / "lying.so"
    path.write_bytes(image[: data.draw(st.integers(0, len(image)) | st.just(len(image)))])
    with contextlib.suppress(NetprofError), open(path, "rb") as file:
        variables(file.fileno(), (".data", ".bss"))
    try:
        symbols = find(path, "exported", "only_local", "nccl_all")
    except NetprofError:
        return
    for function in (function for found in symbols.functions.values() for function in found):
        assert 0 <= function.offset < path.stat().st_size


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("55 48 89 e5", FirstInstruction(0, True, "push", "push")),
        ("41 57 41 56", FirstInstruction(0, True, "push", "push")),
        ("e9 0b dd ff ff", FirstInstruction(0, True, "jmp", "push")),
        ("eb 10", FirstInstruction(0, True, "jmp", "push")),
        ("e8 00 00 00 00", FirstInstruction(0, True, "call", "push")),
        ("0f 84 00 00 00 00", FirstInstruction(0, True, "conditional jump", "push")),
        ("74 05", FirstInstruction(0, True, "conditional jump", "push")),
        ("90", FirstInstruction(0, True, "nop", "push")),
        ("f3 0f 1e fa 55", FirstInstruction(4, True, "endbr64, then push", "push")),
        ("f3 0f 1e fa 41 54", FirstInstruction(4, True, "endbr64, then push", "push")),
        ("f3 0f 1e fa 48 83 ec 08", FirstInstruction(0, False, "endbr64", "endbr64")),
        ("f3 0f 1e fa", FirstInstruction(0, False, "endbr64", "endbr64")),
        ("48 83 ec 08", FirstInstruction(0, False, "48 83 ec 08", "sub")),
        ("48 89 f8 c3", FirstInstruction(0, False, "48 89 f8 c3", "mov")),
        ("41 89 f8 c3", FirstInstruction(0, False, "41 89 f8 c3", "other")),
        ("", FirstInstruction(0, False, "", "other")),
    ],
)
def test_first_instructions_of_x86(code: str, expected: FirstInstruction) -> None:
    assert examine_entry(bytes.fromhex(code), X86_64) == expected


@pytest.mark.parametrize(
    ("word", "emulated"),
    [
        (0x14000010, True),  # b
        (0x94000010, True),  # bl
        (0x54000041, True),  # b.ne
        (0xB4000040, True),  # cbz
        (0x37000040, True),  # tbnz
        (0x90000000, True),  # adrp
        (0x58000040, True),  # ldr x0, literal
        (0xD65F03C0, True),  # ret
        (0xA9BF7BFD, False),  # stp x29, x30, [sp, #-16]!: how most functions begin
        (0xD10083FF, False),  # sub sp, sp, #32
        (0xD503233F, False),  # paciasp
    ],
)
def test_first_instructions_of_arm64(word: int, emulated: bool) -> None:
    assert examine_entry(word.to_bytes(4, "little"), AARCH64).emulated is emulated


def test_an_unknown_machine_is_never_called_cheap() -> None:
    assert not examine_entry(b"\x55\x48\x89\xe5", 243).emulated


def test_own_mappings_open_the_files_that_are_mapped() -> None:
    mappings = executable_mappings(os.getpid())
    assert len({(each.device, each.inode) for each in mappings}) == len(mappings)
    libc = next(each for each in mappings if matches(each, "libc.so.6"))
    opened = open_library(os.getpid(), libc)
    assert opened.identity == (libc.device, libc.inode)
    assert Path(opened.path).samefile(os.fsdecode(libc.path))
    opened.close()


def test_mappings_of_nobody() -> None:
    with pytest.raises(NetprofError, match="is gone"):
        executable_mappings(2**22 + 1)


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="checked on x86-64 builds of torch")
def test_torch_has_every_function_of_the_tables_once_and_cheap() -> None:
    pytest.importorskip("torch")
    from netprof.probes.frameworks import FRAMEWORKS
    from netprof.probes.frameworks.table import file_names

    library = Path(sys.modules["torch"].__file__ or "").parent / "lib" / "libtorch_cpu.so"
    name = library.name.encode()
    tables = [framework for framework in FRAMEWORKS if re.fullmatch(file_names(framework.library), name)]
    marks = [mark for framework in tables for mark in framework.marks]
    assert len(marks) > 20
    symbols = find(library, *(mark.symbol_prefix for mark in marks))
    for mark in marks:
        function = choose(symbols.functions[mark.symbol_prefix], mark.symbol_prefix)
        assert function is not None, mark
        assert mark.seldom or examine_entry(function.code, symbols.machine).emulated, mark


def test_reading_one_library_takes_its_time_from_what_is_left() -> None:
    reading, given_s = ReadingTime(), []
    for _ in range(2):
        with reading.for_one() as until_s:
            given_s.append(until_s - time.monotonic())
    assert given_s[1] == pytest.approx(given_s[0], abs=0.1)
