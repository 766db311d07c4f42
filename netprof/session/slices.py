"""A long recording, concluded from slice by slice by the processes of a Dask cluster."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from netprof.analysis.evidence import Evidence
from netprof.analysis.hosts.open_job import open_job
from netprof.analysis.pieces import Pieces, PieceSize
from netprof.analysis.section import Analysis, Section
from netprof.analysis.sections import SECTIONS, conclude, findings_of
from netprof.session.cluster import Work, workers

_SLICES = 4
"""Pieces that a worker concludes from at a time: it reads the marks of those before them too."""

Findings = list[tuple[int, list[Any]]]
"""Of each piece its number, and what each section found in it."""


def analyze_on(
    scheduler: str,
    paths: Sequence[Path],
    hosts: Collection[str] = (),
    *,
    baseline_s: float | None = None,
    size: PieceSize | None = None,
) -> Analysis:
    """Return what `analyze` does of the traces of a job; the workers of a Dask scheduler read them where they lie.

    Of a recording that is not cut only one worker has work. Raises TraceError, UsageError, NetprofError.
    """
    paths = [path.absolute() for path in paths]
    with workers(scheduler) as team:
        reader = open_job(paths, hosts)
        pieces = Pieces(reader, size)
        if len(pieces) == 1:
            return conclude(Evidence.of_trace(reader, baseline_s=baseline_s))
        count = sum(1 for _ in pieces)
        slices = [(first, min(first + _SLICES, count)) for first in range(0, count, _SLICES)]
        found = team.reduce(slices, Work(partial(_found, paths=paths, hosts=tuple(hosts), size=size), _together, _same))
    parts: dict[Section[Any], Any] = {section: [] for section in SECTIONS if section.merge is not None}
    for _, findings in sorted(found, key=lambda each: each[0]):
        for section, finding in zip(parts, findings, strict=True):
            parts[section].append(finding)
    whole = Evidence.of_trace(reader, baseline_s=baseline_s, known=pieces.known)
    return conclude(whole, parts, again=pieces)


def _found(numbers: tuple[int, int], paths: Sequence[Path], hosts: Collection[str], size: PieceSize | None) -> Findings:
    """Return what the sections find in some pieces of a recording."""
    pieces = islice(enumerate(Pieces(open_job(paths, hosts), size)), *numbers)
    return [(number, list(findings_of(piece).values())) for number, piece in pieces]


def _together(parts: Sequence[Findings]) -> Findings:
    return [each for part in parts for each in part]


def _same(found: Findings) -> Findings:
    return found
