"""How well hosts' clocks are found from the streams between them. Needs root and torch.

    python examples/benchmarks/host_clocks.py [--trials 100] [--seconds 10]

Jobs on two and four hosts (network namespaces) are recorded by a recorder each, with time bins that do not begin
together. Stretches of the traces then get clocks of their own (offsets of up to 500 ms, drifts of up to 50 ppm), so the
truth is known. `inside` are the trials in which the truth is inside the printed bounds of offset and drift, at any time
of the recording; the errors are the largest ones over the recording.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import _places  # noqa: F401 (where the examples are)
import numpy as np
from clock_trials import Trial, trial
from separate_recorders import record

CASES = {
    "2 hosts, idle link": (2, ["--gradient-mb", "1", "--data-ms", "100"]),
    "2 hosts, busy link": (2, ["--gradient-mb", "50"]),
    "4 hosts, idle link": (4, ["--gradient-mb", "1", "--data-ms", "100"]),
    "4 hosts, busy link": (4, ["--gradient-mb", "50"]),
}


def main() -> None:
    """Record every case once and print a table of its trials."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rate", default="1gbit")
    args = parser.parse_args()
    print("| case | clocks | inside | median error | largest error | median bound | largest drift error |")
    print("|---|---|---|---|---|---|---|")
    random = np.random.default_rng(1)
    for name, (hosts, job) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            parts, _ = record(Path(folder), hosts=hosts, seconds=args.seconds, rate=args.rate, job=job)
            found = [one for _ in range(args.trials) for one in trial(parts, Path(folder), random)]
        print(f"| {name} | {_row(found)} |", flush=True)


def _row(found: list[Trial]) -> str:
    errors, bounds = [one.error_ns for one in found], [one.bound_ns for one in found]
    cells = [
        str(len(found)),
        f"{sum(one.holds for one in found)}",
        f"{np.median(errors) / 1e3:.2f} µs",
        f"{max(errors) / 1e3:.2f} µs",
        f"{np.median(bounds) / 1e3:.2f} µs",
        f"{max(one.drift_error for one in found) * 1e6:.4f} ppm",
    ]
    return " | ".join(cells)


if __name__ == "__main__":
    main()
