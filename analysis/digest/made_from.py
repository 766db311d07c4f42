"""What a report of digests is made from, and what it cannot say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netprof.analysis.form import Pairs, Part
from netprof.analysis.section import Analysis, Section
from netprof.units import count

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

    `left_out` says of each digest that was given and could not be used why, and `others` which hosts of the job were
    not asked for. `saved` says that it is the report of the traces, as it was when the digests were made.
    """

    hosts: int
    missing: tuple[str, ...]
    not_told: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    saved: bool = False


def _document(found: Digested) -> Mapping[str, Any]:
    not_told = [_only_in_traces(found), *found.not_told]
    document = {"missing": list(found.missing), "left_out": list(found.left_out), "not_told": not_told}
    return {"digest": {"hosts": found.hosts, **document}}


def _only_in_traces(found: Digested) -> str:
    return _PICTURES if found.saved else _NOT_TOLD


def _parts(found: Digested) -> Sequence[Part]:
    return [Part("Digest", bodies=[Pairs([("made from", count(found.hosts, "host's digest", "hosts' digests"))])])]


def _notes(found: Digested) -> Iterator[str]:
    yield f"this is the report of digests: {_only_in_traces(found)} are only in the traces"
    if found.missing:
        yield (f"the digests of {_first(found.missing)} are missing: the report is of the other hosts' ranks")
    if found.others:
        yield f"not asked for were {_first(found.others)}: the report is of the ranks that were"
    yield from (f"left out: {each}" for each in found.left_out[:_NAMED])
    if len(found.left_out) > _NAMED:
        yield f"left out are {len(found.left_out) - _NAMED} more digests that cannot be used"
    yield from (f"not told is {each}" for each in found.not_told)


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


DIGESTED: Section[Digested] = Section("digested", no_digest, document=_document, parts=_parts, notes=_notes)
"""What the report is made from."""
