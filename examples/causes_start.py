"""How the ranks of a job come to be, for examples/causes_train.py: each way is one that netprof has to see through.

- `each`: every rank is started by itself with RANK and WORLD_SIZE in its environment, as torchrun does.
- `parent`: rank 0 starts the others as its children and trains itself, as Lightning's own launcher does. RANK is
  nowhere; the children have LOCAL_RANK and WORLD_SIZE.
- `spawn`: torch.multiprocessing.spawn, with everything as arguments: nothing is in any environment.

With the last two, `--hosts` names the network namespaces of the ranks (paths), and MASTER_ADDR is that of the first.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
from collections.abc import Callable

import torch.distributed as dist
import torch.multiprocessing
from train import interface_towards

STARTS = ("each", "parent", "spawn")
RunRank = Callable[[argparse.Namespace], None]


def start(args: argparse.Namespace, run_rank: RunRank) -> None:
    """Start the ranks, and be one of them where that is the way."""
    master = "{}:{}".format(os.environ.get("MASTER_ADDR", "127.0.0.1"), os.environ.get("MASTER_PORT", "29500"))
    if args.start == "spawn":
        spawned = (len(args.hosts), master, args, run_rank)
        torch.multiprocessing.spawn(run_spawned, args=spawned, nprocs=len(args.hosts))
        return
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    if args.start == "parent" and "LOCAL_RANK" not in os.environ:
        ranks = len(args.hosts)
        start_children(args, ranks)
    rank = int(os.environ.get("LOCAL_RANK", 0)) if args.start == "parent" else int(os.environ.get("RANK", 0))
    connect(rank, ranks, master)
    run_rank(args)


def start_children(args: argparse.Namespace, ranks: int) -> None:
    """Start all ranks but this one."""
    for rank in range(1, ranks):
        environment = os.environ | {"LOCAL_RANK": str(rank), "NODE_RANK": "0", "WORLD_SIZE": str(ranks)}
        command = ["nsenter", f"--net={args.hosts[rank]}", "--", sys.executable, *sys.argv]
        subprocess.Popen(command, env=environment)


def run_spawned(rank: int, ranks: int, master: str, args: argparse.Namespace, run_rank: RunRank) -> None:
    """Be one rank: what torch.multiprocessing.spawn calls."""
    with open(args.hosts[rank]) as netns:
        if ctypes.CDLL(None).setns(netns.fileno(), 0):
            raise OSError(f"cannot enter {args.hosts[rank]}")
    connect(rank, ranks, master)
    run_rank(args)


def connect(rank: int, ranks: int, master: str) -> None:
    """Join the process group, over the interface that leads to the master."""
    interface = interface_towards(master.rpartition(":")[0])
    if interface:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    dist.init_process_group("gloo", init_method=f"tcp://{master}", rank=rank, world_size=ranks)
