"""MPI: Open MPI and MPICH, and what is built from MPICH (Intel MPI, MVAPICH, Cray MPICH). Plain C, called by the job.

A blocking call begins where it is entered and ends where it returns, on the thread that then cannot do anything else;
to return it need not wait for the other ranks (a broadcast's root does not). A non-blocking one is only posted there,
and its waiting is seen where the job waits (`MPI_Wait` and the like, but not `MPI_Test`, which is polled). `PMPI_X` and
the Fortran `mpi_x_` come by `MPI_X`; what MPI exchanges to do its own work does not. Scans, neighbourhood and
persistent collectives and one-sided communication are not looked at.

Where a size cannot be known it is unknown: of the functions with an array of counts, of what is received, of a gather
or a scatter in place, and under MPICH of data types that are not basic ones and of parts in communicators other than
the world.

Signatures: MPI 4.0. Layouts: Open MPI 4.1.4, 4.1.8 and 5.0.11, x86-64. MPICH's handles: mpi.h of 3.4, 4.0, 4.3, 5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from netprof.probes.frameworks.table import Argument, Chain, Constant, Framework, Handle, Mark, MemoryField, Register
from netprof.schema import ALL_RANKS, NOT_SAID, Backend, CollectiveKind, MarkKind

K = CollectiveKind


@dataclass(frozen=True)
class _Function:
    """A function `MPI_<name>`: where its arguments are, 0 where there is none that says it or none in reach.

    `part` is whether count and type are of one rank's part of the buffer; they mean nothing where argument `replaced`
    is MPI_IN_PLACE.
    """

    name: str
    kind: CollectiveKind
    count: int = 0
    datatype: int = 0
    communicator: int = 0
    part: bool = False
    replaced: int = 0
    root: int = 0


# Each has a non-blocking twin with the same arguments.
_FUNCTIONS = (
    _Function("Allreduce", K.ALL_REDUCE, count=3, datatype=4, communicator=6),
    _Function("Bcast", K.BROADCAST, count=2, datatype=3, communicator=5, root=4),
    _Function("Reduce", K.REDUCE, count=3, datatype=4, communicator=7, root=6),
    _Function("Allgather", K.ALL_GATHER, count=5, datatype=6, communicator=7, part=True),
    _Function("Allgatherv", K.ALL_GATHER, communicator=8),
    _Function("Reduce_scatter", K.REDUCE_SCATTER, communicator=6),
    _Function("Reduce_scatter_block", K.REDUCE_SCATTER, count=3, datatype=4, communicator=6, part=True),
    _Function("Alltoall", K.ALL_TO_ALL, count=5, datatype=6, communicator=7, part=True),
    _Function("Alltoallv", K.ALL_TO_ALL),
    _Function("Gather", K.GATHER, count=2, datatype=3, communicator=8, replaced=1, root=7),
    _Function("Gatherv", K.GATHER, root=8),
    _Function("Scatter", K.SCATTER, count=5, datatype=6, communicator=8, replaced=4, root=7),
    _Function("Scatterv", K.SCATTER, root=8),
    _Function("Send", K.SEND, count=2, datatype=3, communicator=6),
    _Function("Recv", K.RECEIVE, communicator=6),
    _Function("Barrier", K.BARRIER, communicator=1),
)
_COUNTING = tuple(function for function in _FUNCTIONS if function.kind != K.BARRIER)
# Without a non-blocking twin that waits for anything. mpi4py receives objects by a probe and what takes that message.
_ONLY_BLOCKING = (
    _Function("Sendrecv", K.SEND, count=2, datatype=3),
    _Function("Probe", K.RECEIVE, communicator=3),
    _Function("Mprobe", K.RECEIVE, communicator=3),
    _Function("Mrecv", K.RECEIVE),
)
_WAITS = ("Wait", "Waitall", "Waitany", "Waitsome")


@dataclass(frozen=True)
class _Library:
    """What differs from one MPI to the other.

    `element` gives the bytes of an element from the argument that holds a data type, `groups` the marks of a function's
    communicator from the function's name and that argument. `large` is whether there are the functions of MPI 4 whose
    counts have 64 bits.
    """

    element: Callable[[int], Argument]
    groups: Callable[[str, int], Iterator[Mark]]
    in_place: int
    large: bool

    def marks(self) -> Iterator[Mark]:
        """Yield the whole table."""
        for suffix in ("", "_c") if self.large else ("",):
            for function in _FUNCTIONS if not suffix else _COUNTING:
                yield from self._blocking(function, f"MPI_{function.name}{suffix}")
                yield from self._begin(function, f"MPI_I{function.name.lower()}{suffix}", posted=1)
            for function in _ONLY_BLOCKING:
                yield from self._blocking(function, f"MPI_{function.name}{suffix}")
        for name in _WAITS:
            yield Mark(MarkKind.POSTED_WAIT, f"MPI_{name}", seldom=True)
            yield Mark(MarkKind.POSTED_WAIT_OVER, f"MPI_{name}", at_return=True, seldom=True)

    def _blocking(self, function: _Function, name: str) -> Iterator[Mark]:
        yield from self._begin(function, name, posted=0)
        yield Mark(MarkKind.COLLECTIVE_END, name, at_return=True, newer=_is_newer(name))

    def _begin(self, function: _Function, name: str, posted: int) -> Iterator[Mark]:
        newer, size = _is_newer(name), MarkKind.COLLECTIVE_PART if function.part else MarkKind.COLLECTIVE_SIZE
        what = Constant(0), Constant(Backend.MPI), Constant(posted)
        yield Mark(MarkKind.COLLECTIVE_BEGIN, name, what, newer=newer)
        yield Mark(size, name, (*self._size(function, name), Constant(function.kind)), newer=newer)
        if function.communicator:
            yield from self.groups(name, function.communicator)
        if function.root:
            order = Register(function.root, size=4), Constant(NOT_SAID)
            yield Mark(MarkKind.COLLECTIVE_ORDER, name, order, newer=newer)

    def _size(self, function: _Function, name: str) -> tuple[Argument, Argument]:
        if function.kind == K.BARRIER:
            return Constant(0), Constant(0)
        if not function.count:
            return Constant(NOT_SAID), Constant(0)
        unless = (function.replaced, self.in_place) if function.replaced else None
        return Register(function.count, 8 if _is_newer(name) else 4, unless), self.element(function.datatype)


def _is_newer(name: str) -> bool:
    """Tell the functions of MPI 4 whose counts have 64 bits."""
    return name.endswith("_c")


_TYPE_SIZE = 24  # in an opal_datatype_t
_GROUP_RANKS, _GROUP_OWN_RANK = 16, 20  # in an ompi_group_t
_MOST_RANKS = 1 << 22  # more than any job has; an address is above it
# Where the local group lies in an ompi_communicator_t, by version, and the function that came with the later one.
_LOCAL_GROUP, _LOCAL_GROUP_SINCE_5, _CAME_WITH_5 = 0xF8, 0x108, "MPI_Session_init"


def _open_mpi_group(name: str, communicator: int) -> Iterator[Mark]:
    for offset, since, until in ((_LOCAL_GROUP, "", _CAME_WITH_5), (_LOCAL_GROUP_SINCE_5, _CAME_WITH_5, "")):
        ranks = Chain(communicator, offset, _GROUP_RANKS, size=4, below=_MOST_RANKS)
        number = Chain(communicator, offset, _GROUP_OWN_RANK, size=4, below=_MOST_RANKS)
        args = Register(communicator), ranks, number
        yield Mark(MarkKind.COLLECTIVE_GROUP, name, args, since=since, until=until)


_BASIC_TYPES = 0xFF00FF00  # of a handle: that it is a basic data type, and the bytes of one
_WORLD, _SELF = 0x44000000, 0x44000001


def _mpich_element(datatype: int) -> Argument:
    return Handle(datatype, _BASIC_TYPES, tuple((0x4C000000 | size << 8, size) for size in (1, 2, 4, 8, 16, 32)))


def _mpich_group(name: str, communicator: int) -> Iterator[Mark]:
    ranks = Handle(communicator, 0xFFFFFFFF, ((_WORLD, ALL_RANKS), (_SELF, 1)))
    args = Register(communicator, size=4), ranks, Constant(NOT_SAID)
    yield Mark(MarkKind.COLLECTIVE_GROUP, name, args, newer=_is_newer(name))


_THROWING = ("MPI_Comm_create_errhandler", "ompi_mpi_errors_throw_exceptions")
_OPEN_MPI = _Library(lambda datatype: MemoryField(datatype, _TYPE_SIZE, 8), _open_mpi_group, in_place=1, large=False)
_MPICH = _Library(_mpich_element, _mpich_group, in_place=-1, large=True)

OPEN_MPI = Framework("openmpi", "libmpi.so.40*", tuple(_OPEN_MPI.marks()), family="mpi", throwing=_THROWING)
# libmpi.so.12, Debian's libmpich.so.12 and Cray's, one for each compiler, but none of their C++ and Fortran libraries.
_MPICH_FILES = "libmp{i,ich,i_cray*,i_gnu*,i_amd*,i_aocc*,i_intel*,i_nvidia*}.so.12*"
MPICH = Framework("mpich", _MPICH_FILES, tuple(_MPICH.marks()), family="mpi", throwing=_THROWING)
