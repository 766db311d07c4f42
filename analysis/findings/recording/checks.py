"""What has to hold for the numbers to be true: each check that fails is named beside them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from netprof.analysis.declared import json_of, put_together
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.collectives.ranks import RANKS, RankSummary
from netprof.analysis.findings.flows.reconciliation import RECONCILIATION, ReconciliationFinding, in_words
from netprof.analysis.findings.links.link_summary import LinkSummary
from netprof.analysis.findings.links.links import LINKS
from netprof.analysis.findings.recorded import RECORDED, Recorded
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.columns import UNKNOWN
from netprof.units import count, listed, percent, size

_NEARLY_ALL = 0.99
"""Share of the bytes that the algorithm needs from which on all were seen: edges of a recording cut some off."""
_MATTERS = 0.01
"""Share of the job's bytes from which on a peer matters."""
_HEADERS = 1.08
"""A device that counts segmented packets with one header counts this much less than goes over the wire."""
_ONE_SAMPLE_BYTES = 1 << 20
_NAMED = 3
_NOTED_ELSEWHERE = ("line_rate", "tcp_totals")
"""Checks whose sections say themselves what does not hold."""
OF_THE_JOB = ("peers", "members")
"""Checks that fail where a part of the job was not recorded; what was recorded is none the worse."""


_Group = tuple[int, frozenset[int]]


@dataclass(frozen=True)
class Check:
    """Whether something holds; None where nothing tells. `sentence` says what does not.

    `groups` are how many members each communicator has, and which of them were seen, where it is about them.
    """

    name: str
    holds: bool | None
    sentence: str = ""
    groups: tuple[_Group, ...] = ()

    def __or__(self, other: Check) -> Check:
        """Return what it comes to over two pieces of a recording: it holds only if it fails in neither."""
        return other if self.holds is None or (other.holds is False and self.holds) else self


def _conclude(analysis: Analysis) -> tuple[Check, ...]:
    evidence = analysis.evidence
    return (*_of_findings(analysis), _members_are_recorded(evidence), _account_adds_up(evidence))


def _of_findings(analysis: Analysis) -> tuple[Check, ...]:
    return (
        _all_bytes_seen(analysis.of(RANKS)),
        _below_line_rate(analysis.of(LINKS)),
        _within_the_device(analysis.of(LINKS)),
        _peers_are_recorded(analysis.of(RECORDED)),
        _tcp_agrees(analysis.of(RECONCILIATION)),
    )


def _merge(parts: Sequence[Sequence[Check]], whole: Analysis) -> tuple[Check, ...]:
    again = {check.name: check for check in _of_findings(whole)}
    in_pieces = {check.name: check for check in put_together(parts, lambda check: check.name, operator.or_)}
    members = _members(_all_groups([each for checks in parts for check in checks for each in check.groups]))
    return tuple((in_pieces | again | {members.name: members}).values())


def _all_groups(groups: Sequence[_Group]) -> tuple[_Group, ...]:
    """Return the communicators of all pieces; of one that is complete in a piece, another piece may see a part."""
    every = dict.fromkeys(groups)
    return tuple(
        (ranks, seen)
        for ranks, seen in every
        if len(seen) >= ranks or not any(ranks == size and seen < more for size, more in every)
    )


def _check(name: str, wrong: Sequence[str], sentence: str, *, is_known: bool) -> Check:
    """Return a check that holds where nothing is wrong; what is stands in its sentence in place of {}."""
    return Check(name, not wrong if is_known else None, sentence.format(listed(wrong, _NAMED)) if wrong else "")


def _all_bytes_seen(ranks: Sequence[RankSummary]) -> Check:
    ratios = ((rank, rank.bandwidths.payload_to_algorithm_ratio) for rank in ranks)
    known = [(rank, ratio) for rank, ratio in ratios if ratio is not None and not _nearly_a_step(rank, ratio)]
    needed = sum(rank.bandwidths.algorithm_bytes or 0.0 for rank, _ in known)
    enough = sum(rank.bandwidths.payload_bytes or 0.0 for rank, _ in known) >= _NEARLY_ALL * needed
    few = [
        f"{rank.label} {percent(ratio)}"
        for rank, ratio in known
        if ratio < _NEARLY_ALL and (rank.bandwidths.even or not enough)
    ]
    sentence = "fewer bytes were seen to be sent than the collectives need ({} of them)"
    return _check("payload_of_collectives", few, sentence, is_known=bool(known))


