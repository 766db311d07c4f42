"""That a report is of digests, and what it does not say for that reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from netprof.analysis.declared import json_of
from netprof.analysis.section import Analysis, Section
from netprof.trace.digest import NOT_HELD
from netprof.units import count, duration


@dataclass(frozen=True)
class Digested:
    """How many of the hosts have a digest, what only their traces tell, and the time that bytes are summed up by."""

    hosts: int
    not_told: tuple[str, ...]
    bin_s: float


def _conclude(analysis: Analysis) -> Digested | None:
    digests = [host.meta for host in analysis.evidence.hosts if host.meta.digest]
    return Digested(len(digests), NOT_HELD, max(meta.bin_ns for meta in digests) / 1e9) if digests else None


def _document(digested: Digested | None) -> Mapping[str, Any]:
    return {} if digested is None else {"digest": json_of(digested, "hosts not_told bin_s")}


def _notes(digested: Digested | None) -> Iterator[str]:
    if digested is not None:
        made_from = count(digested.hosts, "host's digest", "hosts' digests")
        absent = " and ".join(digested.not_told)
        yield f"made from {made_from}, in bins of {duration(digested.bin_s)}: {absent} are only in the traces"


DIGESTED: Section[Digested | None] = Section("digested", _conclude, document=_document, notes=_notes)
"""What the report is made from."""
