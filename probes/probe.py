"""The seam between a recording and what it measures: one small interface, the same for every probe.

A recording opens its probes in the order of `measurements.PROBES`, tells them which processes to follow, takes what
each has gathered, shows every batch of rows to those that learn from its table, and closes them. It knows none of them
by name, and it is the recording that counts what a probe costs and lets go of one that fails.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from itertools import count
from typing import Any, ClassVar

from netprof.closing import Closing
from netprof.model import Device, Gpu, Losses, Series, SkippedProbe, StartedProbe, Target
from netprof.probes.kernel.loader import BpfObject
from netprof.probes.kernel.targets import TargetMap
from netprof.schema import tables

Columns = Mapping[str, Any]
"""Rows of one table of the trace: a sequence per column, all of one length."""

Tables = Mapping[str, Columns]
"""Rows by the name of their table, in the order in which they are to be written."""

Row = dict[str, Any]
"""One row of a table, by column."""


@cache
def _empty_row(table: str) -> Row:
    return {column.name: "" if str(column.type) == "string" else 0 for column in tables()[table]}


def row_of(table: str, **known: Any) -> Row:
    """Return a row of a table: what is known of it, and 0 or "" for the rest."""
    return _empty_row(table) | known


def columns_of(table: str, rows: Sequence[Row]) -> Columns:
    """Return rows of a table by column."""
    return {name: [row[name] for row in rows] for name in _empty_row(table)}


@dataclass(frozen=True)
class Shared:
    """What the probes of one recording have in common."""

    targets: TargetMap  # the job's processes, for programs in the kernel
    rank_of: Callable[[int], int]  # the rank of a process of the job, by pid
    bin_ns: int
    line_rate_bps: float | None = None  # as the person gave it
    devices: tuple[str, ...] = ()  # the only ones that the person wants to see flows of; none: all
    ras: bool = True  # whether NCCL's RAS may be asked
    kineto_iterations: int | None = None  # of which the job is asked for a profile, where the person wants one
    stacks: bool = False  # whether the stacks of a rank that others wait for are wanted
    first: Sequence[Target] = ()  # those that will be followed first
    max_flows: int | None = None  # that there is room for at a time; None: as many as the probe takes by itself
    series_ids: Iterator[int] = field(default_factory=count)  # for rows of table `counters`


@dataclass(frozen=True)
class Description:
    """What a probe says of itself, as of now: its part of the trace's `meta.json`. Several add up."""

    started: tuple[StartedProbe, ...] = ()
    skipped: tuple[SkippedProbe, ...] = ()
    warnings: tuple[str, ...] = ()
    losses: Losses = field(default_factory=Losses)
    devices: tuple[Device, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    series: tuple[Series, ...] = ()

    def __add__(self, other: Description) -> Description:
        """Return what both say, this one first."""
        return Description(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(self)))


class Probe(Closing, ABC):
    """One measurement of a recording. What cannot be measured is in its description, with what would make it so.

    A context manager, so that one can be used without a recording. An error that a method raises ends the probe.
    """

    name: ClassVar[str]
    period_s: ClassVar[float]
    """How often it wants to be drained."""

    sample_s: ClassVar[float | None] = None
    """How often it wants to sample, where that is more often."""

    notices: ClassVar[frozenset[str]] = frozenset()
    """The tables whose rows it wants to be shown."""

    required: ClassVar[bool] = False
    """Whether a recording without it is worth nothing, so that none begins if it does not open."""

    @classmethod
    @abstractmethod
    def open(cls, shared: Shared) -> Probe:
        """Make one for a recording; it measures nothing yet. Raises NotPermittedError or NetprofError."""

    def follow(self, targets: Sequence[Target]) -> None:
        """Take note of the job: at first to begin, then whenever a process has joined or loaded a framework.

        `targets` are all that ever were part of the job, the newest state of each.
        """

    def sample(self) -> None:
        """Keep what has to be looked at often. It makes no rows of it: that costs less for many at once."""

    @abstractmethod
    def drain(self, *, final: bool = False) -> Tables:
        """Return the rows gathered since the last call; with `final` also what would become a row later."""

    @property
    def has_news(self) -> bool:
        """Whether it is to be drained before its time."""
        return False

    def notice(self, table: str, columns: Columns) -> None:
        """Learn from rows of a table named in `notices`, of any probe, its own too, as they are written."""

    def describe(self) -> Description:
        """Return what it measures, what not and why, and what it found."""
        return Description()

    @property
    def objects(self) -> Sequence[BpfObject]:
        """The BPF objects that it has loaded: their programs' run time is part of the recording's cost."""
        return ()

    def close(self) -> None:
        """Let go of everything. May be called twice."""
