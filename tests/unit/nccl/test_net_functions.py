"""NCCL's network functions in a library's file: by symbol, by the table alone, and in a plugin."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.nccl_net import compiled, needs_compiler

from netprof.errors import NetprofError
from netprof.probes.marks.libraries import Library
from netprof.probes.marks.symbols import find_functions
from netprof.probes.nccl.interface import number_of_nccl, version_of
from netprof.probes.nccl.net_functions import EXPORTED, POINTER_TABLE, SYMBOL_TABLE, NetFunction, find_net_functions
from netprof.schema import RECEIVE, TRANSMIT, NcclNetwork

pytestmark = [
    needs_compiler,
    pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="of these machines"),
]

SEND, TAKE = "_Z18ncclNetSocketIsendPvS_miS_S_PS_", "_Z18ncclNetSocketIrecvPviPS_PmPiS0_S0_S0_"


@contextmanager
def opened(path: Path) -> Iterator[Library]:
    library = Library(os.open(path, os.O_RDONLY), path.name)
    try:
        yield library
    finally:
        library.close()


def found(path: Path) -> list[NetFunction]:
    with opened(path) as library:
        return sorted(find_net_functions(library, math.inf), key=lambda each: (each.name, each.call.direction))


def offsets(path: Path, *names: str) -> list[int]:
    with opened(path) as library:
        symbols = find_functions(library.descriptor, names).functions
    return [symbols[name][0].offset for name in names]


@pytest.fixture
def stub(tmp_path: Path) -> Callable[..., Path]:
    return lambda *options: compiled(tmp_path / "libnccl.so.2", *options)


def test_by_symbols_that_are_not_exported(stub: Callable[..., Path]) -> None:
    path = stub()
    send, receive = found(path)
    assert [send.offset, receive.offset] == offsets(path, SEND, TAKE)
    assert {send.found_by, receive.found_by} == {SYMBOL_TABLE}
    assert (send.network, send.name) == (NcclNetwork.SOCKET, "Socket")
    assert (send.call.direction, receive.call.direction) == (TRANSMIT, RECEIVE)
    assert (send.call.size_bytes, send.call.request, receive.call.request, receive.call.counted) == (8, 7, 8, 2)


@pytest.mark.slow
def test_by_the_table_where_there_are_no_symbols(stub: Callable[..., Path]) -> None:
    with_symbols = found(stub())
    without = found(stub("-s"))
    assert [each.offset for each in without] == [each.offset for each in with_symbols], "and not what looks alike"
    assert [each.call for each in without] == [each.call for each in with_symbols]
    assert {each.found_by for each in without} == {POINTER_TABLE}


def test_texts_may_lie_in_the_segment_of_the_code(stub: Callable[..., Path]) -> None:
    """As they do in the real library."""
    path = stub("-s", "-Wl,-z,noseparate-code")
    assert [each.found_by for each in found(path)] == [POINTER_TABLE] * 2


def test_pointers_to_exported_functions_are_of_symbols(stub: Callable[..., Path]) -> None:
    path = stub("-fvisibility=default", "-DPLUGIN=8")
    names = ("_Z15ncclPluginIsendPvS_iiS_PS_", "_Z15ncclPluginIrecvPviPS_PiS1_S0_S0_")
    assert [each.offset for each in found(path)] == offsets(path, *names)


def test_a_plugin_of_an_older_version(stub: Callable[..., Path]) -> None:
    send, receive = found(stub("-s", "-DPLUGIN=8"))
    assert (send.network, send.name, send.found_by) == (NcclNetwork.PLUGIN, "Stub", EXPORTED)
    assert (send.call.size_bytes, send.call.request, receive.call.request) == (4, 6, 7)


def test_a_plugin_with_several_versions(stub: Callable[..., Path]) -> None:
    every = found(stub("-s", "-DPLUGIN=10"))
    assert sorted(each.call.size_bytes for each in every) == [4, 4, 8, 8]
    assert len({each.offset for each in every}) == 4


def test_a_library_without_any(tmp_path: Path) -> None:
    other = tmp_path / "other.c"
    other.write_text("void *table[20]; int nothing(void) { return 0; }")
    library = tmp_path / "libnccl-tuner.so"
    os.system(f"gcc -shared -fPIC {other} -o {library}")
    assert found(library) == []


def test_a_file_that_is_cut_off_is_no_library(stub: Callable[..., Path], tmp_path: Path) -> None:
    whole = stub().read_bytes()
    for length in (0, 40, len(whole) // 3, len(whole) - 100):
        cut = tmp_path / "cut.so"
        cut.write_bytes(whole[:length])
        with pytest.raises(NetprofError):
            found(cut)


@pytest.mark.parametrize(("minor", "number"), [(8, 4), (12, 5), (18, 6), (19, 7), (23, 8), (25, 9), (27, 10), (28, 11)])
def test_which_interface_a_version_of_nccl_has(minor: int, number: int) -> None:
    assert number_of_nccl(2, minor) == number
    version = version_of(number)
    assert version is not None
    assert number in version.numbers


def test_versions_beyond_are_not_known() -> None:
    assert version_of(99) is None
    assert number_of_nccl(2, 4) == 0
    assert version_of(0) is None
