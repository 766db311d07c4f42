"""A job on several hosts (network namespaces), each recorded by a recorder of its own, and by one that sees all.

    record(Path("runs"), hosts=2, seconds=10, job=["--gradient-mb", "25"])

The job's processes say nothing of each other (no rendezvous in their environment), so a recorder of one finds no other.
Needs root and torch.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab import Host, Lab
from program import NETPROF

_TRAIN = Path(__file__).parent / "train.py"
_BINS = ("1ms", "1300us", "900us", "1700us")
"""Widths of the hosts' time bins: no two hosts' bins begin together, as with clocks of their own."""
_LONGER_S = 4


def record(
    folder: Path,
    *,
    hosts: int,
    seconds: int,
    rate: str = "1gbit",
    job: Sequence[str] = (),
    same_bins: bool = False,
    **network: Any,
) -> tuple[list[Path], Path]:
    """Run and record the job; returns the traces of the hosts, and the one of all, which lasts longer both ways.

    `network` are options of the Lab.
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts, whole = [folder / f"host{number}.netprof" for number in range(hosts)], folder / "all.netprof"
    with Lab(hosts, rate=rate, **network) as lab:
        ranks = [_rank(lab, number, job) for number in range(hosts)]
        for rank in ranks:
            _wait_for(rank, "training")
        everything = _recorder(None, whole, dict(enumerate(ranks)), hosts, seconds + _LONGER_S, _BINS[0])
        _wait_until_recording(whole, everything)
        recorders = [
            _recorder(host, part, {number: ranks[number]}, hosts, seconds, _BINS[0 if same_bins else number % 4])
            for number, (host, part) in enumerate(zip(lab.hosts, parts, strict=True))
        ]
        for recorder in [*recorders, everything]:
            if recorder.wait(seconds + 60) != 0:
                raise RuntimeError(f"a recorder ended with {recorder.returncode}")
    return parts, whole


def _rank(lab: Lab, number: int, job: Sequence[str]) -> subprocess.Popen[str]:
    place = ["--rank", str(number), "--world-size", str(len(lab.hosts)), "--master", f"{lab.hosts[0].ipv4}:29500"]
    command = [sys.executable, str(_TRAIN), *place, "--seconds", "1000", *job]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return lab.hosts[number].popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def _recorder(
    host: Host | None, out: Path, ranks: dict[int, subprocess.Popen[str]], size: int, seconds: int, bin_width: str
) -> subprocess.Popen[Any]:
    told = [text for number, rank in ranks.items() for text in ("--rank", f"{rank.pid}={number}")]
    pids = [str(rank.pid) for rank in ranks.values()]
    command = [NETPROF, "attach", *pids, *told, "--world-size", str(size), "--no-live"]
    command += ["--duration", f"{seconds}s", "--bin", bin_width, "--force", "--json", "--out", str(out)]
    options: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return host.popen(command, **options) if host is not None else subprocess.Popen(command, **options)


def _wait_for(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(word):
            return
    raise RuntimeError("the job ended before it trained")


def _wait_until_recording(trace: Path, recorder: subprocess.Popen[Any]) -> None:
    """Wait until a recorder has written of the job."""
    while not (trace / "wire.arrows").exists():
        try:
            recorder.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
        raise RuntimeError(f"the recorder ended with {recorder.returncode}")
