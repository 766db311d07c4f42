"""Looking through the libraries of processes for NCCL's network functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from netprof.errors import NetprofError
from netprof.model import SkippedProbe
from netprof.probes.marks.libraries import Library, Mapping
from netprof.probes.marks.reading import LibraryThread
from netprof.probes.nccl.net_functions import NetFunction, find_net_functions
from netprof.schema import NCCL_NETWORK_PROBE

LIBRARIES = "libnccl*.so*"
"""The files that are looked through: NCCL itself, and its plugins (libnccl-net.so, libnccl-net-NAME.so)."""


@dataclass(frozen=True)
class NetLibrary:
    """A library of process `pid` that has network functions. It stays open for as long as the finder."""

    pid: int
    library: Library
    functions: tuple[NetFunction, ...]


class NetFunctionFinder(LibraryThread[NetLibrary, tuple[NetFunction, ...]]):
    """Looks through the libraries of processes for the functions."""

    tells_refusal = False  # the marks' probe does

    def __init__(self) -> None:
        super().__init__(NCCL_NETWORK_PROBE, [LIBRARIES], ())

    def look(self, pid: int, mapping: Mapping, mapped: Sequence[Mapping]) -> Iterator[NetLibrary | SkippedProbe]:
        """Yield the library if it has functions, and NCCL itself also if it has none. Raises NetprofError."""
        library, functions = self.made(pid, mapping, lambda *about: tuple(find_net_functions(*about)))
        if functions:
            yield NetLibrary(pid, library, functions)
        elif mapping.basename.startswith("libnccl.so"):
            reason = f"{mapping.basename} has no network functions that netprof can tell"
            yield SkippedProbe(self.name, reason, "report the library's version")

    def unreadable(self, mapping: Mapping, error: NetprofError) -> str:
        """Return what to say of a library that cannot be read."""
        return f"{mapping.basename} cannot be read: {error.message}"
