"""The tables of MPI: which files they are for, and what MPICH's handles stand for."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

from netprof.probes.frameworks.mpi import MPICH, OPEN_MPI
from netprof.probes.frameworks.table import Framework, file_names
from netprof.probes.marks.mark_records import RECORD, check_records
from netprof.probes.marks.uprobes import ROWS_A_PLACE
from netprof.schema import ALL_RANKS, NOT_SAID, Backend, MarkKind


@pytest.mark.parametrize(
    ("framework", "name", "wanted"),
    [
        (OPEN_MPI, "libmpi.so.40", True),
        (OPEN_MPI, "libmpi.so.40.30.4", True),
        (OPEN_MPI, "libmpi_cxx.so.40.30.1", False),
        (OPEN_MPI, "libmpi_mpifh.so.40.30.0", False),
        (MPICH, "libmpi.so.12", True),
        (MPICH, "libmpi.so.12.1.8", True),
        (MPICH, "libmpich.so.12.2.2", True),
        (MPICH, "libmpi_cray.so.12.0.0", True),
        (MPICH, "libmpi_gnu_91.so.12", True),
        (MPICH, "libmpi_nvidia.so.12", True),
        (MPICH, "libmpifort_gnu_91.so.12", False),
        (MPICH, "libmpichcxx.so.12.2.2", False),
        (MPICH, "libmpichfort.so.12.2.2", False),
        (MPICH, "libmpicxx.so.12", False),
        (MPICH, "libmpifort.so.12", False),
        (MPICH, "libmpi_abi.so.1", False),
    ],
)
def test_the_libraries_and_not_their_bindings(framework: Framework, name: str, wanted: bool) -> None:
    assert (re.fullmatch(file_names(framework.library), name.encode()) is not None) is wanted


def decoded(function: str, kind: MarkKind, *values: int) -> tuple[int, ...]:
    """What becomes of the values that the program read at a function of MPICH."""
    mark = next(each for each in MPICH.marks if (each.symbol_prefix, each.kind) == (function, kind))
    records = np.zeros(1, dtype=RECORD)
    records["arguments"][0] = values
    good, rejected = check_records(records, [mark])
    assert not rejected
    return tuple(good["arguments"][0].tolist())


@pytest.mark.parametrize(
    ("datatype", "size"),
    [
        (0x4C000101, 1),  # MPI_CHAR
        (0x4C000203, 2),  # MPI_SHORT
        (0x4C00040A, 4),  # MPI_FLOAT
        (0x4C00080B, 8),  # MPI_DOUBLE
        (0x4C001041, 16),  # MPI_C_DOUBLE_COMPLEX
        (0x4C002042, 32),  # MPI_C_LONG_DOUBLE_COMPLEX
        (0x8C000000, 0),  # MPI_FLOAT_INT: a pair, whose size is not in its handle
        (0xCC000400, 0),  # derived
        (0x0C000000, 0),  # MPI_DATATYPE_NULL
    ],
)
def test_the_bytes_of_an_element_are_those_of_mpichs_basic_types(datatype: int, size: int) -> None:
    assert decoded("MPI_Allreduce", MarkKind.COLLECTIVE_SIZE, 1000, datatype, 0)[:2] == (1000, size)


@pytest.mark.parametrize(
    ("communicator", "ranks"), [(0x44000000, ALL_RANKS), (0x44000001, 1), (0x84000002, 0), (0xC4000000, 0)]
)
def test_only_the_world_and_a_rank_alone_have_known_ranks_under_mpich(communicator: int, ranks: int) -> None:
    found = decoded("MPI_Bcast", MarkKind.COLLECTIVE_GROUP, communicator, communicator, 0)
    assert found == (communicator, ranks, NOT_SAID)


@pytest.mark.parametrize("framework", [OPEN_MPI, MPICH])
def test_every_function_begins_once_and_the_blocking_ones_end(framework: Framework) -> None:
    begins = [mark for mark in framework.marks if mark.kind == MarkKind.COLLECTIVE_BEGIN]
    ends = [mark.symbol_prefix for mark in framework.marks if mark.kind == MarkKind.COLLECTIVE_END]
    blocking = [mark.symbol_prefix for mark in begins if not mark.symbol_prefix.startswith("MPI_I")]
    assert len({mark.symbol_prefix for mark in begins}) == len(begins)
    assert blocking == ends
    for mark in begins:
        values = [argument.value for argument in mark.args]  # type: ignore[union-attr]
        assert values == [0, Backend.MPI, mark.symbol_prefix not in ends]


@pytest.mark.parametrize("framework", [OPEN_MPI, MPICH])
@pytest.mark.parametrize("version", ["", "MPI_Session_init"])
def test_what_is_said_of_an_entry_fits_into_one_hit(framework: Framework, version: str) -> None:
    meant = [mark for mark in framework.marks if mark.since in ("", version) and mark.until != (version or "-")]
    assert max(Counter((mark.symbol_prefix, mark.at_return) for mark in meant).values()) <= ROWS_A_PLACE
