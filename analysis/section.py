"""A section of the report: what it concludes, and how it says it. Adding a finding is adding a section."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from netprof.analysis.definitions import Definition
from netprof.analysis.form import Part

if TYPE_CHECKING:
    from netprof.analysis.evidence import Evidence
    from netprof.model import Meta

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Section(Generic[T_co]):
    """One part of what is concluded.

    `conclude` turns the evidence, and what other sections concluded from it, into a finding. Of a finding, `document`
    is its part of the JSON report (top-level keys), `parts` its neutral form, `notes` are sentences that one must know
    to trust it, and `definitions` the terms that its parts use. `tables` are the tables of the trace that it needs.
    `merge` makes one finding of those from consecutive pieces of a recording, given the analysis of the whole; a
    section without it rests on other sections alone, and is concluded from what those found in the whole.
    """

    name: str
    conclude: Callable[[Analysis], T_co]
    tables: tuple[str, ...] = ()
    merge: Callable[[Sequence[Any], Analysis], T_co] | None = field(default=None, kw_only=True)
    document: Callable[[Any], Mapping[str, Any]] = lambda finding: {}
    parts: Callable[[Any], Sequence[Part]] = lambda finding: ()
    notes: Callable[[Any], Iterable[str]] = lambda finding: ()
    definitions: Callable[[Any], Sequence[Definition]] = lambda finding: ()


class Analysis:
    """The conclusions from one recording, or from the last part of one: a finding for each of `sections`.

    `findings` are those that are known already, `pieces` what sections found in consecutive pieces of the recording,
    to be put together: each is taken from there when it is, since there may be a lot. `typical` concludes from the
    piece that is most like all of them, `beginning` returns the first one; `is_too_long` says that there are too many
    for all their events to be held at once. None means unknown, everywhere.
    """

    def __init__(
        self,
        evidence: Evidence,
        sections: Sequence[Section[Any]],
        findings: Mapping[Section[Any], Any] | None = None,
        pieces: dict[Section[Any], Sequence[Any]] | None = None,
        typical: Callable[[Analysis], Analysis] | None = None,
        beginning: Callable[[], Evidence] | None = None,
        is_too_long: bool = False,
    ) -> None:
        self.evidence = evidence
        self.sections = tuple(sections)
        self._findings = dict(findings or {})
        self._pieces = {} if pieces is None else pieces
        self._typical, self._beginning, self._is_too_long = typical, beginning, is_too_long
        self.program = ""  # how netprof was started, and what it read: for commands to paste
        self.traces: tuple[str, ...] = ()

    @cached_property
    def typical(self) -> Analysis:
        """The part of a long recording that is most like all of it, for who looks at every event; else this one."""
        return self if self._typical is None else self._typical(self)

    @property
    def drawn(self) -> Analysis:
        """What is drawn event by event: all of the recording, or of one that is too long for that its typical part."""
        return self.typical if self._is_too_long else self

    @property
    def beginning(self) -> Evidence:
        """The evidence of the first piece of a long recording, in which gradients are sampled; else all of it."""
        return self.evidence if self._beginning is None else self._beginning()

    @property
    def meta(self) -> Meta:
        """The recording's description."""
        return self.evidence.meta

    def of(self, section: Section[T]) -> T:
        """Return what a section finds; concluded when first asked for."""
        if section not in self._findings:
            parts = self._pieces.pop(section, None)
            self._findings[section] = section.merge(parts, self) if section.merge and parts else section.conclude(self)
        return cast(T, self._findings[section])

    def document(self) -> dict[str, Any]:
        """Return all sections' parts of the JSON report: plain dicts, lists, texts and finite numbers."""
        merged: dict[str, Any] = {}
        for section in self.sections:
            merged |= section.document(self.of(section))
        return merged

    def parts(self, section: Section[Any]) -> Sequence[Part]:
        """Return the neutral form of one section."""
        return section.parts(self.of(section))

    @property
    def brief_parts(self) -> Iterator[Part]:
        """What a person reads from top to bottom, in the order of the sections: without details."""
        return (part for section in self.sections for part in self.parts(section) if not part.detail)

    @property
    def notes(self) -> tuple[str, ...]:
        """What one must know to trust the numbers, a sentence each, in the order of the sections."""
        return tuple(note for section in self.sections for note in section.notes(self.of(section)))

    @property
    def definitions(self) -> tuple[Definition, ...]:
        """The terms that the report uses, each once, in the order of the sections."""
        terms = (d for section in self.sections for d in section.definitions(self.of(section)))
        return tuple(dict.fromkeys(terms))
