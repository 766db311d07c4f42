"""A prediction against the real job, with a control beside it: the table that the benchmarks of what-if print."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from _results import keep
from _throttled_job import Job, netprof

STEADY = 0.03  # a control within this is the machine that was recorded
_CONTROL_ITERATIONS = 16


@dataclass(frozen=True)
class Row:
    """One line of the table; seconds.

    `low_s` and `high_s` are the prediction's interval. `control` is the same job under the recorded conditions around
    this row, (measured - recorded) / recorded. Where it was measured several times, the medians stand here, and
    `spread` is by how much the measurements differ: half of (largest - smallest) / median.
    """

    job: str
    change: str
    predicted_s: float
    low_s: float
    high_s: float
    measured_s: float
    control: float
    spread: float | None = None

    @property
    def error(self) -> float:
        """Return (predicted - measured) / measured."""
        return self.predicted_s / self.measured_s - 1


@dataclass
class Recorded:
    """A job that was recorded and still runs: predictions for it, and rows measured on it."""

    name: str
    job: Job
    trace: Path
    iterations: int
    tries: int
    predict_asleep: bool = False  # a prediction that measures this machine is to have it for itself
    recorded_s: float = 0.0

    def record(self) -> None:
        """Attach, and do so again until the control after it agrees with the job's own log."""
        for _ in range(self.tries):
            self.recorded_s = self.job.record(self.trace, self.iterations)
            if abs(self.control()) <= STEADY:
                break

    def control(self) -> float:
        """Measure the job under the recorded conditions, relative to what it took while it was recorded."""
        return self.job.measure_s(_CONTROL_ITERATIONS) / self.recorded_s - 1

    def row(self, change: str, options: Sequence[str], measure: Callable[[], float], repeats: int = 1) -> Row:
        """Predict and measure so many times, and print what the median of each is."""
        rows = [self._row(change, options, measure) for _ in range(repeats)]
        found = rows[0] if repeats == 1 else median_of(rows)
        show([found])
        return found

    def _row(self, change: str, options: Sequence[str], measure: Callable[[], float]) -> Row:
        """Predict, then measure between two controls, and anew where those are off; every try is kept."""
        with self.job.asleep() if self.predict_asleep else nullcontext():
            point = predict(self.trace, options)
        at, low, high = (float(point[name]) for name in ("iteration_s", "iteration_low_s", "iteration_high_s"))
        control = self.control()
        for _ in range(self.tries):
            before, measured_s, control = control, measure(), self.control()
            row = Row(self.name, change, at, low, high, measured_s, max(before, control, key=abs))
            keep(**asdict(row), recorded_s=self.recorded_s, inside=row.low_s <= measured_s <= row.high_s)
            if abs(row.control) <= STEADY:
                break
        return row


def median_of(rows: Sequence[Row]) -> Row:
    """Return one row for several of the same change."""
    names = ("predicted_s", "low_s", "high_s", "measured_s", "control")
    medians = {name: statistics.median(getattr(row, name) for row in rows) for name in names}
    measured_s = [row.measured_s for row in rows]
    spread = (max(measured_s) - min(measured_s)) / 2 / medians["measured_s"]
    return replace(rows[0], **medians, spread=spread)


def predict(trace: Path, options: Sequence[str]) -> dict[str, Any]:
    """Return the one point that `netprof whatif` was asked for; a size of buckets is a point too."""
    answer: dict[str, Any] = json.loads(netprof("whatif", str(trace), "--json", *options))
    point: dict[str, Any] = answer["points"][0]
    if answer["bucket_sizes"]:
        change_s = answer["bucket_sizes"][0]["iteration_s"] - point["iteration_s"]
        return {name: value + change_s for name, value in point.items() if name.startswith("iteration")}
    return point


def header() -> None:
    """Print the names of the columns."""
    names = f"{'predicted':>10}{'5 % to 95 %':>19}{'measured':>11}{'error':>9}{'control':>9}"
    print(f"{'job':<26}{'change':<22}{names}", flush=True)


def show(rows: Sequence[Row]) -> None:
    """Print rows of the table."""
    for row in rows:
        times = f"{row.predicted_s * 1e3:>7.1f} ms{row.low_s * 1e3:>8.1f} to {row.high_s * 1e3:<7.1f}"
        errors = f"{row.error * 100:>+7.1f} %{row.control * 100:>+7.1f} %"
        unsteady = "" if abs(row.control) <= STEADY else "  unsteady"
        spread = "" if row.spread is None else f"  ±{row.spread * 100:.1f} % among measurements"
        print(
            f"{row.job:<26}{row.change:<22}{times}{row.measured_s * 1e3:>8.1f} ms{errors}{spread}{unsteady}", flush=True
        )


def summarize(rows: Sequence[Row]) -> None:
    """Print the median and the worst error, and how many intervals hold the truth: of all rows, and of steady ones."""
    steady = [row for row in rows if abs(row.control) <= STEADY]
    for name, chosen in (("all rows", rows), ("steady rows", steady)):
        if chosen:
            errors = [abs(row.error) * 100 for row in chosen]
            inside = sum(row.low_s <= row.measured_s <= row.high_s for row in chosen)
            width = statistics.median((row.high_s - row.low_s) / row.measured_s * 100 for row in chosen)
            print(
                f"{name}: {len(errors)}, error {statistics.median(errors):.1f} % (median), {max(errors):.1f} % (worst)"
                f"; inside of the interval {inside}, which is {width:.1f} % wide (median)"
            )
