"""A real DDP job for a test to profile: examples/train.py, one rank per host or all on loopback."""

from __future__ import annotations

import csv
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

_MOST_S = 120
"""How long one run of the program may take."""

TRAIN = Path(__file__).parents[2] / "examples" / "train.py"


def free_port() -> int:
    """Return a port of loopback that nobody listens on: another run of these tests may be beside this one."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class TrainingJob:
    """The running ranks of a job; `log(rank)` is what each said of itself."""

    def __init__(
        self,
        popen: Sequence[Callable[..., Any]],
        master: str,
        directory: Path,
        options: Sequence[str],
        program: Path = TRAIN,
    ) -> None:
        self.directory = directory
        addr, _, port = master.rpartition(":")
        self.ranks = []
        for rank, start in enumerate(popen):
            place = {"RANK": str(rank), "WORLD_SIZE": str(len(popen)), "MASTER_ADDR": addr, "MASTER_PORT": port}
            environment = os.environ | place | {"TORCH_CPP_LOG_LEVEL": "ERROR"}
            command = [sys.executable, str(program), "--log", str(directory / f"rank{rank}.csv"), *options]
            self.ranks.append(start(command, env=environment, stdout=subprocess.PIPE, text=True))

    def wait_until_it_trains(self) -> None:
        for rank in self.ranks:
            assert rank.stdout.readline().startswith("training"), "the job did not start"

    @property
    def pids(self) -> list[int]:
        return [rank.pid for rank in self.ranks]

    def wait(self) -> list[int]:
        return [rank.wait(120) for rank in self.ranks]

    def stop(self) -> None:
        for rank in self.ranks:
            rank.kill()
        self.wait()

    def log(self, rank: int) -> dict[str, np.ndarray]:
        """Return the whole lines of a rank's log, as columns."""
        text = (self.directory / f"rank{rank}.csv").read_text()
        rows = list(csv.DictReader(text[: text.rfind("\n")].splitlines()))
        numbers = ("iteration", "begin_ns", "forward_done_ns", "backward_done_ns", "end_ns", "gradient_ns")
        known = [name for name in numbers if rows and name in rows[0]]
        columns: dict[str, np.ndarray] = {name: np.array([int(row[name]) for row in rows]) for name in known}
        return columns | {"kind": np.array([row["kind"] for row in rows])}


@contextmanager
def training(
    popen: Sequence[Callable[..., Any]], directory: Path, *options: str, master: str = "", program: Path = TRAIN
) -> Iterator[TrainingJob]:
    """Run a job for the block; `popen` starts each rank where it belongs. Without a `master`, all on loopback.

    `program` takes the options of the example job.
    """
    job = TrainingJob(popen, master or f"127.0.0.1:{free_port()}", directory, options, program)
    try:
        job.wait_until_it_trains()
        yield job
    finally:
        job.stop()


def netprof(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the program as a person would. One that does not end is stopped as by ctrl-C, and what it says is shown."""
    command = [sys.executable, "-m", "netprof", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **(pipes | options)) as process:
        try:
            said = process.communicate(timeout=_MOST_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            try:
                said = process.communicate(timeout=_MOST_S / 4)
            finally:
                process.kill()
            cut = [each[-4000:] for each in said]
            raise AssertionError(f"{command} went on for {_MOST_S} s:\n{cut[1]}\n{cut[0]}") from None
    return subprocess.CompletedProcess(command, process.returncode, *said)
