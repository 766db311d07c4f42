"""Connections that never came to be: nobody answered, or whoever did refused."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from netprof.analysis.declared import json_of
from netprof.analysis.findings.flows.seen_flows import SEEN_FLOWS, FlowSummary
from netprof.analysis.findings.names import rank_or_pid
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.columns import int64_column
from netprof.units import count

_MOST_PACKETS = 12
"""Tries of one connection, and resets that answer them; an established one that is silent keeps fewer, too."""
_NAMED = 3
_SECOND_SYN_NS = 900_000_000
"""TCP asks again after a second."""


@dataclass(frozen=True)
class FailedConnects:
    """How many connections to an address failed, with how many packets; `answered` says that a reset came back.

    `who` is whose they were, for a person; "" where that is not known, or they were several processes'. `at_once` says
    that each was given up before TCP would have asked again: a reset that answers the first packet is not counted.
    """

    remote: str
    tries: int
    answered: bool
    packets: int = 0
    who: str = ""
    at_once: bool = False

    @property
    def sentence(self) -> str:
        """What happened, and where to look."""
        how = "refused" if self.answered else "not answered"
        were = "was" if self.tries == 1 else "were"
        return (
            f"{count(self.tries, 'connection')} to {self.remote} {were} {how}: check that this is the address that the "
            "other ranks listen on (MASTER_ADDR, /etc/hosts, a firewall)"
        )


def failed_connects(flows: Sequence[FlowSummary]) -> tuple[FailedConnects, ...]:
    """Return the addresses to which connections failed, most tries first."""
    failed: Counter[tuple[str, bool]] = Counter()
    packets: Counter[tuple[str, bool]] = Counter()
    who: dict[tuple[str, bool], set[str]] = {}
    begun_ns: dict[tuple[str, bool], list[int]] = {}
    for flow in flows:
        empty = not (flow.tx.payload_bytes or flow.rx.payload_bytes)
        few = 0 < flow.tx.packets <= _MOST_PACKETS
        # An answer that is no reset is acknowledged: more packets were sent than received then.
        if empty and few and flow.rx.packets in (0, flow.tx.packets):
            key = flow.remote, flow.rx.packets > 0
            failed[key] += 1
            packets[key] += flow.tx.packets
            begun_ns.setdefault(key, []).append(flow.tx.first_ns or 0)
            who.setdefault(key, set()).add(rank_or_pid(flow.rank, flow.pid))
    return tuple(
        FailedConnects(
            key[0],
            tries,
            key[1],
            packets[key],
            who[key].pop() if len(who[key]) == 1 else "",
            at_once=not key[1] and tries > 1 and packets[key] == tries and _soon(begun_ns[key]),
        )
        for key, tries in failed.most_common()
    )


def _soon(begun_ns: list[int]) -> bool:
    """Tell whether each try begins before the one before it would have sent a second packet."""
    begun_ns.sort()
    return all(after - before < _SECOND_SYN_NS for before, after in itertools.pairwise(begun_ns))


def _conclude(analysis: Analysis) -> tuple[FailedConnects, ...]:
    if analysis.evidence.is_recent or analysis.meta.trimmed:
        return ()  # of what was before nothing is held, and an idle connection looks alike
    table, seen = analysis.evidence.table("flows"), analysis.of(SEEN_FLOWS)
    established = int64_column(table, "flow_id")[int64_column(table, "earlier_received_packets") > 0].tolist()
    flows = [flow for flow in seen if flow.flow_id not in set(established)]
    listening = {flow.local for flow in seen}  # the other end of a connection on this host is no try
    return tuple(each for each in failed_connects(flows) if each.remote not in listening or not each.answered)


CONNECTS = Section(
    "connects",
    _conclude,
    ("flows", "wire"),
    lambda connects: {"failed_connects": [json_of(each, "remote tries refused=answered") for each in connects]},
    notes=lambda connects: [each.sentence for each in connects[:_NAMED]],
)
