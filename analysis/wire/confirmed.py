"""Which devices the job's bytes really pass: the devices' own counters say."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from netprof.analysis.tables.columns import Float64, Int64
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.tables.intervals import interval
from netprof.analysis.wire.bins import Bins, combine
from netprof.analysis.wire.lanes import Lanes
from netprof.analysis.wire.ports import Counted
from netprof.schema import RECEIVE, TRANSMIT, HopKind

LEAST_COUNTED = 0.5
"""A device that counted less than this share of the bytes that are booked on it did not carry them."""
_ENOUGH_BYTES = 1 << 20
"""Of fewer, what a device counted says nothing: another sample may hold them."""
_HARDLY_ANY = 0.01
"""Share of what the members of a bond counted below which one carries none of the job: LACP alone is some packets."""
_ALIKE = 0.5
"""Correlation of what a device counted with the job's bytes, from which on one among several is the one."""

Side = tuple[LinkKey, int]


def counted_share(bins: Bins | None, time_ns: Int64, counted: Int64) -> float | None:
    """Return what a device counted from its first sample to its last, over what is booked on it; None: unknown."""
    if bins is None or len(time_ns) < 2:
        return None
    booked = bins.wire_bytes_in(interval(int(time_ns[0]), int(time_ns[-1])))
    return float(_grown(counted).sum()) / booked if booked >= _ENOUGH_BYTES else None


def unconfirmed(lanes: Lanes, counted: Counted) -> frozenset[Side]:
    """Return the sides of flows' own devices that counted less than half of what is booked there."""
    sides = set()
    for link, (time_ns, *amounts) in counted.items():
        if link in lanes.periods or lanes.above(link):
            continue
        for way in (TRANSMIT, RECEIVE):
            share = counted_share(lanes.of_link(link, way), time_ns, amounts[way])
            if share is not None and share < LEAST_COUNTED:
                sides.add((link, way))
    return frozenset(sides)


def shares_below(lanes: Lanes, counted: Counted) -> dict[Side, float]:
    """Return what share of the bytes that are thought to pass a device below flows' own does; 0: it is not on the path.

    Members of a bond share the bytes as their counters say. Of devices that are only assumed to be the one, it is that
    which counted as the job's bytes went.
    """
    booked: dict[Side, list[Bins]] = {}
    kinds: dict[Side, HopKind] = {}
    rivals: dict[Side, tuple[Side, ...]] = {}
    for lane, _, bins in lanes:
        for passage in lane.below:
            side = passage.link, passage.direction
            booked.setdefault(side, []).append(bins)
            kinds[side] = passage.kind
            rivals[side] = tuple((p.link, p.direction) for p in lane.below if p.kind == passage.kind)
    whole = {side: combine(parts) for side, parts in booked.items()}
    counted_shares = {
        (link, way): counted_share(whole[link, way], counted[link][0], counted[link][1 + way])
        if link in counted
        else None
        for link, way in booked
    }
    shares = {side: 1.0 if share is None or share >= LEAST_COUNTED else 0.0 for side, share in counted_shares.items()}
    for side, kind in kinds.items():
        if kind == HopKind.MEMBER:
            shares[side] = _part_of(side, rivals[side], counted)
        elif kind == HopKind.ASSUMED:
            shares[side] = float(side == _likeliest(rivals[side], whole, counted_shares, counted))
    return shares


def _part_of(side: Side, members: tuple[Side, ...], counted: Counted) -> float:
    """Return a member's share of what all members of a bond have counted; 0 of one that only speaks its protocol."""
    grown = {each: float(_grown(counted[each[0]][1 + each[1]]).sum()) for each in members if each[0] in counted}
    total = sum(grown.values())
    share = grown.get(side, 0.0) / total if total else 0.0
    return share if share >= _HARDLY_ANY else 0.0


def _likeliest(
    rivals: tuple[Side, ...],
    booked: Mapping[Side, Bins | None],
    counted_shares: Mapping[Side, float | None],
    counted: Counted,
) -> Side | None:
    """Return which of some devices carries the job's bytes; None where their counters do not tell."""
    able = [side for side in rivals if (share := counted_shares[side]) is not None and share >= LEAST_COUNTED]
    if len(able) < 2:
        return able[0] if able else None
    alike = [_likeness(booked[side], counted[side[0]][0], counted[side[0]][1 + side[1]]) for side in able]
    best = int(np.argmax(alike))
    return able[best] if alike[best] >= _ALIKE else None


def _likeness(bins: Bins | None, time_ns: Int64, counted: Int64) -> float:
    """Return how what a device counted goes with what is booked, sample by sample: their correlation."""
    booked = np.diff(bins.wire_until(time_ns)) if bins is not None else np.zeros(0)
    grown = _grown(counted)
    if len(booked) < 3 or not booked.std() or not grown.std():
        return 0.0
    return float(np.corrcoef(booked, grown)[0, 1])


def _grown(counted: Int64) -> Float64:
    """Return what a counter grew by between its samples; a reset counts from zero again."""
    steps = np.diff(counted)
    return np.asarray(np.where(steps >= 0, steps, counted[1:]), np.float64)
