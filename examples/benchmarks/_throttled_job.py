"""A training job on hosts of its own, whose links can be changed while it runs, and the log it keeps of itself."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _places import NETPROF
from lab import Lab

EXAMPLES = Path(__file__).resolve().parents[1]
SETTLE = 3  # iterations left out after a change
LIVES_S = 86_400  # unless it is stopped before
_ports = iter(range(29500, 30000))  # of jobs that sleep beside each other


class Kind(NamedTuple):
    """A script of examples, the option that names its log, and the log's column with an iteration's begin."""

    script: str
    log_option: str
    begin: str


KINDS = {"ddp": Kind("train.py", "--log", "begin_ns"), "fsdp": Kind("fsdp_train.py", "--csv", "backward_ns")}


class Job:
    """A running job, one rank a host, and its own log."""

    def __init__(self, lab: Lab, folder: Path, kind: str, options: Sequence[str]) -> None:
        self.kind, port = KINDS[kind], next(_ports)
        self.logs = [folder / f"{port}.{rank}.csv" for rank in range(len(lab.hosts))]
        for log in self.logs:
            log.unlink(missing_ok=True)  # of an earlier run in a folder that is kept
        self.processes = []
        for rank, host in enumerate(lab):
            place = {"RANK": str(rank), "WORLD_SIZE": str(len(lab.hosts)), "GLOO_SOCKET_IFNAME": host.device}
            place |= {"MASTER_ADDR": lab[0].ipv4, "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
            command = [sys.executable, str(EXAMPLES / self.kind.script), "--seconds", str(LIVES_S), *options]
            command += [self.kind.log_option, str(self.logs[rank])]
            talk = (folder / f"{port}.{rank}.err").open("w")
            self.processes.append(
                host.popen(command, env={**os.environ, **place}, stdout=subprocess.DEVNULL, stderr=talk)
            )

    @property
    def pids(self) -> list[str]:
        """The pids of the ranks."""
        return [str(process.pid) for process in self.processes]

    def begins_s(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return when each iteration of rank 0 began, in seconds, as the job logged it."""
        if not self.logs[0].exists():
            return np.zeros(0)
        whole = self.logs[0].read_text().rpartition("\n")[0]
        return np.array([int(row[self.kind.begin]) * 1e-9 for row in csv.DictReader(whole.splitlines())])

    def wait_for(self, count: int, timeout_s: float = 180.0) -> None:
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

    def record(self, trace: Path, iterations: int) -> float:
        """Record so many iterations, and return what they took by the job's own log."""
        first = len(self.begins_s())
        options = ["--out", str(trace), "--iterations", str(iterations), "--no-live", "--force"]
        netprof("attach", *self.pids, *options)
        return typical(np.diff(self.begins_s()[first:]))

    @contextmanager
    def asleep(self) -> Iterator[None]:
        """Let all ranks sleep meanwhile."""
        self._send(signal.SIGSTOP)
        try:
            yield
        finally:
            self._send(signal.SIGCONT)

    def stop(self) -> None:
        """End the job."""
        for process in self.processes:
            process.kill()
            process.wait()

    def _send(self, number: signal.Signals) -> None:
        for process in self.processes:
            process.send_signal(number)


def typical(durations_s: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """Return the mean of the middle half, as netprof's own typical iteration."""
    ordered = np.sort(durations_s)
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


@contextmanager
def running(lab: Lab, folder: Path, kind: str, options: Sequence[str], warm_up: int = 8) -> Iterator[Job]:
    """Run a job until the end of the `with`, warmed up."""
    job = Job(lab, folder, kind, options)
    try:
        job.wait_for(warm_up)
        yield job
    finally:
        job.stop()


@contextmanager
def links_at(lab: Lab, rates: Sequence[str]) -> Iterator[None]:
    """Hold each host's link to a rate for the block, then all to the lab's own."""
    try:
        for host, rate in zip(lab, rates, strict=True):
            host.shape(rate, lab.latency)
        yield
    finally:
        for host in lab:
            host.shape(lab.rate, lab.latency)


def netprof(*arguments: str) -> str:
    """Run netprof and return its stdout; its talk goes to stderr."""
    done = subprocess.run([NETPROF, *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"netprof {arguments[0]} ended with {done.returncode}")
    return done.stdout
