"""What the recorder itself costs: CPU, memory and bytes of trace. Needs root, gcc and torch.

    python examples/benchmarks/recorder_cost.py [--seconds 20] [--profile]

Two jobs. `64 busy flows`: a C program that sends on each of 64 connections in every millisecond and gets an answer, so
that every bin of both directions of every flow holds something: the most that 64 flows can ask of the recorder.
`2-rank DDP`: examples/train.py over a 1 Gbit/s link. CPU is the recorder's own user and system time over the
recording, attaching and detaching included; `CPU, steady` leaves the first two seconds out. With --profile the ten
functions that take most of it are printed, of Python's profiler: it makes all of them dearer.
"""

from __future__ import annotations

import argparse
import cProfile
import multiprocessing
import os
import pstats
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import _places  # noqa: F401 - finds lab
from _busy_flows import busy_flows
from _results import keep
from _speed import say_speed
from lab import Lab

TRAIN = Path(__file__).parent.parent / "train.py"


@contextmanager
def ddp_job() -> Iterator[list[int]]:
    """Run two ranks over a 1 Gbit/s link."""
    with Lab(rate="1gbit") as lab:
        ranks = []
        for rank, host in enumerate(lab):
            place = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": lab[0].ipv4, "MASTER_PORT": "29500"}
            command = [sys.executable, str(TRAIN)]
            options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
            ranks.append(host.popen(command, env=os.environ | place, **options))
        for process in ranks:
            assert process.stdout is not None
            process.stdout.readline()
        yield [process.pid for process in ranks]


def record(pids: list[int], seconds: float, profiled: bool, results: Any) -> None:
    """Record in a fresh process, as `netprof attach` would."""
    from netprof.probes.job.processes import find_job
    from netprof.session.options import RecordingOptions
    from netprof.session.recorder import TICK_S, Recorder
    from netprof.trace import TraceReader

    with tempfile.TemporaryDirectory() as directory:
        trace = Path(directory) / "t.netprof"
        targets = [target for target in find_job(pids) if target.pid in pids]
        recorder = Recorder(targets, RecordingOptions(out=trace), [])
        recorder.start()
        begin = time.monotonic()
        steady_cpu, steady_begin = 0.0, 0.0
        profile = cProfile.Profile(time.thread_time)
        while time.monotonic() - begin < seconds:
            recorder.job.wait(TICK_S)
            recorder.tick()
            if not steady_begin and time.monotonic() - begin > 2:
                steady_cpu, steady_begin = cpu_s(), time.monotonic()
                if profiled:
                    profile.enable()
        profile.disable()
        steady = (cpu_s() - steady_cpu) / (time.monotonic() - steady_begin)
        meta = recorder.stop("measured")
        if profiled:
            pstats.Stats(profile).strip_dirs().sort_stats("tottime").print_stats(10)
        rows = sum(batch.num_rows for batch in TraceReader(trace).batches("wire"))
    results.send((meta.cost, steady, rows, meta.losses))


def cpu_s() -> float:
    """Return this process's user and system time."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    say_speed()
    print(
        f"{'job':14} {'rows/s':>8} {'CPU':>7} {'CPU, steady':>12} {'peak memory':>12} {'trace':>10} {'merged bins':>12}"
    )
    for name, job in (("64 busy flows", busy_flows(64)), ("2-rank DDP", ddp_job())):
        with job as found:
            pids = [found] if isinstance(found, int) else found
            results, theirs = multiprocessing.Pipe()
            arguments = (pids, options.seconds, options.profile, theirs)
            process = multiprocessing.get_context("spawn").Process(target=record, args=arguments)
            process.start()
            cost, steady, rows, losses = results.recv()
            process.join()
        per_s = cost.trace_bytes / cost.wall_s / 1e3
        print(
            f"{name:14} {rows / cost.wall_s:8.0f} {cost.cpu_s / cost.wall_s:7.2%} {steady:12.2%} "
            f"{cost.peak_memory_bytes / 1e6:9.0f} MB {per_s:5.0f} kB/s {losses.merged_bins:12d}",
            flush=True,
        )
        keep(
            job=name,
            rows_per_s=rows / cost.wall_s,
            cpu=cost.cpu_s / cost.wall_s,
            steady=steady,
            start_cpu_s=cost.start_cpu_s,
            memory_mb=cost.peak_memory_bytes / 1e6,
            trace_kb_per_s=per_s,
            merged_bins=losses.merged_bins,
            probes={each.name: each.cpu_s for each in cost.probes},
        )


if __name__ == "__main__":
    main()
