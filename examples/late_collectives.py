"""Every collective of torch.distributed on gloo, with each rank late in turn: does netprof name the late one?

    sudo .venv/bin/python examples/late_collectives.py                      all of them, three ranks
    sudo .venv/bin/python examples/late_collectives.py --ranks 5 --posted   five, with async_op=True
    sudo .venv/bin/python examples/late_collectives.py --calls gather,ring  some of them

A job of each call does nothing but that between its steps, or several (`gather+broadcast`); one rank sleeps for
--late-ms before it. All ranks are recorded on loopback. A row is a call, a column the late rank; a cell is `ok`, or the
headline.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

COUNT = 10_000
_FIRST_STEPS = 3
BATCH_NORM = "ddp batch_norm"


def calls(root: int, ranks: int, posted: bool) -> dict[str, Callable[[int], Any]]:
    """Return the calls by name: each is given this one's rank, and returns a work where it is only posted."""
    part, whole = torch.ones(COUNT), torch.ones(COUNT * ranks)
    parts, even = [torch.ones(COUNT) for _ in range(ranks)], [COUNT] * ranks
    how = {"async_op": posted}

    def objects(rank: int) -> list[Any] | None:
        return [None] * ranks if rank == root else None

    def star(rank: int, send: Callable[..., Any], receive: Callable[..., Any]) -> None:
        if rank != root:
            receive(part, root)
        for other in range(ranks):
            if rank == root and other != root:
                send(part, other)

    def ring(rank: int) -> None:
        sent = dist.isend(part, (rank + 1) % ranks)
        dist.recv(parts[0], (rank - 1) % ranks)
        if sent is not None:
            sent.wait()

    return {
        "broadcast": lambda _: dist.broadcast(part, root, **how),
        "all_reduce": lambda _: dist.all_reduce(part, **how),
        "all_reduce sparse": lambda rank: dist.all_reduce(torch.eye(8).to_sparse() * rank, **how),
        "reduce": lambda _: dist.reduce(part, root, **how),
        "all_gather": lambda _: dist.all_gather(parts, part, **how),
        "all_gather_into_tensor": lambda _: dist.all_gather_into_tensor(whole, part, **how),
        "gather": lambda rank: dist.gather(part, parts if rank == root else None, root, **how),
        "scatter": lambda rank: dist.scatter(part, parts if rank == root else None, root, **how),
        "reduce_scatter_tensor": lambda _: dist.reduce_scatter_tensor(part, whole, **how),
        "all_to_all_single": lambda _: dist.all_to_all_single(whole, torch.ones(COUNT * ranks), **how),
        "all_to_all_single uneven": lambda _: dist.all_to_all_single(
            whole, torch.ones(COUNT * ranks), even, even, **how
        ),
        "barrier": lambda _: dist.barrier(**how),
        "monitored_barrier": lambda _: dist.monitored_barrier(),
        "broadcast_object_list": lambda _: dist.broadcast_object_list([{"step": 1}], root),
        "all_gather_object": lambda rank: dist.all_gather_object([None] * ranks, {"rank": rank}),
        "gather_object": lambda rank: dist.gather_object({"rank": rank}, objects(rank), root),
        "scatter_object_list": lambda rank: dist.scatter_object_list(
            [None], [{"rank": rank}] * ranks if rank == root else None, root
        ),
        "send to all": lambda rank: star(rank, dist.send, dist.recv),
        "receive of all": lambda rank: star(rank, dist.recv, dist.send),
        "ring": ring,
    }


def train(rank: int, port: int, call: str, late: int, options: argparse.Namespace, trains: Any) -> None:
    """Be a rank of the job until it, or another one, is killed; `trains` is released after the first steps."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    where = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=options.ranks)
    every = calls(options.root, options.ranks, options.posted)
    perform = [] if call == BATCH_NORM else [every[name] for name in call.split("+")]
    model: torch.nn.Module = torch.nn.Linear(8, 8)
    if call == BATCH_NORM:  # whose buffers rank 0 broadcasts before each forward pass
        model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 100), torch.nn.BatchNorm1d(100)))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in count():
        time.sleep((10 + options.late_ms * (rank == late)) / 1000)
        try:
            optimizer.zero_grad()
            model(torch.ones(4, 8)).sum().backward()
            for work in [each(rank) for each in perform]:
                if work is not None:
                    work.wait()
        except RuntimeError:
            return
        optimizer.step()
        if step == _FIRST_STEPS:
            trains.release()


def play(call: str, late: int, options: argparse.Namespace, trace: Path) -> tuple[bool, dict[str, Any]]:
    """Record one job; return whether the report names the late rank, and nothing that is not there, and the report."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    fork = multiprocessing.get_context("fork")  # torch is loaded once
    trains = fork.Semaphore(0)
    ranks = [
        fork.Process(target=train, args=(rank, port, call, late, options, trains)) for rank in range(options.ranks)
    ]
    try:
        for each in ranks:
            each.start()
        if not all(trains.acquire(timeout=60) for _ in ranks):
            return False, {"headline": "the job did not start", "notes": []}
        pids = [str(each.pid) for each in ranks]
        netprof = [sys.executable, "-m", "netprof", "attach", *pids, "--duration", f"{options.seconds}s"]
        done = subprocess.run(
            [*netprof, "--no-live", "--json", "--out", str(trace)], capture_output=True, text=True, timeout=120
        )
        report: dict[str, Any] = {"headline": done.stderr, "notes": []}
        report = json.loads(done.stdout) if done.returncode == 0 else report
    finally:
        for each in ranks:
            each.kill()
            each.join()
    named = re.match("HELD UP (MOSTLY )?BY (RANK|PROCESS) ([0-9]+)[:,]", report["headline"])
    is_right = named is not None and named[3] == (str(late) if named[2] == "RANK" else str(ranks[late].pid))
    return is_right and not any("not recorded" in note for note in report["notes"]), report


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--root", type=int, default=0)
    parser.add_argument("--late", type=int, nargs="*", help="default: each in turn")
    parser.add_argument("--calls", help="names, with commas between; default: all")
    parser.add_argument("--posted", action="store_true", help="call with async_op=True, and wait for the work")
    parser.add_argument("--late-ms", type=float, default=40.0)
    parser.add_argument("--seconds", type=float, default=1.5)
    return parser.parse_args(arguments)


def main() -> int:
    """Play all that are asked for, and print the table and how many were right."""
    options = parse()
    names = options.calls.split(",") if options.calls else [BATCH_NORM, *calls(0, options.ranks, False)]
    right = played = 0
    for name in names:
        cells = []
        for late in range(options.ranks) if options.late is None else options.late:
            with tempfile.TemporaryDirectory() as folder:
                is_right, report = play(name, late, options, Path(folder) / "late.netprof")
            cells.append("ok" if is_right else f"[{late}: {report['headline']}]")
            right, played = right + is_right, played + 1
        print(f"{name:26}", *cells, flush=True)
    print(f"{right} of {played} right")
    return 0 if right == played else 1


if __name__ == "__main__":
    raise SystemExit(main())
