"""How long attaching takes until the first event is in, and detaching. Needs root and torch.

    python examples/benchmarks/attach_time.py [--repeats 9]

The target is a DDP rank that iterates all the time, with libtorch loaded. `attach` is from the call until the first
recorded event's own time stamp; `command` the same from the start of `netprof attach` (interpreter and imports
included); `detach` from the decision to stop until the trace is complete. Medians, and the largest.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from _places import NETPROF
from _results import keep
from _speed import say_speed
from attach_overhead import Job

from netprof.probes.job.processes import find_job
from netprof.session.options import RecordingOptions
from netprof.session.recorder import TICK_S, Recorder
from netprof.trace import TraceReader


def attach_and_detach(pids: list[int], trace: Path) -> tuple[float, float]:
    """Return the seconds until the first event, and the seconds to stop, inside this process."""
    begin_ns = time.monotonic_ns()
    recorder = Recorder(find_job(pids), RecordingOptions(out=trace, force=True), [])
    recorder.start()
    while recorder.progress.first_event_ns is None:
        recorder.job.wait(TICK_S)
        recorder.tick()
    stop_ns = time.monotonic_ns()
    recorder.stop("measured")
    return (recorder.progress.first_event_ns - begin_ns) / 1e9, (time.monotonic_ns() - stop_ns) / 1e9


def whole_command(pids: list[int], trace: Path) -> float:
    """Return the seconds from starting `netprof attach` until the first event."""
    begin_ns = time.monotonic_ns()
    command = [NETPROF, "attach", *map(str, pids), "--out", str(trace), "--force"]
    subprocess.run([*command, "--duration", "1.5s", "--no-live"], capture_output=True, check=True)
    first_ns = TraceReader(trace).table("marks").column("time_ns").to_numpy().min()
    return float(first_ns - begin_ns) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    repeats = parser.parse_args().repeats
    say_speed()
    job = Job(1, ["64", "4", "8"], 29549)
    try:
        job.begin(10_000_000)
        with tempfile.TemporaryDirectory() as directory:
            trace = Path(directory) / "t.netprof"
            inside = np.array([attach_and_detach(job.pids, trace) for _ in range(repeats)])
            command = np.array([whole_command(job.pids, trace) for _ in range(repeats)])
    finally:
        job.stop()
    for name, values in (("attach", inside[:, 0]), ("command", command), ("detach", inside[:, 1])):
        keep(of=name, seconds=values.tolist())
        print(f"{name:8} median {np.median(values):.3f} s, largest {values.max():.3f} s ({repeats} times)")


if __name__ == "__main__":
    main()
