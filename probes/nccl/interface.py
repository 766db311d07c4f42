"""NCCL's net plugin interface: what versions of it there are, and where each has what.

A network is a table of functions that NCCL calls: its own for sockets and for InfiniBand, and those that plugins export
as `ncclNetPlugin_vN`. From nccl_net.h of NCCL 2.8 to 2.30 (net_v4.h to net_v12.h). `isend` and `irecv` post; `test`,
which asks whether a request is done, is called all the time and never looked at.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from netprof.schema import RECEIVE, TRANSMIT, NcclNetwork

POINTER_BYTES = 8
_FUNCTION = struct.Struct("<BBBBBBBx")  # struct net_function of posts.h


@dataclass(frozen=True)
class Call:
    """Where a function has its arguments, from 1; the first is the connection.

    Of several messages (`counted` says how many), `size` and `data` are pointers to theirs. `size_bytes` is how
    wide one size is, 4 or 8.
    """

    direction: int
    data: int
    size: int
    size_bytes: int
    request: int
    counted: int = 0

    def pack(self, network: NcclNetwork) -> bytes:
        """Return the `struct net_function`."""
        return _FUNCTION.pack(
            self.direction, self.size, self.size_bytes, self.counted, self.data, self.request, network
        )


@dataclass(frozen=True)
class Version:
    """An interface: `numbers` are its versions, `calls` those that send and receive.

    In the table they follow each other, the first at `place`. `optional` places may be NULL. By `symbols` a compiler's
    names of NCCL's own two functions end, since C++ puts the types of arguments into names.
    """

    numbers: range
    calls: tuple[Call, Call]
    symbols: tuple[str, str]
    place: int = 10
    optional: tuple[int, ...] = (8,)
    functions: int = 16  # that every table has after its name


def _calls(size_bytes: int, request: int) -> tuple[Call, Call]:
    """Return both calls since version 5: before all else that which receives says of how many messages."""
    send = Call(TRANSMIT, data=2, size=3, size_bytes=size_bytes, request=request)
    return send, Call(RECEIVE, data=3, size=4, size_bytes=size_bytes, request=request + 1, counted=2)


_FIRST_CALLS = (
    Call(TRANSMIT, data=2, size=3, size_bytes=4, request=5),
    Call(RECEIVE, data=2, size=3, size_bytes=4, request=5),
)
VERSIONS = (
    Version(range(4, 5), _FIRST_CALLS, ("PvS_iS_PS_", "PvS_iS_PS_"), optional=(), place=9, functions=15),
    Version(range(5, 6), _calls(4, 6), ("PvS_iiS_PS_", "PviPS_PiS1_S0_S0_"), optional=(), place=9, functions=15),
    Version(range(6, 9), _calls(4, 6), ("PvS_iiS_PS_", "PviPS_PiS1_S0_S0_")),
    Version(range(9, 10), _calls(8, 6), ("PvS_miS_PS_", "PviPS_PmPiS0_S0_")),
    Version(range(10, 13), _calls(8, 7), ("PvS_miS_S_PS_", "PviPS_PmPiS0_S0_S0_")),
)
"""The oldest first."""

PLUGIN_TABLES = tuple(
    f"{prefix}_v{number}"
    for version in VERSIONS
    for number in version.numbers
    for prefix in ("ncclNetPlugin", "ncclNet")
)
"""What plugins export them as; before version 6 both names were in use."""

OWN = {"Socket": NcclNetwork.SOCKET, "IB": NcclNetwork.INFINIBAND}
"""NCCL's own networks, by the names in their tables."""

OWN_FUNCTIONS = {
    ("ncclNetSocketIsend", "ncclNetSocketIrecv"): "Socket",
    ("ncclSocketIsend", "ncclSocketIrecv"): "Socket",  # before NCCL 2.13
    ("ncclIbIsend", "ncclIbIrecv"): "IB",
}
"""Their functions, where the library keeps its symbols."""


def version_of(number: int) -> Version | None:
    """Return the interface of a version number; None for an unknown one."""
    return next((version for version in VERSIONS if number in version.numbers), None)


def symbol_names(function: str, ending: str) -> tuple[str, str]:
    """Return what a compiler calls a function of C++ with such arguments: seen from elsewhere, and static."""
    return f"_Z{len(function)}{function}{ending}", f"_ZL{len(function)}{function}{ending}"


def number_of_nccl(major: int, minor: int) -> int:
    """Return which interface NCCL of that version has inside; of a newer one the newest known.

    From `typedef ncclNet_vN_t ncclNet_t` of its sources.
    """
    known = ((30, 12), (28, 11), (26, 10), (24, 9), (20, 8), (19, 7), (13, 6), (12, 5), (8, 4))
    if major > 2:
        return known[0][1]
    return next((number for since, number in known if minor >= since), 0)
