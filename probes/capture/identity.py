"""What tells one packet from another, wherever and in whatever framing it passes: a hash of what no hop changes."""

from __future__ import annotations

import numpy as np

from netprof.probes.capture.packets import Int64, Packets, UInt64, number, wide_number
from netprof.probes.capture.segments import Segments
from netprof.schema import TCP

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_WINDOW_AT = 14  # in TCP's header
_FIXED = 20  # bytes of it before the options


def mixed(found: UInt64, value: Int64 | UInt64) -> UInt64:
    """Return hashes with one more value in each."""
    found = (found ^ value.view(np.uint64)) * _GOLDEN
    return np.asarray(found ^ (found >> np.uint64(29)))


def identities(packets: Packets, segments: Segments, ends: UInt64) -> UInt64:
    """Return for each segment a hash of its headers; `ends` is one of the two ends and the way between them.

    IP's identifier, every number of the transport and its options are in it. What a hop may change is not (time to
    live, marks of congestion), nor what offloads leave to the device (checksums).
    """
    is_tcp = segments.protocol == TCP
    begin = packets.at[segments.packet]
    after = begin + segments.header_bytes
    end = begin + packets.captured[segments.packet]
    fixed = after - segments.option_bytes - _FIXED
    window = np.where(is_tcp, number(packets.data, fixed + _WINDOW_AT, 2), 0)
    kind = segments.flags | segments.opcode << 8 | segments.option_bytes << 16
    found = mixed(ends, segments.sequence << 32 | segments.acknowledged)
    found = mixed(found, segments.payload << 32 | segments.identifier << 16 | window)
    # The last 16 bytes of TCP's options have its time stamps, or the newest blocks that the receiver holds.
    at = np.where(is_tcp, after - np.minimum(segments.option_bytes, 16), after)
    size = np.where(is_tcp, after, after + 8) - at
    for _ in range(2):
        found = mixed(found, _word(packets, at, np.minimum(size, end - at)))
        at, size = at + 8, size - 8
    return mixed(found, kind)


def _word(packets: Packets, at: Int64, size: Int64) -> UInt64:
    """Return the numbers of the first `size` bytes from each place on, of 8 at most; without any, 0."""
    unwanted = (64 - 8 * np.clip(size, 1, 8)).astype(np.uint64)
    return np.where(size > 0, wide_number(packets.data, at) >> unwanted, np.uint64(0))
