"""CPython: its garbage collector, which stops all threads of a process that run Python.

The function is plain C. It is static until 3.12, so an interpreter without a table of its symbols does not show it.
"""

from __future__ import annotations

from netprof.probes.frameworks.table import Framework, Mark, Register
from netprof.schema import MarkKind


def _collector(function: str) -> tuple[Mark, Mark]:
    return (
        Mark(MarkKind.COLLECTOR, function, (Register(2, size=4),), newer=True, seldom=True),
        Mark(MarkKind.COLLECTOR_OVER, function, at_return=True, newer=True, seldom=True),
    )


def _interpreter(library: str) -> Framework:
    marks = (*_collector("gc_collect_main"), *_collector("_PyGC_Collect"))
    return Framework(name="python", library=library, marks=marks, trains=False)


PYTHON = (_interpreter("libpython3*.so*"), _interpreter("python3.*"))
