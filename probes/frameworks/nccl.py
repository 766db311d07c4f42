"""NCCL and its like: what is enqueued, with size, communicator and stream. Plain C, the same in every version with it.

RCCL has NCCL's functions. Those of oneCCL (since 2022, in libccl.so.2) have its signatures and data types under names
of their own; oneCCL's older interface in C++ has no marks.

A call returns when the operation is in its stream's queue (or, inside a group, on the group's list): neither its entry
nor its return is the beginning or the end of a transfer, and nothing here is presented as one.

Signatures: nccl.h of 2.32.3. First instructions of that version's library: `push` everywhere but in the two functions
that create communicators with a configuration, which are called once. `ncclBcast` calls `ncclBroadcast`, so only that
one is probed. The functions with a `Config` of 2.32 do not call the ones without. Of oneCCL: ccl.h and libccl.so.2 of
2022.2.0. Of RCCL no library was at hand: its header is NCCL's, with ncclAllToAll for ncclAlltoAll.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from netprof.probes.frameworks.table import Argument, Framework, Mark, MemoryField, Pair, Register
from netprof.schema import MarkKind


def _enqueued(kind: MarkKind, function: str, communicator: int) -> tuple[Mark, Mark]:
    """Return the marks of a collective and of its variant with a configuration; the stream follows the communicator."""
    args = (Register(3), Pair(low=4, high=communicator + 1), Register(communicator))  # count, data type and stream
    return Mark(kind, function, args, newer=True), Mark(kind, f"{function}Config", args, newer=True)


def _message(kind: MarkKind, function: str) -> Mark:
    return Mark(kind, function, (Register(2), Pair(low=3, high=6), Register(5)))


def _created(function: str, handle: int = 1, newer: bool = False) -> Mark:
    args = (Register(2, size=4), Register(handle))
    return Mark(MarkKind.NCCL_COMM_INIT, function, args, seldom=True, newer=newer)


def _member(function: str, rank: Argument, group: Argument, newer: bool = False) -> Mark:
    return Mark(MarkKind.NCCL_COMM_RANK, function, (rank, group, Register(1)), seldom=True, newer=newer)


def after_an_id(machine: str) -> tuple[Argument, Argument]:
    """Return where `int rank` is after two arguments and a ncclUniqueId by value, and the id's first 8 bytes.

    On x86-64 the 128 bytes of the id lie on the stack, where the seventh argument would, and take no register; on arm64
    the third register holds their address.
    """
    if machine == "aarch64":
        return Register(4, size=4), MemoryField(3, 0, 8)
    return Register(3, size=4), Register(7)


_RANK, _ID = after_an_id(platform.machine())
_SHRUNK = (Register(1), Register(3, size=4), Register(4))


NCCL = Framework(
    name="nccl",
    library="lib{nccl,rccl}.so*",
    marks=(
        *_enqueued(MarkKind.NCCL_ALL_REDUCE, "ncclAllReduce", communicator=6),
        *_enqueued(MarkKind.NCCL_ALL_GATHER, "ncclAllGather", communicator=5),
        *_enqueued(MarkKind.NCCL_REDUCE_SCATTER, "ncclReduceScatter", communicator=6),
        *_enqueued(MarkKind.NCCL_BROADCAST, "ncclBroadcast", communicator=6),
        *_enqueued(MarkKind.NCCL_REDUCE, "ncclReduce", communicator=7),
        *_enqueued(MarkKind.NCCL_ALL_TO_ALL, "ncclAlltoAll", communicator=5),
        *_enqueued(MarkKind.NCCL_ALL_TO_ALL, "ncclAllToAll", communicator=5),
        *_enqueued(MarkKind.NCCL_GATHER, "ncclGather", communicator=6),
        *_enqueued(MarkKind.NCCL_SCATTER, "ncclScatter", communicator=6),
        _message(MarkKind.NCCL_SEND, "ncclSend"),
        _message(MarkKind.NCCL_RECEIVE, "ncclRecv"),
        Mark(MarkKind.NCCL_GROUP_BEGIN, "ncclGroupStart"),
        Mark(MarkKind.NCCL_GROUP_END, "ncclGroupEnd"),
        _created("ncclCommInitRank"),
        _member("ncclCommInitRank", _RANK, _ID),
        _created("ncclCommInitRankConfig", newer=True),
        _member("ncclCommInitRankConfig", _RANK, _ID, newer=True),
        _created("ncclCommInitRankScalable", newer=True),
        _member("ncclCommInitRankScalable", Register(3, size=4), MemoryField(5, 0, 8), newer=True),
        _created("ncclCommInitAll"),
        _created("ncclCommGrow", handle=5, newer=True),
        Mark(MarkKind.NCCL_COMM_SPLIT, "ncclCommSplit", (Register(1), Register(4)), seldom=True, newer=True),
        Mark(MarkKind.NCCL_COMM_SHRINK, "ncclCommShrink", _SHRUNK, seldom=True, newer=True),
        Mark(MarkKind.NCCL_COMM_END, "ncclCommDestroy", (Register(1),), seldom=True),
        Mark(MarkKind.NCCL_COMM_END, "ncclCommAbort", (Register(1),), seldom=True),
    ),
)


ONECCL = Framework(
    name="oneccl",
    library="libccl.so.2*",
    marks=tuple(
        replace(mark, symbol_prefix=mark.symbol_prefix.replace("nccl", "oneccl"), newer=True) for mark in NCCL.marks
    ),
    family="nccl",
)


NCCL_TABLES = frozenset({"marks", "nccl_posted"})
"""The tables whose rows can say that NCCL is used."""


def uses_nccl(table: str, columns: Mapping[str, Any]) -> bool:
    """Tell whether rows of one of NCCL_TABLES say that the job uses NCCL, which many have loaded and never call."""
    if table == "nccl_posted":
        return len(columns["pid"]) > 0
    kinds = np.asarray(columns["kind"])
    return bool(((kinds >= MarkKind.NCCL_ALL_REDUCE) & (kinds <= MarkKind.NCCL_COMM_RANK)).any())
