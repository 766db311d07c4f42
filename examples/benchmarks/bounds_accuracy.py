"""Are the bounds of waiting true? Real gloo jobs whose ends are hidden, against what they log themselves. Needs root.

    python examples/benchmarks/bounds_accuracy.py [--ranks 2,3] [--rates 1gbit,250mbit] [--models small,large]

Jobs run with one rank a host in a laboratory, and netprof records each of them once with all its marks and once without
those that tell that anything is done. Then the recordings are made poorer, and bounded:

- `ends hidden`: recorded with all marks, those of ends taken away
- `launches alone`: nothing kept but DDP's launches of buckets
- `ends not probed`: recorded without those marks
- `as on GPUs, x`: the collectives are made NCCL's, enqueued by a host that is x times as fast as its GPU: its launches
  come that much earlier, and nothing tells how much

What is true is the job's own: from its last gradient until its backward pass returns. For each the share of iterations
in which that is inside of the bounds (it should be 95 % or more), the same of what all marks say (from ddp_wait to
ddp_done: without the copying of the last gradient), and the width of the bounds over what is true, median (where the
host computes it should be 20 % or less; a GPU whose host runs ahead has wide ones, and they have to hold).

A machine with more to do than it has cores holds DDP up between the last gradient and its bucket's launch, for as long
as it likes: take figures on a quiet one.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import _places  # noqa: F401
import numpy as np
import numpy.typing as npt
from _pairs import share_interval
from _results import keep
from _throttled_job import Job, running
from lab import Lab
from support.hidden_ends import ENDS, on_gpu, only, without

from netprof.analysis.bounds.bounded import Bounds
from netprof.analysis.events.iterations import Iterations
from netprof.analysis.evidence import Evidence
from netprof.schema import MarkKind
from netprof.trace import TraceReader

MODELS = {
    "small": ["--gradient-mb", "8", "--width", "512", "--batch", "256", "--bucket-cap-mb", "2"],
    "large": ["--gradient-mb", "25.2", "--batch", "128"],
    "one-bucket": ["--gradient-mb", "12.6", "--batch", "128", "--bucket-cap-mb", "200"],
    "accumulating": ["--gradient-mb", "12.6", "--batch", "64", "--no-sync", "2"],
    "many-layers": ["--gradient-mb", "16", "--width", "256", "--batch", "192", "--bucket-cap-mb", "4"],
}
"""`many-layers` is held out: bounds were built without looking at it."""
AHEAD = (2.0, 5.0)
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Row:
    """How good the bounds of one poorer recording are: over all steps of all ranks whose truth is logged."""

    steps: int
    inside: float
    by_marks: float
    width: float
    truth_s: float


def truth(log: Path) -> tuple[Int64, Int64, Int64, Int64]:
    """Return begin and end of each iteration of a log, its last gradient, and the return of its backward pass; ns."""
    whole = log.read_text().rpartition("\n")[0]
    rows = [row for row in csv.DictReader(whole.splitlines()) if row["kind"] == "sync"]
    names = ("begin_ns", "end_ns", "gradient_ns", "backward_done_ns")
    begin, end, gradient, done = (np.array([int(row[name]) for row in rows], np.int64) for name in names)
    return begin, end, gradient, done


def bounds_of(trace: Path) -> tuple[Bounds, dict[int, int]]:
    """Return the bounds in a trace, and the rank of each process."""
    evidence = Evidence.of_trace(TraceReader(trace))
    for pid, reason in evidence.bounds.reasons.items():
        print(f"process {pid}: {reason}", file=sys.stderr)
    return evidence.bounds.rows, dict(evidence.ranks)


def judged(trace: Path, logs: list[Path], marks: Iterations | None = None) -> Row:
    """Hold the bounds of a trace against what the ranks logged, and what all marks of the recording say."""
    rows, ranks = bounds_of(trace)
    inside, width, true = [], [], []
    by_marks = float("nan") if marks is None else _by_marks(rows, marks)
    for pid in np.unique(rows.pid).tolist():
        own = rows.where(rows.pid == pid)
        begin, end, gradient, done = truth(logs[ranks[pid]])
        middle = (own.gradient_ns + own.received_ns) // 2
        index = np.searchsorted(begin, middle, "right") - 1
        known = (index >= 0) & (middle < end[np.maximum(index, 0)]) & (gradient[np.maximum(index, 0)] > 0)
        own, index = own.where(known), index[known]
        waited = done[index] - gradient[index]
        inside.append((own.least_ns <= waited) & (waited <= own.most_ns))
        width.append((own.most_ns - own.least_ns) / np.maximum(waited, 1))
        true.append(waited)
    if not inside:
        return Row(0, *(float("nan"),) * 4)
    joined = [np.concatenate(each) for each in (inside, width, true)]
    width_median, true_median = (float(np.median(each)) for each in joined[1:])
    return Row(len(joined[0]), float(joined[0].mean()), by_marks, width_median, true_median / 1e9)


def _by_marks(rows: Bounds, marks: Iterations) -> float:
    """Return the share of steps whose wait by all marks is inside of the bounds."""
    inside = []
    for pid in np.unique(marks.pid).tolist():
        own, true = rows.where(rows.pid == pid), marks.where(marks.pid == pid)
        middle = (own.gradient_ns + own.received_ns) // 2
        index = np.searchsorted(true.begin_ns, middle, "right") - 1
        known = (index >= 0) & (middle < true.end_ns[np.maximum(index, 0)])
        own, waited = own.where(known), true.exposed_phase_ns[index[known]]
        inside.append((own.least_ns <= waited) & (waited <= own.most_ns))
    return float(np.concatenate(inside).mean()) if inside else float("nan")


def poorer(trace: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the ways in which a recording is made poorer, and what is left."""
    yield "ends hidden", without(trace, folder / "ends.netprof", ENDS)
    yield "launches alone", only(trace, folder / "launches.netprof", [MarkKind.BUCKET_LAUNCH])
    for ahead in AHEAD:
        yield f"as on GPUs, {ahead:g}", on_gpu(trace, folder / f"gpu{ahead:g}.netprof", ahead)


