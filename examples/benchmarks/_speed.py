"""How fast a CPU is just now, as a loop of Python sees it: shared ones do not keep their speed."""

import atexit
import statistics
import time

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
    """Print what the loop takes now, and at the end of the program what it takes then."""
    before_ms = loop_ms()
    atexit.register(
        lambda: print(f"a loop of {_LOOP:,} in Python: {before_ms:.0f} ms before, {loop_ms():.0f} ms after")
    )
