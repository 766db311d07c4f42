"""What a hit of a probe costs here, by the class of the function's first instruction: measured, in this process.

The native library has a function for each class, which is probed and called some hundred times. Attaching and detaching
take longer (30 ms, or 100 with perf events), so it is done when a function of the class turns up.
"""

from __future__ import annotations

import ctypes
import os
import platform

from netprof.errors import NetprofError
from netprof.probes.kernel.libbpf import LIBRARY, libbpf
from netprof.probes.marks.symbols import choose, find_functions
from netprof.probes.marks.uprobes import Attacher, ProbePlace, close_links

DEAR_NS = 5_000
"""A hit that costs more is told of, and left out where it comes once for every parameter. Usual is 0.2 to 1 µs."""

CLASSES = {
    "x86_64": ("push", "sub", "mov", "lea", "nop5", "endbr64", "other"),
    "aarch64": ("b", "stp", "sub", "nop", "paciasp", "bti", "other"),
}
"""Of native/entries.c; the first is emulated by every kernel."""

_PREFIX = "netprof_entry_"
_ROUNDS, _CALLS = 8, 16


class HitCosts:
    """Measures with a loaded program, each class when it is first asked for."""

    def __init__(self, attacher: Attacher) -> None:
        self._attacher = attacher
        self._measured: dict[str, float | None] = {}

    def ns(self, like: str) -> float | None:
        """Return what a hit costs at least, in ns, at a function of that class; None where it cannot be measured."""
        if like not in self._measured:
            self._measured[like] = self._measure(like)
        return self._measured[like]

    def all(self) -> dict[str, float]:
        """Return the same of every class that can be measured."""
        costs = {name: self.ns(name) for name in CLASSES.get(platform.machine(), ())}
        return {name: cost_ns for name, cost_ns in costs.items() if cost_ns is not None}

    def _measure(self, like: str) -> float | None:
        if like not in CLASSES.get(platform.machine(), ()):
            return None
        try:
            with open(LIBRARY, "rb") as file:
                name = _PREFIX + like
                function = choose(find_functions(file.fileno(), [name]).functions[name], name)
        except (NetprofError, OSError):
            return None
        if function is None:
            return None
        # A place without rows: the program runs, and records nothing.
        links, refused = self._attacher.attach(str(LIBRARY), [ProbePlace(function.offset, ())], os.getpid())
        try:
            return None if refused else _time(function.name)
        finally:
            close_links(links)


def _time(name: str) -> float:
    """Return how long a call takes in ns: the least of some rounds, since whatever disturbs only adds."""
    function = ctypes.cast(getattr(libbpf(), name), ctypes.c_void_p)
    return min(float(libbpf().netprof_time_calls(function, _CALLS)) for _ in range(_ROUNDS)) / _CALLS
