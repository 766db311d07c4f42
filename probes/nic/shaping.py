"""The rate that a device's queueing disciplines hold it to: tbf, htb, netem's rate and cake, also nested.

A limit on one class is the device's limit only if that class carries (nearly) everything; its byte counters say so.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from netprof.probes.kernel.netlink import attributes, number
from netprof.probes.kernel.rtnetlink import ROOT, TrafficControl

_SINGLE_CHILD = {"tbf", "netem"}  # all that passes them passes their only child
_NOT_READ = {"hfsc", "cbq", "taprio", "mqprio"}  # may shape, in ways netprof does not work out
_NEARLY_ALL = 0.99
_ENOUGH_BYTES = 1_000_000  # before this much was sent, nothing can be said about shares

_TBF_PARMS, _TBF_RATE64 = 1, 4
_HTB_PARMS, _HTB_INIT = 1, 2
_NETEM_RATE, _NETEM_RATE64, _NETEM_STRUCT_BYTES = 6, 8, 24
_CAKE_BASE_RATE64 = 2
_FQ_FLOW_MAX_RATE, _FQ_UNLIMITED = 7, 0xFFFFFFFF
_RATE_OFFSET = 8  # of the u32 rate in a `struct tc_ratespec`
_HTB_RATE, _HTB_CEIL = (6, _RATE_OFFSET), (7, 12 + _RATE_OFFSET)  # in 64 bits, and in the parms' two tc_ratespecs


@dataclass(frozen=True)
class Shaping:
    """The lowest rate that everything on a device must pass, in bits per second; None where there is none."""

    bps: float | None = None
    source: str = ""
    remark: str = ""  # a limit that was seen but does not hold for the whole device, and why


def shaping(qdiscs: Sequence[TrafficControl], classes: Sequence[TrafficControl]) -> Shaping:
    """Return the limit that one device's transmit side is held to by its queueing disciplines."""
    roots = [qdisc for qdisc in qdiscs if qdisc.parent == ROOT]
    return _limit(roots[0], qdiscs, classes) if roots else Shaping()


def flow_rate_bps(qdiscs: Sequence[TrafficControl]) -> float | None:
    """Return the least rate that fq on a device holds each flow to (maxrate), in bits per second; None: none does."""
    rates = [number(attributes(each.options).get(_FQ_FLOW_MAX_RATE, b"")) for each in qdiscs if each.kind == "fq"]
    return min((rate * 8.0 for rate in rates if 0 < rate < _FQ_UNLIMITED), default=None)


def _limit(qdisc: TrafficControl, qdiscs: Sequence[TrafficControl], classes: Sequence[TrafficControl]) -> Shaping:
    """Return the limit of `qdisc` and everything below it."""
    itself = _htb(qdisc, classes) if qdisc.kind == "htb" else _classless(qdisc)
    below = _below(qdisc, qdiscs, classes)
    limits = [limit for limit in (itself, below) if limit.bps is not None]
    if not limits:
        return itself if itself.remark else below
    return min(limits, key=lambda limit: limit.bps or 0.0)


def _classless(qdisc: TrafficControl) -> Shaping:
    """Return the limit that a queueing discipline without classes sets itself."""
    bytes_per_s = 0
    if qdisc.kind == "tbf":
        options = attributes(qdisc.options)
        bytes_per_s = number(options.get(_TBF_RATE64, b"")) or number(options.get(_TBF_PARMS, b"")[_RATE_OFFSET:12])
    elif qdisc.kind == "netem":
        options = attributes(qdisc.options[_NETEM_STRUCT_BYTES:])
        bytes_per_s = number(options.get(_NETEM_RATE64, b"")) or number(options.get(_NETEM_RATE, b"")[:4])
    elif qdisc.kind == "cake":
        bytes_per_s = number(attributes(qdisc.options).get(_CAKE_BASE_RATE64, b""))
    elif qdisc.kind in _NOT_READ:
        return Shaping(remark=f"a {qdisc.kind} qdisc may shape it, which netprof does not work out")
    return Shaping(bytes_per_s * 8.0, qdisc.kind) if bytes_per_s else Shaping()


