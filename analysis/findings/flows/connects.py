"""Connections that never came to be: nobody answered, or whoever did refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from netprof.analysis.declared import json_of
from netprof.analysis.findings.flows.seen_flows import SEEN_FLOWS, FlowSummary
from netprof.analysis.section import Analysis, Section
from netprof.units import count

_MOST_PACKETS = 12
"""Tries of one connection, and resets that answer them; an established one that is silent keeps fewer, too."""
_NAMED = 3


@dataclass(frozen=True)
class FailedConnects:
    """How many connections to an address failed; `answered` says that a reset came back."""

    remote: str
    tries: int
    answered: bool

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
    found: Counter[tuple[str, bool]] = Counter()
    for flow in flows:
        empty = not (flow.tx.payload_bytes or flow.rx.payload_bytes)
        few = 0 < flow.tx.packets <= _MOST_PACKETS
        # An answer that is no reset is acknowledged: more packets were sent than received then.
        if empty and few and flow.rx.packets in (0, flow.tx.packets):
            found[flow.remote, flow.rx.packets > 0] += 1
    return tuple(FailedConnects(remote, tries, answered) for (remote, answered), tries in found.most_common())


def _conclude(analysis: Analysis) -> tuple[FailedConnects, ...]:
    flows = analysis.of(SEEN_FLOWS)
    listening = {flow.local for flow in flows}  # the other end of a connection on this host is no try
    return tuple(each for each in failed_connects(flows) if each.remote not in listening or not each.answered)


CONNECTS = Section(
    "connects",
    _conclude,
    ("flows", "wire"),
    lambda found: {"failed_connects": [json_of(each, "remote tries refused=answered") for each in found]},
    notes=lambda found: [each.sentence for each in found[:_NAMED]],
)
