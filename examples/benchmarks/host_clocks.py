"""How well hosts' clocks are found from the streams between them. Needs root and torch.

    python examples/benchmarks/host_clocks.py [--recordings 5] [--trials 20] [--seconds 10]

Jobs on two and four hosts (network namespaces) are recorded by a recorder each, with time bins that do not begin
together; one job has a way that takes 2 ms longer in one direction. Each recording is of another run. Stretches of it
then get clocks of their own (offsets of up to 500 ms, drifts of up to 50 ppm), so the truth is known: trials of one
recording share its packets, and only recordings are independent. `inside` are the trials in which the truth is inside
the printed bounds of offset and drift, at any time of the recording; errors are the largest ones over a recording.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import _places  # noqa: F401 (where the examples are)
import numpy as np
from _pairs import share_interval
from _results import keep
from clock_trials import Trial, trial
from separate_recorders import record

IDLE, BUSY = ["--gradient-mb", "1", "--data-ms", "100"], ["--gradient-mb", "50"]
CASES: dict[str, tuple[int, list[str], dict[str, Any]]] = {
    "2 hosts, idle link": (2, IDLE, {}),
    "2 hosts, busy link": (2, BUSY, {}),
    "2 hosts, one way 2 ms longer": (2, IDLE, {"delay_ms": 2.0, "delay_of": 1}),
    "4 hosts, idle link": (4, IDLE, {}),
    "4 hosts, busy link": (4, BUSY, {}),
}


def main() -> None:
    """Record every case some times and print a table of its trials."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--recordings", type=int, default=5, help="of each case")
    parser.add_argument("--trials", type=int, default=20, help="of each recording")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rate", default="1gbit")
    args = parser.parse_args()
    print("| case | recordings | clocks | inside | median error | largest error | median bound | largest drift error |")
    print("|---|---|---|---|---|---|---|---|")
    random = np.random.default_rng(1)
    for name, (hosts, job, network) in CASES.items():
        found = []
        for number in range(args.recordings):
            with tempfile.TemporaryDirectory() as folder:
                options: dict[str, Any] = {"seconds": args.seconds, "rate": args.rate, **network}
                parts, _ = record(Path(folder), hosts=hosts, job=job, **options)
                for one in (one for _ in range(args.trials) for one in trial(parts, Path(folder), random)):
                    keep(case=name, recording=number, **asdict(one), holds=one.holds)
                    found.append(one)
        print(f"| {name} | {args.recordings} | {_row(found)} |", flush=True)


def _row(found: list[Trial]) -> str:
    errors, bounds = [one.error_ns for one in found], [one.bound_ns for one in found]
    cells = [
        str(len(found)),
        _share(sum(one.holds for one in found), len(found)),
        f"{np.median(errors) / 1e3:.2f} µs",
        f"{max(errors) / 1e3:.2f} µs",
        f"{np.median(bounds) / 1e3:.2f} µs",
        f"{max(one.drift_error for one in found) * 1e6:.4f} ppm",
    ]
    return " | ".join(cells)


def _share(right: int, count: int) -> str:
    low, high = share_interval(right, count)
    return f"{right} (95 % interval {low:.1%} to {high:.1%})"


if __name__ == "__main__":
    main()