def record(job: Job, seen: str, trace: Path, seconds: float) -> None:
    """Record a job with all marks, or without those of ends."""
    command = [sys.executable, str(Path(__file__).with_name("_recorder.py")), seen, "attach", *job.pids]
    command += ["--out", str(trace), "--duration", f"{seconds}s", "--no-live", "--force"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def experiment(ranks: int, rate: str, model: str, args: argparse.Namespace, show: Callable[[str, Row], None]) -> None:
    """Record one job twice, and judge the bounds of what is left of the recordings."""
    with tempfile.TemporaryDirectory() as name, Lab(ranks, rate=rate) as lab:
        folder = Path(name)
        with running(lab, folder, "ddp", MODELS[model]) as job:
            for seen in ("all", "no-ends"):
                record(job, seen, folder / f"{seen}.netprof", args.seconds)
        marks = Evidence.of_trace(TraceReader(folder / "all.netprof")).iterations
        for how, trace in poorer(folder / "all.netprof", folder):
            show(how, judged(trace, job.logs, marks))
        show("ends not probed", judged(folder / "no-ends.netprof", job.logs))


def main() -> None:
    """Run every experiment asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", default="2,3")
    parser.add_argument("--rates", default="1gbit,250mbit,100mbit")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seconds", type=float, default=12.0, help="of each recording")
    args = parser.parse_args()
    names = f"{'steps':>6} {'inside':>8} {'by marks':>9} {'width':>8} {'waits':>10}"
    rows: list[tuple[str, Row]] = []
    print(f"{'ranks':>5} {'rate':>8} {'model':<13} {'seen':<18} {names}")
    for ranks in map(int, args.ranks.split(",")):
        for rate in args.rates.split(","):
            for model in args.models.split(","):
                about = f"{ranks:>5} {rate:>8} {model:<13}"

                def show(
                    how: str, row: Row, about: str = about, place: tuple[int, str, str] = (ranks, rate, model)
                ) -> None:
                    keep(ranks=place[0], rate=place[1], model=place[2], seen=how, **asdict(row))
                    rows.append((how, row))
                    numbers = f"{row.inside:>8.1%} {row.by_marks:>9.1%} {row.width:>8.1%} {row.truth_s * 1e3:>7.1f} ms"
                    print(f"{about} {how:<18} {row.steps:>6} {numbers}", flush=True)

                experiment(ranks, rate, model, args, show)
    summarize(rows)


def summarize(rows: list[tuple[str, Row]]) -> None:
    """Print for each way to be poorer how many steps are inside in all, and the share of the job with the fewest."""
    for how in dict.fromkeys(how for how, _ in rows):
        own = [row for each, row in rows if each == how and row.steps]
        steps = sum(row.steps for row in own)
        inside = sum(round(row.inside * row.steps) for row in own)
        low, high = share_interval(inside, steps)
        fewest, widths = min((row.inside for row in own), default=0.0), [row.width for row in own]
        print(
            f"{how}: inside in {inside / max(steps, 1):.1%} of {steps} steps of {len(own)} jobs (95 % interval "
            f"{low:.1%} to {high:.1%}, as if steps were independent), {fewest:.1%} of the job with the fewest; width "
            f"{np.median(widths):.1%} in the median job, {min(widths):.1%} to {max(widths):.1%}"
        )


if __name__ == "__main__":
    main()
