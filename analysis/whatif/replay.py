"""The replay: ranks compute, post collectives and wait for them, at many points of a sweep at once."""

from __future__ import annotations

import numpy as np

from netprof.analysis.tables.columns import Float64
from netprof.analysis.whatif.prices import ProgramPrices
from netprof.analysis.whatif.program import NOT_CHAINED, Program


def replay(program: Program, prices: ProgramPrices, points: int) -> Float64:
    """Replay every iteration of a program at `points` points; return what comes on top of its compute, (R, I, P), s.

    Where there are several ranks, what went before each iteration (or the iteration itself, where that is not known) is
    replayed first: it only settles by how much they run apart. A collective begins when its last member has posted it
    and the one before it has left its rank's link: links are serial.
    """
    state = _ReplayState(program, points)
    if program.rank_count > 1:
        if program.before is None or prices.before is None:
            state.iterate(program, prices)
        else:
            state.iterate(program.before, prices.before)
    state.iterate(program, prices)
    return state.late - state.late_at_begin


class _ReplayState:
    """Where every iteration of every rank is, at every point; arrays of shape (R, I, P), seconds.

    `late` is how far the rank's time is behind its compute clock.
    """

    def __init__(self, program: Program, points: int) -> None:
        self.program = program
        shape = (program.rank_count, program.iterations, points)
        self.late = np.zeros(shape)
        self.late_at_begin = self.late
        self.computed_s = np.zeros((1, 1, 1))
        self.link_free = np.full(shape, -np.inf)
        self.decoder_free = np.full(shape, -np.inf)
        self.done: list[Float64 | None] = [None] * len(program)

    def iterate(self, program: Program, prices: ProgramPrices) -> None:
        """Do an iteration of a program, which begins where the last one ended."""
        self.program = program
        self.late = self.late + self.computed_s
        self.computed_s = program.compute_s[:, :, None]
        self.late_at_begin = self.late
        for is_wait, index in program.steps:
            if is_wait:
                self.wait(index)
            else:
                self.collective(index, prices)

    def collective(self, index: int, prices: ProgramPrices) -> None:
        """Post a collective, and find out when it is done."""
        program = self.program
        encode_s, decode_s = prices.encode_s(index), prices.decode_s(index)
        if encode_s.any():
            self.late = self.late + encode_s
        posted = program.post_s[:, :, index, None] + self._zero(index)
        ready = self._together(index, posted)
        self.link_free = np.maximum(self.link_free, ready) + prices.link_s(index)
        if decode_s.any():
            self.decoder_free = np.maximum(self.decoder_free, self.link_free) + decode_s
        self.done[index] = np.maximum(self.link_free, self.decoder_free) if decode_s.any() else self.link_free

    def wait(self, index: int) -> None:
        """Let every rank wait until what it waits for is there, and unpack it."""
        program = self.program
        now = program.wait_s[:, :, index, None] + self.late
        until = now
        for collective in np.flatnonzero(program.waited[index]):
            done = self.done[collective]
            if done is not None:
                until = np.maximum(until, done)
        self.late = self.late + (until - now + program.tail_s[:, :, index, None])

    def _zero(self, index: int) -> Float64:
        """Return what the time of posting counts from: the compute clock's zero, or the end of another collective."""
        after = int(self.program.after[index])
        ended = self.done[after] if after != NOT_CHAINED else None
        return self.late if ended is None else ended

    def _together(self, index: int, posted: Float64) -> Float64:
        """Return when the last member of each team has posted a collective."""
        if self.program.rank_count == 1:
            return posted
        ready = np.empty_like(posted)
        for rows in self.program.partners(index):
            ready[rows] = posted[rows].max(axis=0)
        return ready
