"""Which frameworks a process has loaded: files of every kind of name, mapped for real."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from netprof.probes.frameworks import FRAMEWORKS
from netprof.probes.frameworks.table import Framework
from netprof.probes.job.tree import LoadedFrameworks, mapped_frameworks
from netprof.probes.marks.libraries import executable_mappings, matches

NAMES = [
    (b"libtorch_cpu.so", "torch"),
    (b"libtorch_cpu-3f2a91.so.2.9", "torch"),
    (b"libtorch_cpu\xff.so", "torch"),
    (b"libtorch_cpu\n.so", "torch"),
    (b"libtorch_cpu.so (deleted)", "torch"),
    (b"libnccl.so.2", "nccl"),
    (b"mpi_lib_v2.cpython-311-x86_64-linux-gnu.so", "horovod"),
    (b"xlibtorch_cpu.so", ""),
    (b"libtorch_cpu", ""),
    (b"libtorch_cpuXso", ""),
    (b"mpi_lib.so", ""),
    (b"libnccl.so.2/other.so", ""),
    (b"libmpi.so.40.30.4", "mpi"),
    (b"libmpich.so.12", "mpi"),
    (b"libmpi_gnu_91.so.12", "mpi"),
    (b"libmpicxx.so.12", ""),
    (b"libcudart.so.12", ""),
]


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize(("name", "family"), NAMES)
def test_a_framework_is_found_by_the_same_pattern_that_its_marks_are(
    name: bytes, family: str, deleted: bool, tmp_path: Path
) -> None:
    before = set(mapped_frameworks(os.getpid()))
    path = os.path.join(os.fsencode(tmp_path), name)  # noqa: PTH118 - bytes that are no text
    os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
    with open(path, "wb+") as file:
        file.write(bytes(4096))
        file.flush()
        inode = os.fstat(file.fileno()).st_ino
        held = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)
    if deleted:
        os.unlink(path)  # noqa: PTH108
    loaded = set(mapped_frameworks(os.getpid()))
    (mapping,) = [each for each in executable_mappings(os.getpid()) if each.inode == inode]
    by_marks = {each.family or each.name for each in FRAMEWORKS if each.trains and matches(mapping, each.library)}
    held.close()
    assert by_marks == ({family} if family else set())
    assert loaded == before | by_marks


def test_every_table_belongs_to_a_family_that_a_trace_may_name() -> None:
    families = ["torch", "torch", "torch", "torch", "nccl", "nccl", "horovod", "mpi", "mpi"]
    assert [each.family or each.name for each in FRAMEWORKS if each.trains] == families


@pytest.mark.slow
def test_a_library_is_found_however_much_a_process_maps(tmp_path: Path) -> None:
    """More than 8 MiB of memory map, the library, deleted since, at its very end."""
    program = """
import ctypes, os, pathlib, sys
libc = ctypes.CDLL(None)
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
for name, count in (("libknown.so", 1), ("x" * 250, 40_000)):
    descriptor = os.open(pathlib.Path(sys.argv[1]) / name, os.O_RDWR | os.O_CREAT)
    os.ftruncate(descriptor, 4096)
    for _ in range(count):
        libc.mmap(None, 4096, 1, 1, descriptor, 0)
    os.unlink(pathlib.Path(sys.argv[1]) / name)
print(flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        maps = Path(f"/proc/{process.pid}/maps").read_bytes()
        assert maps.find(b"libknown.so") > 8 << 20
        assert LoadedFrameworks([Framework("known", "libknown.so", ())]).of(process.pid) == ("known",)
        process.kill()


def test_a_process_that_is_gone_has_none() -> None:
    assert mapped_frameworks(2**22 + 1) == ()
