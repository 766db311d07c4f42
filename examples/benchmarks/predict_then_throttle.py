"""Predict, then throttle: is `netprof whatif` right about a real job? Needs root. Prints predicted, measured, error.

The demo job (2 ranks, gloo, one rank per host) runs on a link of 1 Gbit/s. netprof attaches to it, records some
iterations, and predicts from that trace alone what an iteration takes at 500, 250 and 100 Mbit/s, and with DDP's fp16
compression hook at 1 Gbit/s. Then the link of the running job is set to each rate, and a second job runs with the
hook; what an iteration really takes is read from the job's own log, not from netprof.

`1 Gbit/s (fit)` is not a prediction but says how well the model fits the point it was made from. A control stands
beside every row: the plain job at 1 Gbit/s just before and just after it, against what it took while it was recorded.
Where the control is off by more than 3 %, the machine was not the one that was recorded, and the row is measured anew,
up to `--tries` times; the control that is left is printed. What encoding and decoding fp16 costs is measured
beforehand on a buffer of the job's size, with torch alone.
"""

from __future__ import annotations

import argparse
import csv
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _places import NETPROF
from lab import Lab

TRAIN = Path(__file__).resolve().parents[1] / "train.py"
RECORDED_RATE = "1gbit"
THROTTLED = (("500mbit", 30), ("250mbit", 20), ("100mbit", 12))  # rate, iterations to measure
CONTROL_ITERATIONS = 16
STEADY = 0.03  # a control within this is the machine that was recorded
SETTLE = 3  # iterations left out after a change


@dataclass(frozen=True)
class Row:
    """One line of the table; seconds."""

    name: str
    predicted_s: float
    measured_s: float
    control: float  # the same job at the recorded link around this row, (measured − recorded) / recorded

    @property
    def error(self) -> float:
        """Return (predicted − measured) / measured."""
        return self.predicted_s / self.measured_s - 1


