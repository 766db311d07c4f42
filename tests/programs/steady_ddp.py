"""A DDP job whose every step can be compared with another run's, bit for bit, and that does what jobs do in between.

    steady_ddp.py FOLDER SPARE_LIBRARY [--steps N] [--pace-ms MS]

Each step appends a digest of parameters, gradients and loss to FOLDER/rankN.log. In between, at steps that are the same
in every run, it forks, executes other programs, and loads and unloads libraries that are called like PyTorch's. It ends
after N steps, or once FOLDER/stop exists: all ranks after the same step.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

WIDTH, LAYERS, BATCH = 96, 4, 8
FORK_EVERY, EXECUTE_EVERY, LOAD_EVERY = 40, 56, 72
_ALL_KNOW_S = 0.5
_CHILD_S = 10.0  # a lock that another thread held at the fork is never released in the child, whoever looks on


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("library", type=Path)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--pace-ms", type=float, default=0.0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    layers = [layer for _ in range(LAYERS) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh())]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.05)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    torch.manual_seed(2 + rank)
    with (args.folder / f"rank{rank}.log").open("w", buffering=1) as log:
        print("training", flush=True)
        step = 0
        while not is_over(args, step, rank):
            loss = train(model, optimizer)
            log.write(digest(model, loss) + "\n")
            disturb(step, rank, args)
            time.sleep(args.pace_ms / 1e3)
            step += 1
    dist.barrier()
    time.sleep(_ALL_KNOW_S)
    os._exit(0)  # PyTorch's own end of a process with reducers hangs at times, whoever looks on


def is_over(args: argparse.Namespace, step: int, rank: int) -> bool:
    """Tell whether the last step was the last one; rank 0 decides for all."""
    over = step >= args.steps if args.steps else (args.folder / "stop").exists()
    told = torch.tensor([float(over and rank == 0)])
    dist.all_reduce(told)
    return bool(told.item())


def train(model: DistributedDataParallel, optimizer: torch.optim.Optimizer) -> torch.Tensor:
    """Do a step on random data; returns the loss."""
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(torch.randn(BATCH, WIDTH)), torch.randn(BATCH, WIDTH))
    loss.backward()
    optimizer.step()
    return loss.detach()


def digest(model: DistributedDataParallel, loss: torch.Tensor) -> str:
    """Return what changes when one bit of the step's results does."""
    found = hashlib.sha256(loss.numpy().tobytes())
    for parameter in model.parameters():
        found.update(parameter.detach().numpy().tobytes())
        if parameter.grad is not None:
            found.update(parameter.grad.numpy().tobytes())
    return found.hexdigest()


def disturb(step: int, rank: int, args: argparse.Namespace) -> None:
    """Do what jobs do beside training: at most steps nothing."""
    if step % FORK_EVERY == 0:
        child = os.fork()
        if child == 0:
            time.sleep(0.01)
            os._exit(0)
        until_s = time.monotonic() + _CHILD_S
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.monotonic() > until_s:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.001)
    if step % EXECUTE_EVERY == 0:
        subprocess.run(["true"], check=True)
    if step % LOAD_EVERY == 0:
        path = args.folder / f"libtorch_cpu_{rank}_{step}.so"
        shutil.copy(args.library, path)
        library = ctypes.CDLL(str(path))
        path.unlink()
        ctypes.CDLL(None).dlclose(ctypes.c_void_p(library._handle))


if __name__ == "__main__":
    main()
