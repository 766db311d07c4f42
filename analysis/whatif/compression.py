"""Compression methods: what becomes of an exchange of gradients, and what encoding and decoding costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from netprof.analysis.tables.columns import Float64, Int64
from netprof.analysis.whatif.transports import Terms, Transport
from netprof.schema import CollectiveKind

_ALL_REDUCE = np.array(int(CollectiveKind.ALL_REDUCE))
_ALL_GATHER = np.array(int(CollectiveKind.ALL_GATHER))
_FLOAT = 4  # bytes; gradients are taken to be float32


@dataclass(frozen=True)
class Codec:
    """Seconds a byte of gradient: `encode` before it is sent, `decode` after it came, and that for each worker."""

    encode_s_per_byte: float = 0.0
    decode_s_per_byte: float = 0.0
    decode_s_per_byte_and_worker: float = 0.0


class Gradients(NamedTuple):
    """What collectives carry: `bytes` (K,) of each, in `tensors` (K,) gradients, known or assumed."""

    bytes: Float64
    tensors: Float64


class ExchangeCost(NamedTuple):
    """What exchanging gradients costs, arrays of shape (K, W): on the link, before and after."""

    link: Terms
    encode_s: Float64
    decode_s: Float64


@dataclass(frozen=True)
class Dense:
    """Gradients as they are."""

    label: str = "plain"
    assumption: str = ""
    left: float = 1.0

    def link(self, transport: Transport, kind: Int64, gradients: Gradients, ranks: Int64) -> Terms:
        """Return the collectives themselves."""
        return transport.terms(kind[:, None], gradients.bytes[:, None], ranks)


DENSE = Dense()


@dataclass(frozen=True)
class Half:
    """Gradients as 16-bit floats: "fp16" or "bf16"; half the bytes, in the same collectives."""

    label: str
    left: float = 0.5

    @property
    def assumption(self) -> str:
        """That gradients have 32 bits."""
        return f"{self.label}: gradients are taken to be float32, which it halves"

    def link(self, transport: Transport, kind: Int64, gradients: Gradients, ranks: Int64) -> Terms:
        """Return the same collectives with half the bytes: copies and additions inside are halved too."""
        return transport.terms(kind[:, None], gradients.bytes[:, None] / 2, ranks)


@dataclass(frozen=True)
class PowerSgd:
    """Each matrix as a product of two of `rank` columns (Vogels et al., arXiv 1905.13727; torch's powerSGD_hook).

    Three all-reduces one after another: what is not worth compressing, the one factor, the other.
    """

    rank: int
    left: float = 0.0

    @property
    def label(self) -> str:
        """As it is asked for."""
        return f"powersgd:{self.rank}"

    @property
    def assumption(self) -> str:
        """That shapes are not in a trace."""
        return (
            f"{self.label}: a trace does not hold the shapes of parameters; a bucket's gradients are taken to be "
            "square matrices of one size"
        )

    def link(self, transport: Transport, kind: Int64, gradients: Gradients, ranks: Int64) -> Terms:
        """Return the three all-reduces of each bucket."""
        dense, factor = self.parts(gradients)
        first = transport.terms(_ALL_REDUCE, dense[:, None], ranks)
        factors = transport.terms(_ALL_REDUCE, factor[:, None], ranks)
        return first.then(factors).then(factors)

    def parts(self, gradients: Gradients) -> tuple[Float64, Float64]:
        """Return the bytes that stay dense, and those of one factor; both (K,).

        A matrix is compressed if that at least halves it, torch's default.
        """
        side = np.sqrt(gradients.bytes / _FLOAT / gradients.tensors)
        columns = np.minimum(self.rank, side)
        worth = 2 * side * columns * 2 < side**2
        factor = _FLOAT * side * columns * gradients.tensors
        return np.where(worth, 0.0, gradients.bytes), np.where(worth, factor, 0.0)


@dataclass(frozen=True)
class TopK:
    """The largest `share` of the gradients, as values with their indices (Deep Gradient Compression, arXiv 1712.01887).

    Every worker's choice is another one, so that they are gathered, not reduced: bytes grow with the workers.
    """

    share: float

    @property
    def label(self) -> str:
        """As it is asked for."""
        return f"topk:{self.share * 100:g}%"

    @property
    def left(self) -> float:
        """What of the bytes is left."""
        return min(self.share * 2.0, 1.0)

    @property
    def assumption(self) -> str:
        """That vectors cannot be told from matrices."""
        return (
            f"{self.label}: 4-byte values with 4-byte indices, gathered from all workers; vectors (biases), which "
            "stay dense, are not told apart in a trace and taken to be small; after the warm-up; by gloo between two "
            "workers in 1.5 times what the bytes take"
        )

    def link(self, transport: Transport, kind: Int64, gradients: Gradients, ranks: Int64) -> Terms:
        """Return the all-gather of each bucket, never larger than the dense gradients of all workers."""
        of_a_rank = self.left * gradients.bytes[:, None]
        return transport.terms(_ALL_GATHER, of_a_rank * ranks, ranks)


Method = Dense | Half | PowerSgd | TopK
"""A way to make gradients smaller: its name, as it is asked for, what its prediction assumes, and what it leaves.

`left` is about what of the bytes a rank still sends.
"""
