"""What the collectives of a program cost at each point of a sweep: the transport, the compression, the links' rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from netprof.analysis.tables.columns import Float64
from netprof.analysis.whatif.compression import DENSE, Codec, ExchangeCost, Gradients
from netprof.analysis.whatif.points import Points
from netprof.analysis.whatif.program import Program
from netprof.analysis.whatif.transports import Terms, Transport


@dataclass(frozen=True, eq=False)
class RankLinks:
    """The links of R ranks, shape (R,), bits per second.

    `recorded_bps` is what each had while it was recorded, `legs_bps` what each is held to, infinite where to nothing.
    """

    recorded_bps: Float64
    legs_bps: Float64

    @classmethod
    def alike(cls, ranks: int, recorded_bps: float | None) -> RankLinks:
        """Return links of one rate."""
        return cls(np.full(ranks, np.inf if recorded_bps is None else recorded_bps), np.full(ranks, np.inf))


@dataclass(frozen=True, eq=False)
class Pricing:
    """How collectives are priced.

    `keeps_recorded`: by what each collective took more or less than the transport says, it does so elsewhere too; where
    it gets shorter, by the same factor. Else the transport alone gives the price. `workers` is the job's recorded
    number of ranks, and `codecs` hold what compression computes, by the method's label ("" for a bare ratio).
    """

    transport: Transport
    links: RankLinks
    workers: int
    keeps_recorded: bool
    codecs: Mapping[str, Codec]

    def of(self, program: Program, points: Points, *, as_recorded: bool = False) -> ProgramPrices:
        """Return the prices of a program at some points; `as_recorded` with every link at its recorded rate."""
        return ProgramPrices(self, program, points, as_recorded)


class ProgramPrices:
    """The prices of one program at the P points of a sweep; seconds."""

    def __init__(self, pricing: Pricing, program: Program, points: Points, as_recorded: bool) -> None:
        self.pricing, self.program, self.points = pricing, program, points
        self._as_recorded = as_recorded
        links = pricing.links
        asked = np.broadcast_to(points.bandwidth_bps, (len(links.recorded_bps), len(points)))
        self.rate_bps = links.recorded_bps[:, None] if as_recorded else np.minimum(asked, links.legs_bps[:, None])
        self.workers, self.which_workers = np.unique(points.workers.astype(np.int64), return_inverse=True)

    @cached_property
    def before(self) -> ProgramPrices | None:
        """The prices of what went before the program, None where that is not known."""
        before = self.program.before
        return None if before is None else ProgramPrices(self.pricing, before, self.points, self._as_recorded)

    def link_s(self, collective: int) -> Float64:
        """Return how long a collective occupies the link, of a shape that broadcasts to (R, I, P)."""
        link = Terms(*(self._at(table[:, collective]) for table in self._tables[:3]))
        if self.program.tensors[collective]:
            smaller = self.points.compression
            link = Terms(link.fixed_s, link.bits / smaller, link.turn_bits / smaller)
        fixed_s, wire_s = link.fixed_s, self._wire_s(link, self.rate_bps, collective)
        new_s = (fixed_s + wire_s)[:, None, :]
        recorded = self.program.own_s
        if recorded is None or not self.pricing.keeps_recorded:
            return new_s
        was = Terms(*(term[collective] for term in self._recorded))
        was_wire_s = self._wire_s(was, self.pricing.links.recorded_bps[:, None], collective)
        was_s = (was.fixed_s + was_wire_s)[:, None]
        more_s, was_more_s = self._own_turns_s(link, was, collective)
        own_s = recorded[:, :, collective, None] - was_more_s
        with np.errstate(divide="ignore", invalid="ignore"):
            left = np.where(was_s > 0, np.minimum(new_s / was_s, 1.0), 1.0)
        return np.asarray(new_s + more_s + (own_s - was_s) * left)

    def _own_turns_s(self, link: Terms, was: Terms, collective: int) -> tuple[Float64, Float64]:
        """Return for how much longer than on average links were full in each recorded collective, there and then.

        Of shapes that broadcast to (R, I, P) and (R, I, 1), below 0 where it was shorter. Who is last in one collective
        may be first in the next, and it is the last one that everybody waits for: at other rates too. Where one link
        was slower than the others, it is that one which was full; else it was the others' turn.
        """
        full_s, recorded_bps = self.program.full_s, self.pricing.links.recorded_bps[:, None]
        if full_s is None or was.bits <= 0 or not np.isfinite(recorded_bps).all():
            return np.zeros((1, 1, 1)), np.zeros((1, 1, 1))
        more_s = (full_s[:, :, collective] - full_s[:, :, collective].mean())[:, :, None]
        was_slowest_bps, was_second_bps = self._slowest_and_next(recorded_bps, collective)
        slowest_bps, second_bps = self._slowest_and_next(self.rate_bps, collective)
        one_was_slow = was_slowest_bps < was_second_bps
        slower = np.where(one_was_slow, was_slowest_bps / slowest_bps, was_second_bps / second_bps)
        slower = slower * (link.bits / was.bits)
        return more_s * slower[:, None, :], more_s

    def encode_s(self, collective: int) -> Float64:
        """Return what the rank computes before it posts a collective, shape (P,)."""
        return self._codec_s(self._tables[3][:, collective], collective, encode=True)

    def decode_s(self, collective: int) -> Float64:
        """Return what is computed after a collective's arrival, shape (P,)."""
        return self._codec_s(self._tables[4][:, collective], collective, encode=False)

    def _codec_s(self, of_methods: Float64, collective: int, *, encode: bool) -> Float64:
        ratio = self.pricing.codecs.get("")
        by_method = self._at(of_methods)
        if ratio is None or not self.program.tensors[collective]:
            return by_method
        s_per_byte = ratio.encode_s_per_byte if encode else ratio.decode_s_per_byte
        return np.where(self.points.compression > 1, s_per_byte * self.program.bytes[collective], by_method)

    def _at(self, table: Float64) -> Float64:
        """Return the entries of a table (M, W) at the points, shape (P,)."""
        return np.asarray(table[self.points.method, self.which_workers])

    @cached_property
    def _tables(self) -> tuple[Float64, ...]:
        """The link's terms, encoding and decoding of every method, collective and worker count: (M, K, W) each."""
        costs = [self._cost(number) for number in range(len(self.points.methods))]
        rows = [(*cost.link, cost.encode_s, cost.decode_s) for cost in costs]
        return tuple(map(np.stack, zip(*rows, strict=True)))

    def _cost(self, number: int) -> ExchangeCost:
        """Return what one method makes of every collective; those without gradients stay as they are."""
        program, method = self.program, self.points.methods[number]
        recorded = program.ranks[:, None]
        # only groups that are the whole job grow with it: (K, W)
        ranks = np.where(recorded == self.pricing.workers, self.workers[None, :], recorded)
        plain = DENSE.link(self.pricing.transport, program.kind, self._gradients, ranks)
        nothing = np.zeros(ranks.shape)
        if method is DENSE:
            return ExchangeCost(plain, nothing, nothing)
        small = method.link(self.pricing.transport, program.kind, self._gradients, ranks)
        codec, size = self.pricing.codecs.get(method.label, Codec()), program.bytes[:, None]
        carries = (program.tensors > 0)[:, None]
        decode = (codec.decode_s_per_byte + codec.decode_s_per_byte_and_worker * ranks) * size
        return ExchangeCost(
            Terms(*(np.where(carries, less, full) for less, full in zip(small, plain, strict=True))),
            np.where(carries, codec.encode_s_per_byte * size, nothing),
            np.where(carries, decode, nothing),
        )

    @cached_property
    def _gradients(self) -> Gradients:
        return Gradients(self.program.bytes, np.maximum(self.program.tensors, 1.0))

    @cached_property
    def _recorded(self) -> Terms:
        """The terms at the recorded worker count, (K,)."""
        program = self.program
        return self.pricing.transport.terms(program.kind, program.bytes, program.ranks)

    def _wire_s(self, link: Terms, rate_bps: Float64, collective: int) -> Float64:
        """Return for how long links of these rates, (R or 1, P), are full, of a shape (R or 1, P)."""
        slowest, second = self._slowest_and_next(rate_bps, collective)
        return np.asarray(link.bits / slowest + link.turn_bits / second)

    def _slowest_and_next(self, rate_bps: Float64, collective: int) -> tuple[Float64, Float64]:
        """Return the rates, (R or 1, P), of the slowest link of each rank's team, and of the one that is next.

        A ring is as fast as its slowest link. While that one stands still, the next one is taken to be full.
        """
        if len(rate_bps) == 1 or bool((rate_bps == rate_bps[:1]).all()):
            return rate_bps[:1], rate_bps[:1]
        slowest, second = np.array(rate_bps), np.array(rate_bps)
        for rows in self.program.partners(collective):
            ascending = np.sort(rate_bps[rows], axis=0)
            slowest[rows], second[rows] = ascending[0], ascending[min(1, len(rows) - 1)]
        return slowest, second
