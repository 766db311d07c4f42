"""Transports: how long a collective occupies the link, as a part that no link speed changes and a part in bits.

Every transport is linear in 1/bandwidth, so that one evaluation per collective serves a whole sweep:
seconds = fixed_s + (bits + turn_bits) / bandwidth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from netprof.analysis.events.factors import sent_per_byte
from netprof.analysis.tables.columns import Float64, Int64
from netprof.analysis.whatif.fit import AlphaBeta
from netprof.schema import CollectiveKind


class Terms(NamedTuple):
    """What messages cost, arrays of one shape: a time, `bits` for the slowest link of those that exchange them, and
    `turn_bits` during which that one stands still: the others' links are full then, it is their turn.
    """

    fixed_s: Float64
    bits: Float64
    turn_bits: Float64

    def then(self, following: Terms) -> Terms:
        """Return what both cost, one after the other."""
        return Terms(*(a + b for a, b in zip(self, following, strict=True)))


class Spoken(NamedTuple):
    """What a fit is for: collectives of one kind in groups of one size."""

    kind: int
    ranks: int


GLOO_TURNS: Mapping[Spoken, float] = {Spoken(int(CollectiveKind.ALL_GATHER), 2): 0.5}
"""Turns (`FittedTransport`) that are known of gloo's ways, where they were not recorded.

Its all-gather between two ranks takes half as long again as the bytes need, and between more hardly longer: what
examples/benchmarks/gloo_all_gather.py measures.
"""


@dataclass(frozen=True)
class AddTable:
    """Measured vector additions: `seconds` by ascending `bytes`, both of shape (A,), A > 0."""

    bytes: Float64
    seconds: Float64

    def seconds_at(self, size_bytes: Float64) -> Float64:
        """Interpolate linearly; outside the table, its nearest entry."""
        return np.interp(size_bytes, self.bytes, self.seconds).astype(np.float64)


def algorithm_bits(kind: Int64, size_bytes: Float64, ranks: Int64) -> Float64:
    """Return the bits that a rank has to send for a buffer: of an all-reduce 2(N−1)/N, of most others (N−1)/N."""
    return np.asarray(8.0 * size_bytes * sent_per_byte(kind, ranks))


@dataclass(frozen=True)
class FullLink:
    """A transport that always fills the link: 2·8S(N−1)/N / bandwidth + (N−1)·add(S/N) (arXiv 2006.10103).

    `overhead` is the wire bytes that were observed per byte that the algorithm sends. Without `add`, additions cost
    nothing.
    """

    add: AddTable | None = None
    overhead: float = 1.0

    def terms(self, kind: Int64, size_bytes: Float64, ranks: Int64) -> Terms:
        """Return the terms; only all-reduces and reduce-scatters add."""
        bits = self.overhead * algorithm_bits(kind, size_bytes, ranks)
        if self.add is None:
            return Terms(np.zeros_like(bits), bits, np.zeros_like(bits))
        adds = (kind == CollectiveKind.ALL_REDUCE) | (kind == CollectiveKind.REDUCE_SCATTER)
        add_s = np.where(adds, (ranks - 1.0) * self.add.seconds_at(size_bytes / ranks), 0.0)
        return Terms(add_s, bits, np.zeros_like(bits))


@dataclass(frozen=True)
class FittedTransport:
    """The trace's own transport: α + S·(β − link time per byte) that no link speed changes, and what links carry.

    `fits` hold α and β of each kind and group size that was recorded, at `bandwidth_bps`; what is left of β when the
    time is taken off in which links are full are copies, additions and waits inside the collective. `turns` is that
    time over the wire bytes' own, less one: above 0 where the members' links are not full all at once; it may hold
    kinds and sizes that were not recorded. To other group sizes α goes as the ring's steps and the rest as its bytes,
    and so to kinds that were not recorded: an assumption, none where recorded.

    Collectives that took less than their bytes need at that rate (ranks before a narrow link are done while data still
    wait there) do so at every rate, by the same factor: no link speed is beyond what carries the bytes.
    """

    fits: Mapping[Spoken, AlphaBeta]
    bandwidth_bps: float
    overhead: float = 1.0
    turns: Mapping[Spoken, float] = field(default_factory=dict)

    def terms(self, kind: Int64, size_bytes: Float64, ranks: Int64) -> Terms:
        """Return the terms."""
        kind, size_bytes, ranks = np.broadcast_arrays(kind, size_bytes, ranks)
        bits = np.array(self.overhead * algorithm_bits(kind, size_bytes, ranks))
        fixed, turns = np.zeros(bits.shape), np.zeros(bits.shape)
        for spoken in {Spoken(*pair) for pair in zip(kind.ravel().tolist(), ranks.ravel().tolist(), strict=True)}:
            mine, like = (kind == spoken.kind) & (ranks == spoken.ranks), self._nearest(spoken)
            bits[mine] *= self._of_its_bytes(like)
            fixed[mine] = self._fixed_s(spoken, like, size_bytes[mine])
            turns[mine] = self.turns.get(spoken, self.turns.get(like, 0.0))
        return Terms(fixed, bits, bits * turns)

    def rest_s_per_byte(self, spoken: Spoken) -> float:
        """Return what a byte of buffer costs beside the links' time, of a kind that was recorded."""
        return self.fits[spoken].seconds_per_byte - self._link_s_per_byte(spoken)

    def _of_its_bytes(self, spoken: Spoken) -> float:
        """Return what of the time that its bytes need was taken, 1 at most; 1 where no byte is sent (groups of one)."""
        link_s = self._link_s_per_byte(spoken)
        return min(self.fits[spoken].seconds_per_byte / link_s, 1.0) if link_s > 0 else 1.0

    def _link_s_per_byte(self, spoken: Spoken) -> float:
        bits = algorithm_bits(np.array(spoken.kind), np.array(1.0), np.array(spoken.ranks))
        return self.overhead * (1.0 + self.turns.get(spoken, 0.0)) * float(bits) / self.bandwidth_bps

    def _fixed_s(self, wanted: Spoken, like: Spoken, size_bytes: Float64) -> Float64:
        kinds, ranks = np.array([wanted.kind, like.kind]), np.array([wanted.ranks, like.ranks])
        # messages that follow one another in a ring: 2(N−1) of an all-reduce, N−1 of the others
        steps = np.where(kinds == CollectiveKind.ALL_REDUCE, 2.0, 1.0) * (ranks - 1.0)
        rest = max(self.rest_s_per_byte(like), 0.0) * _ratio(sent_per_byte(kinds, ranks))
        return np.asarray(self.fits[like].latency_s * _ratio(steps) + rest * size_bytes)

    def _nearest(self, wanted: Spoken) -> Spoken:
        """Return what was recorded that is most like `wanted`: of its kind, else all-reduces; of the nearest size."""

        def unlike(recorded: Spoken) -> tuple[bool, bool, int, int]:
            other_kind = recorded.kind != wanted.kind
            far = abs(recorded.ranks - wanted.ranks)
            no_all_reduce = other_kind and recorded.kind != CollectiveKind.ALL_REDUCE
            return other_kind, no_all_reduce, far, -self.fits[recorded].samples

        return min(self.fits, key=unlike)


def _ratio(pair: Float64) -> float:
    return float(pair[0] / pair[1]) if pair[1] > 0 else 1.0


Transport = FullLink | FittedTransport
"""What a message costs."""
