"""Stragglers and slow links: who or what holds the job up, since when, how surely, and what it does meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netprof.analysis.definitions import STRAGGLERS as DEFINITION
from netprof.analysis.findings.stragglers.stragglers_finding import Straggler, StragglersFinding, find_stragglers
from netprof.analysis.findings.stragglers.stragglers_parts import StragglersParts, gather, one_after_another
from netprof.analysis.form import Bar, Grid, Pairs, Part
from netprof.analysis.section import Analysis, Section
from netprof.units import count, percent, share

_BRIEF = 8


def _conclude(analysis: Analysis) -> StragglersFinding | None:
    parts = gather(analysis.evidence)
    return None if parts is None else find_stragglers(parts)


def _merge(findings: Sequence[StragglersFinding | None], whole: Analysis) -> StragglersFinding | None:
    parts: list[StragglersParts] = [each.made_of for each in findings if each is not None]
    return find_stragglers(one_after_another(parts)) if parts else None


def _document(finding: StragglersFinding | None) -> dict[str, Any]:
    return {"stragglers": None if finding is None else [_straggler(each) for each in finding.stragglers]}


def _straggler(found: Straggler) -> dict[str, Any]:
    return {
        "kind": found.kind.name.lower(),
        "name": found.who.label,
        "rank": found.who.rank,
        "ranks": list(found.who.ranks),
        "link": found.who.link,
        "host": found.who.host,
        "cause": found.cause.name,
        "doing": None if found.doing is None else found.doing.name,
        "held_up_s": found.held_ns / 1e9,
        "share": found.share,
        "iterations": found.iterations,
        "first_iteration": found.first,
        "episodes": found.episodes,
        "since_ns": found.since_ns,
        "until_ns": found.until_ns,
        "known_ns": found.known_ns,
        "confidence": found.confidence,
        "sentence": found.sentence,
        "advice": found.advice,
    }


def _parts(finding: StragglersFinding | None) -> Sequence[Part]:
    if finding is None or not finding.stragglers:
        return ()
    about = f"of {count(finding.iterations, 'iteration')}"
    said = Pairs([(each.who.label, f"{each.sentence} → {each.advice}") for each in finding.stragglers[:_BRIEF]])
    return [Part("Stragglers", about, [_grid(finding.stragglers), said])]


def _grid(found: Sequence[Straggler]) -> Grid:
    headings = ("who", "of all time", "", "in iterations", "from step", "confidence", "by", "it")
    rows = [
        (
            each.who.label,
            share(each.share),
            Bar(0.0, min(each.share, 1.0), each.cause.name),
            str(each.iterations),
            str(each.first + 1),
            percent(each.confidence),
            each.cause.short,
            each.doing.name.replace("_", " ") if each.doing is not None else "",
        )
        for each in found
    ]
    places = [(each.since_ns, each.until_ns - each.since_ns) for each in found]
    left = frozenset({"", "by", "it"})
    return Grid(headings, rows, left, optional=("", "confidence", "from step"), brief=_BRIEF, places=places)


STRAGGLERS = Section(
    "stragglers",
    _conclude,
    ("marks", "wire", "flows", "nic", "tcp", "counters"),
    _document,
    _parts,
    merge=_merge,
    definitions=lambda finding: (DEFINITION,) if finding and finding.stragglers else (),
)
