"""How fast a CPU is just now, as a loop of Python sees it, and whether it is there: a shared one changes both."""

import atexit
import os
import statistics
import time

import _places  # noqa: F401 - where the next is found
from cpus_away import CpusAway

_LOOP, _REPEATS = 1_000_000, 7


def loop_ms() -> float:
    """Return the CPU milliseconds of a fixed loop of Python, the median of some."""
    found = []
    for _ in range(_REPEATS):
        begin_s = time.thread_time()
        total = 0
        for number in range(_LOOP):
            total += number * number & 7
        found.append(time.thread_time() - begin_s)
    return statistics.median(found) * 1e3


def say_speed() -> None:
    """Print what the loop takes now, and at the end of the program what it takes then, and how much CPUs were away."""
    before_ms, away = loop_ms(), CpusAway() if os.geteuid() == 0 else None

    def say() -> None:
        print(f"a loop of {_LOOP:,} in Python: {before_ms:.0f} ms before, {loop_ms():.0f} ms after", end="")
        print(f"; a CPU was away for up to {away.share():.1%} of the time" if away else "")

    atexit.register(say)
