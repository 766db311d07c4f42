"""Who holds a job up, and what those did meanwhile: asked of the digests of all hosts, for they alone know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from netprof.analysis.account.held_up import Kind
from netprof.analysis.digest.digest import Did
from netprof.analysis.findings.stragglers.doing import NO_TIMES, Doing, Spent, what_it_did
from netprof.analysis.findings.stragglers.stragglers import StragglersFinding, find_stragglers
from netprof.analysis.findings.stragglers.stragglers_parts import Culprit, StragglersParts
from netprof.analysis.tables.columns import Bool, Float64, Int64

MOST_ASKED = 64
"""Stragglers of which is asked what they did: those that cost most. The answers are of all ranks, for each of them."""


@dataclass(frozen=True, eq=False)
class Asked:
    """A straggler of which is asked what it did in some iterations: `who` is its name, `host_ns` as `doing` has it."""

    pid: int
    who: Culprit
    rows: Int64
    host_ns: float


@dataclass(frozen=True, eq=False)
class Sums:
    """What `Spent` names of each process, summed over what was asked: (asked, processes, len(Spent)); and if known."""

    pids: tuple[int, ...]
    total: Float64
    known: Bool

    def of(self, number: int) -> Sums:
        """Return the answers to one question."""
        return Sums(self.pids, self.total[number], self.known[number])

    def sums(self, rows: Int64 | Bool) -> tuple[Float64, Bool]:
        """Return the sums, as `doing` takes them: of a single question, whose rows they are of."""
        return self.total, self.known


def ask_stragglers(parts: StragglersParts) -> tuple[StragglersFinding, tuple[Asked, ...], int]:
    """Return who holds the job up, what is asked of those that cost most, and how many are not asked about."""
    asked: dict[Culprit, Asked] = {}

    def ask(times: object, pid: int, rows: Int64, host_ns: float) -> None:
        who = parts.names[Kind.RANK, pid]
        asked[who] = Asked(pid, who, rows, host_ns)

    finding = find_stragglers(parts, ask)
    first = [asked[each.who] for each in finding.stragglers if each.kind is Kind.RANK and each.who in asked]
    light = replace(finding, made_of=StragglersParts(parts.windows, (), NO_TIMES, {}))
    return light, tuple(first[:MOST_ASKED]), len(first[MOST_ASKED:])


def sums_of(did: Did, asked: Sequence[Int64]) -> Sums:
    """Return what the processes of one digest did in the iterations of each question."""
    pids, count = np.unique(did.pid), max(int(rows.max(initial=-1)) + 1 for rows in asked)
    did = did.where((did.window >= 0) & (did.window < count))
    values = np.full((count, len(pids), len(Spent)), np.nan)
    values[did.window, np.searchsorted(pids, did.pid)] = did.amounts.T
    wanted = np.zeros((len(asked), count))
    for number, rows in enumerate(asked):
        wanted[number, rows] = 1.0
    is_known = ~np.isnan(values)
    total, known = (
        np.tensordot(wanted, each, axes=1) for each in (np.where(is_known, values, 0.0), is_known.astype(np.float64))
    )
    return Sums(tuple(pids.tolist()), total, known > 0)


def all_sums(parts: Sequence[Sums]) -> Sums:
    """Return the sums of the processes of all digests."""
    pids = tuple(pid for part in parts for pid in part.pids)
    total, known = (np.concatenate([getattr(part, name) for part in parts], axis=1) for name in ("total", "known"))
    return Sums(pids, total, known)


def with_doings(stragglers: StragglersFinding, asked: Sequence[Asked], sums: Sums) -> StragglersFinding:
    """Return the stragglers with what they did, as the digests answered."""
    doings: dict[Culprit, Doing | None] = {
        each.who: what_it_did(sums.of(n), each.pid, each.rows, each.host_ns) for n, each in enumerate(asked)
    }
    answered = tuple(
        replace(each, doing=doings[each.who]) if each.kind is Kind.RANK and each.who in doings else each
        for each in stragglers.stragglers
    )
    return replace(stragglers, stragglers=answered)
