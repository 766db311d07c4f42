"""How much a case may work: CPU time, in units of a fixed loop on the same CPUs at the same time."""

from __future__ import annotations

import time

MOST_LOOPS = 250
"""Ten seconds where the loop takes 40 ms."""
_ITERATIONS = 500_000
_REMEASURED_AFTER_S = 5.0


class Pace:
    """How long the loop takes now."""

    def __init__(self) -> None:
        self._measured_s, self._loop_s = float("-inf"), 0.0

    def loop_s(self) -> float:
        """Return the CPU seconds that the loop takes, measured in the last few seconds."""
        if time.monotonic() - self._measured_s > _REMEASURED_AFTER_S:
            begin_s = time.process_time()
            total = 0
            for number in range(_ITERATIONS):
                total += number * number
            self._loop_s, self._measured_s = time.process_time() - begin_s, time.monotonic()
        return self._loop_s

    def most_s(self) -> float:
        """Return the CPU seconds that a case may take."""
        return MOST_LOOPS * self.loop_s()


PACE = Pace()
