"""A real CUDA job over NCCL: are its marks and bytes seen, and do the bounds of its waiting hold? Needs root and a GPU.

    python examples/benchmarks/gpu_nccl.py [--seconds 15] [--profiled 60] [--keep FOLDER]

Two ranks train over NCCL's sockets (DDP, FSDP2, and a pipeline of two stages), each as if on a host of its own: on a
machine with one GPU they share it, and where namespaces can be joined each has a network of its own with a link of
`--rate`, else both are on loopback.
netprof records them and asks for a profile of some iterations while it does. For each way to train a line tells

- steps that netprof saw by its marks, and those that the job did meanwhile by its own log (edges cost one or two);
- the payload that TCP carried over the bytes that NCCL posted to its network, of each rank;
- what is true of the steps that were profiled: how long kernels of NCCL ran and no others did, median; and for the
  same recording without the profile how many of them lie inside of the bounds, and the bounds' width over what is true.

`loss-every` is how often the job reads its loss, which is where the host waits for the GPU: with 10 it runs ahead.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _places import NETPROF
from lab import Lab, LabError
from support.training import TRAIN, TrainingJob, training

from netprof.analysis.bounds.bounded import Bounds
from netprof.analysis.evidence import Evidence
from netprof.errors import NetprofError
from netprof.probes.gpu.nvml import open_nvml
from netprof.trace import TraceReader

RANKS = 2
SHAPES = Path(__file__).with_name("_gpu_shapes.py")
SIZES = {
    "small buckets": ["--gradient-mb", "25.2", "--width", "1024", "--bucket-cap-mb", "4"],
    "one bucket": ["--gradient-mb", "67.1", "--width", "4096", "--batch", "8192"],
    "much compute": ["--gradient-mb", "134.2", "--width", "4096", "--batch", "16384"],
}
OTHERS = ("fsdp2", "pipeline")


@dataclass(frozen=True)
class Way:
    """One way to train: a model of DDP or another shape, how often the loss is read, the link's rate (empty: none)."""

    model: str
    loss_every: int
    rate: str

    def options(self) -> list[str]:
        """Return the job's options."""
        own = ["--how", self.model]
        if self.model in SIZES:
            own = ["--loss-every", str(self.loss_every), *SIZES[self.model]]
        return ["--device", "cuda", "--seconds", "86400", *own]

    @property
    def program(self) -> Path:
        """The job's program."""
        return TRAIN if self.model in SIZES else SHAPES


@contextmanager
def hosts(rate: str) -> Iterator[tuple[list[Callable[..., Any]], str]]:
    """Yield how to start each rank, and the master's address."""
    if not rate:
        yield [subprocess.Popen] * RANKS, ""
        return
    with Lab(RANKS, rate=rate) as lab:
        yield [host.popen for host in lab], f"{lab[0].ipv4}:29500"


def recorded(way: Way, folder: Path, seconds: float, profiled: int) -> tuple[Path, TrainingJob]:
    """Train and record; return the trace, and the job that was."""
    trace = folder / "gpu.netprof"
    os.environ["KINETO_USE_DAEMON"] = "1"
    with (
        hosts(way.rate) as (popen, master),
        training(popen, folder, *way.options(), master=master, program=way.program) as job,
    ):
        command = [NETPROF, "attach", *map(str, job.pids), "--out", str(trace), "--no-live", "--force"]
        command += ["--duration", f"{seconds}s", "--kineto", str(profiled)]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    (folder / "report.txt").write_text(done.stdout + done.stderr)
    return trace, job


def unprofiled(trace: Path) -> Path:
    """Return a copy of a trace without what the profile said."""
    copy = trace.with_name("unprofiled.netprof")
    shutil.copytree(trace, copy, ignore=shutil.ignore_patterns("profiled*"), dirs_exist_ok=True)
    return copy


def bounds_of(trace: Path) -> Bounds:
    """Return the bounds in a trace, and print why a process has none."""
    found = Evidence.of_trace(TraceReader(trace)).bounds
    for pid, reason in found.reasons.items():
        print(f"   process {pid}: {reason}")
    return found.rows


