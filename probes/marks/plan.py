"""Which functions of a library to probe: the frameworks' tables laid against the symbols that the file has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netprof.errors import NetprofError
from netprof.model import SkippedProbe
from netprof.probes.frameworks import Framework, Mark
from netprof.probes.marks.instructions import Entry, examine_entry
from netprof.probes.marks.libraries import Library
from netprof.probes.marks.symbols import Symbol, Symbols, choose, find_functions
from netprof.probes.marks.uprobes import Place


@dataclass(frozen=True)
class Row:
    """A mark of a framework, and its row in the program's table: the cookie of its probes."""

    cookie: int
    framework: Framework
    mark: Mark

    @property
    def name(self) -> str:
        """The name under which a trace lists the probe."""
        return f"marks:{self.framework.name}:{self.mark.kind.name.lower()}"


@dataclass(frozen=True)
class Plan:
    """What to attach in a library for the whole recording, what for some iterations, and what not and why."""

    steady: tuple[Place, ...] = ()
    sampled: tuple[Place, ...] = ()
    skipped: tuple[SkippedProbe, ...] = ()
    warnings: tuple[str, ...] = ()


def number_rows(frameworks: Sequence[Framework]) -> tuple[Row, ...]:
    """Give every mark of every framework its cookie."""
    pairs = [(framework, mark) for framework in frameworks for mark in framework.marks]
    return tuple(Row(cookie, framework, mark) for cookie, (framework, mark) in enumerate(pairs))


def plan_library(library: Library, rows: Sequence[Row]) -> Plan:
    """Find each row's function in the library and decide whether to probe it."""
    try:
        symbols = find_functions(library.descriptor, sorted({row.mark.symbol_prefix for row in rows}))
    except (NetprofError, OSError) as error:
        return Plan(
            skipped=(SkippedProbe("marks", f"{library.name} cannot be read: {error}", "reinstall the library"),)
        )
    if not symbols.has_symbol_table:
        return Plan(skipped=(SkippedProbe("marks", f"{library.name} has no symbol table", _STRIPPED),))
    found = [_plan_row(library, symbols, row) for row in rows]
    return Plan(
        tuple(place for plan in found for place in plan.steady),
        tuple(place for plan in found for place in plan.sampled),
        tuple(skipped for plan in found for skipped in plan.skipped),
        tuple(warning for plan in found for warning in plan.warnings),
    )


_STRIPPED = "use a build of the library that keeps its dynamic symbols"
_UNKNOWN_VERSION = "netprof does not know this version of the library; iterations may be unknown"


def _plan_row(library: Library, symbols: Symbols, row: Row) -> Plan:
    """Decide on one function: a plan with one place, or with the reason why not.

    A function whose first instruction is single-stepped costs more than ten times as much. That is bearable a few times
    an iteration and gets a warning; a sampled mark comes once for every parameter and is refused.
    """
    candidates = symbols.functions[row.mark.symbol_prefix]
    function = choose(candidates, row.mark.symbol_prefix)
    if function is None:
        return Plan() if row.mark.newer and not candidates else Plan(skipped=(_not_found(library, row, candidates),))
    entry = examine_entry(function.code, symbols.machine)
    place = Place(function.offset + entry.skip_bytes, row.cookie)
    if entry.emulated or row.mark.seldom:
        return Plan(sampled=(place,)) if row.mark.sampled else Plan(steady=(place,))
    if row.mark.sampled:
        return Plan(skipped=(SkippedProbe(row.name, _slow(library, function, entry), "nothing: it is left out"),))
    return Plan(steady=(place,), warnings=(f"{row.name}: {_slow(library, function, entry)}",))


def _not_found(library: Library, row: Row, candidates: Sequence[Symbol]) -> SkippedProbe:
    prefix = row.mark.symbol_prefix
    if not candidates:
        return SkippedProbe(row.name, f"{library.name} has no function {prefix}", _UNKNOWN_VERSION)
    names = ", ".join(sorted(symbol.name for symbol in candidates)[:3])
    return SkippedProbe(row.name, f"{library.name} has several functions {prefix}: {names}", _UNKNOWN_VERSION)


def _slow(library: Library, function: Symbol, entry: Entry) -> str:
    return (
        f"{function.name} of {library.name} begins with an instruction that the kernel must single-step "
        f"({entry.instruction}): more than 10 µs a call"
    )
