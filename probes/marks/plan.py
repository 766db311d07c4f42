"""Which functions of a library to probe: the frameworks' tables laid against the symbols that the file has."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from netprof.errors import NetprofError
from netprof.model import SkippedProbe
from netprof.probes.frameworks.table import Framework, Mark
from netprof.probes.marks.costs import DEAR_NS
from netprof.probes.marks.instructions import examine_entry
from netprof.probes.marks.libraries import Library
from netprof.probes.marks.symbols import Symbol, Symbols, choose, find_functions
from netprof.probes.marks.uprobes import ProbePlace, together

Cost = Callable[[str], "float | None"]


@dataclass(frozen=True)
class Row:
    """A mark of a framework, and its row in the program's table."""

    number: int
    framework: Framework
    mark: Mark

    @property
    def name(self) -> str:
        """The name under which a trace lists the probe."""
        return f"marks:{self.framework.name}:{self.mark.kind.name.lower()}"


@dataclass(frozen=True)
class Plan:
    """What to attach in a library for the whole recording, what for some iterations, and what not and why.

    What is at returns is apart, since it is attached apart.
    """

    steady: tuple[ProbePlace, ...] = ()
    sampled: tuple[ProbePlace, ...] = ()
    returns: tuple[ProbePlace, ...] = ()
    skipped: tuple[SkippedProbe, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[ProbePlace, ...]:
        """All that is to be attached."""
        return self.steady + self.sampled + self.returns


def number_rows(frameworks: Sequence[Framework]) -> tuple[Row, ...]:
    """Give every mark of every framework its row."""
    pairs = [(framework, mark) for framework in frameworks for mark in framework.marks]
    return tuple(Row(number, framework, mark) for number, (framework, mark) in enumerate(pairs))


def count_functions(rows: Sequence[Row], places: Iterable[ProbePlace]) -> tuple[int, int]:
    """Return how many functions of `rows` are at one of `places`, and how many there are in all."""
    numbers = {number for place in places for number in place.rows}
    there = {row.mark.symbol_prefix for row in rows if row.number in numbers}
    return len(there), len({row.mark.symbol_prefix for row in rows})


def plan_library(library: Library, rows: Sequence[Row], cost_ns: Cost, until_s: float = math.inf) -> Plan:
    """Find each row's function in the library, by `until_s` (time.monotonic), and decide whether to probe it.

    `cost_ns` says what a hit costs at a first instruction of a class, None where that is not known.
    """
    try:
        versions = {name for row in rows for name in (row.mark.since, row.mark.until)} - {""}
        names = sorted(versions | {row.mark.symbol_prefix for row in rows})
        symbols = find_functions(library.descriptor, names, until_s, exported=versions)
    except (NetprofError, OSError) as error:
        return _skipping("marks", f"{library.name} cannot be read: {error}", "reinstall the library")
    if not symbols.has_symbol_table:
        return _skipping("marks", f"{library.name} has no symbol table", _STRIPPED)
    plans = [_plan_row(library, symbols, row, cost_ns) for row in rows if _is_meant(row.mark, symbols)]
    return Plan(
        together(place for plan in plans for place in plan.steady),
        together(place for plan in plans for place in plan.sampled),
        together(place for plan in plans for place in plan.returns),
        _once_each(skipped for plan in plans for skipped in plan.skipped),
        tuple(dict.fromkeys(warning for plan in plans for warning in plan.warnings)),
    )


def _skipping(name: str, reason: str, remedy: str) -> Plan:
    return Plan(skipped=(SkippedProbe(name, reason, remedy),))


_STRIPPED = "use a build of the library that keeps its dynamic symbols"
_UNKNOWN_VERSION = "netprof does not know this version of the library; iterations may be unknown"


def _is_meant(mark: Mark, symbols: Symbols) -> bool:
    """Tell whether the mark is one of this version of the library."""
    wanted = not mark.since or choose(symbols.functions[mark.since], mark.since)
    return bool(wanted) and not (mark.until and choose(symbols.functions[mark.until], mark.until))


def _once_each(skipped: Iterable[SkippedProbe]) -> tuple[SkippedProbe, ...]:
    """Leave out what has been said of the same function already."""
    first: dict[str, SkippedProbe] = {}
    for probe in skipped:
        first.setdefault(probe.reason, probe)
    return tuple(first.values())


def _plan_row(library: Library, symbols: Symbols, row: Row, cost_ns: Cost) -> Plan:
    """Decide on one function: a plan with one place, or with the reason why not.

    A function whose first instruction is single-stepped can cost more than ten times as much. That is bearable a few
    times an iteration and gets a warning; a sampled mark comes once for every parameter and is refused.
    """
    candidates = symbols.functions[row.mark.symbol_prefix]
    function = choose(candidates, row.mark.symbol_prefix)
    if function is None:
        return Plan() if row.mark.newer and not candidates else _not_found(library, row, candidates)
    entry = examine_entry(function.code, symbols.machine)
    place = ProbePlace(function.offset + entry.skip_bytes, (row.number,), row.mark.at_return)
    warnings: tuple[str, ...] = ()
    if not entry.emulated and not row.mark.seldom and (cost := _dear(cost_ns(entry.like))):
        dear = f"{function.name} of {library.name} begins with an instruction that {cost} ({entry.instruction})"
        if row.mark.sampled:
            return _skipping(row.name, dear, "nothing: it is left out")
        warnings = (f"marks:{row.framework.name}: {dear}",)
    if row.mark.at_return:
        return Plan(returns=(place,), warnings=warnings)
    return Plan(sampled=(place,)) if row.mark.sampled else Plan(steady=(place,), warnings=warnings)


def _not_found(library: Library, row: Row, candidates: Sequence[Symbol]) -> Plan:
    reason = f"{library.name} has no function {row.mark.symbol_prefix}"
    if candidates:
        names = ", ".join(sorted(symbol.name for symbol in candidates)[:3])
        reason = f"{library.name} has several functions {row.mark.symbol_prefix}: {names}"
    return _skipping(row.name, reason, _UNKNOWN_VERSION)


def _dear(hit_ns: float | None) -> str:
    """Say what a hit costs where that is much, or not known; else nothing."""
    if hit_ns is None:
        return "this kernel may single-step, at a cost that could not be measured"
    return f"this kernel single-steps: at least {hit_ns / 1000:.1f} µs a call" if hit_ns > DEAR_NS else ""
