"""Who or what is behind a cause of waiting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from netprof.analysis.account.bottlenecks import ONE_LINK
from netprof.analysis.findings.transport.transport_reason import NO_CLOCKS, Reason
from netprof.analysis.tables.columns import Float64, Int64

ALONE = 0.8
"""Share of a cause's time that one rank, or one link alone, has to account for to be called the one."""

NEAR = 0.9
"""Share of the longest time from which on two links are full as long as each other: the one that is sure is named."""

ALIKE = 0.5
"""Share of what the first one is behind, from which on another one is named with it."""

HELD_UP = "the recorder was held up"


@dataclass(frozen=True)
class Blame:
    """Who is behind a cause; what is not known is None or empty.

    `label` names the rank or link for a person, `part` is its share of the cause's time, `alone` says that the other
    links of the group have room meanwhile, `in_turns` that no link is full for most of it, and `at_least` that this one
    may be full for longer than `part` says. `advice` is what helps, where that is known of the place. `rivals` are the
    others that may be behind it at the same time, such as other links that are full; `assumed` is one of which the rate
    is only assumed. `doing` is what all late ranks do, by name. `others` is what of a full link is not the job's, where
    that is known.
    """

    label: str = ""
    part: float = 1.0
    rank: int | None = None
    ranks: tuple[int, ...] = ()
    link: str | None = None
    flow: str | None = None
    alone: bool = False
    detail: str = ""
    reason: Reason = NO_CLOCKS
    in_turns: bool = False
    at_least: bool = False
    advice: str = ""
    assumed: bool = False
    doing: str = ""
    others: float | None = None
    rivals: tuple[Blame, ...] = ()


def alike(pids: Int64, lengths: Float64 | Int64, ranks: Mapping[int, int]) -> tuple[int, ...]:
    """Return the ranks that are behind about as much of a cause as the first one: to name one of them would be luck."""
    if lengths.max() >= ALONE * lengths.sum():
        return ()
    return tuple(sorted(ranks[pid] for pid in pids[lengths >= ALIKE * lengths.max()].tolist() if pid in ranks))


def most_behind(pieces: Sequence[tuple[int, Blame]]) -> Blame:
    """Return who is behind most of a cause, given how long it lasted in each piece of a recording, and who was then."""
    candidates = [(length_ns, who) for length_ns, first in pieces for who in (first, *first.rivals)]
    weights: dict[tuple[str, str], float] = {}
    for length_ns, who in candidates:
        weights[_name(who)] = weights.get(_name(who), 0.0) + length_ns * who.part
    near = [name for name, weight in weights.items() if weight >= NEAR * max(weights.values())]
    known = {_name(who) for _, who in candidates if not who.assumed}
    most = max(near, key=lambda name: (name in known, weights[name]))
    alike = [(length_ns, who) for length_ns, who in candidates if _name(who) == most]
    alone = sum(length_ns for length_ns, who in alike if who.alone) * 2 > sum(length_ns for length_ns, _ in alike)
    part = weights[most] / max(sum(length_ns for length_ns, _ in pieces), 1)
    longest = max(alike, key=lambda pair: pair[0])[1]
    return replace(longest, part=part, alone=alone, in_turns=longest.link is not None and part < ONE_LINK)


def _name(who: Blame) -> tuple[str, str]:
    return who.label, who.reason.name
