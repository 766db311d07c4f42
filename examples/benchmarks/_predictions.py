"""A prediction against the real job, with controls beside it: the table that the benchmarks of what-if print."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from _pairs import share_interval
from _results import keep
from _throttled_job import Job, netprof

STEADY = 0.03  # a control within this is the machine that was recorded
_CONTROL_ITERATIONS = 12


@dataclass(frozen=True)
class Row:
    """One line of the table; seconds.

    `low_s` and `high_s` are the prediction's interval. `control` is the same job under the recorded conditions just
    before and just after this row, (measured - recorded) / recorded, the one that is further off. `naive_s` is what
    bytes over rate say: the recorded iteration, with as much more or less as its bytes take longer or shorter. Where a
    row was measured several times, the medians stand here, and `spread` is by how much the measurements differ: half
    of (largest - smallest) / median.
    """

    job: str
    change: str
    predicted_s: float
    low_s: float
    high_s: float
    measured_s: float
    control: float
    naive_s: float | None = None
    spread: float | None = None

    @property
    def error(self) -> float:
        """Return (predicted - measured) / measured."""
        return self.predicted_s / self.measured_s - 1

    @property
    def is_inside(self) -> bool:
        """Whether the interval holds what was measured."""
        return self.low_s <= self.measured_s <= self.high_s

    @property
    def is_steady(self) -> bool:
        """Whether the machine was the one that was recorded."""
        return abs(self.control) <= STEADY


@dataclass
class Recorded:
    """A job that was recorded and still runs: predictions for it, and rows measured on it. No row is left out."""

    name: str
    job: Job
    trace: Path
    iterations: int
    predict_asleep: bool = False  # a prediction that measures this machine is to have it for itself
    recorded_s: float = 0.0

    def record(self) -> None:
        """Attach, once."""
        self.recorded_s = self.job.record(self.trace, self.iterations)

    def control(self) -> float:
        """Measure the job under the recorded conditions, relative to what it took while it was recorded."""
        return self.job.measure_s(_CONTROL_ITERATIONS) / self.recorded_s - 1

    def row(
        self,
        change: str,
        options: Sequence[str],
        measure: Callable[[], float],
        repeats: int = 1,
        more_s_per_bit: float | None = None,
    ) -> Row:
        """Predict and measure `repeats` times, and print the median of each.

        `more_s_per_bit` is by how much longer a bit that was sent while it was recorded is on the wire.
        """
        rows = [self._row(change, options, measure, more_s_per_bit) for _ in range(repeats)]
        found = rows[0] if repeats == 1 else median_of(rows)
        show([found])
        return found

    def _row(
        self, change: str, options: Sequence[str], measure: Callable[[], float], more_s_per_bit: float | None
    ) -> Row:
        """Predict, then measure between two controls."""
        with self.job.asleep() if self.predict_asleep else nullcontext():
            point = predict(self.trace, options)
        at, low, high = (float(point[name]) for name in ("iteration_s", "iteration_low_s", "iteration_high_s"))
        before, measured_s, after = self.control(), measure(), self.control()
        naive_s = None if more_s_per_bit is None else self.recorded_s + more_s_per_bit * sent_bits(self.trace)
        row = Row(self.name, change, at, low, high, measured_s, max(before, after, key=abs), naive_s)
        rests_on = {name: point[name] for name in ("compute_s", "codecs")}
        keep(**asdict(row), recorded_s=self.recorded_s, inside=row.is_inside, **rests_on)
        return row


@dataclass
class Before:
    """A job whose recording and measured rows were kept, by change: only predictions are made, anew."""

    name: str
    trace: Path
    measured: Mapping[str, Mapping[str, Any]]
    job: Any = None
    predict_asleep: bool = False

    def row(
        self, change: str, options: Sequence[str], *_: object, more_s_per_bit: float | None = None, **__: object
    ) -> Row:
        """Return what was measured then, beside what is predicted now."""
        point, was = predict(self.trace, options), self.measured[change]
        at, low, high = (float(point[name]) for name in ("iteration_s", "iteration_low_s", "iteration_high_s"))
        naive_s = None if more_s_per_bit is None else was["recorded_s"] + more_s_per_bit * sent_bits(self.trace)
        row = Row(self.name, change, at, low, high, was["measured_s"], was["control"], naive_s)
        keep(**asdict(row), recorded_s=was["recorded_s"], inside=row.is_inside)
        show([row])
        return row


def median_of(rows: Sequence[Row]) -> Row:
    """Return one row for several of the same change."""
    names = ("predicted_s", "low_s", "high_s", "measured_s", "control")
    medians = {name: statistics.median(getattr(row, name) for row in rows) for name in names}
    measured_s = [row.measured_s for row in rows]
    spread = (max(measured_s) - min(measured_s)) / 2 / medians["measured_s"]
    return replace(rows[0], **medians, spread=spread)


def predict(trace: Path, options: Sequence[str]) -> dict[str, Any]:
    """Return the one point that `netprof whatif` was asked for, and what it rests on; a bucket size is one too."""
    answer: dict[str, Any] = json.loads(netprof("whatif", str(trace), "--json", *options))
    point: dict[str, Any] = answer["points"][0]
    if answer["bucket_sizes"]:
        change_s = answer["bucket_sizes"][0]["iteration_s"] - point["iteration_s"]
        point = {name: value + change_s for name, value in point.items() if name.startswith("iteration")}
    codecs = [note for note in answer["notes"] if note.startswith("encoding and decoding")]
    return point | {"compute_s": answer["baselines"]["worker_s"], "codecs": codecs}


@cache
def sent_bits(trace: Path) -> float:
    """Return what a rank sent in an iteration, as netprof counted it."""
    return 8 * float(json.loads(netprof("report", str(trace), "--json"))["collectives"]["wire_bytes_per_iteration"])


def header() -> None:
    """Print the names of the columns."""
    names = f"{'predicted':>10}{'5 % to 95 %':>19}{'measured':>11}{'error':>9}{'control':>9}{'bytes over rate':>17}"
    print(f"{'job':<33}{'change':<22}{names}", flush=True)


def show(rows: Sequence[Row]) -> None:
    """Print rows of the table."""
    for row in rows:
        times = f"{row.predicted_s * 1e3:>7.1f} ms{row.low_s * 1e3:>8.1f} to {row.high_s * 1e3:<7.1f}"
        errors = f"{row.error * 100:>+7.1f} %{row.control * 100:>+7.1f} %"
        naive = "" if row.naive_s is None else f"{(row.naive_s / row.measured_s - 1) * 100:>+15.1f} %"
        notes = ("" if row.is_inside else "  outside") + ("" if row.is_steady else "  unsteady")
        spread = "" if row.spread is None else f"  ±{row.spread * 100:.1f} % among measurements"
        at = f"{row.job:<33}{row.change:<22}{times}{row.measured_s * 1e3:>8.1f} ms"
        print(f"{at}{errors}{naive}{spread}{notes}", flush=True)


def summarize(rows: Sequence[Row]) -> None:
    """Print the median and the worst error, and how many intervals hold the truth: of all rows, and of steady ones."""
    steady = [row for row in rows if row.is_steady]
    for name, chosen in (("all rows", rows), ("rows whose controls are within 3 %", steady)):
        if chosen:
            print(f"{name}: {summary(chosen)}", flush=True)


def summary(rows: Sequence[Row]) -> str:
    """Return the same of some rows, in one line."""
    errors = [abs(row.error) * 100 for row in rows]
    naive = [abs(row.naive_s / row.measured_s - 1) * 100 for row in rows if row.naive_s is not None]
    inside = sum(row.is_inside for row in rows)
    low, high = share_interval(inside, len(rows))
    width = statistics.median((row.high_s - row.low_s) / row.measured_s * 100 for row in rows)
    beside = f"; bytes over rate {statistics.median(naive):.1f} %, {max(naive):.1f} %" if naive else ""
    controls = [abs(row.control) * 100 for row in rows]
    beside += f"; controls {statistics.median(controls):.1f} %, {max(controls):.1f} %"
    return (
        f"{len(rows)}, error {statistics.median(errors):.1f} % (median), {max(errors):.1f} % (worst){beside}; inside "
        f"of the interval {inside} ({inside / len(rows):.0%}, 95 % interval {low:.0%} to {high:.0%}), which is "
        f"{width:.1f} % of the iteration wide (median)"
    )