class Job:
    """A running training job, and its own log."""

    def __init__(self, lab: Lab, folder: Path, hook: str, extra: Sequence[str]) -> None:
        port = 29500 if hook == "none" else 29501  # the plain job sleeps meanwhile
        self.logs = [folder / f"{hook}.{rank}.csv" for rank in range(2)]
        self.processes = []
        for rank, host in enumerate(lab):
            arguments = ["--rank", str(rank), "--world-size", "2", "--master", f"{lab[0].ipv4}:{port}"]
            arguments += ["--seconds", "900", "--hook", hook, "--log", str(self.logs[rank]), *extra]
            command = [sys.executable, str(TRAIN), *arguments]
            self.processes.append(
                host.popen(command, stdout=subprocess.DEVNULL, stderr=(folder / f"{hook}.{rank}.err").open("w"))
            )

    @property
    def pids(self) -> list[int]:
        """The pids of the ranks."""
        return [process.pid for process in self.processes]

    def begins_s(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return when each iteration of rank 0 began, in seconds, as the job logged it."""
        if not self.logs[0].exists():
            return np.zeros(0)
        whole = self.logs[0].read_text().rpartition("\n")[0]
        return np.array([int(row["begin_ns"]) * 1e-9 for row in csv.DictReader(whole.splitlines())])

    def wait_for(self, count: int, timeout_s: float = 120.0) -> None:
        """Return when `count` more iterations are logged. Raises RuntimeError when the job ends or stalls."""
        goal, deadline = len(self.begins_s()) + count, time.monotonic() + timeout_s
        while len(self.begins_s()) < goal:
            if any(process.poll() is not None for process in self.processes) or time.monotonic() > deadline:
                raise RuntimeError("the training job ended or stalled")
            time.sleep(0.1)

    def measure_s(self, iterations: int) -> float:
        """Return the mean of the middle half of the durations of the next iterations."""
        self.wait_for(SETTLE)
        first = len(self.begins_s())
        self.wait_for(iterations + 1)
        return typical(np.diff(self.begins_s()[first : first + iterations + 1]))

    def send(self, number: signal.Signals) -> None:
        """Send both ranks a signal: SIGSTOP to let them sleep, SIGCONT to wake them."""
        for process in self.processes:
            process.send_signal(number)

    def stop(self) -> None:
        """End the job."""
        for process in self.processes:
            process.kill()
            process.wait()


def typical(durations_s: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """Return the mean of the middle half, as netprof's own typical iteration."""
    ordered = np.sort(durations_s)
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


@contextmanager
def running(lab: Lab, folder: Path, extra: Sequence[str], hook: str = "none") -> Iterator[Job]:
    """Run a job until the end of the `with`, warmed up."""
    job = Job(lab, folder, hook, extra)
    try:
        job.wait_for(8)
        yield job
    finally:
        job.stop()


def set_rate(lab: Lab, rate: str) -> None:
    """Set both hosts' token buckets to `rate`."""
    for host in lab:
        shape = ["rate", rate, "burst", lab.burst, "latency", lab.latency]
        host.tc("qdisc", "change", "dev", host.device, "root", "handle", "1:", "tbf", *shape)


def netprof(*arguments: str) -> str:
    """Run netprof and return its stdout; its talk goes to stderr."""
    done = subprocess.run([NETPROF, *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"netprof {arguments[0]} ended with {done.returncode}")
    return done.stdout


def fp16_ns_per_byte(buffer_bytes: int) -> float:
    """Return what DDP's fp16 hook computes per byte of float32: to half, divide, and back, on one thread."""
    import torch

    torch.set_num_threads(1)
    buffer = torch.randn(buffer_bytes // 4)
    seconds = []
    for _ in range(40):
        start = time.perf_counter()
        half = buffer.to(torch.float16).div_(2)
        buffer.copy_(half)
        seconds.append(time.perf_counter() - start)
    return min(seconds) * 1e9 / buffer_bytes


def predict(trace: Path, codec_ns: float) -> dict[str, Any]:
    """Return `netprof whatif`'s answer for every rate, plain and halved."""
    rates = ",".join((RECORDED_RATE, *(rate for rate, _ in THROTTLED)))
    options = ["--bandwidth", rates, "--compression", "1,2", "--codec-ns-per-byte", str(codec_ns), "--json"]
    answer: dict[str, Any] = json.loads(netprof("whatif", str(trace), *options))
    return answer


def iteration_s(answer: dict[str, Any], gbps: float, compression: float) -> float:
    """Return the predicted iteration time at one point of the answer."""
    found = [p for p in answer["points"] if (p["bandwidth_gbps"], p["compression"]) == (gbps, compression)]
    return float(found[0]["iteration_s"])


class Experiment:
    """The recorded job on its link, and the rows that are measured on it."""

    def __init__(self, lab: Lab, job: Job, folder: Path, args: argparse.Namespace) -> None:
        self.lab, self.job, self.folder, self.args = lab, job, folder, args
        self.recorded_s = 0.0
        self.answer: dict[str, Any] = {}
        self.rows: list[Row] = []

    def record(self) -> None:
        """Attach, predict, and do so again until the control after it agrees with the job's own log."""
        trace, iterations = str(self.folder / "predict.netprof"), str(self.args.iterations)
        codec_ns = fp16_ns_per_byte(25_000_000)
        for _ in range(self.args.tries):
            first, pids = len(self.job.begins_s()), [str(pid) for pid in self.job.pids]
            netprof("attach", *pids, "--out", trace, "--iterations", iterations, "--no-live", "--force")
            self.recorded_s = typical(np.diff(self.job.begins_s()[first:]))
            control = self.control()
            if abs(control) <= STEADY:
                break
        self.answer = predict(Path(trace), codec_ns)
        self.rows.append(Row("1 Gbit/s (fit)", iteration_s(self.answer, 1.0, 1.0), self.recorded_s, control))

    def control(self) -> float:
        """Measure the plain job at the recorded rate, relative to what it took while it was recorded."""
        return self.job.measure_s(CONTROL_ITERATIONS) / self.recorded_s - 1

    def row(self, name: str, predicted_s: float, measure: Callable[[], float]) -> None:
        """Measure a row between two controls, and anew where those are off."""
        control = self.control()
        for _ in range(self.args.tries):
            before, measured_s, control = control, measure(), self.control()
            worse = max(before, control, key=abs)
            if abs(worse) <= STEADY:
                break
        self.rows.append(Row(name, predicted_s, measured_s, worse))

    def throttled(self, rate: str, iterations: int) -> float:
        """Measure the running job on a slower link."""
        set_rate(self.lab, rate)
        measured_s = self.job.measure_s(iterations)
        set_rate(self.lab, RECORDED_RATE)
        return measured_s

    def hooked(self) -> float:
        """Measure a job with the fp16 hook while this one sleeps."""
        self.job.send(signal.SIGSTOP)
        try:
            with running(self.lab, self.folder, self.args.job, "fp16") as job:
                return job.measure_s(self.args.iterations)
        finally:
            self.job.send(signal.SIGCONT)


def experiment(folder: Path, args: argparse.Namespace) -> Experiment:
    """Record, predict, throttle, measure."""
    with Lab(rate=RECORDED_RATE) as lab, running(lab, folder, args.job) as job:
        it = Experiment(lab, job, folder, args)
        it.record()
        for rate, count in THROTTLED:
            mbit = int(rate.removesuffix("mbit"))
            predicted_s = iteration_s(it.answer, mbit / 1e3, 1.0)
            it.row(f"{mbit} Mbit/s", predicted_s, partial(it.throttled, rate, count))
        it.row("1 Gbit/s, fp16 hook", iteration_s(it.answer, 1.0, 2.0), it.hooked)
    return it


def show(answer: dict[str, Any], rows: Sequence[Row]) -> None:
    """Print the table, and what the model was made of."""
    fit, measured = answer["fit"], answer["measured"]
    print(
        f"recorded: {measured['iterations']} typical iterations of {measured['iteration_s'] * 1e3:.1f} ms; "
        f"latency {fit['latency_s'] * 1e3:.2f} ms, {fit['seconds_per_byte'] * 1e9:.3f} ns/byte, "
        f"median error of the fit {fit['median_error'] * 100:.1f} %; "
        f"wire bytes per byte {measured['wire_bytes_per_byte']:.4f}"
    )
    print(f"{'link':<22}{'predicted':>12}{'measured':>12}{'error':>9}{'control':>10}")
    for row in rows:
        predicted, real = f"{row.predicted_s * 1e3:.1f} ms", f"{row.measured_s * 1e3:.1f} ms"
        unsteady = "" if abs(row.control) <= STEADY else "  unsteady"
        print(
            f"{row.name:<22}{predicted:>12}{real:>12}{row.error * 100:>+7.1f} %{row.control * 100:>+8.1f} %{unsteady}",
            flush=True,
        )


def main() -> None:
    """Run the experiment `--repeat` times."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--iterations", type=int, default=60, help="recorded, and measured at 1 Gbit/s")
    parser.add_argument("--tries", type=int, default=4, help="of a row whose control is off")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="leave the traces and logs in this folder")
    parser.add_argument("job", nargs="*", help="after --: more options of the job, such as --bucket-cap-mb 5")
    args = parser.parse_args()
    for number in range(args.repeat):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) if args.keep is None else args.keep / str(number)
            folder.mkdir(parents=True, exist_ok=True)
            it = experiment(folder, args)
            show(it.answer, it.rows)


if __name__ == "__main__":
    main()
