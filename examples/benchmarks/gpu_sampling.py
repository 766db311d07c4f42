"""What sampling a GPU costs, how finely it resolves, whether it slows the job, and whether it is right.

    python examples/benchmarks/gpu_sampling.py [--seconds 20] [--pairs 30]

Needs a machine with an NVIDIA GPU (and torch with CUDA for all but the first two tables). Prints tables:

1. time of each NVML call, as the probe makes it;
2. the probe's CPU time at 50 Hz and the calls that it goes to; samples a second and resolution of each metric, and
   how often its value changes;
3. iteration time of a real DDP job on the GPU, sampled against not sampled, ABBA, with the A/A control;
4. utilization as sampled against a load of known duty;
5. the report of `netprof attach` on the job, its part on GPUs (as root).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _pairs import ratio_of_pairs
from _places import NETPROF

from netprof.errors import NetprofError
from netprof.model import Target
from netprof.probes.gpu.nvml import open_gpus, open_nvml
from netprof.probes.gpu.probe import GpuProbe
from netprof.probes.gpu.sampled import SampledGpu
from netprof.schema import GpuMetric

JOB = Path(__file__).with_name("_gpu_job.py")
ITERATIONS = 40
DUTIES = (0.25, 0.5, 0.75, 1.0)


class Job:
    """Two ranks on the GPUs of this machine."""

    def __init__(self, device: str) -> None:
        place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29731", "TORCH_CPP_LOG_LEVEL": "ERROR"}
        self.ranks = [
            subprocess.Popen(
                [sys.executable, str(JOB), device],
                env=os.environ | place | {"RANK": str(rank)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        self.pids = [int(self._answer(rank).split()[1]) for rank in self.ranks]

    def order(self, text: str, ranks: int = 2) -> list[float]:
        """Give the first `ranks` ranks an order and return their answers."""
        for rank in self.ranks[:ranks]:
            assert rank.stdin is not None
            rank.stdin.write(f"{text}\n")
            rank.stdin.flush()
        return [float(self._answer(rank)) for rank in self.ranks[:ranks]]

    def keep_busy(self, duty: float) -> float:
        """Let one rank use its GPU for that share of eight seconds; returns the share that it says it was."""
        return self.order(f"duty {duty} 8", 1)[0]

    def stop(self) -> None:
        """End the ranks."""
        for rank in self.ranks:
            rank.kill()
            rank.wait()

    def _answer(self, rank: Any) -> str:
        return str(rank.stdout.readline())


@contextmanager
def timed_calls(nvml: Any, times: dict[str, list[tuple[float, float]]]) -> Iterator[None]:
    """Time every function of pynvml that asks a device something, inside the block: how long, and on CPU; in µs."""
    names = [name for name in dir(nvml) if name.startswith(("nvmlDeviceGet", "nvmlGpm")) and callable(vars(nvml)[name])]
    before = {name: getattr(nvml, name) for name in names}

    def timed(name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            begin_ns, cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
            try:
                return before[name](*arguments)
            finally:
                took = (time.perf_counter_ns() - begin_ns, time.thread_time_ns() - cpu_ns)
                times[name].append((took[0] / 1e3, took[1] / 1e3))

        return call

    for name in names:
        setattr(nvml, name, timed(name))
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(nvml, name, function)


def calls(ticks: int) -> None:
    """Print the time of each NVML call on the first GPU."""
    nvml = open_nvml()
    times: dict[str, list[tuple[float, float]]] = defaultdict(list)
    gpu = open_gpus(nvml)[0][0]
    with timed_calls(nvml, times):
        sampled = SampledGpu(nvml, gpu, ())
        for _ in range(ticks):
            for slow in (False, True):
                list(sampled.read(slow=slow))
            time.sleep(0.02)
        sampled.close()
    print(f"1. NVML calls on GPU {gpu.index} ({gpu.name}), {ticks} ticks")
    print(f"   {'call':45} {'calls':>6} {'median':>10} {'p99':>10} {'on CPU':>10}")
    for name, values in sorted(times.items()):
        median, p99 = np.percentile([wall for wall, _ in values], [50, 99])
        on_cpu = np.mean([cpu for _, cpu in values])
        print(f"   {name:45} {len(values):6} {median:7.1f} µs {p99:7.1f} µs {on_cpu:7.1f} µs")
    for missing in sampled.missing:
        print(f"   not on this GPU: {missing.what}: {missing.reason}")
    nvml.nvmlShutdown()


def sample(pids: list[int], work: Callable[[], Any]) -> tuple[dict[str, np.ndarray], float, Any]:
    """Sample the GPUs of `pids` while `work` runs; return rows, CPU seconds of this process and what work returned."""
    probe = GpuProbe()
    with probe:
        probe.follow([Target(pid, 0) for pid in pids])
        while not ((description := probe.describe()).started or description.skipped):
            time.sleep(0.05)
        probe.drain()
        begin_s = time.process_time()
        result = work()
        cpu_s = time.process_time() - begin_s
    return {name: np.array(values) for name, values in probe.drain()["gpu"].items()}, cpu_s, result


def resolution(pids: list[int], work: Callable[[], Any]) -> None:
    """Print the cost of sampling and what each metric resolves."""
    called: dict[str, list[tuple[float, float]]] = defaultdict(list)
    nvml = open_nvml()
    begin_s = time.monotonic()
    rows, cpu_s, _ = sample(pids, work)
    took_s = time.monotonic() - begin_s
    with timed_calls(nvml, called):
        timed_s = time.monotonic()
        sample(pids, work)
        timed_s = time.monotonic() - timed_s
    nvml.nvmlShutdown()
    gpus = len(np.unique(rows["gpu"]))
    share = cpu_s / took_s
    print(f"2. sampling {gpus} GPU at up to 50 Hz for {took_s:.0f} s: {share:.2%} of a core, {len(rows['gpu'])} rows")
    print(f"   {'call':45} {'a second':>9} {'of a core':>10}")
    for name, values in sorted(called.items()):
        cpu_share = sum(cpu for _, cpu in values) / 1e6 / timed_s
        print(f"   {name:45} {len(values) / timed_s:9.1f} {cpu_share:10.2%}")
    print(f"   {'metric':30} {'a second':>9} {'interval':>11} {'mean over':>11} {'changes every':>14}")
    for metric in GpuMetric:
        mine = (rows["metric"] == metric) & (rows["gpu"] == rows["gpu"].min(initial=1 << 15)) & (rows["pid"] == 0)
        if mine.sum() < 3:
            continue
        times, values = rows["time_ns"][mine], rows["value"][mine]
        changes = times[1:][np.diff(values) != 0]
        changing = f"{np.median(np.diff(changes)) / 1e6:11.1f} ms" if len(changes) > 2 else f"{'-':>14}"
        interval, period = np.median(np.diff(times)) / 1e6, np.median(rows["period_ns"][mine]) / 1e6
        rate = len(times) / took_s
        print(f"   {metric.name.lower():30} {rate:9.1f} {interval:8.1f} ms {period:8.1f} ms {changing}")


def slowdown(job: Job, pairs: int) -> None:
    """Print the iteration time with the probe against without."""

    def window(sampled: bool) -> float:
        def work() -> float:
            job.order(f"train {ITERATIONS // 4}")
            return max(job.order(f"train {ITERATIONS}"))

        return float(sample(job.pids, work)[2]) if sampled else work()

    iteration_ms = max(job.order(f"train {ITERATIONS}")) / 1e6
    print(f"3. iteration of {iteration_ms:.1f} ms, ABBA:")
    print(f"   A/A, not sampled   {ratio_of_pairs(lambda _: window(False), pairs)}")
    print(f"   sampled / not      {ratio_of_pairs(window, pairs)}", flush=True)


def known_load(job: Job) -> None:
    """Print utilization as sampled beside the duty of a known load on one GPU."""
    print("4. known load: share of time in which kernels ran, as the job saw it and as sampled")
    for duty in DUTIES:
        rows, _, told = sample(job.pids[:1], partial(job.keep_busy, duty))
        found = []
        for metric in (GpuMetric.BUSY_PERCENT, GpuMetric.SM_ACTIVE_PERCENT):
            values = rows["value"][rows["metric"] == metric]
            found.append(f"{metric.name.lower()} {values[len(values) // 4 :].mean():.1f}" if len(values) else "-")
        print(f"   {duty:.0%} wanted, {told:.1%} by the job: {', '.join(found)}", flush=True)


def attached(job: Job, seconds: int) -> None:
    """Print the report's part on GPUs of a real recording of the job."""
    with tempfile.TemporaryDirectory() as folder:
        trace = str(Path(folder) / "gpu.netprof")
        command = [NETPROF, "attach", *map(str, job.pids), "--out", trace, "--no-live"]
        with subprocess.Popen([*command, "--json", "--duration", f"{seconds}s"], stdout=subprocess.PIPE) as netprof:
            while netprof.poll() is None:
                job.order("train 10")
            assert netprof.stdout is not None
            report = json.loads(netprof.stdout.read() or b"{}")
        shown = subprocess.run([NETPROF, "report", trace], capture_output=True, text=True)
    print("5. netprof attach:", report.get("verdict", "no report"))
    print(shown.stdout[shown.stdout.find("\nGPUs") : shown.stdout.find("\nDefinitions")])


def main() -> None:
    """Print the tables that this machine allows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: only to try this script out")
    options = parser.parse_args()
    try:
        calls(ticks=options.seconds * 10)
    except NetprofError as error:
        print(f"no GPU to sample: {error.message}\n  {error.hint}")
        return
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        print("torch has no CUDA here: no job to sample, so no tables 2 to 5")
        return
    job = Job(options.device)
    try:
        resolution(job.pids, lambda: _train_for(job, options.seconds))
        slowdown(job, options.pairs)
        known_load(job)
        if os.geteuid() == 0:
            attached(job, options.seconds)
    finally:
        job.stop()


def _train_for(job: Job, seconds: float) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        job.order("train 20")


if __name__ == "__main__":
    main()
