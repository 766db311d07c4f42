"""How much longer an iteration takes with netprof attached. Needs root, torch, and as quiet a machine as can be had.

    python examples/benchmarks/attach_overhead.py [--pairs 60]

Two jobs: one DDP rank alone (compute only, the worst case for marks per second), and two ranks that really exchange
gradients. In each pair of windows of 40 iterations, one runs with netprof's recorder attached and one without, in ABBA
order; the table shows the median of the ratios with a 95 % bootstrap interval: of the windows' mean iteration, in which
what the recorder does once a second counts, of their median and of their longest. `sampling` is a window in which every
gradient is marked (netprof does so for the first 20 iterations only), `steady` the state after that. `A/A` is the same
with nothing attached in either window: how much of a ratio is noise. `as much CPU` is a process that knows nothing of
the job and takes, as often as the recorder looks, as much CPU time as the recorder took on average: what it costs to
be there at all where ranks fill the CPUs. `torch.profiler` is PyTorch's own profiler on the same job.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from _pairs import Ratio, ratios_of_pairs
from _results import keep

from netprof.probes.job.processes import find_job
from netprof.session.options import RecordingOptions
from netprof.session.priority import behind_the_job
from netprof.session.recorder import TICK_S, Recorder

WINDOW = 40
SETTLE = 5
SHAPES = {"1 rank": (1, ["384", "24", "96"]), "2 ranks": (2, ["384", "16", "96"])}


class Job:
    """The running ranks; all run the same windows at the same time."""

    def __init__(self, ranks: int, shape: list[str], port: int) -> None:
        place = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        place |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(Path(__file__).parent / "_job.py"), *shape]
        pipes: dict[str, Any] = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.DEVNULL,
            "text": True,
        }
        self.ranks = [
            subprocess.Popen(command, env=os.environ | place | {"RANK": str(rank)}, **pipes) for rank in range(ranks)
        ]
        self.pids = [int(self._answer(rank).split()[1]) for rank in self.ranks]

    def window(self, count: int, mode: str = "plain") -> dict[str, float]:
        """Run `count` iterations; returns what one takes on the slower rank: the mean, the median, the longest, ns."""
        self.begin(count, mode)
        answers = [map(float, self._answer(rank).split()) for rank in self.ranks]
        return dict(zip(("mean", "median", "longest"), map(max, zip(*answers, strict=True)), strict=True))

    def begin(self, count: int, mode: str = "plain") -> None:
        """Let every rank run `count` iterations; it answers when they are done."""
        for rank in self.ranks:
            assert rank.stdin is not None
            rank.stdin.write(f"{mode} {count}\n")
            rank.stdin.flush()

    def stop(self) -> None:
        for rank in self.ranks:
            rank.kill()
            rank.wait()

    def _answer(self, rank: Any) -> str:
        return str(rank.stdout.readline())


def recorder_process(pids: list[int], stacks: bool, orders: Any) -> None:
    """Attach and detach on request, in a process of its own, as `netprof attach` would be."""
    with tempfile.TemporaryDirectory() as directory:
        while (order := orders.recv()) == "attach":
            more: dict[str, Any] = {"stacks": True} if stacks else {}  # an older netprof may not have them
            options = RecordingOptions(out=Path(directory) / "t.netprof", force=True, **more)
            recorder = Recorder(find_job(pids), options, [])
            recorder.start()
            orders.send("attached")
            with behind_the_job():
                while not orders.poll():
                    recorder.job.wait(TICK_S)
                    recorder.tick()
            order = orders.recv()
            meta = recorder.stop(order)
            orders.send(meta.cost.cpu_share)


def busy_process(shares: list[float], orders: Any) -> None:
    """Take the mean of some shares of a core, on request, as the recorder does but without doing anything."""
    share = statistics.fmean(shares)
    while orders.recv() == "attach":
        orders.send("attached")
        with behind_the_job():
            while not orders.poll(TICK_S):
                until_s = time.thread_time() + share * TICK_S
                while time.thread_time() < until_s:
                    pass
        orders.recv()
        orders.send(share)


class Attachment:
    """A process that can be there for a window, and says what share of a core it took."""

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        self.orders, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("fork").Process(target=target, args=(*arguments, theirs))
        self.process.start()
        self.shares: list[float] = []

    def around(self, work: Callable[[], dict[str, float]]) -> dict[str, float]:
        self.orders.send("attach")
        self.orders.recv()
        value = work()
        self.orders.send("detach")
        self.shares.append(self.orders.recv())
        return value

    def stop(self) -> None:
        self.orders.send("end")
        self.process.join()


def measure(job: Job, pairs: int) -> Iterator[tuple[str, dict[str, Ratio]]]:
    """Yield the rows of the table."""

    def plain() -> dict[str, float]:
        job.window(SETTLE)
        return job.window(WINDOW)

    def steady() -> dict[str, float]:
        job.window(25)  # the sampled marks are dropped after 20
        time.sleep(0.35)
        return plain()

    def beside(there: Attachment, work: Callable[[], dict[str, float]]) -> Callable[[bool], dict[str, float]]:
        return lambda present: there.around(work) if present else plain()

    with ExitStack() as stack:
        recorder = Attachment(recorder_process, job.pids, False)
        stack.callback(recorder.stop)
        yield "A/A, nothing attached", ratios_of_pairs(lambda _: plain(), pairs)
        yield "netprof, steady", ratios_of_pairs(beside(recorder, steady), pairs)
        label = f"as much CPU ({100 * statistics.fmean(recorder.shares):.1f} %)"
        busy = Attachment(busy_process, recorder.shares)
        stack.callback(busy.stop)
        yield label, ratios_of_pairs(beside(busy, steady), pairs)
        yield "netprof, sampling", ratios_of_pairs(beside(recorder, lambda: job.window(18)), pairs)
        few = max(10, pairs // 4)
        yield "torch.profiler", ratios_of_pairs(lambda on: job.window(WINDOW, "profile") if on else plain(), few)


def with_stacks(job: Job, pairs: int) -> Iterator[tuple[str, dict[str, Ratio]]]:
    """Yield what sampling the stacks of a late rank takes, over a recording without: two seconds of windows each."""

    def window() -> dict[str, float]:
        return job.window(4 * WINDOW)

    with ExitStack() as stack:
        found = []
        for stacks in (False, True):
            found.append(Attachment(recorder_process, job.pids, stacks))
            stack.callback(found[-1].stop)
        yield "A/A, no stacks", ratios_of_pairs(lambda _: found[0].around(window), pairs)
        yield "stacks / no stacks", ratios_of_pairs(lambda on: found[on].around(window), pairs)
        shares = [100 * statistics.fmean(each.shares) for each in found]
        print(f"the recorder took {shares[0]:.2f} % of a core without stacks, {shares[1]:.2f} % with them")


def late_rank(pairs: int) -> None:
    """Print the rows of a job with a late rank, whose stacks are sampled."""
    job = Job(2, ["384", "16", "96", "4"], 29545)
    try:
        for label, ratios in with_stacks(job, pairs):
            for quantity, ratio in ratios.items():
                print(f"{label:22} {quantity:7} {ratio}", flush=True)
                keep(job="2 ranks, one late", attached=label, of=quantity, **asdict(ratio))
    finally:
        job.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--quick", action="store_true", help="only one rank, with netprof after its start, and A/A")
    parser.add_argument("--stacks", action="store_true", help="two ranks, one late: recorded with and without stacks")
    options = parser.parse_args()
    if options.stacks:
        late_rank(options.pairs)
        return
    print(f"{'job':8} {'iteration':>10}  {'attached':22} {'of':7} iteration time, with / without")
    for index, (name, (ranks, shape)) in enumerate(list(SHAPES.items())[: 1 if options.quick else None]):
        job = Job(ranks, shape, 29540 + index)
        try:
            iteration_ms = float(np.median([job.window(WINDOW)["median"] for _ in range(3)])) / 1e6
            for label, ratios in islice(measure(job, options.pairs), 2 if options.quick else None):
                for quantity, ratio in ratios.items():
                    about = f"{name:8} {iteration_ms:7.1f} ms  {label:22} {quantity:7}"
                    print(f"{about} {ratio}", flush=True)
                    keep(job=name, iteration_ms=iteration_ms, attached=label, of=quantity, **asdict(ratio))
        finally:
            job.stop()


if __name__ == "__main__":
    main()