def _below(qdisc: TrafficControl, qdiscs: Sequence[TrafficControl], classes: Sequence[TrafficControl]) -> Shaping:
    """Return the limit set by the one child of `qdisc` that carries everything, if there is such a child."""
    if qdisc.handle == 0 and qdisc.parent != ROOT:
        return Shaping()  # a default leaf: it has no handle that a child could name
    children = [
        child
        for child in qdiscs
        if child is not qdisc and child.parent != ROOT and _major(child.parent) == qdisc.handle
    ]
    remark = ""
    for child in children:
        limit = _limit(child, qdiscs, classes)
        if limit.bps is None:
            remark = remark or limit.remark
        elif qdisc.kind in _SINGLE_CHILD:
            return limit
        elif _carries_nearly_all(child, qdisc):
            share = 100 * child.sent_bytes / qdisc.sent_bytes
            source = (
                f"{limit.source} in {qdisc.kind} class {_name(child.parent)}, {share:.1f} % of the bytes sent so far"
            )
            return Shaping(limit.bps, source)
        else:
            remark = f"{limit.source} limits only {qdisc.kind} class {_name(child.parent)}"
    return Shaping(remark=remark)


def _htb(qdisc: TrafficControl, classes: Sequence[TrafficControl]) -> Shaping:
    """Return what the classes of an htb let through: the busy class's limit, else all of them together."""
    tree = {entry.handle: entry for entry in classes if _major(entry.handle) == qdisc.handle and entry.kind == "htb"}
    parents = {entry.parent for entry in tree.values()}
    leaves = [entry for entry in tree.values() if entry.handle not in parents]
    if not leaves:
        return Shaping(remark="an htb qdisc without classes limits nothing")
    if _bypassed(qdisc, tree):
        return Shaping(remark="traffic bypasses the classes of its htb qdisc")
    for leaf in leaves:
        if len(leaves) > 1 and _carries_nearly_all(leaf, qdisc):
            share = 100 * leaf.sent_bytes / qdisc.sent_bytes
            source = f"htb class {_name(leaf.handle)}, {share:.1f} % of the bytes sent so far"
            return Shaping(_htb_leaf_bps(leaf, tree), source)
    roots = [entry for entry in tree.values() if entry.parent not in tree]
    together = min(sum(_htb_bps(root, _HTB_RATE) for root in roots), sum(_htb_leaf_bps(leaf, tree) for leaf in leaves))
    return Shaping(together, "htb" if len(leaves) == 1 else f"htb, its {len(leaves)} leaf classes together")


def _htb_leaf_bps(leaf: TrafficControl, tree: dict[int, TrafficControl]) -> float:
    """Return the most a class can send: its ceil and those above it; at the top the rate, as nobody lends there."""
    limits, entry = [], leaf
    for _ in range(len(tree)):  # bounded, should a dump taken during a change not be a tree
        if entry.parent not in tree:
            break
        limits.append(_htb_bps(entry, _HTB_CEIL))
        entry = tree[entry.parent]
    return min([*limits, _htb_bps(entry, _HTB_RATE)])


def _htb_bps(entry: TrafficControl, kind: tuple[int, int]) -> float:
    """Return a rate of a class: that of _HTB_RATE or _HTB_CEIL."""
    options, (large, at) = attributes(entry.options), kind
    return (number(options.get(large, b"")) or number(options.get(_HTB_PARMS, b"")[at : at + 4])) * 8.0


def _bypassed(qdisc: TrafficControl, tree: dict[int, TrafficControl]) -> bool:
    """Tell whether an htb sends packets that no class took: they did so far or, where little was sent, they would."""
    glob = attributes(qdisc.options).get(_HTB_INIT, b"")
    default, _, direct_packets = struct.unpack_from("=III", glob, 8) if len(glob) >= 20 else (0, 0, 0)
    if qdisc.sent_bytes < _ENOUGH_BYTES:
        return qdisc.handle | default not in tree
    return bool(direct_packets > (1 - _NEARLY_ALL) * qdisc.sent_packets)


def _carries_nearly_all(part: TrafficControl, whole: TrafficControl) -> bool:
    return whole.sent_bytes >= _ENOUGH_BYTES and part.sent_bytes >= _NEARLY_ALL * whole.sent_bytes


def _major(handle: int) -> int:
    return handle & 0xFFFF0000


def _name(handle: int) -> str:
    return f"{handle >> 16:x}:{handle & 0xFFFF:x}"