def _nearly_a_step(rank: RankSummary, ratio: float) -> bool:
    """Return whether so little is missing that a rank may have sent it before its first step, or will after the last.

    A rank sends what it has while the last one has not asked yet.
    """
    steps = rank.bandwidths.count if rank.durations is None else rank.durations.count
    return _NEARLY_ALL > ratio >= 1 - 1 / max(steps, 1)


def _below_line_rate(links: Sequence[LinkSummary]) -> Check:
    rated = [link for link in links if link.line_rate_bps]
    fast = [f"{link.label}, {percent(link.kept_up)}" for link in rated if link.rate_is_wrong]
    sentence = "a link keeps up more than its line rate ({}), so that is wrong"
    return _check("line_rate", fast, sentence, is_known=bool(rated))


def _within_the_device(links: Sequence[LinkSummary]) -> Check:
    counted = [(link, link.nic) for link in links if link.nic is not None]
    beyond = [
        link.label
        for link, nic in counted
        for job, device in ((nic.job_tx_bytes, nic.tx_bytes), (nic.job_rx_bytes, nic.rx_bytes))
        if job > _HEADERS * device + _ONE_SAMPLE_BYTES
    ]
    sentence = "more bytes of the job were counted than the device itself counted ({})"
    return _check("device_counters", beyond, sentence, is_known=bool(counted))


def _tcp_agrees(finding: ReconciliationFinding) -> Check:
    sentence = f"TCP moved what was not seen, or less than was: {in_words(finding)}" if finding.holds is False else ""
    return Check("tcp_totals", finding.holds, sentence)


def _peers_are_recorded(recorded: Recorded) -> Check:
    lone = sorted(recorded.lone_bytes.items(), key=lambda each: -each[1])
    large = [f"{peer}: {size(amount)}" for peer, amount in lone if amount >= _MATTERS * recorded.moved_bytes]
    sentence = "ranks exchange bytes with peers that are not recorded ({}): what those do is not known"
    return _check("peers", large, sentence, is_known=recorded.moved_bytes > 0)


def _members_are_recorded(evidence: Evidence) -> Check:
    members, pids = evidence.members, evidence.collectives.pid
    known = np.unique(members.group[(members.group >= 0) & (members.ranks != UNKNOWN)]).tolist()
    masks = [members.group == group for group in known]
    return _members([(int(members.ranks[mask][0]), frozenset(np.unique(pids[mask]).tolist())) for mask in masks])


def _members(groups: Sequence[_Group]) -> Check:
    missing = [f"{len(seen)} of {count(ranks, 'rank')}" for ranks, seen in groups if len(seen) < ranks]
    check = _check("members", missing, "communicators have members that are not recorded ({})", is_known=bool(groups))
    return replace(check, groups=tuple(groups))


def _account_adds_up(evidence: Evidence) -> Check:
    exposed_ns = sum(times.total_ns for times in evidence.exposed.values())
    found_ns = int(evidence.account.waiting.length_ns.sum()) if evidence.exposed else 0
    sentence = f"the causes of waiting add up to {found_ns} ns, the waiting is {exposed_ns} ns"
    return Check("account", found_ns == exposed_ns, "" if found_ns == exposed_ns else sentence)


CHECKS = Section(
    "checks",
    _conclude,
    ("marks", "wire", "flows", "nic"),
    lambda checks: {"checks": [json_of(each, "name holds", sentence=each.sentence or None) for each in checks]},
    notes=lambda checks: [
        each.sentence for each in checks if each.holds is False and each.name not in _NOTED_ELSEWHERE
    ],
    merge=_merge,
)
