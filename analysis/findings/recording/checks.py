"""What has to hold for the numbers to be true: each check that fails is named beside them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

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
from netprof.analysis.wire.served import MEASURING_ERROR
from netprof.units import count, listed, percent, size

_NEARLY_ALL = 0.99
"""Share of the bytes that the algorithm needs from which on all were seen: edges of a recording cut some off."""
_MATTERS = 0.01
"""Share of the job's bytes from which on a peer matters."""
_HEADERS = 1.08
"""A device that counts segmented packets with one header counts this much less than goes over the wire."""
_ONE_SAMPLE_BYTES = 1 << 20
_some = partial(listed, most=3)
_SAID = ("line_rate", "tcp_totals")
"""Checks whose sections say themselves what does not hold."""
OF_THE_JOB = ("peers", "members")
"""Checks that fail where a part of the job was not recorded; what was recorded is none the worse."""


@dataclass(frozen=True)
class Check:
    """Whether something holds; None where nothing tells. `sentence` says what does not."""

    name: str
    holds: bool | None
    sentence: str = ""

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
    found = {check.name: check for check in put_together(parts, lambda check: check.name, operator.or_)}
    return tuple((found | again).values())


def _all_bytes_seen(ranks: Sequence[RankSummary]) -> Check:
    known = [
        (rank, r)
        for rank in ranks
        if (r := rank.bandwidths.payload_to_algorithm_ratio) is not None and not _nearly_a_step(rank, r)
    ]
    needed = sum(rank.bandwidths.algorithm_bytes or 0.0 for rank, _ in known)
    enough = sum(rank.bandwidths.payload_bytes or 0.0 for rank, _ in known) >= _NEARLY_ALL * needed
    few = [
        f"{rank.label} {percent(ratio)}"
        for rank, ratio in known
        if ratio < _NEARLY_ALL and (rank.bandwidths.even or not enough)
    ]
    sentence = f"fewer bytes were seen to be sent than the collectives need ({_some(few)} of them)" if few else ""
    return Check("payload_of_collectives", not few if known else None, sentence)


def _nearly_a_step(rank: RankSummary, ratio: float) -> bool:
    """Return whether so little is missing that a rank may have sent it before its first step, or will after the last.

    A rank sends what it has while the last one has not asked yet.
    """
    steps = rank.bandwidths.count if rank.durations is None else rank.durations.count
    return _NEARLY_ALL > ratio >= 1 - 1 / max(steps, 1)


def _below_line_rate(links: Sequence[LinkSummary]) -> Check:
    rated = [link for link in links if link.line_rate_bps]
    fast = [f"{link.label}, {percent(link.kept_up)}" for link in rated if link.kept_up > MEASURING_ERROR]
    sentence = f"a link keeps up more than its line rate ({_some(fast)}), so that is wrong" if fast else ""
    return Check("line_rate", not fast if rated else None, sentence)


def _within_the_device(links: Sequence[LinkSummary]) -> Check:
    counted = [(link, link.nic) for link in links if link.nic is not None]
    beyond = [
        link.label
        for link, nic in counted
        for job, device in ((nic.job_tx_bytes, nic.tx_bytes), (nic.job_rx_bytes, nic.rx_bytes))
        if job > _HEADERS * device + _ONE_SAMPLE_BYTES
    ]
    sentence = f"more bytes of the job were counted than the device itself counted ({_some(beyond)})" if beyond else ""
    return Check("device_counters", not beyond if counted else None, sentence)


def _tcp_agrees(finding: ReconciliationFinding) -> Check:
    sentence = f"TCP moved what was not seen, or less than was: {in_words(finding)}" if finding.holds is False else ""
    return Check("tcp_totals", finding.holds, sentence)


def _peers_are_recorded(recorded: Recorded) -> Check:
    if not recorded.moved_bytes:
        return Check("peers", None)
    lone = recorded.lone_bytes
    large = [peer for peer in lone if lone[peer] >= _MATTERS * recorded.moved_bytes]
    names = [f"{peer}: {size(lone[peer])}" for peer in sorted(large, key=lambda peer: -lone[peer])]
    which = _some(names)
    sentence = f"ranks exchange bytes with peers that are not recorded ({which}): what those do is not known"
    return Check("peers", not large, sentence if large else "")


def _members_are_recorded(evidence: Evidence) -> Check:
    members, pids = evidence.members, evidence.collectives.pid
    known = np.unique(members.group[(members.group >= 0) & (members.ranks != UNKNOWN)]).tolist()
    missing = []
    for group in known:
        rows = members.group == group
        ranks, seen = int(members.ranks[rows][0]), len(np.unique(pids[rows]))
        if seen < ranks:
            missing.append(f"{seen} of {count(ranks, 'rank')}")
    sentence = f"communicators have members that are not recorded ({_some(missing)})" if missing else ""
    return Check("members", not missing if known else None, sentence)


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
    notes=lambda checks: [each.sentence for each in checks if each.holds is False and each.name not in _SAID],
    merge=_merge,
)
