"""The example job, whose log the other tests believe."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.training import free_port

pytest.importorskip("torch", reason="the example job needs torch (make test)")

SMALL = ["--gradient-mb", "1", "--width", "256", "--batch", "4"]


def start(checkout: Path, folder: Path, *options: str) -> list[subprocess.Popen[str]]:
    """Start two ranks on loopback, and wait until both train."""
    ranks, port = [], str(free_port())
    for rank in range(2):
        job = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        command = [sys.executable, str(checkout / "examples" / "train.py"), *SMALL, *options]
        command += ["--log", str(folder / f"{rank}.csv")]
        ranks.append(subprocess.Popen(command, env={**os.environ, **job}, stdout=subprocess.PIPE, text=True))
    for rank, process in enumerate(ranks):
        assert process.stdout is not None
        assert process.stdout.readline() == f"training pid={process.pid} rank={rank}\n"
    return ranks


def read(path: Path) -> list[dict[str, str]]:
    with open(path) as file:
        return list(csv.DictReader(file))


def times_ns(row: dict[str, str]) -> list[int]:
    """Return what the passes' times are, in their order; `gradient_ns` lies within."""
    return [int(value) for name, value in row.items() if name.endswith("_ns") and name != "gradient_ns"]


def test_both_ranks_stop_after_the_same_iteration_and_log_every_pass(checkout: Path, tmp_path: Path) -> None:
    ranks = start(checkout, tmp_path, "--seconds", "1", "--no-sync", "2", "--eval-every", "3", "--hook", "fp16")
    said = [process.communicate(timeout=60)[0] for process in ranks]
    logs = [read(tmp_path / f"{rank}.csv") for rank in range(2)]
    passes = [(row["iteration"], row["kind"]) for row in logs[0]]
    assert [(row["iteration"], row["kind"]) for row in logs[1]] == passes
    count = 1 + int(logs[0][-1]["iteration"])
    assert [words.split()[1] for words in said] == [f"iterations={count}"] * 2
    expected = []
    for iteration in map(str, range(count)):
        expected += [(iteration, "local"), (iteration, "sync")]
        expected += [(iteration, "eval")] if int(iteration) % 3 == 2 else []
    assert passes == expected
    for log in logs:
        flat = [time_ns for row in log for time_ns in times_ns(row)]
        assert flat == sorted(flat)


def test_it_ends_at_once_on_sigterm(checkout: Path, tmp_path: Path) -> None:
    ranks = start(checkout, tmp_path)
    while not (tmp_path / "1.csv").read_text().count("\n") > 5:
        time.sleep(0.01)
    for process in ranks:
        process.terminate()
    assert [process.wait(timeout=10) for process in ranks] == [-signal.SIGTERM] * 2
