"""A report that is kept: what every section says, in the neutral form that all views draw, as one document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from netprof.analysis.definitions import ALL, Definition
from netprof.analysis.digest.made_from import DIGESTED, Digested
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.verdict.first_screen import FIRST_SCREEN, FirstScreen
from netprof.analysis.form import Bar, Cell, Grid, Pairs, Part, Spark, Stack
from netprof.analysis.section import Analysis, Section
from netprof.errors import TraceError
from netprof.model import Meta
from netprof.trace.plain import Rules, from_plain, to_plain

_TERMS = {each.term: each for each in ALL}


@dataclass(frozen=True, eq=False)
class SavedFinding:
    """What a section said."""

    document: Mapping[str, Any]
    parts: Sequence[Part]
    notes: Sequence[str]
    definitions: Sequence[Definition]


@dataclass(frozen=True)
class SavedReport:
    """A report of all `hosts` that were digested in one go, called as their digests are."""

    hosts: tuple[str, ...]
    analysis: Analysis


def saved_document(analysis: Analysis, hosts: Sequence[str]) -> dict[str, Any]:
    """Return a report as the document that is written; `hosts` are the names of their digests."""
    sections = [
        {
            "name": section.name,
            "document": dict(section.document(analysis.of(section))),
            "parts": to_plain(analysis.parts(section)),
            "notes": list(section.notes(analysis.of(section))),
            "terms": [each.term for each in section.definitions(analysis.of(section))],
        }
        for section in analysis.sections
    ]
    meta, first = replace(analysis.meta, series=()), analysis.of(FIRST_SCREEN)
    return {"hosts": list(hosts), "meta": to_plain(meta), "first": to_plain(first), "sections": sections}


def saved_report(document: Mapping[str, Any]) -> SavedReport:
    """Return the report that a document holds. Raises KeyError, TypeError, ValueError."""
    hosts = tuple(str(each) for each in document["hosts"])
    findings: dict[Section[Any], Any] = {
        Section(
            str(plain["name"]),
            _only_traces,
            document=lambda finding: finding.document,
            parts=lambda finding: finding.parts,
            notes=lambda finding: finding.notes,
            definitions=lambda finding: finding.definitions,
        ): SavedFinding(
            document=dict(plain["document"]),
            parts=[from_plain(Part, each, _FORMS) for each in plain["parts"]],
            notes=[str(each) for each in plain["notes"]],
            definitions=[_TERMS[each] for each in plain["terms"] if each in _TERMS],
        )
        for plain in document["sections"]
    }
    findings[DIGESTED] = Digested(len(hosts), (), saved=True)
    sections = tuple(findings)
    findings[FIRST_SCREEN] = from_plain(FirstScreen, document["first"], _FORMS)
    evidence = without_tables(from_plain(Meta, document["meta"]), {})
    return SavedReport(hosts, Analysis(evidence, sections, findings))


def without_tables(
    meta: Meta, known: Mapping[str, Any], *, truncated: bool = False, damage: Sequence[str] = ()
) -> Evidence:
    """Return the evidence of a report whose tables are not at hand."""
    return Evidence(
        meta, _only_traces, _only_traces, known=known, is_truncated=lambda: truncated, damage=lambda: damage
    )


def _only_traces(asked: object) -> Any:
    raise TraceError("a digest does not hold what is asked for", "report the traces that it was made from")


def _cell(plain: Any) -> Cell:
    if isinstance(plain, str):
        return plain
    kind: type[Bar | Stack | Spark] = Stack if "bars" in plain else Spark if "values" in plain else Bar
    return from_plain(kind, plain)


def _body(plain: Any) -> Grid | Pairs:
    kind: type[Grid | Pairs] = Grid if "headings" in plain else Pairs
    return from_plain(kind, plain, _FORMS)


_FORMS = Rules({Cell: _cell, Grid | Pairs: _body})  # type: ignore[dict-item]  # unions are no classes
