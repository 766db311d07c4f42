"""Ranks that ended while the job was recorded, and those that were stopped: when, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netprof.analysis.declared import json_of, put_together
from netprof.analysis.events.exits import Exit, clock_time, find_exits, signal_name
from netprof.analysis.findings.names import name_and_pid
from netprof.analysis.form import Pairs, Part
from netprof.analysis.section import Analysis, Section
from netprof.units import duration


@dataclass(frozen=True)
class Ended:
    """A process of the job that ended, with its rank, its name and the time of day; `exit` says how."""

    exit: Exit
    rank: int | None
    at: str
    name: str


@dataclass(frozen=True)
class Stop:
    """A time in which a process was stopped, by a signal or a debugger; ns."""

    pid: int
    rank: int | None
    begin_ns: int
    length_ns: int
    at: str
    name: str


@dataclass(frozen=True)
class ExitsFinding:
    """Those that train and ended, the first one first, and their stops."""

    ended: tuple[Ended, ...]
    stops: tuple[Stop, ...]


def _conclude(analysis: Analysis) -> ExitsFinding:
    evidence, meta = analysis.evidence, analysis.meta
    training = set(np.unique(evidence.iterations.pid).tolist()) | set(evidence.ranks)
    exits = find_exits(evidence.marks)
    ended = tuple(
        Ended(each, evidence.ranks.get(each.pid), clock_time(meta, each.time_ns), name_and_pid(each.pid, evidence))
        for each in exits.values()
        if each.pid in training and evidence.piece.owns(np.array([each.time_ns])).all()
    )
    stops = tuple(
        Stop(pid, evidence.ranks.get(pid), begin, end - begin, clock_time(meta, begin), name_and_pid(pid, evidence))
        for pid, when in evidence.stopped.items()
        if pid in training
        for begin, end in zip(when.begin_ns.tolist(), when.end_ns.tolist(), strict=True)
    )
    return ExitsFinding(ended, tuple(sorted(stops, key=lambda each: each.begin_ns)))


def _merge(parts: Sequence[ExitsFinding], whole: Analysis) -> ExitsFinding:
    ended = put_together((part.ended for part in parts), lambda each: each.exit.pid, lambda a, b: b)
    stops = put_together((part.stops for part in parts), lambda each: (each.pid, each.begin_ns), lambda a, b: b)
    return ExitsFinding(tuple(ended), tuple(stops))


def _document(finding: ExitsFinding) -> Mapping[str, Any]:
    exits = [
        json_of(each, "rank pid=exit.pid time_ns=exit.time_ns code=exit.code")
        | {"signal": None if each.exit.signal is None else signal_name(each.exit.signal)}
        for each in finding.ended
    ]
    return {"exits": exits, "stops": [json_of(each, "rank pid begin_ns length_s") for each in finding.stops]}


def _parts(finding: ExitsFinding) -> Sequence[Part]:
    rows = [(each.exit.time_ns, each.at, f"{each.name} {each.exit.ending}") for each in finding.ended]
    rows += [
        (each.begin_ns, each.at, f"{each.name} was stopped (state T) for {duration(each.length_ns / 1e9)}")
        for each in finding.stops
    ]
    lines = [(at, sentence) for _, at, sentence in sorted(rows)]  # midnight may lie between two
    return [Part("Exits and stops", "time of day", [Pairs(lines)])] if lines else ()


EXITS = Section("exits", _conclude, ("marks", "counters"), _document, _parts, merge=_merge)