def held(exact: Bounds, bounds: Bounds) -> tuple[int, float, float, float]:
    """Return how many steps were profiled, which share lies inside of the bounds, their width, and the truth in ms."""
    inside, width, true = [], [], []
    for pid in np.unique(exact.pid).tolist():
        told = exact.where((exact.pid == pid) & (exact.exact == 1))
        own = bounds.where(bounds.pid == pid)
        row = {int(begin): index for index, begin in enumerate(own.begin_ns)}
        pairs = [(row[int(begin)], index) for index, begin in enumerate(told.begin_ns) if int(begin) in row]
        for at, index in pairs:
            waited = int(told.least_ns[index])
            inside.append(own.least_ns[at] <= waited <= own.most_ns[at])
            width.append((own.most_ns[at] - own.least_ns[at]) / max(waited, 1))
            true.append(waited / 1e6)
    if not true:
        return 0, float("nan"), float("nan"), float("nan")
    return len(true), float(np.mean(inside)), float(np.median(width)), float(np.median(true))


def steps_done(evidence: Evidence, job: TrainingJob) -> list[str]:
    """Return steps seen / steps in the job's log, for each rank; by launches where passes have no marks."""
    found = []
    for rank, pid in enumerate(job.pids):
        marked, launched = evidence.iterations, evidence.bounds.rows
        own = marked.where(marked.pid == pid) if (marked.pid == pid).any() else launched.where(launched.pid == pid)
        if len(own) == 0:
            found.append("none")
            continue
        begin = job.log(rank)["begin_ns"]
        meanwhile = ((begin >= own.begin_ns.min() - 1_000_000) & (begin < own.end_ns.max() - 1_000_000)).sum()
        found.append(f"{len(own)}/{meanwhile}")
    return found


def show(way: Way, folder: Path, options: argparse.Namespace) -> None:
    """Record one way to train and print its line."""
    trace, job = recorded(way, folder, options.seconds, options.profiled)
    document = json.loads(subprocess.run([NETPROF, "report", trace, "--json"], capture_output=True, text=True).stdout)
    (folder / "report.json").write_text(json.dumps(document, indent=1))
    evidence = Evidence.of_trace(TraceReader(trace))
    exact, bounds = bounds_of(trace), bounds_of(unprofiled(trace))
    uses = document.get("nccl_network", {}).get("processes", [])
    ratios = " ".join(f"{use['sent_to_posted']:.4f}" for use in uses if use["sent_to_posted"]) or "-"
    count, inside, width, true = held(exact, bounds)
    about = f"{way.model:<14} {way.loss_every:>5} {way.rate or 'loopback':>9}"
    seen = f"{' '.join(steps_done(evidence, job)):>15} {ratios:>15}"
    print(f"{about} {seen} {count:>8} {true:>8.2f} ms {inside:>8.1%} {width:>8.1%}", flush=True)
    print(f"   {document.get('verdict')}", flush=True)


def joined(rate: str) -> bool:
    """Tell whether this machine can have hosts of its own with a shaped link, and say why not."""
    try:
        with Lab(RANKS, rate=rate):
            return True
    except (LabError, OSError, subprocess.SubprocessError) as error:
        print(f"no link between namespaces here, so loopback alone: {error}")
        return False


def main() -> None:
    """Print the table that this machine allows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each recording")
    parser.add_argument("--profiled", type=int, default=20, help="iterations to ask a profile of")
    parser.add_argument("--rate", default="5gbit", help="of the link between the ranks")
    parser.add_argument("--keep", type=Path, help="a folder for the traces")
    options = parser.parse_args()
    try:
        open_nvml().nvmlShutdown()
    except NetprofError as error:
        print(f"no GPU to train on: {error.message}\n  {error.hint}")
        return
    rate = options.rate if joined(options.rate) else ""
    names = f"{'steps/log':>15} {'TCP / posted':>15} {'profiled':>8} {'truth':>11} {'inside':>8} {'width':>8}"
    print(f"{'model':<14} {'loss':>5} {'link':>9} {names}")
    ways = [Way(model, every, rate) for model in SIZES for every in (1, 10)] + [Way(how, 1, rate) for how in OTHERS]
    for number, way in enumerate(ways):
        with tempfile.TemporaryDirectory() as name:
            folder = options.keep / f"{number}" if options.keep else Path(name)
            folder.mkdir(parents=True, exist_ok=True)
            show(way, folder, options)


if __name__ == "__main__":
    main()
