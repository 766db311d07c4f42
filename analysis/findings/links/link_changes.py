"""What happened to a device while it was recorded: said in plain words, and listed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from netprof.analysis.declared import json_of
from netprof.analysis.tables.link_history import LinkChange, LinkPast
from netprof.schema import LinkState
from netprof.units import duration, rate

_MOST_CHANGES = 5
"""Changes of one device that are said one by one; links that flap are said to."""


def changes_in_words(device: str, past: LinkPast, started_ns: int) -> Iterator[str]:
    """Yield a sentence for each change of a device; for many changes, the first ones and how many there were."""
    sentences = [
        f"{device} {what} {duration(max(0, after.time_ns - started_ns) / 1e9)} into the recording"
        for before, after in pairwise(past.changes)
        for what in _differences(before, after)
    ]
    yield from sentences[:_MOST_CHANGES]
    if len(sentences) > _MOST_CHANGES:
        changes = len(sentences)
        yield f"{device} changed {changes} times while it was recorded; the first {_MOST_CHANGES} are listed"


def _differences(before: LinkChange, after: LinkChange) -> Iterator[str]:
    if before.state != after.state:
        yield _STATES[after.state]
    elif before.line_rate_bps != after.line_rate_bps:
        old, new = rate(before.line_rate_bps), rate(after.line_rate_bps)
        yield f"went from {old} to {new} ({after.line_rate_source}), each counted while it held,"
    elif before.qdisc != after.qdisc:
        yield f"got other queueing disciplines ({after.qdisc or 'none'})"
    if before.name != after.name:
        yield f"was renamed to {after.name}"
    if before.mtu_bytes != after.mtu_bytes and after.state == before.state != LinkState.GONE:
        yield f"got an MTU of {after.mtu_bytes}"


_STATES = {
    LinkState.GONE: "was removed, so its own counters end",
    LinkState.DOWN: "went down",
    LinkState.UP: "came up",
}


def history(past: LinkPast | None, started_ns: int) -> Sequence[dict[str, Any]]:
    """Return what a device was like from when on, in seconds of the recording."""
    keys = "name state line_rate_bps line_rate_source qdisc mtu_bytes"
    changes = () if past is None else past.changes
    return [{"from_s": max(0, each.time_ns - started_ns) / 1e9, **json_of(each, keys)} for each in changes]
