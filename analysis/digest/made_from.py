"""What a report of digests is made from, and what it cannot say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netprof.analysis.declared import json_of
from netprof.analysis.form import Pairs, Part
from netprof.analysis.section import Analysis, Section
from netprof.units import count, listed

_NAMED = 4
_NOT_TOLD = (
    "flows, the paths, queue pairs, GPUs and other counters, TCP's own totals, NCCL's and Horovod's "
    "operations, bounds for what some ranks wait for where others are seen to be done with it, and anything over time "
    "finer than an iteration"
)
_PICTURES = "pictures over time, tables of events and predictions"


def no_digest(analysis: Analysis) -> Any:
    """Raise KeyError: what only digests tell is not concluded from a trace."""
    raise KeyError("a trace is no digest")


@dataclass(frozen=True)
class Digested:
    """From how many digests a report is, which hosts' are missing, and what it cannot say for other reasons.

    `left_out` says of each digest that was given and could not be used why, and `not_asked` which hosts of the job
    were not asked for. `saved` says that it is the report of the traces, as it was when the digests were made.
    """

    hosts: int
    missing: tuple[str, ...]
    not_told: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    not_asked: tuple[str, ...] = ()
    saved: bool = False


def _document(digested: Digested) -> Mapping[str, Any]:
    not_told = [_only_in_traces(digested), *digested.not_told]
    return {"digest": json_of(digested, "hosts missing left_out", not_told=not_told)}


def _only_in_traces(digested: Digested) -> str:
    return _PICTURES if digested.saved else _NOT_TOLD


def _parts(digested: Digested) -> Sequence[Part]:
    return [Part("Digest", bodies=[Pairs([("made from", count(digested.hosts, "host's digest", "hosts' digests"))])])]


def _notes(digested: Digested) -> Iterator[str]:
    yield f"this is the report of digests: {_only_in_traces(digested)} are only in the traces"
    if digested.missing:
        yield f"the digests of {listed(digested.missing, _NAMED)} are missing: the report is of the other hosts' ranks"
    if digested.not_asked:
        yield f"not asked for were {listed(digested.not_asked, _NAMED)}: the report is of the ranks that were"
    yield from (f"left out: {each}" for each in digested.left_out[:_NAMED])
    if len(digested.left_out) > _NAMED:
        yield f"left out are {len(digested.left_out) - _NAMED} more digests that cannot be used"
    yield from (f"not told is {each}" for each in digested.not_told)


DIGESTED: Section[Digested] = Section("digested", no_digest, document=_document, parts=_parts, notes=_notes)
"""What the report is made from."""
