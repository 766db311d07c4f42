"""How long a what-if takes: the paper's 90 points, and a sweep of 100,000, after import. Prints a table.

The artifact of arXiv 2006.10103 keeps time by sleeping: 989 s for 270 points.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from netprof.analysis.whatif.ask import Question, ask
from netprof.analysis.whatif.inputs import parse_add_table, parse_gradient_log

DATA = Path(__file__).parents[2] / "tests" / "data"
RATIOS = (1.0, 2.0, 5.0, 10.0, 50.0, 100.0)


def timed(work: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Return the first and the median wall time of `work` in seconds."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return seconds[0], statistics.median(seconds)


def main() -> None:
    """Time both sweeps and print them."""
    log, table = (DATA / "resnet50.bk.log").read_text(), (DATA / "cuda_vec_add.log").read_text()

    def paper() -> object:
        schedule = parse_gradient_log(log, "log", 0.12808580219559176)
        add = parse_add_table(table, "add")
        rates = tuple(gbps * 1e9 for gbps in (1, 10, 25, 40, 100))
        return ask(schedule, Question((16, 32, 64), rates, RATIOS, "paper", "ideal", add=add))

    def large(policy: str) -> Callable[[], object]:
        schedule = parse_gradient_log(log, "log", 0.12808580219559176)
        add = parse_add_table(table, "add")
        rates = tuple(np.geomspace(1e8, 1e12, 100).tolist())
        ratios = tuple(np.geomspace(1, 1000, 50).tolist())
        question = Question(tuple(range(2, 42, 2)), rates, ratios, policy, "ideal", add=add)
        return lambda: ask(schedule, question)

    print(f"{'sweep':<44}{'first':>12}{'median of 5':>14}")
    for name, work in (
        ("90 points, both files parsed", paper),
        ("100,000 points, 12 buckets (paper)", large("paper")),
        ("100,000 points, 161 buckets (none)", large("none")),
    ):
        first, median = timed(work, 5)
        print(f"{name:<44}{first * 1e3:>9.1f} ms{median * 1e3:>11.1f} ms")


if __name__ == "__main__":
    main()
