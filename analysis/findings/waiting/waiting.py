"""What the job waits for: the account of every exposed nanosecond, summed up by cause, by rank and by iteration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from netprof.analysis.account.causes import HOST, LATE_RANK, TRANSPORT, WAIT_CAUSES, Cause
from netprof.analysis.account.waiting import NOBODY, Waiting
from netprof.analysis.declared import json_of, put_together, share_of
from netprof.analysis.definitions import WAITING as DEFINITION
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.blame import Blame, most_behind
from netprof.analysis.findings.recorded import RECORDED
from netprof.analysis.findings.stragglers.doing import Doing
from netprof.analysis.findings.stragglers.stragglers import (
    BY_NAME,
    STRAGGLERS,
    StragglersFinding,
    what_late_processes_do,
    what_late_ranks_do,
)
from netprof.analysis.findings.transport.transport_reason import APPLICATION
from netprof.analysis.findings.waiting.open_waits import OpenWaits, open_waits
from netprof.analysis.findings.waiting.waiting_by_iteration import WaitingByIteration, waiting_by_iteration
from netprof.analysis.findings.waiting.waiting_finding import (
    CauseShare,
    RankWaiting,
    WaitingFinding,
    WaitingParts,
    WorstIteration,
    waiting_parts,
)
from netprof.analysis.findings.waiting.waiting_words import blame, blame_of_open_waits, words
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.columns import Int64
from netprof.units import duration

_WORST = 5
_NOTABLE = 1.5
"""How much longer than the median an iteration waits to be listed."""


def _conclude(analysis: Analysis) -> WaitingFinding | None:
    evidence = analysis.evidence
    if set(_pids(evidence, open_waits(evidence))) <= evidence.only_launch:
        return None  # of those that only launch, section `bounds` says what can be said
    stragglers = analysis.of(STRAGGLERS)
    all_do = None if stragglers is None else what_late_ranks_do(evidence, stragglers.made_of)
    if not len(evidence.iterations) and not evidence.is_recent:
        all_do = what_late_processes_do(evidence)
    return waiting_in(evidence, doings_of(stragglers), all_do)


def waiting_in(evidence: Evidence, doings: Mapping[str, Doing], all_do: Doing | None = None) -> WaitingFinding:
    """Return what the account of some evidence amounts to.

    `doings` are what ranks do that hold the job up, `all_do` what all late ranks do.
    """
    unclosed = open_waits(evidence)
    waiting, launching = (
        evidence.account.around,
        evidence.only_launch,
    )  # when processes that only launch wait is unknown
    accounted = evidence.accounted.where(~np.isin(evidence.accounted.pid, sorted(launching)))
    pids = [pid for pid in _pids(evidence, unclosed) if pid not in launching]
    by_rank = tuple(_rank(pid, evidence, unclosed) for pid in pids)
    table = waiting_by_iteration(evidence, accounted)
    exposed_ns = table.waited_ns.sum(axis=(0, 2))
    longest = longest_waits(exposed_ns)
    blames = blame(evidence)
    if all_do is not None and LATE_RANK in blames:
        blames[LATE_RANK] = replace(blames[LATE_RANK], doing=all_do.name)
    return waiting_finding(
        WaitingParts(
            by_rank=by_rank,
            recorded_ns=evidence.recording.total_ns,
            blames=blames | blame_of_open_waits(evidence, unclosed),
            saves_ns=tuple(
                _saves_ns(table, number) + (0 if unclosed is None else unclosed.spared_ns(cause, len(by_rank)))
                for number, cause in enumerate(WAIT_CAUSES)
            ),
            unclosed_ns=unclosed.total_ns if unclosed is not None else 0,
            by_iteration_ns=exposed_ns,
            longest=tuple(_one(row, table, waiting, evidence) for row in longest.tolist() if len(evidence.iterations)),
            of_all_time=len(evidence.accounted) > len(evidence.iterations),
        ),
        doings,
    )


def _pids(evidence: Evidence, unclosed: OpenWaits | None) -> list[int]:
    """Return the processes of an account: all that train where the recording ends in waits, which no step closes."""
    iterations = evidence.accounted if unclosed is None else evidence.found_iterations.iterations
    pids: list[int] = np.unique(iterations.pid).tolist()
    return pids


def longest_waits(exposed_ns: Int64) -> Int64:
    """Return the iterations that wait the most."""
    return np.argsort(-exposed_ns, kind="stable")[:_WORST]


def doings_of(finding: StragglersFinding | None) -> dict[str, Doing]:
    """Return what ranks do that hold the job up, by how they are called."""
    return (
        {} if finding is None else {each.who.label: each.doing for each in finding.stragglers if each.doing is not None}
    )


def waiting_finding(parts: WaitingParts, doings: Mapping[str, Doing]) -> WaitingFinding:
    """Return what the parts of a recording amount to; `doings` is what ranks do, by how they are called."""
    exposed_ns, window_ns = (sum(getattr(r, name) for r in parts.by_rank) for name in ("exposed_ns", "window_ns"))
    notable_ns = _NOTABLE * max(float(np.median(parts.by_iteration_ns)) if len(parts.by_iteration_ns) else 0.0, 1.0)
    return WaitingFinding(
        exposed_ns=exposed_ns,
        window_ns=window_ns,
        exposed_share=share_of(exposed_ns, window_ns) or 0.0,
        unknown_ns=max(0, parts.recorded_ns * len(parts.by_rank) - window_ns),
        causes=tuple(_shares(parts, exposed_ns, doings)),
        by_rank=tuple(sorted(parts.by_rank, key=lambda r: (r.rank is None, r.rank or 0, r.pid))),
        worst=tuple(each for each in parts.longest if each.exposed_ns > notable_ns),
        made_of=parts,
        unclosed_ns=parts.unclosed_ns,
    )


def _merge(findings: Sequence[WaitingFinding | None], whole: Analysis) -> WaitingFinding | None:
    parts = [finding.made_of for finding in findings if finding is not None]
    return in_one(parts, whole.of(RECORDED).total_ns, doings_of(whole.of(STRAGGLERS))) if parts else None


def in_one(parts: Sequence[WaitingParts], recorded_ns: int, doings: Mapping[str, Doing]) -> WaitingFinding:
    """Return the account of consecutive pieces of a recording as one.

    A piece without iterations is accounted for only if there are none in any other piece either.
    """
    parts = [part for part in parts if not part.of_all_time] or parts
    return waiting_finding(
        WaitingParts(
            by_rank=tuple(put_together((part.by_rank for part in parts), lambda rank: rank.pid)),
            recorded_ns=recorded_ns,
            blames=_blames(parts),
            saves_ns=tuple(sum(column) for column in zip(*(part.saves_ns for part in parts), strict=True)),
            by_iteration_ns=np.concatenate([part.by_iteration_ns for part in parts]),
            longest=tuple(_longest(parts)),
            unclosed_ns=sum(part.unclosed_ns for part in parts),
        ),
        doings,
    )


def _blames(parts: Sequence[WaitingParts]) -> dict[Cause, Blame]:
    by_cause: dict[Cause, list[tuple[int, Blame]]] = {}
    for part in parts:
        for cause, who in part.blames.items():
            number = WAIT_CAUSES.index(cause)
            by_cause.setdefault(cause, []).append((sum(rank.causes_ns[number] for rank in part.by_rank), who))
    return {cause: most_behind(each) for cause, each in by_cause.items()}


def _longest(parts: Sequence[WaitingParts]) -> list[WorstIteration]:
    """Return the iterations that wait the most in any part, numbered through."""
    worst, before = [], 0
    for part in parts:
        worst += [replace(each, number=each.number + before) for each in part.longest]
        before += len(part.by_iteration_ns)
    return sorted(worst, key=lambda each: -each.exposed_ns)[:_WORST]


def _rank(pid: int, evidence: Evidence, unclosed: OpenWaits | None) -> RankWaiting:
    stretches = evidence.account.waiting.of_pid(pid)
    iterations = evidence.accounted.of_pid(pid)
    causes = np.bincount(stretches.cause, weights=stretches.length_ns, minlength=len(WAIT_CAUSES)).astype(np.int64)
    window = int(iterations.duration_ns.sum())
    rank = RankWaiting(pid, evidence.ranks.get(pid), window, int(causes.sum()), tuple(causes.tolist()))
    return rank if unclosed is None else unclosed.added_to(rank)


def _shares(parts: WaitingParts, exposed_ns: int, doings: Mapping[str, Doing]) -> list[CauseShare]:
    shares = []
    for number, cause in enumerate(WAIT_CAUSES):
        total = sum(rank.causes_ns[number] for rank in parts.by_rank)
        if total:
            who = parts.blames.get(cause, Blame())
            part, saves_s = total / exposed_ns, parts.saves_ns[number] / 1e9
            saves_s *= 1.0 if who.others is None else who.others  # the job's own bytes need the rest of the time
            doing = (BY_NAME.get(who.doing) or doings.get(who.label)) if cause in (LATE_RANK, HOST) else None
            sentence, advice = words(cause, who, part, doing)
            named = (who.rank, who.ranks, who.link, who.flow, None if doing is None else doing.name)
            by_hosts = cause is TRANSPORT and who.reason.name == APPLICATION.name
            shares.append(CauseShare(cause, total, part, saves_s, sentence, advice, *named, by_hosts, who.part))
    return sorted(shares, key=lambda share: -share.ns)


def _saves_ns(table: WaitingByIteration, number: int) -> int:
    """Return what all iterations would be shorter without a cause: what every rank of each one has in common.

    All ranks of a job keep step, so an iteration gets shorter by what its least waiting rank waits, of those that train
    in it. The late rank itself does not wait: it would be faster by what the others wait for it.
    """
    spared = table.waited_ns[:, :, number]
    if WAIT_CAUSES[number] is LATE_RANK:
        spared = np.maximum(spared, table.late_for_ns)
    least = spared.min(axis=0, where=table.trains, initial=np.iinfo(np.int64).max)
    return int(least[table.trains.any(axis=0)].sum()) if spared.size else 0


def _one(row: int, table: WaitingByIteration, waiting: Waiting, evidence: Evidence) -> WorstIteration:
    causes = table.waited_ns[:, row].sum(axis=0)
    begin, end = int(table.begin_ns[row]), int(table.end_ns[row])
    inside = waiting.of(WAIT_CAUSES[int(np.argmax(causes))])
    inside = inside.where((inside.end_ns > begin) & (inside.begin_ns < end) & (inside.culprit != NOBODY))
    rank = None
    if len(inside):
        pids, index = np.unique(inside.culprit, return_inverse=True)
        rank = evidence.ranks.get(int(pids[np.argmax(np.bincount(index, weights=inside.length_ns))]))
    return waited_iteration(row, (begin, end), causes, rank)


def waited_iteration(row: int, span_ns: tuple[int, int], causes_ns: Int64, rank: int | None) -> WorstIteration:
    """Return an iteration and what it waited for, in the order of WAIT_CAUSES; `rank` is behind most of it."""
    cause, (begin, end) = WAIT_CAUSES[int(np.argmax(causes_ns))], span_ns
    who = f" (rank {rank})" if rank is not None else ""
    exposed_ns = int(causes_ns.sum())
    sentence = f"{duration(int(causes_ns.max()) / 1e9)} of {duration(exposed_ns / 1e9)} for {cause.title}{who}"
    return WorstIteration(row, begin, end - begin, exposed_ns, tuple(causes_ns.tolist()), cause, rank, sentence)


def _document(finding: WaitingFinding | None) -> dict[str, Any]:
    if finding is None:
        return {"waiting": None}
    return {
        "waiting": {
            **json_of(finding, "exposed_s exposed_share_of_all_time=exposed_share unknown_s unclosed_s"),
            "causes": [json_of(each, _CAUSE) | named(each, doing=each.doing) for each in finding.causes],
            "by_rank": [json_of(each, f"{RANK} causes_s=by_cause") for each in finding.by_rank],
            "worst_iterations": [json_of(each, _ITERATION) for each in finding.worst],
        }
    }


RANK = "rank pid window_s exposed_s exposed_share"
_CAUSE = "cause=cause.name seconds=ns share saves_s sentence advice"
_ITERATION = "number begin_ns duration_s exposed_s cause=cause.name rank causes_s=by_cause sentence"


def named(share: CauseShare, **more: Any) -> dict[str, Any]:
    """Return for JSON whom a cause names, as far as it does."""
    every = json_of(share, "rank link flow", ranks=list(share.ranks) or None, **more)
    return {name: value for name, value in every.items() if value is not None}


WAITING = Section(
    "waiting",
    _conclude,
    ("marks", "wire", "flows", "nic", "tcp"),
    _document,
    waiting_parts,
    merge=_merge,
    definitions=lambda finding: (DEFINITION,) if finding and finding.exposed_ns else (),
)
