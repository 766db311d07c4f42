"""A job of two ranks of DDP over gloo that starts itself, as two common launchers do; it prints its ranks' pids.

    launched.py own|spawn

`own`, as Lightning does: the process is rank 0 and starts rank 1, with variables that nobody sees in its own
environment. `spawn`: torch.multiprocessing.spawn, whose parent only waits, and whose ranks no variable names.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def train(rank: int, port: str) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = DataLoader(TensorDataset(torch.randn(100_000, 64)), batch_size=4, num_workers=1)
    for number, (batch,) in enumerate(batches):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        if number == 0:
            os.write(1, f"rank{rank} {os.getpid()}\n".encode())
        time.sleep(0.02)


def be_rank_0_and_start_the_other() -> None:
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    if "LOCAL_RANK" not in os.environ:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "NODE_RANK": "0", "WORLD_SIZE": "2"}
        os.environ["LOCAL_RANK"] = "0"
        subprocess.Popen([sys.executable, *sys.argv], env=os.environ | {"LOCAL_RANK": "1"})
    train(rank, os.environ["MASTER_PORT"])


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return str(listener.getsockname()[1])


if __name__ == "__main__":
    if sys.argv[1] == "own":
        be_rank_0_and_start_the_other()
    else:
        torch.multiprocessing.spawn(train, (free_port(),), nprocs=2)
